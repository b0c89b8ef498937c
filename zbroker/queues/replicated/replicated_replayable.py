"""What makes a replayable queue one of several instances: marks, purges, and where its readers
were before. Pure.

    OriginsNoted   a consumer at any instance acknowledged them: a mark, which moves nothing
    Purged         a vector: what it covers is gone on every instance, whenever it comes there

Each instance gives all messages, in the order of its own log; they belong to none. A reader that
was at another instance says by a vector what it had there. It gets what that does not cover, also
of what comes later.

A message that a purge covers may come after it. It leaves the queue at once, and that is written
again as a fact of this log, like other early facts; the log is held from the purge on as long as
there may be such messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, msgpack
from pyroaring import BitMap64

from zbroker.ids import Origin, Vector, raise_to
from zbroker.log.format import KIND_OUTCOMES, Batch
from zbroker.log.queue_records import AnyQueueFact, OriginsNoted, Purged
from zbroker.log.records import OriginRecord
from zbroker.queues.replayable import Replayable
from zbroker.queues.replicated.declarations import QueueView
from zbroker.queues.replicated.early_facts import EarlyFact
from zbroker.queues.replicated.origin_facts import (
    OriginFacts,
    Unwritten,
    VectorRows,
    rows_of,
    vector_of,
)
from zbroker.queues.replicated.ownership import OwnerClaim
from zbroker.queues.work.sets import insert, span
from zbroker.queues.work.values import Arrivals

_ROW: Final = "replayable"  # of the tables


class ReplicatedReplayable(OriginFacts):
    """purged: what it covers was purged, at whatever instance. lost: how far of each origin there
    may be messages that are not here any more, or never were; a reader that has had less missed
    some. overtook: some left the queue that its reader was to get.
    """

    _queue: Replayable

    def __init__(self, me: int, queue: Replayable, view: QueueView) -> None:
        super().__init__(me, queue, view)
        self.purged: Vector = {}
        self.lost: Vector = {}
        self.overtook = False
        self._coming: list[tuple[int, Vector]] = []  # purges of what may come, and where they are

    # -- messages -----------------------------------------------------------------------------

    def entered(self, batch: Batch, entered: Arrivals) -> None:
        """They are in the queue now."""
        super().entered(batch, entered)
        self._named(batch.origin, batch.origin_position, batch.taken)

    def _tied(self, batch: Batch, local: BitMap64) -> None:
        self._named(batch.origin, batch.origin_position - batch.skip, batch.skip + 1)

    def _named(self, origin: Origin, first: int, count: int) -> None:
        """By these names of theirs messages may have been purged before they came, or the reader
        had them at another instance."""
        late = self._up_to(self.purged, origin, first, count)
        if late:
            since = min((at for at, _ in self._coming), default=late.min())
            self.unwritten.append(Unwritten(since, late))
            self.take_out(late)
        reader = self._queue.reader
        if reader is not None:
            insert(reader.had, self._up_to(reader.passed, origin, first, count))

    def _up_to(
        self, vector: Mapping[Origin, int], origin: Origin, first: int, count: int
    ) -> BitMap64:
        """Which of these names in the queue a vector covers: one batch, however many it covers."""
        end = min(first + count, vector.get(origin, 0) + 1)
        if end <= first:
            return BitMap64()
        return self.runs.local(origin, span(first, end)) & self._queue.here

    def _begin_after(self, seen: Vector) -> None:
        raise_to(self.lost, seen)

    def _missing(self, row: OriginRecord) -> None:
        below = max(row.since - 1, row.position if row.skipped else 0)
        if below > 0:
            raise_to(self.lost, {Origin(row.instance, row.generation): below})

    # -- facts --------------------------------------------------------------------------------

    def _counts(self, fact: AnyQueueFact, batch: Batch) -> bool:
        return isinstance(fact, OriginsNoted | Purged) and batch.kind == KIND_OUTCOMES

    def _apply(
        self, fact: AnyQueueFact, local: BitMap64, claim: OwnerClaim | None, *, own: bool = False
    ) -> None:
        self._queue.noted(local)

    def _keep(self, early: EarlyFact, found: BitMap64) -> None:
        """A message stays until it is purged, and the log is not held for its mark so long."""
        self.unwritten.append(Unwritten(early.at, found, True))

    def _apply_whole(self, fact: AnyQueueFact, at: int) -> None:
        if not isinstance(fact, Purged):
            return
        vector = fact.vector
        raise_to(self.purged, vector)
        self.take_out(self.had(vector))
        if self._is_ahead(vector):
            self._coming.append((at, vector))

    def _is_ahead(self, vector: Vector) -> bool:
        """Whether some of what it covers may still come."""
        return any(at > self._complete(origin) for origin, at in vector.items())

    def take_out(self, local: BitMap64) -> None:
        """They were purged, like all of their origins before them."""
        if local:
            raise_to(self.lost, {one: part.max() for one, part in self.runs.names(local).items()})
            self.overtook |= self._queue.take_out(local)

    def release(self, before: int) -> None:
        """Messages before this position leave the queue here, and stay at other instances."""
        self.take_out(self._queue.before(before))

    # -- purges and readers -------------------------------------------------------------------

    def vector_before(self, position: int, folded: int) -> Vector:
        """A vector that covers the messages of the queue before a position, and none after it.
        folded: the end of what was read."""
        return self.reached if position >= folded else self.runs.passed(position)

    def had(self, vector: Mapping[Origin, int]) -> BitMap64:
        """The messages of the queue that a vector covers."""
        return self.runs.covered(vector) & self._queue.here

    def is_purged(self, vector: Mapping[Origin, int]) -> bool:
        """Whether a purge of all that it covers changes nothing, now or later."""
        return all(at <= self.purged.get(origin, 0) for origin, at in vector.items())

    def passed_at(self, position: int) -> Vector:
        """What a reader has passed that begins at a position: messages before it, and those that
        left the queue."""
        vector = self.runs.passed(position)
        for origin, at in self.lost.items():
            kept = self.runs.first(origin, vector.get(origin, 0) + 1, at + 1, self._queue.here)
            raise_to(vector, {origin: at if kept is None else kept - 1})
        return vector

    def missed(self, passed: Mapping[Origin, int]) -> bool:
        """Whether there may have been messages that a reader which passed so much did not get, and
        that are not here."""
        begins = self.view.begins
        return any(
            at > max(passed.get(origin, 0), begins.get(origin, 0))
            for origin, at in self.lost.items()
        )

    # -- the log ------------------------------------------------------------------------------

    @property
    def needs(self) -> int | None:
        """The log is needed from there on, besides the messages of the queue."""
        self._coming = [one for one in self._coming if self._is_ahead(one[1])]
        lows = (super().needs, *(at for at, _ in self._coming))
        return min((low for low in lows if low is not None), default=None)

    def dump(self) -> dict[str, bytes]:
        """For the tables."""
        coming = [(at, rows_of(vector)) for at, vector in self._coming]
        state = _ReplayState(rows_of(self.purged), rows_of(self.lost), coming)
        return {**super().dump(), _ROW: msgpack.encode(state)}

    def load(self, rows: dict[str, bytes]) -> None:
        """What `dump` gave, taken out of `rows`. Raises: LookupError, ValueError."""
        state = msgpack.decode(rows.pop(_ROW), type=_ReplayState)
        super().load(rows)
        self.purged, self.lost = vector_of(state.purged), vector_of(state.lost)
        self._coming = [(at, vector_of(vector)) for at, vector in state.coming]

    def check(self) -> None:
        """Asserts what is always true."""
        super().check()
        assert not self.had(self.purged)


class _ReplayState(Struct):
    purged: VectorRows
    lost: VectorRows
    coming: list[tuple[int, VectorRows]]
