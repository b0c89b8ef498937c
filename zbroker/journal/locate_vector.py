"""Finds the positions of vectors: where a reader goes on without a loss, and where a range ends.

A vector {origin: position} covers a message if one of its origins is at or below the vector's entry
for that origin: the one it was stored with, or one of a tie (origins.py). It leads to the first
message that it does not cover; as the end of a range, to the place after the last one that it
covers. On a lone instance all messages have one origin, so both are its position plus one.

Where the log holds messages of several origins, some after the first one that is not covered may be
covered: a reader leaves them out (Cover). So it gets exactly the messages that the vector's owner
did not see, in any order of the log, once the log holds as much of every origin as the vector.

The state snapshot of each segment says how far each origin was at its beginning, so the segment is
found by halves, and then the block in it, since the positions of one origin rise. An origin that is
silent for a long stretch of its segment is not looked for there: then the answer is a place before
the first message that is not covered, or for an end one after the last covered one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from zbroker.errors import ClientError
from zbroker.ids import Origin, Vector, format_vector
from zbroker.journal.effects import Where
from zbroker.journal.lookup import NEAR_BATCHES, Lookup
from zbroker.journal.missing_ranges import merged
from zbroker.journal.snapshot_finder import SnapshotHead, origins_at, origins_at_heads
from zbroker.log.cover import Cover, TiedRun, dominates, tied_runs
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, Log


class PlaceVector(NamedTuple):
    """A vector that covers what is before `at`; tied: what it covers by a tie after that.

    mixed: it may cover other messages after it, too. forked: also some that are not here, and may
    come under other names.
    """

    at: int
    vector: Vector
    tied: Sequence[TiedRun] = ()
    mixed: bool = False
    forked: bool = False


class Vectors:
    """Answers for one journal."""

    def __init__(self, look: Lookup) -> None:
        self._look = look
        self._removed: tuple[int, Vector] = (0, {})  # log start, and the vector below it at most

    def find(self, vector: Vector, now: Where, *, end: bool) -> int:
        """The position to which a vector leads.

        Raises: ClientError bookmark_expired, bookmark_pending or bookmark_not_found.
        """
        vector = self._filled(vector, now)
        self._check_later(vector, now)
        if now.fenced:
            self._check_returned(vector, now)
        if not self._look.sessions.origins.foreign:
            if any(origin.instance != now.instance and at for origin, at in vector.items()):
                raise _stranger(format_vector(vector), now)
            own = _of_instance(vector, now.instance)
            if now.replicates:  # what a lost disk had covers nothing, as where others have records
                own = {origin: at for origin, at in own.items() if self._knows(origin, now)}
            return self._of_own(own, now) if own else self._first_left(vector, now)
        self._check_reached(vector, now)
        return self._after_last(vector, now) if end else self._first_left(vector, now)

    def own_place(self, vector: Vector, now: Where) -> int | None:
        """The place in this log that a vector of this instance alone names; None of another one.

        A local point is such a place: messages of others that are before it are before the point.
        """
        if any(origin.instance != now.instance for origin in vector):
            return None
        return self._of_own(vector, now)

    # -- what is passed at a place ------------------------------------------------------------

    def passed_by(
        self, vector: Vector, position: int, now: Where, *, closed: bool = False
    ) -> PlaceVector:
        """All that a reader has passed that begins after a vector, at `position`.

        After a vector of this log alone that is also what older generations have before there, and
        the runs of messages that it covers by another origin than the one that they have here.
        closed: it names closed generations that `fill` would put back, too.
        """
        vector = self._filled(vector, now)
        own = _of_instance(vector, now.instance)
        if own and not self._look.sessions.origins.foreign:
            whole = self._with_older(own, position, now)
            passed = whole if closed else self._look.sessions.origins.closed.compact(whole)
            return PlaceVector(position, passed, forked=self._has_forked(vector, now))
        tied = list(tied_runs(vector, self._look.sessions.origins.ties, position))
        forked = self._has_forked(vector, now)
        return PlaceVector(position, vector, tied, mixed=True, forked=forked)

    def _has_forked(self, vector: Vector, now: Where) -> bool:
        """Whether it names messages of a generation that is over, and that are not here: those that
        are not durable yet are read later, and may have other names."""
        origins, closed = self._look.sessions.origins, self._look.sessions.origins.closed
        reached = origins.vector if now.reached is None else now.reached

        def here(one: Origin) -> int:
            if (row := closed.get(one)) is None:
                return reached.get(one, 0)
            return row.reach if reached.get(row.again, 0) >= row.again_position else row.end

        newest: dict[int, int] = {}
        for one in {*vector, *origins.open_rows}:
            newest[one.instance] = max(one.generation, newest.get(one.instance, 0))
        return any(
            at > here(one) and one.generation < newest[one.instance] for one, at in vector.items()
        )

    def passed_before(self, position: int, now: Where) -> PlaceVector:
        """The messages before a place, or before the nearest one for which they are known."""
        if position >= now.persisted:
            return PlaceVector(now.persisted, self.messages(now))
        only = Origin(now.instance, now.generation)
        hint = self._look.index.at_or_before(position)
        if hint is not None and set(self._look.sessions.origins.vector) <= {only}:
            return PlaceVector(hint.position, {only: hint.position - 1})
        starts = [start for start in self._look.log.starts if start.position <= position]
        ends = [start.position for start in self._look.log.starts[1:]] + [now.persisted]
        for start, end in reversed(list(zip(starts, ends, strict=False))):
            head = origins_at(self._look.log, start, min(end, now.persisted))
            if head is None or start.position < now.log_start:
                continue
            if head.position <= position:
                return PlaceVector(
                    head.position, self._look.sessions.origins.closed.compact(head.seen)
                )
            if head.begun is not None:
                return PlaceVector(
                    start.position, self._look.sessions.origins.closed.compact(head.begun)
                )
        return self.passed_before_log(now)

    def passed_before_log(self, now: Where) -> PlaceVector:
        """The messages that were removed."""
        return PlaceVector(now.log_start, self._below_log_start(now))

    def messages(self, now: Where) -> Vector:
        """The messages before the end."""
        return now.messages if now.messages is not None else self._look.sessions.origins.messages

    def _filled(self, vector: Vector, now: Where) -> Vector:
        """With what it covers of closed generations, which it need not name."""
        closed = self._look.sessions.origins.closed
        if not len(closed):
            return vector
        for instance in {origin.instance for origin in vector}:
            newest = max(origin for origin in vector if origin.instance == instance)
            if newest.generation < closed.newest_forgotten(instance):
                raise _expired(now)  # it is not known any more how far that one went
        return closed.fill(vector)

    def _check_later(self, vector: Vector, now: Where) -> None:
        """One of a generation of this instance that its log does not know waits until a later one
        has begun, see later_generations.py."""
        later = max((origin for origin in vector if origin.instance == now.instance), default=None)
        if later is None or later.generation <= now.generation:
            return
        if not now.replicates or later.generation > now.believed:
            raise _unknown(later)
        reason = f"{later} is of a lost disk, or of a copy of this log; a later generation begins"
        raise ClientError("bookmark_pending", reason)

    def _check_returned(self, vector: Vector, now: Where) -> None:
        """A fenced instance does not know yet how much its peers hold of its older generations.

        What they bring back may be another origin of messages that are here already. Until that is
        known, a reader that saw these messages under their lost origin would get them again.
        Records beyond the end of a closed one come only if a person has them taken again.
        """
        origins = self._look.sessions.origins
        for origin, position in vector.items():
            closed = origins.closed.get(origin)
            if closed is not None and not closed.is_taking:
                continue
            older = origin.instance == now.instance and origin.generation < now.generation
            if older and position > (seen := origins.high(origin)):
                reason = f"{origin} is here up to {seen}; peers may hold it up to {position}"
                raise ClientError("bookmark_pending", reason)

    # -- one origin ---------------------------------------------------------------------------

    def _of_own(self, vector: Vector, now: Where) -> int:
        """After the newest entry. Messages that an accepted loss took were not seen."""
        newest = max(vector)
        if not self._knows(newest, now):
            removed = newest.generation < now.generation and vector[newest] < now.log_start
            raise _expired(now) if removed else _unknown(newest)
        position = self._own(newest, vector[newest] + 1, now)
        if position > now.persisted:
            raise ClientError("bookmark_pending", f"position {position - 1} is not in the log yet")
        return position if position >= now.log_start else self._kept(vector, position, now)

    def _kept(self, vector: Vector, position: int, now: Where) -> int:
        """The log start, if no message that the vector does not cover was removed. position: where
        it leads to."""
        if not dominates(self._with_older(vector, position, now), self._below_log_start(now)):
            raise _expired(now)
        return now.log_start

    def _with_older(self, vector: Vector, position: int, now: Where) -> Vector:
        """With what this log holds before `position`, to which an own vector leads, of generations
        before the newest one that it names.

        Mostly that is all of them. A vector may name a generation without a record of it, at 0 or
        at a position that was lost: then it leads to a place before messages of older ones.
        """
        newest, messages = max(vector), self._look.sessions.origins.all_messages
        older = {
            origin: min(at, position - 1) if origin.instance == now.instance else at
            for origin, at in messages.items() if origin < newest
        }  # fmt: skip
        return {**vector, **{one: max(at, vector.get(one, 0)) for one, at in older.items()}}

    def _knows(self, origin: Origin, now: Where) -> bool:
        """False for a generation that this log never had: one that began on another copy of it.

        Its positions say nothing here, even where the number is a low one.
        """
        if origin.generation == now.generation:
            return True
        log = self._log_of(now)
        return origin in self._look.sessions.origins.vector or origin.generation in log.generations

    def _own(self, origin: Origin, position: int, now: Where) -> int:
        """A position of an own generation as it is now: not beyond what that one kept."""
        if origin.generation >= now.generation:
            return position
        log = self._log_of(now)
        end = log.end_of(origin.generation) or position
        if not any(kept <= origin.generation for kept in log.generations):
            # The segment that began after it may be removed, too; `end` is then the start of the
            # log, and messages between the two would be skipped in silence.
            end = min(end, self._last_until(origin) + 1)
        return min(position, end)

    def _log_of(self, now: Where) -> Log:
        """The log, which knows all of its generations."""
        log = self._look.log
        if log.generation < now.generation:
            log.refresh()  # it rose while this process ran
        return log

    def _last_until(self, origin: Origin) -> int:
        """The newest position that its instance gave in this generation or an older one."""
        seen = self._look.sessions.origins.vector.items()
        older = [at for known, at in seen if (origin.instance, 0) <= known <= origin]
        return max(older, default=0)

    # -- several origins ----------------------------------------------------------------------

    def _check_reached(self, vector: Vector, now: Where) -> None:
        """Nothing is left out that is not here yet: this log holds as much of every origin.

        What an origin gave up, as its next generation tells, will never be here unless a peer holds
        it. Nothing is skipped for it: the vector covers no message of a generation that is here.
        """
        known = dict(now.reached or self._look.sessions.origins.vector)
        known[Origin(now.instance, now.generation)] = now.persisted - 1
        for origin, position in vector.items():
            generations = [o.generation for o in known if o.instance == origin.instance]
            newest, seen = max(generations, default=-1), known.get(origin, 0)
            over = newest > origin.generation and seen >= now.coming.get(origin, 0)
            if position <= seen or over:
                continue
            if newest < 0:
                raise _stranger(str(origin), now)
            raise ClientError(
                "bookmark_pending", f"the log holds {origin} up to {seen}, not up to {position}"
            )

    def _first_left(self, vector: Vector, now: Where) -> int:
        """The first message that the vector does not cover."""
        if not dominates(vector, self._below_log_start(now)):
            raise _expired(now)
        messages = self._look.sessions.origins.all_messages
        left = (origin for origin, last in messages.items() if last > vector.get(origin, 0))
        starts = (self._before(origin, vector.get(origin, 0), now)[0] for origin in left)
        start = max(min(starts, default=now.persisted), now.log_start)
        cover = Cover(vector, self._look.sessions.origins.ties)
        for batch in self._near(start, now.persisted):
            if batch.kind == KIND_PUBLISH and (runs := cover.left(batch)):
                return batch.position + runs[0][0] - batch.sequence
            start = batch.end_position
        return start

    def _after_last(self, vector: Vector, now: Where) -> int:
        """After the last message that the vector covers."""
        ends = [self._after(origin, at, now) for origin, at in vector.items() if at > 0]
        end = max(ends, default=now.log_start)
        if end < now.log_start:
            raise _expired(now)
        return min(end, now.persisted)

    def _is_own(self, origin: Origin, at: int, now: Where) -> bool:
        """True if this log gave the positions of the origin's messages up to `at`."""
        history = self._look.sessions.origins.history
        latest = origin.generation >= now.generation or not history.begins
        own = origin.instance == now.instance
        return own and (latest or at < history.end(origin.generation))

    def _after(self, origin: Origin, at: int, now: Where) -> int:
        if self._is_own(
            origin, min(at, self._look.sessions.origins.all_messages.get(origin, 0)), now
        ):
            return self._own(origin, at + 1, now)
        first, last = self._before(origin, at - 1, now)
        for batch in self._near(first, last):
            if not _is_of(batch, origin):
                continue
            over = at + 1 - batch.origin_position
            if over <= 0:
                return first
            first = batch.position + min(over, batch.taken)
            if over <= batch.taken:
                return first
        return last

    def _before(self, origin: Origin, at: int, now: Where) -> tuple[int, int]:
        """Two positions: the origin's messages up to `at` are below the first one or,
        like the first message that it gave later, between them.
        """
        if self._is_own(origin, at, now):
            position = self._own(origin, at + 1, now)
            return position, position
        low, high = self._segment(origin, at, now)
        if self._look.index.at_or_before(high) is None:
            return low, high  # each look would be at all of the segment
        ahead = high
        while ahead - low > NEAR_BATCHES:
            middle = (low + ahead) // 2
            batch = self._next_of(origin, middle, high)
            if batch is not None and batch.origin_position + batch.taken - 1 <= at:
                low = batch.end_position
                continue
            ahead = middle  # if it is silent there: look before
            high = min(high, batch.end_position) if batch is not None else high
        return low, high

    def _segment(self, origin: Origin, at: int, now: Where) -> tuple[int, int]:
        """Two neighbouring snapshots between which the origin went beyond `at`."""
        starts = [start.position for start in self._look.log.starts] + [now.persisted]
        low, high = now.log_start, now.persisted
        first, last = 0, len(starts) - 1
        while first < last:
            middle = (first + last) // 2
            head = self._head(starts[middle + 1], now)
            if head is None or head.seen.get(origin, 0) <= at:
                low = max(low, head.position if head is not None else 0)
                first = middle + 1
            else:
                high = min(high, head.position)
                last = middle
        return low, max(low, high)

    def _head(self, before: int, now: Where) -> SnapshotHead | None:
        """The newest snapshot that begins a segment below `before`."""
        return next(origins_at_heads(self._look.log, min(before, now.persisted)), None)

    def _next_of(self, origin: Origin, position: int, limit: int) -> Batch | None:
        """A batch of this origin that ends not far after `position`."""
        found = (batch for batch in self._near(position, limit) if _is_of(batch, origin))
        return next((batch for batch in found if batch.end_position > position), None)

    def _near(self, position: int, limit: int) -> Iterator[Batch]:
        """At most NEAR_BATCHES from the one at `position` on, below `limit`."""
        hint = self._look.index.at_or_before(position)
        at = (hint.serial, hint.offset) if hint is not None else (0, 0)
        log = self._look.log
        items = islice(log.headers(log.seek(position, *at), limit), NEAR_BATCHES)
        return (item[0] for item in items if not isinstance(item, Gap))

    # -- what was removed ---------------------------------------------------------------------

    def _below_log_start(self, now: Where) -> Vector:
        """Up to where messages of each origin were in the removed segments at most, or never here;
        all of it if unknown. Ties do not count: their messages are covered by the origin that they
        are stored with.
        """
        missing = self._look.sessions.missing.below()
        if now.log_start <= 1:
            return missing
        if self._removed[0] != now.log_start:
            self._removed = (now.log_start, self._look_below(now))
        return merged(self._removed[1], missing)

    def _look_below(self, now: Where) -> Vector:
        """Exact if the oldest segment's snapshot says how it began, else rather too much."""
        through, seen = now.persisted, self._look.sessions.origins.all_stored
        starts = self._look.log.starts
        ends = [start.position for start in starts[1:]] + [now.persisted]
        head = next((head for end in ends if (head := self._head(end, now)) is not None), None)
        if head is not None:
            if head.stored_begun is not None and starts[0].serial == head.serial:
                return head.stored_begun
            through, seen = head.position, head.stored
        first: Vector = {}
        log = self._look.log
        for item in log.headers(log.seek(now.log_start), through):
            if not isinstance(item, Gap) and (batch := item[0]).kind == KIND_PUBLISH:
                ahead = max(0, now.log_start - batch.position)
                first.setdefault(batch.origin, batch.origin_position + ahead)
        return {one: min(at, first.get(one, at + 1) - 1) for one, at in seen.items()}


def _of_instance(vector: Vector, instance: int) -> Vector:
    return {origin: at for origin, at in vector.items() if origin.instance == instance}


def _is_of(batch: Batch, origin: Origin) -> bool:
    return batch.kind == KIND_PUBLISH and batch.origin == origin


def _unknown(origin: Origin) -> ClientError:
    return ClientError("bookmark_not_found", f"{origin} is not of this log")


def _stranger(text: str, now: Where) -> ClientError:
    """Nothing of an instance is here: yet, where there are peers, as in a new one beside them."""
    if now.replicates:
        return ClientError("bookmark_pending", f"nothing of {text} is here yet; peers may bring it")
    return ClientError("bookmark_not_found", f"{text!r} is not of this log")


def _expired(now: Where) -> ClientError:
    return ClientError("bookmark_expired", f"the oldest position kept is {now.log_start}")
