"""Where in the log is a point? Bookmarks, times and vectors to positions, by index and then by log.

The index gives a batch at or before the wanted one; the log itself decides. A miss inside a
publisher's range is proved by the batch behind it: its `prev` is below the wanted sequence, and
nothing that filled a hole stands behind.

A vector leads to the first message that it does not cover. Where the log holds messages of several
origins, some behind that one may be covered: who reads on leaves them out (vectors.Cover). The
state snapshots at the beginnings of segments say how far each origin was there, so that only one
segment is read through.

Answers to a bookmark (seed 004): found; `bookmark_expired` (older than the oldest kept);
`bookmark_pending` (above what this instance holds of that publisher, or in a hole of which it knows
that something is missing); `bookmark_not_found`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from zbroker.bookmarks.index import Hint, Index
from zbroker.clock import is_time, parse_time
from zbroker.errors import ClientError
from zbroker.ids import EPOCH, NOW, Bookmark, Origin, is_vector, parse_bookmark, parse_vector
from zbroker.journal.format import FLAG_LATE, KIND_PUBLISH, Batch
from zbroker.journal.reader import Gap, Log
from zbroker.journal.sessions import Publisher, Sessions
from zbroker.journal.stated import origins_at_heads
from zbroker.journal.vectors import Cover, Vector, dominates
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
        self._removed: tuple[int, Vector] = (0, {})  # floor, and what stood below it at most

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
        vector = parse_vector(value)
        if self._sessions.origins.foreign:
            return self._of_many(vector, now)
        if any(origin.instance != now.instance for origin in vector):
            raise ClientError("bookmark_not_found", f"{value!r} is not of this log")
        return self._of_own(vector, now)

    def _of_own(self, vector: Vector, now: Where) -> int:
        """Behind the newest entry. What an accepted loss took from its generation was not seen."""
        newest = max(vector)
        if newest.generation > now.generation:
            raise ClientError("bookmark_not_found", f"{newest} is not of this log")
        position = vector[newest] + 1
        if newest.generation < now.generation:
            if self._log.generation < now.generation:
                self._log.refresh()  # it rose while this process ran
            position = min(position, self._log.end_of(newest.generation) or position)
        if position > now.persisted:
            raise ClientError("bookmark_pending", f"position {position - 1} is not in the log yet")
        if position < now.floor:
            raise ClientError("bookmark_expired", f"the oldest position kept is {now.floor}")
        return position

    def _of_many(self, vector: Vector, now: Where) -> int:
        """The first message here that the vector does not cover."""
        self._check_reached(vector, now)
        if not dominates(vector, self._below_floor(now)):
            raise ClientError("bookmark_expired", f"the oldest position kept is {now.floor}")
        heads = origins_at_heads(self._log, now.persisted)
        start = next((head.position for head in heads if dominates(vector, head.seen)), now.floor)
        cover = Cover(vector, self._sessions.origins.ties)
        cursor = self._log.seek(max(start, now.floor))
        for item in self._log.headers(cursor, now.persisted):
            if isinstance(item, Gap) or item[0].kind != KIND_PUBLISH:
                continue
            batch = item[0]
            if left := cover.left(batch):
                return batch.position + left[0][0] - batch.sequence
        return now.persisted

    def _check_reached(self, vector: Vector, now: Where) -> None:
        """Nothing is left out that is not here yet: this log holds as much of every origin.

        What an origin gave up, as its next generation tells, will never be here.
        """
        known = self._sessions.origins.vector
        known[Origin(now.instance, now.generation)] = now.persisted - 1
        for origin, position in vector.items():
            generations = [o.generation for o in known if o.instance == origin.instance]
            newest, seen = max(generations, default=-1), known.get(origin, 0)
            if position <= seen or newest > origin.generation:
                continue
            if newest < 0 or (origin.instance == now.instance and newest < origin.generation):
                raise ClientError("bookmark_not_found", f"{origin} is not in this log")
            raise ClientError(
                "bookmark_pending", f"the log holds {origin} up to {seen}, not up to {position}"
            )

    def _below_floor(self, now: Where) -> Vector:
        """How far each origin stood at most in what was removed; all of it if nobody knows."""
        if now.floor <= 1:
            return {}
        if self._removed[0] != now.floor:
            self._removed = (now.floor, self._look_below(now))
        return self._removed[1]

    def _look_below(self, now: Where) -> Vector:
        """Exact if the oldest segment's snapshot says how it began, else rather too much."""
        through, seen = now.persisted, self._sessions.origins.messages
        for head in origins_at_heads(self._log, now.persisted):  # the oldest one is the last
            through, seen = head.position, head.seen
            if head.begun is not None and self._log.starts[0].serial == head.serial:
                return head.begun
        first: Vector = {}
        for item in self._log.headers(self._log.seek(now.floor), through):
            if not isinstance(item, Gap) and item[0].kind == KIND_PUBLISH:
                batch = item[0]
                origin = Origin(batch.origin_instance, batch.origin_generation)
                first.setdefault(origin, batch.origin_position)
        return {
            origin: min(position, first.get(origin, position + 1) - 1)
            for origin, position in seen.items()
        }

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
        _check_holes(known, wanted.sequence)
        hint = self._index.before_bookmark(wanted.publisher, wanted.sequence)
        removed = now.floor > 1  # unless the log proves that it stood above the floor, or never did
        for batch in self._scan(hint, now):
            if batch.publisher != wanted.publisher or batch.kind != KIND_PUBLISH:
                continue
            if batch.sequence <= wanted.sequence < batch.sequence + batch.taken:
                position = batch.position + wanted.sequence - batch.sequence + 1
                if position >= now.floor:
                    return position
                removed = True  # its file is not gone yet
                break
            if batch.flags & FLAG_LATE or batch.position < known.late_position:
                continue
            if batch.sequence > wanted.sequence:
                removed = removed and batch.prev >= wanted.sequence
                break  # it stood before this one, or was never recorded here
            removed = removed and batch.position < now.floor
        if removed:
            raise ClientError("bookmark_expired", f"the oldest position kept is {now.floor}")
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


def _check_holes(known: Publisher, sequence: int) -> None:
    """Raises: ClientError for a sequence that the publisher table says is not here."""
    for hole in known.holes:
        if hole.first <= sequence <= hole.last:
            if sequence <= hole.issued:
                raise ClientError(
                    "bookmark_pending",
                    f"sequences {hole.first} to {hole.issued} of that publisher are missing here",
                )
            raise ClientError(
                "bookmark_not_found", f"the log does not hold sequence {sequence} of that publisher"
            )


def _before(batch: Batch, wanted_ns: int) -> int:
    """How many of the batch's counting messages are earlier than `wanted_ns`."""
    if batch.columns is None or batch.columns.time is None:
        return 0
    times = array("q", batch.columns.time)
    return max(0, bisect_left(times, wanted_ns) - batch.skip)
