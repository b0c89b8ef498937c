"""What makes a queue a replicated one: facts by origin, and who owns what. Pure.

    record of the log --> known messages: at once          an owner offers, no other instance does
                      \\--> messages that are not here: early, until the log was read beyond them

An early fact is before its message in the log, and the log may be removed between the two. So what
was acknowledged early is written again, as a fact of this log, once the message is here; until that
is durable, and as long as any other early fact is about a message of the queue, the log is held
from the fact on.

When no more facts may wait, the records of their origin wait in the log instead: that origin is
stopped, as on a slow link, and is read again from there when there is room. So is one whose
record names a life of the queue of which nothing is known yet: its definition is of another origin.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import DecodeError, Struct, ValidationError, msgpack
from pyroaring import BitMap64

from zbroker.ids import Origin, Vector
from zbroker.log.format import KIND_ORIGIN, KIND_OWNERSHIP, KIND_STATE, KIND_TIE, Batch
from zbroker.log.queue_records import (
    AnyQueueFact,
    Carried,
    Moved,
    OriginsFailed,
    OriginsGone,
    OutcomesRecord,
    QueueDeclaration,
    facts_of,
    origins_of_state,
)
from zbroker.log.records import ORIGIN
from zbroker.queues.replicated.declarations import QueueView
from zbroker.queues.replicated.early_facts import EarlyFact, EarlyFacts
from zbroker.queues.replicated.origin_runs import OriginRuns
from zbroker.queues.replicated.ownership import OwnerClaim, Ownership
from zbroker.queues.work.carried import CarriedPart, carry
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import bytes_of, first_of, insert, remove, without
from zbroker.queues.work.values import Arrivals


class _Known(NamedTuple):
    """What a fact says of messages that were read, and what of those that were not."""

    fact: AnyQueueFact
    origin: Origin
    here: BitMap64
    early: BitMap64


class ReplicatedQueue:
    """The fold of one queue besides `queue`, as the instance `me` sees it.

    unwritten: messages that were acknowledged early, which is to be written again, and the position
    in this log that is held until then. stopped: origins whose records wait in the log, from
    where on. flagged: messages that another instance may have delivered.
    """

    def __init__(self, me: int, queue: Queue, view: QueueView, initial: bool | None = None) -> None:
        """initial: see Ownership."""
        self.me, self._queue = me, queue
        self.view = view
        self.runs = OriginRuns()
        self.ownership = Ownership(me, self.runs, initial)
        self.early = EarlyFacts()
        self.unwritten: list[tuple[int, BitMap64]] = []
        self.stopped: dict[Origin, int] = {}
        self._awaits: dict[Origin, QueueDeclaration] = {}  # of those, which one has to be known
        self.flagged = BitMap64()
        self.received = 0  # messages that others gave to this instance, since the start
        self._read: dict[Origin, int] = {}  # how far the log was read, by origin
        self._pinned: list[tuple[int, BitMap64]] = []  # early facts about messages that are here

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
        origin = batch.origin
        self.runs.sweep(self._queue.here)
        self.runs.add(
            batch.position, origin, batch.origin_position, batch.taken,
            (batch.publisher, batch.sequence),
        )  # fmt: skip
        if not self.ownership.owns_new(origin.instance):
            self._queue.disown(entered.positions)

    def passed(self, read: Vector) -> None:
        """So far origins were read before it begins to read the log; before any message."""
        self._read = dict(read)

    def read(self, batch: Batch) -> bool:
        """A batch of the log was read, of any kind. True: something became of messages."""
        if batch.kind == KIND_TIE:
            self._tie(batch)
        elif batch.kind == KIND_STATE:
            found = False
            for origin, position in origins_of_state(batch.body).items():
                found |= self._raise(origin, position)
            return found
        elif batch.kind == KIND_ORIGIN:
            return self._declared(batch)
        return self._raise(batch.origin, batch.origin_position + batch.taken - 1)

    def _declared(self, batch: Batch) -> bool:
        """Records of an origin are missing, or come no more, up to some position."""
        try:
            row = ORIGIN.decode(batch.body)
        except (DecodeError, ValidationError, UnicodeDecodeError):
            return False
        return self._raise(Origin(row.instance, row.generation), row.position)

    def _raise(self, origin: Origin, position: int) -> bool:
        if position <= self._read.get(origin, 0):
            return False
        self._read[origin] = position
        if not self.early.waits(origin):
            return False
        gone, others, since = self.early.take(origin, position)
        local = self.runs.local(origin, gone) & self._queue.here
        if local:
            self._gone(local)
            self.unwritten.append((since, local))
        for early in others:
            found = self.runs.local(origin, early.positions) & self._queue.here
            if found:
                self._pinned.append((early.at, found))
                self._apply(early.fact, found, early.claim)
        return True

    def _tie(self, batch: Batch) -> None:
        """Another instance accepted messages that are here."""
        count, origin = batch.skip + 1, batch.origin
        first = batch.origin_position - batch.skip
        sent = batch.publisher, batch.sequence - batch.skip
        local = self.runs.tie(origin, first, count, sent) & self._queue.here
        if not local:
            return
        changed = self.ownership.tie(origin.instance, local)
        self._flag(local)  # the other one may have delivered it
        self._settle_owner(changed)

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
        claim_at = (origin.instance, origin.generation, batch.origin_position)
        known = [one for fact in facts_of(record) for one in self._known(fact)]
        if self.early.full and any(one.early for one in known):
            self.stopped[origin] = batch.position
            return False
        for one in known:
            fact, claim = one.fact, None
            if isinstance(fact, Moved):
                if batch.kind != KIND_OWNERSHIP or fact.number <= 0:
                    continue
                claim = OwnerClaim(fact.number, fact.takeover, *claim_at, fact.to, fact.back)
            local = self.runs.local(one.origin, one.here) & self._queue.here
            if local:
                self._apply(fact, local, claim)
            if one.early:
                self.early.add(one.origin, EarlyFact(fact, one.early, batch.position, claim))
        return True

    def _known(self, fact: AnyQueueFact) -> Iterable[_Known]:
        for one in fact.where:
            try:
                positions = one.positions
            except ValueError:
                continue  # nothing that an instance writes
            count = positions.rank(
                max(self._read.get(one.origin, 0), self.view.begins.get(one.origin, 0))
            )
            yield _Known(fact, one.origin, positions[:count], positions[count:])

    def _apply(self, fact: AnyQueueFact, local: BitMap64, claim: OwnerClaim | None) -> None:
        if isinstance(fact, OriginsGone):
            self._gone(local)
        elif isinstance(fact, OriginsFailed):
            self._queue.failed(local, fact.why, fact.due_ns, fact.delay_ms)
        elif isinstance(fact, Carried):
            carry(
                self._queue,
                CarriedPart(local, fact.failures, fact.cancels, fact.due_ns, fact.delay_ms),
            )
            if fact.seen:
                self._flag(local)
        elif claim is not None:
            changed = self.ownership.apply(claim, local)
            if isinstance(fact, Moved) and fact.seen:
                self._flag(local)
            self._settle_owner(changed)
            if claim.to == self.me != claim.instance and not claim.back:
                self.received += len(changed)
            if claim.instance == self.me and not claim.takeover:
                self._queue.granted(local)

    def _settle_owner(self, changed: BitMap64) -> None:
        mine = self.ownership.mine(changed)
        self._queue.own(mine)
        self._flag(self._queue.disown(without(changed, mine)))

    def _gone(self, local: BitMap64) -> None:
        self._queue.gone(local)
        self.left(local)

    def _flag(self, local: BitMap64) -> None:
        insert(self.flagged, local)
        self._queue.flag(local)

    def left(self, local: BitMap64) -> None:
        """They left the queue."""
        self.ownership.drop(local)
        if self.flagged:
            remove(self.flagged, self.flagged & local)

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
        lows = [at for at, _ in (*self._pinned, *self.unwritten)]
        lows += self.stopped.values()
        if self.early.lowest is not None:
            lows.append(self.early.lowest)
        return min(lows, default=None)

    def others(self) -> list[int]:
        """Instances that may own some of its messages, sorted; 0: the initial owner elsewhere."""
        return sorted(self.ownership.may_own() - {self.me})

    def oldest_of(self, instance: int) -> int | None:
        """The oldest message that belongs to another instance."""
        return first_of(self.ownership.owners(self._queue.here).get(instance, BitMap64()))

    def memory_bytes(self) -> int:
        """Roughly."""
        parts = (self.runs, self.ownership)
        return sum(one.memory_bytes() for one in parts) + self.early.bytes + bytes_of(self.flagged)

    def dump(self) -> dict[str, bytes]:
        """For the tables."""
        state = _State(
            [(*origin, at) for origin, at in self._read.items()],
            [(*origin, at) for origin, at in sorted(self.view.begins.items())],
            [(*origin, at) for origin, at in self.stopped.items()],
            [(at, bytes(part.serialize())) for at, part in self.unwritten],
            [(at, bytes(part.serialize())) for at, part in self._pinned],
            bytes(self.flagged.serialize()),
        )
        return {
            "names": self.runs.dump(), "owners": self.ownership.dump(),
            "early": self.early.dump(), "replicated": msgpack.encode(state),
        }  # fmt: skip

    def load(self, rows: dict[str, bytes]) -> None:
        """What `dump` gave, taken out of `rows`. Raises: LookupError, ValueError."""
        state = msgpack.decode(rows.pop("replicated"), type=_State)
        begins = _vector(state.begins)
        if begins != self.view.begins:
            raise ValueError("the queue begins somewhere else than it did")
        self.runs.load(rows.pop("names"))
        self.ownership.load(rows.pop("owners"))
        self.early.load(rows.pop("early"))
        self._read, self.stopped = _vector(state.read), _vector(state.stopped)
        self.unwritten = [(at, BitMap64.deserialize(part)) for at, part in state.unwritten]
        self._pinned = [(at, BitMap64.deserialize(part)) for at, part in state.pinned]
        self.flagged = BitMap64.deserialize(state.flagged)

    def check(self) -> None:
        """Asserts what is always true."""
        here = self._queue.here
        self.runs.check(here)
        self.ownership.check(here)
        self.early.check()
        assert self.flagged.issubset(here)
        assert self.ownership.mine(here) == here - self._queue.places.foreign


class _State(Struct):
    read: list[tuple[int, int, int]]
    begins: list[tuple[int, int, int]]
    stopped: list[tuple[int, int, int]]
    unwritten: list[tuple[int, bytes]]
    pinned: list[tuple[int, bytes]]
    flagged: bytes


def _vector(rows: list[tuple[int, int, int]]) -> Vector:
    return {Origin(instance, generation): at for instance, generation, at in rows}
