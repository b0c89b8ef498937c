"""What users write for `since` and `until`, as the text that goes over the wire. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from zbroker import ids
from zbroker.clock import format_time, from_datetime
from zbroker.errors import ZBrokerError
from zbroker.ids import (
    CLOSING,
    EPOCH,
    NOW,
    OPENING,
    Origin,
    RangeText,
    check_point,
    format_vector,
    parse_range,
    point_name,
)

Vector = Mapping[Origin, int]
End = str | datetime | Sequence[str] | Vector

RECENT: Final = "recent"  # for `subscribe`, which asks the bookmark store; never sent

_NAMES: Final = {"epoch": EPOCH, "0": EPOCH, NOW: NOW}


@dataclass(slots=True, frozen=True)
class Range:
    """A stretch of the log, for `since`: `Range(receipt.bookmark, datetime.now(UTC), "[]")`.

    begin, end: what `since` and `until` take, also a list for the end (the latest of those found
    counts). Without begin it begins at the oldest that is kept, without end it goes on live.
    brackets: "[" and "]" take what the end names into the range, "(" and ")" leave it out.
    """

    begin: End | None = None
    end: End | None = None
    brackets: str = "[)"


Point = End | Range


def since_text(since: Point) -> str:
    """epoch, now, a bookmark, several (the oldest of those found), a time, a vector, "point:NAME"
    or a range.

    Raises: ZBrokerError bad_bookmark.
    """
    if isinstance(since, Range):
        return _range_text(since)
    if isinstance(since, str) and ids.is_range(since):
        parts = parse_range(since)
        return _range_text(Range(parts.first, parts.last or None, parts.opening + parts.closing))
    return _begin(since)


def until_text(until: Point) -> str:
    """now, a bookmark or vector (both inclusive), a time (exclusive), or "point:NAME".

    Raises: ZBrokerError bad_bookmark.
    """
    if is_range(until):
        raise ZBrokerError("bad_bookmark", "a range is in `since`, and brings its own end")
    return "now" if until in ("now", NOW) else _text(until)  # type: ignore[arg-type]


def is_range(point: Point) -> bool:
    """True for a range, also in one text."""
    return isinstance(point, Range) or (isinstance(point, str) and ids.is_range(point))


def _begin(point: End) -> str:
    return NOW if point == "now" else _text(point)


def _range_text(wanted: Range) -> str:
    opening, closing = wanted.brackets[:1], wanted.brackets[1:]
    if opening not in tuple(OPENING) or closing not in tuple(CLOSING):
        raise ZBrokerError("bad_bookmark", f"{wanted.brackets!r} is not one of [] [) (] ()")
    first = "" if wanted.begin is None else _begin(wanted.begin)
    last = "" if wanted.end is None else _begin(wanted.end)
    return parse_range(RangeText(opening, first, last, closing).text).text


def _text(point: End) -> str:
    if isinstance(point, datetime):
        return format_time(from_datetime(point))
    if isinstance(point, Mapping):
        return format_vector(dict(point))
    if not isinstance(point, str):
        texts = list(point)
        if not texts:
            raise ZBrokerError("bad_bookmark", "a list of bookmarks must not be empty")
        return ",".join(_one(text) for text in texts)
    if point in _NAMES or point_name(point) is not None:
        return _NAMES.get(point, point)
    if "|" in point and "," in point:
        return ",".join(_one(text) for text in point.split(","))
    return _one(point)


def _one(text: str) -> str:
    if not isinstance(text, str):
        raise ZBrokerError("bad_bookmark", f"{text!r} is not a bookmark, time or vector")
    if text == RECENT:
        raise ZBrokerError("bad_bookmark", '"recent" is for `since` of a named subscription')
    if text not in _NAMES:
        check_point(text)
    return text
