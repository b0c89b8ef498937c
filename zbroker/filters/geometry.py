"""Angles, distances on the earth, and buckets of a histogram."""

from __future__ import annotations

import math
from typing import Final

from zbroker.filters.values import Number

EARTH_RADIUS_M: Final = 6_371_008.8  # mean radius of WGS 84; a sphere is right within 0.5 %

_LATITUDE_MAX: Final = 90
_LONGITUDE_MAX: Final = 180


def cotangent(angle: Number) -> float:
    return 1 / math.tan(angle)


def geo_distance(lat1: Number, lon1: Number, lat2: Number, lon2: Number) -> float | None:
    """Metres between two places given in degrees, by the haversine formula."""
    if max(abs(lat1), abs(lat2)) > _LATITUDE_MAX or max(abs(lon1), abs(lon2)) > _LONGITUDE_MAX:
        return None
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    half_north = math.sin((phi2 - phi1) / 2)
    half_east = math.sin(math.radians(lon2 - lon1) / 2)
    part = half_north**2 + math.cos(phi1) * math.cos(phi2) * half_east**2
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, part)))


def width_bucket(item: Number, low: Number, high: Number, count: Number) -> int | None:
    """Which of `count` equal buckets from `low` to `high`, as in SQL; 0 and count + 1: outside."""
    buckets = int(count)
    if buckets < 1 or low == high:
        return None
    if low > high:
        item, low, high = -item, -low, -high
    if item < low:
        return 0
    if item >= high:
        return buckets + 1
    return min(buckets, int((item - low) * buckets / (high - low)) + 1)
