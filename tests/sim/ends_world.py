"""The queues world with queues that have limits of what may wait, or that end by themselves.

    limits   judged when the process decides: nothing more waits than may, the oldest went, none
             of them for nothing, and no consumer could have taken them
    full     of queues that refuse: nothing of them is dropped, and all that is said of them is
             true; what ingest refuses by that is not in the log, and at the end nothing is refused
    ends     judged when the process decides: nobody used the queue for so long, or it was left;
             and at the end, when all consumers have gone, none is there that should have ended
    all      as in the queues world: what holds is in the log, whatever dies

Planted bugs (ends_bugs) prove that the world can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from tests.sim.ends_bugs import BUGS
from tests.sim.queues_judge import Judge, Ref
from tests.sim.queues_process import ProcessNode
from tests.sim.queues_world import DEAD, World, config_of
from tests.sim.seeds import plant
from zbroker.config import QueueConfig
from zbroker.engine.effects import Send
from zbroker.errors import ClientError
from zbroker.ingest.full_queue_gate import FullQueueGate
from zbroker.ingest.routing import ORDINARY
from zbroker.queues.core import QueuesCore
from zbroker.queues.effects import Effect, FullSubscribed, PublishFull
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.work.queue import Queue
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire import codec
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.full_queues import FullQueues
from zbroker.wire.messages import Columns, Publish

REJECT = {"overflow": "reject-publish"}
LIMITED: dict[str, dict[str, Any]] = {
    "length": {"max_length": 4},
    "bytes": {"max_bytes": 150},
    "both": {"max_length": 5, "max_bytes": 200, "max_per_subscription": 0},
    "letters": {"max_length": 3, "dead_letter": DEAD, "retry_delay": [0, 120]},
    "keys": {"max_length": 5, "group_key": "/g"},
    "barriers": {"max_length": 3, "barrier": "/b = 1"},
    "first": {"max_length": 4, "priority": "/p"},
    "refusing": {"max_length": 4, **REJECT},
    "refusing bytes": {"max_bytes": 150, **REJECT},
    "taken": {"max_length": 3, "semantics": "at-most-once", "lease": 0},
}
ENDS: list[dict[str, Any]] = [
    {"expires": "300ms"}, {"expires": "900ms"}, {"auto_delete": True},
    {"auto_delete": True, "expires": "2s"}, {},
]  # fmt: skip
ALTERED: list[dict[str, Any]] = [
    {"max_length": 2}, {"max_length": 6}, {"max_length": 3, **REJECT}, {"overflow": "drop-head"},
    {"expires": "500ms"}, {"auto_delete": True},
]  # fmt: skip
LAST_MS = 6_000  # until all that has to end has ended


@dataclass
class Use:
    """Of a queue in one process. last_ms: when it was seen with a consumer, at first when it was
    begun. consumed: it has had one."""

    one: QueueState
    last_ms: int
    consumed: bool = False


class EndsJudge(Judge):
    """Sees what the process decides, too."""

    world: EndsWorld

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._uses: dict[str, Use] = {}
        self._decided: dict[tuple[str, int], BitMap64] = {}
        self._knows_queues = False  # to the process, what is in its queues
        self._said_full: set[str] = set()  # by it, which are full

    def watch_core(self, core: Any) -> None:
        """A process that begins."""
        self._uses, self._knows_queues, self._said_full = {}, False, set()
        give_up, changes = core._give_up, core._ends._changes

        def watched(one: QueueState) -> None:
            if not isinstance(one.queue, Queue):
                return
            before, leased = self._waiting(one.queue), one.queue.leased(None)
            give_up(one)
            self._limited(core, one, before, before - self._waiting(one.queue))
            lost = leased - one.queue.leased(None)
            self.demand(not lost, one.name, "drops what consumers have:", list(lost))

        core._give_up = watched
        core._ends._changes = WatchedChanges(changes, lambda name: self._ending(core, name))

    # -- limits -------------------------------------------------------------------------------

    @staticmethod
    def _waiting(queue: Queue) -> BitMap64:
        places = queue.places
        return queue.here - places.leases.leased - places.going - places.overdue - places.barriers

    def _bytes(self, ref: Ref, positions: Iterable[int]) -> int:
        """What is brought back has no size."""
        return sum(len(self.messages[at].data) for at in positions if at not in ref.requeued)

    def _limited(
        self, core: QueuesCore, one: QueueState, before: BitMap64, dropped: BitMap64
    ) -> None:
        config, ref = one.definition.config, self.ref(one)
        if ref is None or not before:
            return
        name, after = one.name, before - dropped
        if config.overflow == "reject-publish":
            self.demand(not dropped, name, "refuses, and drops", list(dropped))
            return
        most, most_bytes = config.max_length or 1 << 60, config.max_bytes or 1 << 60
        if one.offers and not core.manager.commits.full:
            self.demand(len(after) <= most, name, "has waiting", list(after))
            self.demand(self._bytes(ref, after) <= most_bytes, name, "has too many bytes")
        if not dropped:
            return
        oldest = not after or dropped.max() < after.min()
        self.demand(oldest, name, "drops", list(dropped), "and keeps", list(after))
        last = dropped.max()
        needed = len(after) + 1 > most or self._bytes(ref, [*after, last]) > most_bytes
        self.demand(needed, name, "drops for nothing:", last)
        self._could_be_taken(core, one, dropped)
        key = name, one.definition.declaration
        self._decided[key] = self._decided.get(key, BitMap64()) | dropped
        self.checks["dropped"] += len(dropped)
        self.checks["dropped beside leased ones"] += bool(before != one.queue.here)

    def _could_be_taken(self, core: Any, one: QueueState, dropped: BitMap64) -> None:
        """No consumer without a filter had room for one that could be offered."""
        config, queue = one.definition.config, one.queue
        assert isinstance(queue, Queue)
        if config.barrier or config.group_key or queue.more or not core._dispatcher.offers(one):
            return
        if any(queue.places.delays.dues.get(at) for at in dropped):
            return
        for consumer in core.shared.of.get(one.name, {}).values():
            there = queue.consumers.by_key[consumer.key]
            idle = consumer.filter is None and consumer.credit > 0 and there.spare > 0
            self.demand(not idle, one.name, "drops what a consumer could take:", list(dropped))

    def _gone(self, ref: Ref, where: BitMap64, why: str) -> None:
        if why != "max_length":
            super()._gone(ref, where, why)
            return
        decided = self._decided.get((ref.name, ref.life), BitMap64())
        self.demand(where.issubset(decided), ref.name, "drops, undecided,", list(where))
        self.checks[why] += len(where)
        ref.dead |= where
        self._out(ref, where, why)

    # -- full ---------------------------------------------------------------------------------

    def offered(self, process: ProcessNode, effects: list[Effect]) -> None:
        """And what ingest is to hear."""
        super().offered(process, effects)
        for effect in effects:
            if isinstance(effect, PublishFull):
                self._reported_full(process, effect.message)
        full = {one.name for one in self._refusing(process) if self._is_full(one)}
        self.demand(
            not self._knows_queues or full == self._said_full,
            "full:",
            full,
            "said:",
            self._said_full,
        )

    def _reported_full(self, process: ProcessNode, said: FullQueues) -> None:
        if said.known and not self._knows_queues:
            unread = [one.name for one in self._refusing(process) if not one.ready]
            self.demand(process.core.manager.known and not unread, "it does not know yet", unread)
            self._knows_queues = True
        self._said_full = {row.name for row in said.rows}
        for row in said.rows:
            config = process.core.manager.running[row.name].definition.config
            limits = row.max_length, row.max_bytes
            self.demand(limits == (config.max_length, config.max_bytes), row, "has other limits")
        self.checks["full"] += len(said.rows)

    @staticmethod
    def _refusing(process: ProcessNode) -> list[QueueState]:
        running = process.core.manager.running.values()
        return [one for one in running if one.definition.config.overflow == "reject-publish"]

    def _is_full(self, one: QueueState) -> bool:
        config, ref = one.definition.config, self.ref(one)
        if ref is None or not one.offers or not isinstance(one.queue, Queue):
            return False
        waiting = self._waiting(one.queue)
        return bool(
            0 < config.max_length <= len(waiting)
            or 0 < config.max_bytes <= self._bytes(ref, waiting)
        )

    # -- ends ---------------------------------------------------------------------------------

    def began(self, process: ProcessNode, one: QueueState) -> None:
        """Also whether it is in use, after each event."""
        super().began(process, one)
        now_ms, use = self.world.at.now_ms, self._uses.get(one.name)
        if use is None or use.one is not one:
            use = self._uses[one.name] = Use(one, now_ms)
        if self._consumers(process.core, one):
            use.last_ms, use.consumed = now_ms, True

    @staticmethod
    def _consumers(core: QueuesCore, one: QueueState) -> bool:
        """It has some, or waits for some to come back."""
        lost = isinstance(one.queue, Queue) and one.queue.consumers.by_key
        return bool(core.shared.of.get(one.name) or lost)

    def answered(self, process: ProcessNode, send: Send) -> None:
        """A consumer of a moment is one."""
        super().answered(process, send)
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, send.header)
        if isinstance(answer, q.Consuming):
            use = self._uses.get(self.asks[answer.sid].queue)
            if use is not None:
                use.last_ms, use.consumed = self.world.at.now_ms, True

    def _ending(self, core: QueuesCore, name: str) -> None:
        """The process decides that a queue ends."""
        one = core.manager.running[name]
        config, use = one.definition.config, self._uses[name]
        self.demand(not self._consumers(core, one), name, "ends, and is in use")
        unused_ms = self.world.at.now_ms - use.last_ms
        over = 0 < config.expires <= unused_ms
        left = config.auto_delete and use.consumed
        self.demand(over or left, name, "ends, unused for", unused_ms, config)
        self.checks["left" if left else "expired"] += 1

    def verdict(self, process: ProcessNode) -> None:
        """And when nobody is there any more, all that has to end has ended."""
        super().verdict(process)
        self.demand(not self.world.gate.rows, "publishers are refused, and all queues are empty")
        self._stays(self.world.leave_all())

    def _stays(self, process: ProcessNode) -> None:
        for one in process.core.manager.running.values():
            config, use = one.definition.config, self._uses[one.name]
            if self._consumers(process.core, one):
                continue
            self.demand(not config.expires, one.name, "does not expire")
            self.demand(not (config.auto_delete and use.consumed), one.name, "was left, and stays")


class WatchedChanges:
    """What ends queues by themselves, with a judge who hears of it first."""

    def __init__(self, changes: Any, ending: Callable[[str], None]) -> None:
        self._changes, self._ending = changes, ending

    def deleted(self, *given: Any) -> Any:
        return self._changes.deleted(*given)

    def commit(self, name: str, *given: Any) -> None:
        self._ending(name)
        self._changes.commit(name, *given)


class EndsWorld(World):
    """One simulated history."""

    pool = LIMITED
    judge_type = EndsJudge
    judge: EndsJudge
    gate: FullQueueGate

    def _first_queues(self) -> list[QueueConfig]:
        self.gate = FullQueueGate(None)
        names = self.rng.sample(list(LIMITED), self.rng.randint(1, 3))
        made = [
            QueueConfig(name, "t0", **{"lease": 400, "max_per_subscription": 10, **LIMITED[name]})
            for name in names
        ]
        return [*made, config_of(DEAD)]

    def _send(self, topics: list[str], payloads: list[bytes], columns: Columns | None) -> None:
        """Through an ingest process, which may be a new one that has just begun to listen."""
        if self.rng.random() < 0.1:
            self.gate = FullQueueGate(None)
            if self.process is not None:
                self.process.admin.put(FullSubscribed())
        self.gate.tick(self.at.now_ms)
        if self.gate.rows:
            publish = Publish(1, topics=topics, count=len(payloads), columns=columns)
            try:
                self.gate.check(publish, ORDINARY)
            except ClientError as error:
                self.judge.checks[error.code] += 1
                return
        super()._send(topics, payloads, columns)

    def ingest_hears(self, said: FullQueues) -> None:
        self.gate.learn(said, self.at.now_ms)

    def core_of(self, settings: ListenerSettings, manager: QueueRegistry) -> QueuesCore:
        core = QueuesCore(settings, manager)
        plant(BUGS, self.bug, core)
        self.judge.watch_core(core)
        return core

    def _define(self) -> None:
        """Mostly queues that end by themselves."""
        rng = self.rng
        alive = {name for name, ref in self.judge.refs.items() if not ref.ended}
        free = {"own0", "own1", "own2"} - alive
        made = sorted({"own0", "own1", "own2"} & alive)
        if free and rng.random() < 0.7 and not self.drifted:
            table = {"topic": "t0", "lease": "400ms", **rng.choice(ENDS)}
            table |= rng.choice(({}, {"max_length": 4}, {"max_bytes": 150}, LIMITED["refusing"]))
            self.admin.ask(s.Define(0, "create", min(free), table))
        elif made and rng.random() < 0.7:
            self.admin.ask(s.Define(0, "alter", rng.choice(made), rng.choice(ALTERED)))
        elif made:
            self.admin.ask(s.Define(0, "delete", rng.choice(made)))

    def _names(self) -> list[str]:
        """Those that end by themselves are used more."""
        names = super()._names()
        return [*names, *[name for name in names if name.startswith("own")] * 3]

    def _step(self) -> None:
        if self.rng.random() < 0.1:
            self._define()
        super()._step()

    def leave_all(self) -> ProcessNode:
        """All consumers end, and time passes."""
        for client in self.clients:
            for want in client.wants:
                if want.live and client.logged_on:
                    client._send(q.Cancel(want.sid, self.cid()))
                want.live = want.wanted = False
        self.at.run_until(self.at.now_ms + LAST_MS)
        assert self.process is not None
        return self.process
