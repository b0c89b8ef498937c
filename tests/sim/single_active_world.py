"""The queues world with queues of which one consumer at a time gets messages.

    one       a message is sent to another consumer than the last one only after that is over: it
              left; or its connection is lost, and nothing that it was sent waits for it
    next      the one that has been there longest; one that is back in time has its old place
    order     nothing is offered before what comes earlier in the queue and is neither with this
              consumer, nor done, nor delayed; nothing is sent before what was offered before it,
              whatever the disk does
    flags     as in the queues world: what was sent before comes flagged, whoever gets it
    the end   one after the other takes over, until one consumer is left

Consumers come back at once, after a while, or never. Planted bugs (single_active_bugs) prove that
the world can fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyroaring import BitMap64

from tests.sim.queues_clients import Client, Want, payload, rows_of
from tests.sim.queues_judge import Judge, Lease, Ref
from tests.sim.queues_process import ProcessNode
from tests.sim.queues_world import DEAD, World, config_of
from tests.sim.seeds import plant
from tests.sim.single_active_bugs import BUGS
from zbroker.config import QueueConfig
from zbroker.engine.effects import Send
from zbroker.queues.core import QueuesCore
from zbroker.queues.effects import Give
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.work.consumers import GRACE_MS
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Offer
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire import codec
from zbroker.wire import queue_messages as q

_POOL: dict[str, dict[str, Any]] = {
    "few": {"max_per_subscription": 2},
    "many": {"max_per_subscription": 0},
    "late": {"max_per_subscription": 3, "retry_delay": [0, 120]},
    "limits": {"max_deliveries": 3, "dead_letter": DEAD, "retry_delay": [30, 200]},
    "once": {"semantics": "at-most-once", "lease": 0, "max_per_subscription": 8},
    "strict": {"leasing": "strict", "max_per_subscription": 4},
    "for-ever": {"lease": 0, "max_per_subscription": 3},
}
POOL = {
    name: {"lease": 400, "single_active_consumer": True, **given} for name, given in _POOL.items()
}
AWAY_MS: Final = (50, 300, 900)  # leases last for 400
ROUNDS: Final = 3  # of takeovers in the end
ROUND_MS: Final = 4_000


@dataclass
class Member:
    """A consumer of a queue in this process. first, last: bounds of its place: it may have that of
    one that was lost. lost_ms: when its connection was. left: by its own will, or the broker's."""

    key: int
    holder: str
    first: int
    last: int
    lost_ms: int | None = None
    left: bool = False


class Unsent(NamedTuple):
    """A message that was offered to a consumer, and is not sent yet. number: of the offer."""

    key: int
    number: int


class SingleActiveJudge(Judge):
    """Knows who came when, and who was sent something last."""

    world: SingleActiveWorld

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._members: dict[tuple[str, int], dict[int, Member]] = {}  # by queue and life
        self._last: dict[tuple[str, int], Member] = {}
        self._unsent: dict[tuple[str, int, int], Unsent] = {}  # by queue, life and position
        self._came = self._count = 0
        self._leaving: set[str] = set()  # sids of those that the process was asked to end

    # -- who is there -------------------------------------------------------------------------

    def began(self, process: ProcessNode, one: QueueState) -> None:
        """Also who has gone, after each event."""
        if process is not self._process:
            self._members, self._last, self._unsent = {}, {}, {}
        super().began(process, one)
        here = process.core.shared.consumers
        for member in self._members.get(self._key(one), {}).values():
            if member.key not in here and member.lost_ms is None and not member.left:
                member.lost_ms = self.world.at.now_ms
                self._cap(one, member)

    @staticmethod
    def _key(one: QueueState) -> tuple[str, int]:
        return one.name, one.definition.declaration

    def _cap(self, one: QueueState, lost: Member) -> None:
        """What it holds waits for it for a lease."""
        ref = self.ref(one)
        leases = {one.definition.config.lease, ref.config.lease if ref is not None else 0}
        end_ms = self.world.at.now_ms + min(each or GRACE_MS for each in leases)
        for at, lease in self._of(one.name, lost):
            least = end_ms if lease.end_ms is None else min(end_ms, lease.end_ms)
            self._leases[at] = Lease(lost.key, least)

    def _of(self, name: str, member: Member) -> list[tuple[tuple[str, int], Lease]]:
        return [
            (at, lease) for at, lease in self._leases.items()
            if at[0] == name and lease.key == member.key
        ]  # fmt: skip

    def commanded(self, process: ProcessNode, received: Any) -> None:
        super().commanded(process, received)
        command = codec.decode(codec.QUEUES, received.frames[0])
        if not isinstance(command, q.Cancel):
            return
        for consumer in process.core.shared.consumers.values():
            member = self._member(process, consumer.queue, consumer.key)
            if consumer.sid == command.sid and member is not None:
                member.left = True

    def _member(self, process: ProcessNode, queue: str, key: int) -> Member | None:
        one = process.running(queue)
        return None if one is None else self._members.get(self._key(one), {}).get(key)

    def answered(self, process: ProcessNode, send: Send) -> None:
        """One that the broker ends has left."""
        super().answered(process, send)
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, send.header)
        sid = getattr(answer, "sid", None)
        if sid in self.asks and answer.__class__.__name__ == "Error":
            one = process.running(self.asks[sid].queue)
            for member in self._members.get(self._key(one), {}).values() if one else ():
                if member.key not in process.core.shared.consumers and member.lost_ms is None:
                    member.left = True

    def _consuming(self, process: ProcessNode, answer: q.Consuming) -> None:
        super()._consuming(process, answer)
        found = [
            each for each in process.core.shared.consumers.values() if each.sid == answer.sid
        ]  # fmt: skip
        one = process.running(self.asks[answer.sid].queue)
        if not found or one is None or not isinstance(one.queue, Queue):
            return
        [consumer] = found
        self._came += 1
        members = self._members.setdefault(self._key(one), {})
        came = Member(consumer.key, consumer.holder, self._came, self._came)
        before = [each for each in members.values() if self._may_be_back(came, each)]
        came.first = min([each.first for each in before], default=came.first)
        waits = [each for each in before if self._waits(one, each)]
        came.last = min([each.last for each in waits], default=came.last)
        for each in before:
            each.left = True
            for at, _ in self._of(one.name, each):
                del self._leases[at]
        for position in self.kept_by(answer, one.name):
            self._leases[one.name, position] = Lease(
                came.key, one.queue.places.leases.end(position)
            )
        members[came.key] = came
        self.checks["came back"] += bool(before)

    @staticmethod
    def _may_be_back(came: Member, before: Member) -> bool:
        return before.lost_ms is not None and not before.left and before.holder == came.holder

    def _waits(self, one: QueueState, lost: Member) -> bool:
        """Whether what a lost consumer was sent waits for it for certain."""
        ref = self.ref(one)
        if ref is None or ref.once or lost.left:
            return False
        now_ms = self.world.at.now_ms
        return any(
            at[1] in ref.here - ref.disputed and (lease.end_ms is None or lease.end_ms > now_ms)
            for at, lease in self._of(one.name, lost)
        )

    # -- sends --------------------------------------------------------------------------------

    def sent(self, process: ProcessNode, give: Give, send: Send) -> None:
        one = process.running(give.to.queue)
        ref = self.ref(one)
        alone = one is not None and one.definition.config.single_active_consumer
        if one is not None and ref is not None and not ref.ended and alone:
            member = self._members.get(self._key(one), {}).get(give.to.key)
            self.demand(member is not None, one.name, "sends to no consumer of it")
            assert member is not None
            self._one_alone(one, member)
            job = codec.decode(codec.QUEUES_ANSWERS, send.header)
            assert isinstance(job, q.Job)
            if isinstance(one.queue, Queue) and not ref.once:
                for position, _, _ in rows_of(job, send.body or b""):
                    self._in_turn(one, one.queue, member, position)
        super().sent(process, give, send)

    def _one_alone(self, one: QueueState, member: Member) -> None:
        members = self._members[self._key(one)]
        last = self._last.get(self._key(one))
        if last is not None and last is not member:
            back = last.lost_ms is not None and last.holder == member.holder
            over = last.left or (last.lost_ms is not None and not self._waits(one, last))
            self.demand(back or over, one.name, "goes from", last, "to", member)
            self.checks["took over" if over and not back else "went on"] += 1
        for other in members.values():
            there = not other.left and (other.lost_ms is None or self._waits(one, other))
            first = there and other.last < member.first
            self.demand(not first, one.name, "goes to", member, "and not to", other)
        self._last[self._key(one)] = member

    def _order(self, process: ProcessNode, ref: Ref, queue: Queue, offers: list[Offer]) -> None:
        """Nothing that is offered passes what waits, or comes back."""
        super()._order(process, ref, queue, offers)
        if not ref.config.single_active_consumer or ref.altered:
            return
        self.demand(len({offer.consumer for offer in offers}) == 1, ref.name, "goes to many")
        first = min(min(offer.positions) for offer in offers)
        places = queue.places
        passed = queue.here & BitMap64(range(first))
        passed -= queue.leased(offers[0].consumer) | (places.going - places.failing)
        for at in passed:
            excused = self._is_delayed(ref, at) or self._is_late(ref, at)
            self.demand(excused, ref.name, "offers", first, "before", at)
        for offer in offers:
            self._count += 1
            for at in offer.positions:
                self._unsent[ref.name, ref.life, at] = Unsent(offer.consumer, self._count)
        self.checks["in order"] += 1

    def _is_delayed(self, ref: Ref, position: int) -> bool:
        return ref.due_ns.get(position, 0) > self.world.wall_ns() or (
            self.world.at.now_ms < ref.over_ms.get(position, 0) < 1 << 62
        )

    def _is_late(self, ref: Ref, position: int) -> bool:
        """It has expired, and is about to go."""
        return 0 < ref.expires(self.messages[position]) <= self._latest_ns

    def _in_turn(self, one: QueueState, queue: Queue, member: Member, position: int) -> None:
        """Nothing passes what comes earlier and was offered first, if this consumer still has it.
        What came back may pass later ones that wait for the horizon."""
        mine = self._unsent.pop((*self._key(one), position), None)
        had = queue.leased(member.key)
        for (*key, at), other in self._unsent.items() if mine else ():
            if (*key,) != self._key(one) or other.key != member.key or at not in had:
                continue
            passed = at < position and other.number <= mine.number
            self.demand(not passed, one.name, "sends", position, "before", at, "to", member)

    # -- the end ------------------------------------------------------------------------------

    def verdict(self, process: ProcessNode) -> None:
        super().verdict(process)
        super().verdict(self.world.hand_on())

    def active(self) -> Iterator[tuple[str, str]]:
        """Queues, and the sid of the consumer that was sent something last, if it is there."""
        process = self.world.process
        assert process is not None
        for one in process.core.manager.running.values():
            member = self._last.get(self._key(one))
            if member is not None and member.key in process.core.shared.consumers:
                yield one.name, process.core.shared.consumers[member.key].sid


class Returning(Client):
    """A program that comes back when it likes."""

    def _ack(self, want: Want, many: BitMap64) -> q.Settle:
        """At most once nothing is leased, so a filter is true for nothing."""
        ref = self.world.judge.refs.get(want.command.queue)
        return q.Settle() if ref is None or ref.once else super()._ack(want, many)

    def cut(self) -> None:
        if self.pipe is None or self.world.rng.random() < 0.5:
            super().cut()
            return
        self.stay_away(AWAY_MS)


class SingleActiveWorld(World):
    """One simulated history."""

    pool = POOL
    judge_type = SingleActiveJudge
    judge: SingleActiveJudge

    def _first_queues(self) -> list[QueueConfig]:
        names = self.rng.sample(list(POOL), self.rng.randint(1, 2))
        return [*(QueueConfig(name, topic="t0", **POOL[name]) for name in names), config_of(DEAD)]

    def core_of(self, settings: ListenerSettings, manager: QueueRegistry) -> QueuesCore:
        core = QueuesCore(settings, manager)
        plant(BUGS, self.bug, core)
        return core

    def _new_client(self) -> None:
        """Each of them would be the active one of all queues."""
        client = Returning(self, f"c{len(self.clients)}-{self.cid()}")
        client.diligent = self.thrifty
        self.clients.append(client)
        for name in self._names():
            self._want(client, name)

    def _want(self, client: Client, queue: str) -> None:
        """No filter: it would keep what it is not true for from the next one."""
        holder = self.cid()
        credit = self.rng.choice((300, 4_000, 1 << 20))
        want = Want(
            q.Consume(holder, queue, holder=holder, credit=credit, backlog=self.rng.choice((0, 3)))
        )
        client.wants.append(want)
        if client.logged_on:
            client.consume(want)

    def _fault(self) -> None:
        if self.rng.random() < 0.4:
            self.rng.choice((
                self._cut, self._cut, self._replace_client, self._end_active, self._fail_reads,
            ))()  # fmt: skip
        else:
            super()._fault()

    def _end_active(self) -> None:
        """An active consumer ends by itself."""
        if self.process is not None:
            self._cancel({sid for _, sid in self.judge.active()})

    def _cancel(self, sids: set[str]) -> None:
        for client in self.clients:
            for want in client.wants:
                if want.live and want.sid in sids and client.logged_on:
                    client._send(q.Cancel(want.sid, self.cid()))
                    want.live = want.wanted = False
                    want.held.clear()

    def hand_on(self) -> ProcessNode:
        """The active ones end, others take over; as long as each queue has one that can."""
        for _ in range(ROUNDS):
            assert self.process is not None
            consumers = self.process.core.shared.of
            free = {name for name, many in consumers.items() if len(many) > 1}
            self._cancel({sid for name, sid in self.judge.active() if name in free})
            assert self.journal is not None
            self.journal.publish(["t0"], [payload(self._published, self.rng)], None)
            self._published += 1
            end_ms = self.at.now_ms + ROUND_MS
            self._staff(self.clients[-1])
            self.at.run_until(self.at.now_ms + 200)
            while not self._drained() and self.at.now_ms < end_ms:
                self.at.run_until(self.at.now_ms + 50)
            self.judge.demand(self._drained(), "no one takes over:", self._left())
        assert self.process is not None
        return self.process
