"""Where in the log is a point? Bookmarks, times and vectors to positions, by index and then by log.

The index gives a batch at or before the wanted one; the log itself decides. A miss inside a
publisher's range is proved by the batch behind it: its `prev` is below the wanted sequence.

Answers to a bookmark (seed 004): found; `bookmark_expired` (older than the oldest kept);
`bookmark_pending` (above what this instance holds of that publisher); `bookmark_not_found`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from zbroker.bookmarks.index import Hint, Index
from zbroker.clock import is_time, parse_time
from zbroker.errors import ClientError
from zbroker.ids import EPOCH, NOW, Bookmark, is_vector, parse_bookmark, parse_vector
from zbroker.journal.format import KIND_PUBLISH, Batch
from zbroker.journal.reader import Gap, Log
from zbroker.journal.sessions import Sessions
from zbroker.wire.internal import Located


@dataclass(slots=True)
class Where:
    """What the journal knows at the moment of asking."""

    instance: int
    generation: int
    floor: int
    persisted: int


class Locator:
    """Answers Locate for one journal."""

    def __init__(self, log: Log, index: Index, sessions: Sessions) -> None:
        self._log = log
        self._index = index
        self._sessions = sessions

    def locate(self, cid: int, value: str, now: Where) -> Located:
        """The first position behind the point (at or after a time) and a hint for readers."""
        try:
            position, time_ns = self._position(value, now)
        except ClientError as error:
            return Located(
                cid, floor=now.floor, persisted=now.persisted, code=error.code, reason=error.reason
            )
        hint = self._index.at_or_before(position)
        serial, offset = (hint.serial, hint.offset) if hint is not None else (0, 0)
        return Located(cid, position, serial, offset, now.floor, now.persisted, time_ns)

    def _position(self, value: str, now: Where) -> tuple[int, int | None]:
        if value == EPOCH:
            return now.floor, None
        if value in (NOW, "now"):
            return now.persisted, None
        if is_time(value):
            return self._of_time(parse_time(value), now)
        if is_vector(value):
            return self._of_vector(value, now), None
        return self._of_bookmark(parse_bookmark(value), now), None

    def _of_vector(self, value: str, now: Where) -> int:
        """Behind the newest entry. What an accepted loss took from its generation was not seen."""
        vector = parse_vector(value)
        newest = max(vector)
        foreign = any(origin.instance != now.instance for origin in vector)
        if foreign or newest.generation > now.generation:
            raise ClientError("bookmark_not_found", f"{value!r} is not of this log")
        position = vector[newest] + 1
        if newest.generation < now.generation:
            position = min(position, self._log.end_of(newest.generation) or position)
        if position > now.persisted:
            raise ClientError("bookmark_pending", f"position {position - 1} is not in the log yet")
        if position < now.floor:
            raise ClientError("bookmark_expired", f"the oldest position kept is {now.floor}")
        return position

    def _of_time(self, wanted_ns: int, now: Where) -> tuple[int, int | None]:
        for batch in self._scan(self._index.before_time(wanted_ns), now):
            if batch.log_time >= wanted_ns:
                return max(batch.position + _before(batch, wanted_ns), now.floor), None
        return now.persisted, wanted_ns

    def _of_bookmark(self, wanted: Bookmark, now: Where) -> int:
        known = self._sessions.get(wanted.publisher)
        if known is None or known.high == 0:
            raise ClientError(
                "bookmark_not_found", f"publisher {wanted.publisher} has nothing in this log"
            )
        if wanted.sequence > known.acked:
            raise ClientError(
                "bookmark_pending",
                f"the log holds publisher {wanted.publisher} up to {known.acked}",
            )
        for batch in self._scan(
            self._index.before_bookmark(wanted.publisher, wanted.sequence), now
        ):
            if batch.publisher != wanted.publisher or batch.kind != KIND_PUBLISH:
                continue
            if batch.sequence <= wanted.sequence < batch.sequence + batch.taken:
                return batch.position + wanted.sequence - batch.sequence + 1
            if batch.prev < wanted.sequence < batch.sequence:
                break  # proved: it was never recorded here
        raise ClientError(
            "bookmark_not_found",
            f"the log does not hold sequence {wanted.sequence} of that publisher",
        )

    def _scan(self, hint: Hint | None, now: Where) -> Iterator[Batch]:
        """Batch headers from a verified hint on, damaged stretches left out."""
        if hint is None:
            cursor = self._log.seek(now.floor)
        else:
            cursor = self._log.seek(hint.position, hint.serial, hint.offset)
        found = self._log.headers(cursor, now.persisted)
        return (item[0] for item in found if not isinstance(item, Gap))


def _before(batch: Batch, wanted_ns: int) -> int:
    """How many of the batch's counting messages are earlier than `wanted_ns`."""
    if batch.columns is None or batch.columns.time is None:
        return 0
    times = array("q", batch.columns.time)
    return max(0, bisect_left(times, wanted_ns) - batch.skip)
