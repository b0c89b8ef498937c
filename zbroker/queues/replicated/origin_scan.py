"""How the messages of a local queue are called at their origins, found by reading its log. Pure.

    log start --read, beside the queue--> where the queue is --with it--> names of all that it holds

A local queue knows positions of its own log alone. When it becomes a queue of several instances,
what it holds is named by origin, and so is what it does not hold: everything that was here since it
began, but for that. That is few runs of each origin, whatever the number of messages.

Messages that are not here for another reason do not count as done: those from before the queue
began, and those that an origin left out here, as a declared gap says.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import DecodeError, ValidationError
from pyroaring import BitMap64

from zbroker.ids import Origin, Vector
from zbroker.log.format import KIND_ORIGIN, KIND_PUBLISH, KIND_STATE, KIND_TIE, Batch
from zbroker.log.queue_records import origins_of_state
from zbroker.log.records import ORIGIN
from zbroker.queues.replicated.origin_runs import OriginRuns
from zbroker.queues.work.sets import span


class OriginScan:
    """begin: messages before it are not of the queue. topics: those that it takes.

    begins: what each origin had here before the queue began. read: what each has here so far.
    following: it reads with the queue, and is as far.
    """

    def __init__(self, begin: int, topics: Callable[[str], bool]) -> None:
        self.begins: Vector = {}
        self.read: Vector = {}
        self.following = False
        self._begin, self._topics = begin, topics
        self._runs = OriginRuns()
        self._missing: dict[Origin, BitMap64] = {}

    def add(self, batch: Batch, here: BitMap64) -> None:
        """The next batch of the log. here: all messages of the queue, which is as far at least."""
        if batch.kind == KIND_STATE:
            for origin, position in origins_of_state(batch.body).reached.items():
                self._reached(origin, position, position)
            return
        if batch.kind == KIND_ORIGIN:
            self._declared(batch)
            return
        origin, first = batch.origin, batch.origin_position
        last = first + batch.taken - 1
        if batch.kind == KIND_TIE:
            first -= batch.skip
            sent = batch.publisher, batch.sequence - batch.skip
            self._runs.tie(origin, first, batch.skip + 1, sent)
        elif batch.kind == KIND_PUBLISH and any(map(self._topics, batch.topics)):
            self._enter(batch, here)
        before = min(batch.end_position, self._begin) - batch.position
        self._reached(
            origin, last, first + before - 1 if before > 0 else first - 1, past=before > 0
        )

    def _enter(self, batch: Batch, here: BitMap64) -> None:
        if here.range_cardinality(batch.position, batch.end_position):
            self._runs.sweep(here)
            self._runs.add(
                batch.position, batch.origin, batch.origin_position, batch.taken,
                (batch.publisher, batch.sequence),
            )  # fmt: skip

    def _reached(self, origin: Origin, last: int, before: int, *, past: bool = False) -> None:
        """past: it is known that the queue began after `before`."""
        if past or origin not in self.begins:
            self.begins[origin] = max(before, self.begins.get(origin, 0))
        self.read[origin] = max(last, self.read.get(origin, 0))

    def _declared(self, batch: Batch) -> None:
        """Records of an origin are missing up to some position, or it had none up to there."""
        try:
            row = ORIGIN.decode(batch.body)
        except (DecodeError, ValidationError, UnicodeDecodeError):
            return
        origin = Origin(row.instance, row.generation)
        read = self.read.get(origin, 0)
        if origin in self.read and row.position > read:
            missing = self._missing.setdefault(origin, BitMap64())
            missing.add_range(read + 1, row.position + 1)
        self._reached(origin, row.position, row.position, past=batch.position < self._begin)

    def kept(self, here: BitMap64) -> dict[Origin, BitMap64]:
        """All names of these messages of the queue."""
        return self._runs.all_names(here)

    def names(self, positions: BitMap64) -> dict[Origin, BitMap64]:
        """One name of each."""
        return self._runs.names(positions)

    def done(self, here: BitMap64) -> dict[Origin, BitMap64]:
        """The messages that were here since the queue began, and are not among these."""
        kept, found = self.kept(here), {}
        for origin, last in self.read.items():
            first = self.begins.get(origin, 0) + 1
            if first > last:
                continue
            positions = span(first, last + 1)
            for part in (kept.get(origin), self._missing.get(origin)):
                if part is not None:
                    positions -= part
            if positions:
                found[origin] = positions
        return found

    def is_whole(self, here: BitMap64) -> bool:
        """Whether all of these have a name."""
        return sum(map(len, self.names(here).values())) == len(here)
