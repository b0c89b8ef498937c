"""The segments of a log as rows, the same as the admin tells with GET /journal."""

from __future__ import annotations

from typing import Any

from zbroker.cli.journal.describing import times
from zbroker.clock import format_time
from zbroker.log.format import SegmentHeader
from zbroker.log.places import SegmentPlace
from zbroker.log.reader import Log


def segment_rows(log: Log) -> list[dict[str, Any]]:
    """A row per segment, oldest first."""
    places = log.places.list()
    headers = [_header(log, place) for place in places]
    rows = []
    for at, place in enumerate(places):
        header = headers[at]
        follower = headers[at + 1] if at + 1 < len(places) else None
        newest = at + 1 == len(places)
        first_time, last_time = times(log, place.serial)
        rows.append({
            "serial": place.serial,
            "place": "archive" if place.archived else "journal",
            "packed": place.packed,
            "first": header.first_position if header else None,
            "end": follower.first_position if follower else None,
            "first_time": _time(first_time),
            "last_time": _time(last_time),
            "bytes": place.file_bytes,
            "size": log.places.size(place),
            "open": newest,
        })  # fmt: skip
    return rows


def _header(log: Log, place: SegmentPlace) -> SegmentHeader | None:
    header = log.places.header(place)
    return header if isinstance(header, SegmentHeader) else None


def _time(ns: int | None) -> str | None:
    return format_time(ns) if ns is not None else None
