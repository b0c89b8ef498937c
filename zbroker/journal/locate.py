"""Where in the log is a point? Bookmarks, times and vectors to positions, by index and then by log.

The index gives a batch at or before the wanted one; the log itself decides. Every kind of point
costs a number of looks that grows with the logarithm of the log: bookmarks see locate_bookmark.py,
vectors locate_vector.py. Log times never go back, so where the index says too little of them, the
place is found by halves.

A point is a cut between two messages: before or behind what its value names.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from zbroker.bookmarks.index import Hint, Index
from zbroker.clock import is_time, parse_time
from zbroker.errors import ClientError
from zbroker.ids import (
    EPOCH,
    NOW,
    Bookmark,
    is_vector,
    parse_bookmark,
    parse_vector,
    point_name,
)
from zbroker.journal import locate_bookmark
from zbroker.journal.effects import Where
from zbroker.journal.locate_vector import Vectors
from zbroker.journal.lookup import Lookup
from zbroker.journal.sessions import Sessions
from zbroker.limits import U63_MAX
from zbroker.log.format import Batch
from zbroker.log.reader import Log
from zbroker.wire.internal import Located
from zbroker.wire.ranges import Cut


class Locator:
    """Answers Locate for one journal."""

    def __init__(self, log: Log, index: Index, sessions: Sessions) -> None:
        self._look = Lookup(log, index, sessions)
        self._vectors = Vectors(self._look)

    def locate(
        self, cid: int, value: str, now: Where, *, cut: Cut = "", end: bool = False
    ) -> Located:
        """The position of the cut and a hint for readers; `cut` and `end` as in Locate."""
        try:
            position, time_ns = self._position(value, now, cut, end=end)
        except ClientError as error:
            return Located(
                cid, floor=now.floor, persisted=now.persisted, code=error.code, reason=error.reason
            )
        hint = self._look.index.at_or_before(position)
        serial, offset = (hint.serial, hint.offset) if hint is not None else (0, 0)
        return Located(cid, position, serial, offset, now.floor, now.persisted, time_ns)

    def _position(self, value: str, now: Where, cut: Cut, *, end: bool) -> tuple[int, int | None]:
        if value == EPOCH:
            return now.floor, None
        if value in (NOW, "now"):
            return now.persisted, None
        if (name := point_name(value)) is not None:
            return self._vectors.find(self._look.point(name), now, end=end), None
        if is_time(value):
            wanted_ns = parse_time(value) + (cut == "behind")
            return self._of_time(min(max(wanted_ns, -U63_MAX), U63_MAX), now)  # log times fit
        if is_vector(value):
            vector = parse_vector(value)
            if cut == "at":  # what its newest messages name is not behind it any more
                vector = {origin: max(0, at - 1) for origin, at in vector.items()}
            return self._vectors.find(vector, now, end=end), None
        return self._of_bookmark(parse_bookmark(value), now, cut), None

    def _of_bookmark(self, wanted: Bookmark, now: Where, cut: Cut) -> int:
        position = locate_bookmark.find(self._look, wanted, now) + (cut != "at")
        if position < now.floor:
            raise ClientError("bookmark_expired", f"the oldest position kept is {now.floor}")
        return position

    def _of_time(self, wanted_ns: int, now: Where) -> tuple[int, int | None]:
        """The first message at or after this time; the end of the log if it is still to come."""
        hint = self._look.index.before_time(wanted_ns)
        found = _first_at(self._look.near(hint, now), wanted_ns) if hint is not None else None
        if found is None:
            found = _first_at(self._look.batches(self._earlier(wanted_ns, now), now), wanted_ns)
        if found is None:
            return now.persisted, wanted_ns
        return max(found, now.floor), None

    def _earlier(self, wanted_ns: int, now: Where) -> Hint | None:
        """The newest batch that has an entry by position and is earlier than this time."""
        found, low, high = None, now.floor, now.persisted
        while low < high:
            middle = (low + high) // 2
            hint = self._look.place(middle)
            if hint is None or (found is not None and hint.position <= found.position):
                low = middle + 1
                continue
            batch = next(self._look.batches(hint, now), None)
            if batch is not None and batch.log_time < wanted_ns:
                found, low = hint, middle + 1
            else:
                high = middle
        return found


def _first_at(batches: Iterable[Batch], wanted_ns: int) -> int | None:
    """The position of the first message at or after this time; None if there is none."""
    for batch in batches:
        if batch.log_time >= wanted_ns:
            return batch.position + _before(batch, wanted_ns)
    return None


def _before(batch: Batch, wanted_ns: int) -> int:
    """How many of the batch's counting messages are earlier than `wanted_ns`."""
    if batch.columns is None or batch.columns.time is None:
        return 0
    times = array("q", batch.columns.time)
    return max(0, bisect_left(times, wanted_ns) - batch.skip)
