"""What makes a work queue a replicated one: facts by origin, and who owns what. Pure.

record of the log --> known messages: at once          an owner offers, no other instance does
                  \\--> messages that are not here: early, see origin_facts.py
"""

from __future__ import annotations

from msgspec import Struct, msgpack
from pyroaring import BitMap64

from zbroker.log.format import KIND_OWNERSHIP, Batch
from zbroker.log.queue_records import (
    AnyQueueFact,
    Carried,
    Moved,
    OriginsFailed,
    OriginsGone,
    OriginsLocked,
)
from zbroker.queues.replicated.declarations import QueueView
from zbroker.queues.replicated.origin_facts import OriginFacts
from zbroker.queues.replicated.ownership import OwnerClaim, Ownership
from zbroker.queues.work.carried import CarriedPart, carry
from zbroker.queues.work.locks import failed, locked
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import bytes_of, first_of, insert, remove, without
from zbroker.queues.work.values import Arrivals, Lock


class ReplicatedQueue(OriginFacts):
    """flagged: messages that another instance may have delivered."""

    _queue: Queue

    def __init__(self, me: int, queue: Queue, view: QueueView, initial: bool | None = None) -> None:
        """initial: see Ownership."""
        super().__init__(me, queue, view)
        self.ownership = Ownership(me, self.runs, initial)
        self.flagged = BitMap64()
        self.received = 0  # messages that others gave to this instance, since the start

    def entered(self, batch: Batch, entered: Arrivals) -> None:
        """They are in the queue now."""
        super().entered(batch, entered)
        if not self.ownership.owns_new(batch.origin.instance):
            self._queue.disown(entered.positions)

    def _tied(self, batch: Batch, local: BitMap64) -> None:
        changed = self.ownership.tie(batch.origin.instance, local)
        self._flag(local)  # the other one may have delivered it
        self._settle_owner(changed)

    # -- facts --------------------------------------------------------------------------------

    def _counts(self, fact: AnyQueueFact, batch: Batch) -> bool:
        if isinstance(fact, Moved):
            return batch.kind == KIND_OWNERSHIP and fact.number > 0
        return isinstance(fact, OriginsGone | OriginsFailed | OriginsLocked | Carried)

    def _claim(self, fact: AnyQueueFact, batch: Batch) -> OwnerClaim | None:
        if not isinstance(fact, Moved):
            return None
        at = (batch.origin.instance, batch.origin.generation, batch.origin_position)
        return OwnerClaim(fact.number, fact.takeover, *at, fact.to, fact.back)

    def _apply(
        self, fact: AnyQueueFact, local: BitMap64, claim: OwnerClaim | None, *, own: bool = False
    ) -> None:
        if isinstance(fact, OriginsGone):
            self._gone(local)
        elif isinstance(fact, OriginsFailed):
            failed(self._queue, local, fact.why, fact.due_ns, fact.delay_ms, here=own)
        elif isinstance(fact, OriginsLocked):
            locked(self._queue, local, Lock(fact.branch, fact.reject))
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

    def _flag(self, local: BitMap64) -> None:
        insert(self.flagged, local)
        self._queue.flag(local)

    def left(self, local: BitMap64) -> None:
        """They left the queue."""
        self.ownership.drop(local)
        if self.flagged:
            remove(self.flagged, self.flagged & local)

    # -- look ---------------------------------------------------------------------------------

    def others(self) -> list[int]:
        """Instances that may own some of its messages, sorted; 0: the initial owner elsewhere."""
        return sorted(self.ownership.may_own() - {self.me})

    def oldest_of(self, instance: int) -> int | None:
        """The oldest message that belongs to another instance."""
        return first_of(self.ownership.owners(self._queue.here).get(instance, BitMap64()))

    def memory_bytes(self) -> int:
        """Roughly."""
        return super().memory_bytes() + self.ownership.memory_bytes() + bytes_of(self.flagged)

    def dump(self) -> dict[str, bytes]:
        """For the tables."""
        flagged = bytes(self.flagged.serialize())
        return {**super().dump(), "owners": self.ownership.dump(), "flagged": flagged}

    def load(self, rows: dict[str, bytes]) -> None:
        """What `dump` gave, taken out of `rows`. Raises: LookupError, ValueError."""
        flagged = rows.pop("flagged", None)
        if flagged is None:  # an earlier release had them in another row
            flagged = msgpack.decode(rows["replicated"], type=_Flagged).flagged
        super().load(rows)
        self.ownership.load(rows.pop("owners"))
        self.flagged = BitMap64.deserialize(flagged)

    def check(self) -> None:
        """Asserts what is always true."""
        super().check()
        here = self._queue.here
        self.ownership.check(here)
        assert self.flagged.issubset(here)
        assert self.ownership.mine(here) == here - self._queue.places.foreign


class _Flagged(Struct):
    flagged: bytes
