"""Messages of other instances that consumers here could take are asked for. Pure.

    a message of another instance is here for longer than usual, and a consumer has room
        --AskTransfer--> its owner --a record--> it belongs to this instance
        --nothing comes within ASK_AGAIN_MS--> the next owner is asked; after all of them, later

On behalf of consumers without a filter an owner is asked for a number of messages. The filters of
the others are compared with what is late, here, since the log has it; each owner is asked for the
messages that fit, by name: see selector_stats.py.

Usual is what it takes until messages of others are done by consumers of their own: twice the time
of nine in ten of the last SAMPLES that were looked at. One is looked at after the other, so this
costs the same however many there are. While owners keep up nothing is asked.
Source: requirement 000, "Replicated Queues": transfer of ownership; the design of ownership.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct, field
from pyroaring import BitMap64

from zbroker.queues.context import QueuesContext
from zbroker.queues.effects import SayReplication
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replicated.fact_records import origins_of
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.selector_stats import AHEAD_LEAST, ASK_AGAIN_MS, NextNames, again_ms
from zbroker.wire.owner_requests import AskTransfer
from zbroker.wire.replication import NamedMessages

SAMPLES: Final = 100
UNKNOWN_MS: Final = 50  # the usual time before the first sample
USUAL_MAX_MS: Final = 1_000
WATCH_MAX_MS: Final = 10 * USUAL_MAX_MS  # one that no filter fits stays, and says nothing
NO_NAMES: Final = NextNames(BitMap64())


class UsualTime:
    """How long messages of other instances are here before they are done."""

    def __init__(self) -> None:
        self._samples: deque[int] = deque(maxlen=SAMPLES)
        self._watched: tuple[int, int] | None = None  # position, since
        self.ms = UNKNOWN_MS

    def look(self, queue: Queue, now_ms: int) -> None:
        """The message that is watched may be gone; then another one is."""
        if self._watched is not None:
            position, since_ms = self._watched
            if position in queue.here:
                mine = position not in queue.places.foreign
                if mine or now_ms - since_ms > WATCH_MAX_MS:
                    self._watched = None
                return
            self._samples.append(now_ms - since_ms)
            nine_in_ten = sorted(self._samples)[len(self._samples) * 9 // 10]
            self.ms = min(2 * nine_in_ten + 1, USUAL_MAX_MS)
        foreign = queue.places.foreign
        self._watched = (foreign.max(), now_ms) if foreign else None


class TransferDemand(Struct):
    """How one queue asks. mark: the newest message of others at some time; late_to: those up to
    there are here for longer than usual. asked: how many, and when; came: how many had come before
    that. turn: whose it is; rounds: so many owners gave nothing."""

    usual: UsualTime = field(default_factory=UsualTime)
    mark: tuple[int, int] | None = None
    late_to: int = 0
    asked: int = 0
    asked_ms: int = 0
    came: int = 0
    turn: int = 0
    rounds: int = 0
    wake_ms: int | None = None

    def wake(self, ms: int) -> None:
        """There is something to do then, at the latest."""
        self.wake_ms = min(ms, self.wake_ms or ms)


class OwnerRequests:
    """Asks for the queues of an instance. on: false: it has no links."""

    def __init__(self, shared: QueuesContext, *, on: bool) -> None:
        self._shared, self._on = shared, on
        self._many: dict[str, TransferDemand] = {}
        self._waking: dict[str, TransferDemand] = {}  # of these, which wait for a time

    def look(self, one: QueueState) -> None:
        """Something of a queue has changed, or it is time."""
        if not self._on or not isinstance(one.replicated, ReplicatedQueue):
            return
        assert isinstance(one.queue, Queue)
        asking = self._many.setdefault(one.name, TransferDemand())
        self._decide(one, one.replicated, one.queue, asking)
        if asking.wake_ms is not None:
            self._waking[one.name] = asking
        else:
            self._waking.pop(one.name, None)

    def _decide(
        self, one: QueueState, replicated: ReplicatedQueue, queue: Queue, asking: TransferDemand
    ) -> None:
        now_ms = self._shared.now.mono_ms
        asking.usual.look(queue, now_ms)
        asking.wake_ms = None
        foreign = queue.places.foreign
        can_have = foreign and one.offers and not one.definition.config.one_instance
        can_have = can_have and not self._shared.leaves(one)
        spare, seeking = (queue.spare(), queue.seeking()) if can_have else (0, False)
        if not spare and not seeking:
            asking.mark, queue.late_before = None, 0
            return
        self._see_time(asking, foreign.max(), now_ms)
        if not asking.late_to or foreign.min() > asking.late_to:
            return
        counts = self._count(replicated, asking, spare) if spare else {}
        names: dict[int, NextNames] = {}
        if seeking:
            self._compare(one, queue, asking.late_to + 1)
            names = self._name(one, replicated, asking, queue)
        for owner in sorted(counts.keys() | names.keys()):
            self._ask(one, replicated, owner, counts.get(owner, 0), names.get(owner, NO_NAMES))

    def _compare(self, one: QueueState, queue: Queue, before: int) -> None:
        """Filters of consumers are compared with messages before that from now on."""
        if queue.late_before != before:
            queue.late_before = before
            self._shared.touch(one)

    @staticmethod
    def _see_time(asking: TransferDemand, newest: int, now_ms: int) -> None:
        """Which of them are here for longer than usual."""
        if asking.mark is not None and now_ms - asking.mark[1] >= asking.usual.ms:
            asking.late_to, asking.mark = asking.mark[0], None
        if asking.mark is None and newest > asking.late_to:
            asking.mark = newest, now_ms
        if asking.mark is not None:
            asking.wake_ms = asking.mark[1] + asking.usual.ms

    def _count(
        self, replicated: ReplicatedQueue, asking: TransferDemand, spare: int
    ) -> dict[int, int]:
        """How many messages which owner is asked for, on behalf of consumers without a filter."""
        now_ms = self._shared.now.mono_ms
        owners = replicated.others()
        if not owners:
            return {}
        came = replicated.received - asking.came
        if came:
            asking.rounds = 0
        due_ms = asking.asked_ms + again_ms(asking.rounds // len(owners))
        left = max(0, asking.asked - came)
        if left and now_ms < due_ms:
            spare -= left
            if spare < AHEAD_LEAST * (spare + left):  # not one by one
                asking.wake(due_ms)
                return {}
        elif asking.asked and not came:
            asking.turn, asking.rounds = asking.turn + 1, asking.rounds + 1
            left = 0
        else:
            left = 0
        asking.asked, asking.asked_ms = spare + left, now_ms
        asking.came = replicated.received
        asking.wake(now_ms + ASK_AGAIN_MS)
        return {owners[asking.turn % len(owners)]: spare}

    def _name(
        self, one: QueueState, replicated: ReplicatedQueue, asking: TransferDemand, queue: Queue
    ) -> dict[int, NextNames]:
        """Which messages which owner is asked for, on behalf of those with one."""
        found = queue.seek(self._shared.now.mono_ms)
        if found.wake_ms is not None:
            asking.wake(found.wake_ms)
        if found.names:
            self._shared.touch(one)  # the next ones are compared meanwhile
        return {
            owner: NextNames(part, min(found.most, len(part)))
            for owner, part in replicated.ownership.owners(found.names).items()
        }

    def _ask(
        self, one: QueueState, replicated: ReplicatedQueue, owner: int, count: int, ask: NextNames
    ) -> None:
        name = one.definition.config.initial_owner if not owner else ""
        where = [
            NamedMessages(each.instance, each.generation, each.steps)
            for each in origins_of(replicated, ask.names)
        ]
        self._shared.out.append(
            SayReplication(AskTransfer(one.name, owner, name, count, where, ask.most))
        )

    def tick(self, now_ms: int) -> None:
        """Looks at queues for which it is time."""
        running = self._shared.manager.running
        for name, asking in [*self._waking.items()]:
            one = running.get(name)
            if one is None or one.replicated is None:
                del self._waking[name]
            elif asking.wake_ms is not None and asking.wake_ms <= now_ms:
                self.look(one)
        if len(self._many) > len(self._shared.manager.folding.replicated):  # some are gone
            self._many = {name: asking for name, asking in self._many.items() if name in running}

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        wakes = (one.wake_ms for one in self._waking.values())
        return min((wake for wake in wakes if wake is not None), default=None)
