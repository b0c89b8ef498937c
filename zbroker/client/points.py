"""What users write for `since` and `until`, as the text that goes over the wire. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from zbroker.clock import format_time, from_datetime, is_time, parse_time
from zbroker.errors import ZBrokerError
from zbroker.ids import EPOCH, NOW, Origin, format_vector, is_vector, parse_bookmark, parse_vector

Vector = Mapping[Origin, int]
Point = str | datetime | Sequence[str] | Vector

_NAMES: Final = {"epoch": EPOCH, "0": EPOCH, NOW: NOW}


def since_text(since: Point) -> str:
    """epoch, now, a bookmark, several (the oldest of those found), a time or a vector.

    Raises: ZBrokerError bad_bookmark.
    """
    return NOW if since == "now" else _text(since)


def until_text(until: Point) -> str:
    """now, a bookmark or vector (both inclusive), or a time (exclusive).

    Raises: ZBrokerError bad_bookmark.
    """
    return "now" if until in ("now", NOW) else _text(until)


def _text(point: Point) -> str:
    if isinstance(point, datetime):
        return format_time(from_datetime(point))
    if isinstance(point, Mapping):
        return format_vector(dict(point))
    if not isinstance(point, str):
        texts = list(point)
        if not texts:
            raise ZBrokerError("bad_bookmark", "a list of bookmarks must not be empty")
        return ",".join(_one(text) for text in texts)
    if point in _NAMES:
        return _NAMES[point]
    if "|" in point and "," in point:
        return ",".join(_one(text) for text in point.split(","))
    return _one(point)


def _one(text: str) -> str:
    if not isinstance(text, str):
        raise ZBrokerError("bad_bookmark", f"{text!r} is not a bookmark, time or vector")
    if is_time(text):
        parse_time(text)
    elif is_vector(text):
        parse_vector(text)
    elif text not in _NAMES:
        parse_bookmark(text)
    return text
