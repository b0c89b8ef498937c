"""A queue of several instances: facts by origin, in whatever order they come. Pure.

    record of the log --> known messages: at once
                      \\--> messages that are not here: early, until the log was read beyond them

An early fact is before its message in the log, and the log may be removed between the two. So what
was acknowledged early is written again, as a fact of this log, once the message is here; until that
is durable, and as long as any other early fact is about a message of the queue, the log is held
from the fact on.

When no more facts may wait, the records of their origin wait in the log instead: that origin is
stopped, as on a slow link, and is read again from there when there is room. So is one whose
record names a life of the queue of which nothing is known yet: its definition is of another origin.

No message of a closed generation is still to come, so a fact that names more than it had does not
wait: a host names what only it had, and then loses it.

What the facts mean to a work queue is in replicated_queue.py, and to a replayable one in
replicated_replayable.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import DecodeError, Struct, ValidationError, msgpack
from pyroaring import BitMap64

from zbroker.ids import Origin, Vector, raise_to
from zbroker.limits import U63_MAX
from zbroker.log.format import KIND_CLOSED, KIND_ORIGIN, KIND_STATE, KIND_TIE, Batch
from zbroker.log.queue_records import (
    AnyQueueFact,
    OutcomesRecord,
    QueueDeclaration,
    StateOrigins,
    facts_of,
    origins_of_state,
)
from zbroker.log.records import (
    CLOSED,
    ORIGIN,
    AnyFact,
    GoneEarly,
    NotedEarly,
    OriginRecord,
    pack_positions,
)
from zbroker.queues.replayable import Replayable
from zbroker.queues.replicated.declarations import QueueView
from zbroker.queues.replicated.early_facts import EarlyFact, EarlyFacts
from zbroker.queues.replicated.origin_runs import OriginRuns
from zbroker.queues.replicated.origins_read import OriginsRead
from zbroker.queues.replicated.ownership import OwnerClaim
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import union
from zbroker.queues.work.values import Arrivals

Waiting = list[tuple[int, BitMap64]]  # messages, and where this log is held for them


class Unwritten(NamedTuple):
    """A fact about these messages that came before them, at this position. noted: they were
    acknowledged in a replayable queue; else they left the queue."""

    at: int
    positions: BitMap64
    noted: bool = False


class _Known(NamedTuple):
    """What a fact says of messages that were read, and what of those that were not."""

    fact: AnyQueueFact
    origin: Origin
    here: BitMap64
    early: BitMap64


class OriginFacts:
    """The fold of one queue besides `queue`, as the instance `me` sees it.

    unwritten: facts that were early, and are to be written again. stopped: origins whose records
    wait in the log, from where on.
    """

    def __init__(self, me: int, queue: Queue | Replayable, view: QueueView) -> None:
        self.me, self._queue = me, queue
        self.view = view
        self.runs = OriginRuns()
        self.early = EarlyFacts()
        self.unwritten: list[Unwritten] = []
        self.stopped: dict[Origin, int] = {}
        self._awaits: dict[Origin, QueueDeclaration] = {}  # of those, which one has to be known
        self._read: Vector = {}  # how far the log was read, by origin, before what is `_along`
        self._closed: set[Origin] = set()
        self._along, self._joined = OriginsRead(), 0
        self._pinned: Waiting = []  # early facts about messages that are here

    # -- messages -----------------------------------------------------------------------------

    def entering(self, batch: Batch, entered: Arrivals) -> Arrivals | None:
        """What enters of a batch, since the queue begins after a vector; None: nothing does."""
        covered = self.view.begins.get(batch.origin, 0) - batch.origin_position + 1
        if covered > 0:
            wanted = entered.positions.copy()
            wanted.remove_range(0, batch.position + covered)
            entered = entered.part(wanted)
        return entered if entered.positions else None

    def entered(self, batch: Batch, entered: Arrivals) -> None:
        """They are in the queue now."""
        self.runs.sweep(self._queue.here)
        self.runs.add(
            batch.position, batch.origin, batch.origin_position, batch.taken,
            (batch.publisher, batch.sequence),
        )  # fmt: skip

    def passed(self, read: Vector) -> None:
        """So far origins were read before it begins to read the log; before any message."""
        self._read = dict(read)

    def read_along(self, walk: OriginsRead) -> None:
        """From now on the log is read for it as for others that share this."""
        self._read = self.reached
        self._along, self._joined = walk, walk.batches

    @property
    def reached(self) -> Vector:
        """How far the log was read, by origin."""
        found = dict(self._read)
        raise_to(found, self._along.vector)
        return found

    def _reached(self, origin: Origin) -> int:
        return max(self._read.get(origin, 0), self._along.vector.get(origin, 0))

    def _complete(self, origin: Origin) -> int:
        """Up to there no message of it is still to come."""
        if origin in self._closed:
            return U63_MAX
        return max(self._reached(origin), self.view.begins.get(origin, 0))

    @property
    def listens(self) -> bool:
        """Whether `read` has to be called for every batch, and not only for those that say more of
        origins than the place of their own."""
        return bool(self.early)

    @property
    def waits(self) -> bool:
        """Whether facts that were read, or passed over, are still to be applied."""
        return bool(self.early or self.stopped)

    def read(self, batch: Batch) -> bool:
        """A batch of the log was read, of any kind. True: something became of messages."""
        if batch.kind == KIND_TIE:
            self._tie(batch)
        elif batch.kind == KIND_STATE:
            return self._snapshot(origins_of_state(batch.body))
        elif batch.kind == KIND_ORIGIN:
            return self._declared(batch)
        elif batch.kind == KIND_CLOSED:
            return self._ended(batch) | self._raise(batch.origin, batch.origin_position)
        return self._raise(batch.origin, batch.origin_position + batch.taken - 1)

    def _snapshot(self, seen: StateOrigins) -> bool:
        found = False
        if not self._read and self._along.batches == self._joined:
            self._begin_after(seen.reached)
        for origin, position in seen.reached.items():
            found |= self._raise(origin, position)
        for origin in seen.closed:
            found |= self._close(origin)
        return found

    def _ended(self, batch: Batch) -> bool:
        try:
            row = CLOSED.decode(batch.body)
        except (DecodeError, UnicodeDecodeError):
            return False
        return self._close(Origin(batch.origin.instance, row.generation))

    def _close(self, origin: Origin) -> bool:
        """All of its messages were read."""
        if origin in self._closed:
            return False
        self._closed.add(origin)
        return self._came(origin, U63_MAX)

    def _declared(self, batch: Batch) -> bool:
        """Records of an origin are missing, or come no more, up to some position."""
        try:
            row = ORIGIN.decode(batch.body)
        except (DecodeError, ValidationError, UnicodeDecodeError):
            return False
        self._missing(row)
        return self._raise(Origin(row.instance, row.generation), row.position)

    def _raise(self, origin: Origin, position: int) -> bool:
        if position <= self._read.get(origin, 0):
            return False
        self._read[origin] = position
        return self._came(origin, position)

    def _came(self, origin: Origin, position: int) -> bool:
        """Facts about its messages up to there need not wait. True: as in `read`."""
        if not self.early.waits(origin):
            return False
        gone, others, since = self.early.take(origin, position)
        local = self.runs.local(origin, gone) & self._queue.here
        if local:
            self._gone(local)
            self.unwritten.append(Unwritten(since, local))
        for early in others:
            found = self.runs.local(origin, early.positions) & self._queue.here
            if found:
                self._keep(early, found)
                self._apply(early.fact, found, early.claim)
        return True

    def _tie(self, batch: Batch) -> None:
        """Another instance accepted messages that are here."""
        first = batch.origin_position - batch.skip
        sent = batch.publisher, batch.sequence - batch.skip
        local = self.runs.tie(batch.origin, first, batch.skip + 1, sent) & self._queue.here
        if local:
            self._tied(batch, local)

    # -- records ------------------------------------------------------------------------------

    def record(self, batch: Batch, record: OutcomesRecord, *, again: bool = False) -> bool:
        """What a record says of messages. again: its origin was stopped, and is read again.

        False: no more facts may wait; the origin is stopped there.
        """
        origin = batch.origin
        if origin in self.stopped and not again:
            return True
        if record.life not in self.view.lives:
            if record.life in self.view.ended:
                return True
            self.stopped[origin], self._awaits[origin] = batch.position, record.life
            return False
        facts = [fact for fact in facts_of(record) if self._counts(fact, batch)]
        known = [one for fact in facts for one in self._known(fact)]
        if self.early.full and any(one.early for one in known):
            self.stopped[origin] = batch.position
            return False
        for one in known:
            claim = self._claim(one.fact, batch)
            local = self.runs.local(one.origin, one.here) & self._queue.here
            if local:
                self._apply(one.fact, local, claim, own=origin.instance == self.me)
            if one.early:
                self.early.add(one.origin, EarlyFact(one.fact, one.early, batch.position, claim))
        for fact in facts:
            self._apply_whole(fact, batch.position)
        return True

    def _known(self, fact: AnyQueueFact) -> Iterable[_Known]:
        for one in fact.where:
            try:
                positions = one.positions
            except ValueError:
                continue  # nothing that an instance writes
            count = positions.rank(self._complete(one.origin))
            yield _Known(fact, one.origin, positions[:count], positions[count:])

    def _gone(self, local: BitMap64) -> None:
        self._queue.gone(local)
        self.left(local)

    # -- what is of one kind of queue -----------------------------------------------------------

    def left(self, local: BitMap64) -> None:
        """They left the queue."""

    def _counts(self, fact: AnyQueueFact, batch: Batch) -> bool:
        """Whether such a queue knows this fact, in a record of this kind."""
        raise NotImplementedError

    def _claim(self, fact: AnyQueueFact, batch: Batch) -> OwnerClaim | None:
        """What it says of the owner."""
        return None

    def _apply(
        self, fact: AnyQueueFact, local: BitMap64, claim: OwnerClaim | None, *, own: bool = False
    ) -> None:
        """It is about these messages of the queue. own: this instance wrote it."""
        raise NotImplementedError

    def _apply_whole(self, fact: AnyQueueFact, at: int) -> None:
        """It may be about more than the messages that it lists. at: of its record in this log."""

    def _keep(self, early: EarlyFact, found: BitMap64) -> None:
        """It is needed as long as these are in the queue."""
        self._pinned.append((early.at, found))

    def _tied(self, batch: Batch, local: BitMap64) -> None:
        """These have another name now, that of the batch."""

    def _begin_after(self, seen: Vector) -> None:
        """The log that is read begins with this snapshot: what it covers was not read."""

    def _missing(self, row: OriginRecord) -> None:
        """Records of an origin may be missing, as this row says."""

    # -- early facts that are here twice --------------------------------------------------------

    def again(self) -> list[AnyFact]:
        """The facts of this log that say what is `unwritten`."""
        found: list[AnyFact] = []
        for fact, noted in ((GoneEarly, False), (NotedEarly, True)):
            many = [one.positions for one in self.unwritten if one.noted is noted]
            if many:
                found.append(fact(pack_positions(union(many))))
        return found

    # -- stopped origins ----------------------------------------------------------------------

    def catch_up(self) -> tuple[Origin, int] | None:
        """An origin that may be read again, and from where; None: there is none, or no room."""
        if not self.stopped or not self.early.roomy:
            return None
        known = self.view.lives | self.view.ended
        self._awaits = {one: life for one, life in self._awaits.items() if life not in known}
        due = [(at, origin) for origin, at in self.stopped.items() if origin not in self._awaits]
        if not due:
            return None
        at, origin = min(due)
        return origin, at

    def caught_up(self, origin: Origin) -> None:
        """Its records were read again, up to where the log was read for the queue."""
        self.stopped.pop(origin, None)

    # -- the log ------------------------------------------------------------------------------

    @property
    def needs(self) -> int | None:
        """The log is needed from there on, besides the messages of the queue."""
        here = self._queue.here
        self._pinned = [one for one in self._pinned if not one[1].isdisjoint(here)]
        lows = [at for at, _ in self._pinned]
        lows += [one.at for one in self.unwritten]
        lows += self.stopped.values()
        if self.early.lowest is not None:
            lows.append(self.early.lowest)
        return min(lows, default=None)

    def memory_bytes(self) -> int:
        """Roughly."""
        return self.runs.memory_bytes() + self.early.bytes

    # -- the tables ---------------------------------------------------------------------------

    def dump(self) -> dict[str, bytes]:
        """For the tables."""
        state = _State(
            rows_of(self.reached),
            rows_of(self.view.begins),
            rows_of(self.stopped),
            packed_waiting((one.at, one.positions) for one in self.unwritten if not one.noted),
            packed_waiting(self._pinned),
            packed_waiting((one.at, one.positions) for one in self.unwritten if one.noted),
            sorted(self._closed),
        )
        return {
            "names": self.runs.dump(), "early": self.early.dump(),
            "replicated": msgpack.encode(state),
        }  # fmt: skip

    def load(self, rows: dict[str, bytes]) -> None:
        """What `dump` gave, taken out of `rows`. Raises: LookupError, ValueError."""
        state = msgpack.decode(rows.pop("replicated"), type=_State)
        if vector_of(state.begins) != self.view.begins:
            raise ValueError("the queue begins somewhere else than it did")
        self.runs.load(rows.pop("names"))
        self.early.load(rows.pop("early"))
        self._read, self.stopped = vector_of(state.read), vector_of(state.stopped)
        self.unwritten = [Unwritten(*one) for one in unpacked_waiting(state.unwritten)]
        self.unwritten += [Unwritten(*one, True) for one in unpacked_waiting(state.unnoted)]
        self._pinned = unpacked_waiting(state.pinned)
        self._closed = {Origin(*one) for one in state.closed}

    def check(self) -> None:
        """Asserts what is always true."""
        self.runs.check(self._queue.here)
        self.early.check()


VectorRows = list[tuple[int, int, int]]
WaitingRows = list[tuple[int, bytes]]


class _State(Struct):
    read: VectorRows
    begins: VectorRows
    stopped: VectorRows
    unwritten: WaitingRows
    pinned: WaitingRows
    unnoted: WaitingRows = []  # this and the next one are left out by earlier releases
    closed: list[tuple[int, int]] = []


def rows_of(vector: Vector) -> VectorRows:
    """A vector for the tables."""
    return [(*origin, at) for origin, at in sorted(vector.items())]


def vector_of(rows: VectorRows) -> Vector:
    """The same the other way round."""
    return {Origin(instance, generation): at for instance, generation, at in rows}


def packed_waiting(many: Iterable[tuple[int, BitMap64]]) -> WaitingRows:
    """For the tables."""
    return [(at, bytes(part.serialize())) for at, part in many]


def unpacked_waiting(rows: WaitingRows) -> Waiting:
    """The same the other way round. Raises: ValueError."""
    return [(at, BitMap64.deserialize(part)) for at, part in rows]
