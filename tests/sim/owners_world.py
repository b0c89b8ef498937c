"""Three to five instances with one replicated queue: journal, replication and queues that ship.

Consumers work anywhere, fail over, and acknowledge elsewhere what they took; instances ask each
other for messages; people take over what belongs to others, also while these are there. Links are
cut, processes die at any effect, the power fails, publishers fail over.

In some histories the queue is local at first, on one instance or on two, see owners_locals.

Safety: a message is sent unflagged once, or once by each instance that accepted it before these
knew of each other; who gave a message away offers it no more; what an instance answered as done, it
never sends again. Liveness: when faults end, all instances see the same queue with the same owners,
and then every message is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from typing import Any
from unittest import mock

from msgspec import structs

from tests.sim import owners_bugs, owners_stops
from tests.sim.many_publishers import Publisher
from tests.sim.many_world import Instance, ManyWorld
from tests.sim.owners_filters import SelectiveConsumers
from tests.sim.owners_locals import LocalQueues
from tests.sim.owners_process import QUEUE, InstanceQueues, Tables
from tests.sim.owners_workers import Worker, message_of, payload_of
from tests.sim.replication_process import QUEUES
from tests.sim.two_nodes import Message, messages
from zbroker.config import QueueConfig
from zbroker.engine.events import Asked
from zbroker.ids import Origin
from zbroker.journal import core as journal_core
from zbroker.log.format import KIND_OUTCOMES, KIND_OWNERSHIP, KIND_PUBLISH, KIND_QUEUE, KIND_TIE
from zbroker.log.queue_records import OUTCOMES, Moved, OriginsGone, decoded, facts_of
from zbroker.log.records import QUEUE as QUEUE_RECORD
from zbroker.log.records import StandIn
from zbroker.queues import dispatch, journal_client, owner_moves, registry, snapshots
from zbroker.queues.replicated import early_facts
from zbroker.replication.core import ReplicationCore
from zbroker.replication.log_port import LinkLog
from zbroker.wire import queue_surveys as s
from zbroker.wire.owner_requests import ToReplication
from zbroker.wire.replicas import Replicated

RUN_MS = 5_000
HEAL_MS = 60_000
LEASE_MS = 1_200
#: what is rare or slow matters in short histories, too. AHEAD: positions of the horizon
SCALED: list[tuple[Any, str, int]] = [
    (dispatch, "AHEAD", 30), (registry, "AHEAD", 30), (snapshots, "SAVE_MS", 300),
    (journal_client, "HOLDS_MS", 100), (journal_core, "BEAT_MS", 50), (owner_moves, "LOOK_MS", 200),
]  # fmt: skip


class OwnersInstance(Instance):
    """An instance with a queues process. sent_before: in the memory of the host."""

    world: OwnersWorld

    def __init__(self, world: OwnersWorld, name: str, number: int) -> None:
        super().__init__(world, name, number)
        self.queues: InstanceQueues | None = None
        self.tables = Tables()
        self.sent_before: dict[tuple[str, int], int] = {}
        self.done: set[Message] = set()  # as it told consumers

    def start(self) -> None:
        super().start()
        if self.queues is None:
            self.queues = InstanceQueues(self)
            if self._said is not None:
                self.queues.marked(self._said, to_all=True)

    def kill_journal(self, *, power: bool) -> None:
        self.world.look()  # what it said to be durable counts, also while it is down
        super().kill_journal(power=power)
        if power:
            self.kill_queues()
            self.sent_before = {}

    def replicated(self, said: Replicated, *, to_all: bool) -> None:
        super().replicated(said, to_all=to_all)
        if self.queues is not None:
            self.queues.marked(said, to_all=to_all)

    def ask_replication(self, message: ToReplication) -> None:
        """Of the queues process; there may be nobody who hears it."""
        self.world.filters.asks(self, message)
        if self.replication is not None:
            self.replication.answers.put(Asked(QUEUES, message))

    def replication_says(self, answer: Any) -> None:
        if self.queues is not None:
            self.queues.requests.put(answer)

    def kill_queues(self) -> None:
        node, self.queues = self.queues, None
        if node is not None:
            node.die()
            self.world.events.append("queues killed")
            if self.rng.random() < 0.3:
                self.tables = Tables()


class OwnersWorld(ManyWorld):
    """One seed's history."""

    instance_of = OwnersInstance
    instances: dict[str, OwnersInstance]  # type: ignore[assignment]

    def __init__(self, seed: int, bug: str = "") -> None:
        super().__init__(seed, bug, instances=3 + seed % 3)
        rng = self.rng
        self.subscribers = []
        self.sync_needed = rng.choice((0, 0, 1))
        self.early_max = rng.choice((300, 2_000, 1 << 20, 1 << 20))
        owner = rng.choice(list(self.instances))
        scope: dict[str, Any] = {"scope": "distributed"}
        if rng.random() < 0.25:
            scope = {"scope": "group-local", "initial_owner": owner}
        self.configs = [QueueConfig(QUEUE, topic="t", lease=LEASE_MS, **scope)]
        self.locals = LocalQueues(self, seed)
        self.filters = SelectiveConsumers(self, seed)
        self._cids = count(1)
        self.unflagged: Counter[Message] = Counter()
        self.flagged: Counter[Message] = Counter()
        self.gave: dict[tuple[str, Message], int] = {}
        self._names: dict[tuple[Origin, int], Message] = {}
        self._gone: dict[str, set[tuple[Origin, int]]] = {name: set() for name in self.instances}
        self.accepted: dict[Message, set[int]] = {}
        self._looked: dict[str, int] = {}
        self.resting = False
        self.alone = seed % 2 == 1
        self.workers = [Worker(self, n) for n in range(rng.randint(1, 4))]

    def plant_replication(self, core: ReplicationCore, log: LinkLog) -> None:
        if self.bug in owners_bugs.LINKS:
            owners_bugs.LINKS[self.bug](core)

    def cid(self) -> str:
        return f"c{next(self._cids)}"

    def payload_of(self, publisher: Publisher) -> bytes:
        return payload_of(publisher.name, publisher.sequence)

    def names(self) -> list[tuple[Origin, int]]:
        """Of all messages that became durable."""
        return [*self._names]

    def message_at(self, instance: int, generation: int, position: int) -> Message | None:
        """The message with this name."""
        return self._names.get((Origin(instance, generation), position))

    # -- what is seen -------------------------------------------------------------------------

    def look(self) -> None:
        """Reads what became durable."""
        for instance in self.instances.values():
            for batch in instance.batches(self._looked.get(instance.name, 0)):
                self._looked[instance.name] = batch.end_position
                if batch.kind == KIND_PUBLISH:
                    for message, held in messages(batch):
                        self._names[held.origin, held.position] = message
                        self.accepted.setdefault(message, set()).add(held.origin.instance)
                elif batch.kind == KIND_TIE:
                    for sequence in range(batch.sequence - batch.skip, batch.sequence + 1):
                        message = batch.publisher, sequence
                        at = batch.origin_position - (batch.sequence - sequence)
                        self._names[batch.origin, at] = message
                        self.accepted.setdefault(message, set()).add(batch.origin_instance)
                elif batch.kind == KIND_OUTCOMES:
                    self._gone[instance.name] |= _gone_of(bytes(batch.body))
                elif batch.kind == KIND_QUEUE and _acts(bytes(batch.body)):
                    self.events.append("acts for another")
                elif batch.kind == KIND_OWNERSHIP and batch.origin_instance == instance.id:
                    self._gave(instance, bytes(batch.body))

    def _gave(self, instance: OwnersInstance, body: bytes) -> None:
        record = decoded(OUTCOMES, body)
        assert record is not None
        for fact in facts_of(record):
            if not isinstance(fact, Moved) or fact.takeover:
                continue
            for one in fact.where:
                for position in one.positions:
                    key = instance.name, self._names[one.origin, position]
                    self.gave[key] = max(self.gave.get(key, 0), fact.number)

    def delivered(
        self, process: InstanceQueues, position: int, payload: bytes, *, flagged: bool
    ) -> None:
        """A consumer is sent a message."""
        message, instance = message_of(payload), process.instance
        (self.flagged if flagged else self.unflagged)[message] += 1
        owners_stops.offered(self, process)
        self.demand(message not in instance.done, f"{payload!r} comes back at {instance.name}")
        self.locals.delivered(process, message)
        one = process.queue
        if one is None or one.replicated is None or not process.alive:
            return
        self.look()
        number = one.replicated.ownership.number(position)
        gave = self.gave.get((instance.name, message), 0)
        tied = len(self.accepted.get(message, ())) > 1
        self.demand(
            tied or not gave or number > gave,
            f"{instance.name} gave {payload!r} away as {gave} and sends it as {number}",
        )

    def answered(self, instance: OwnersInstance, answer: Any) -> None:
        """A client of an instance is sent an answer."""
        self.locals.answered(instance, answer)

    def done(self, instance: OwnersInstance, payloads: list[bytes], cid: str = "") -> None:
        """A consumer was told that these are done."""
        told = {message_of(payload) for payload in payloads}
        instance.done |= told
        if self.locals.done(told, cid) or not instance.needed:
            return
        self.look()
        names: dict[Message, set[tuple[Origin, int]]] = {message: set() for message in told}
        for name, message in self._names.items():
            if message in names:
                names[message].add(name)
        for message, known in names.items():
            where = [
                each for each in instance.destinations if not known.isdisjoint(self._gone[each])
            ]
            self.demand(
                len(where) >= instance.needed,
                f"{message} is done, said {instance.name}, and of its destinations know {where}",
            )

    def told(self, answer: Any) -> None:
        """An operator has an answer."""

    # -- a history ----------------------------------------------------------------------------

    def run(self) -> None:
        with ExitStack() as patches:
            for where, name, value in SCALED:
                patches.enter_context(mock.patch.object(where, name, value))
            patches.enter_context(mock.patch.object(early_facts, "EARLY_MAX_BYTES", self.early_max))
            for instance in self.instances.values():
                instance.start()
            while self.at.now_ms < RUN_MS:
                self.step()
                self.at.run_until(self.at.now_ms + self.rng.choice((1, 5, 20, 60, 200)))
            self.heal()
            self.verdict()

    def step(self) -> None:
        rng = self.rng
        instance = rng.choice(list(self.instances.values()))
        publisher, worker = rng.choice(self.publishers), rng.choice(self.workers)
        acts: list[tuple[int, Callable[[], object]]] = [
            (24, lambda: self.publish(publisher)),
            (6, lambda: self.fail_over(publisher)),
            (4, self.cut),
            (5, self.cuts.clear),
            (3, instance.die_soon),
            (2, lambda: instance.kill_journal(power=rng.random() < 0.5)),
            (2, instance.kill_replication),
            (3, instance.kill_queues),
            (2, lambda: self.state(instance)),
            (40, worker.act),
            (6, lambda: worker.go(self.locals.workplace(instance))),
            (16, self._request),
            (3, self._take_over),
            (4, lambda: owners_stops.step(self)),
        ]
        rng.choices(acts, [weight for weight, _ in acts])[0][1]()
        self.locals.step()
        for each in self.instances.values():
            if rng.random() < 0.25:
                each.start()

    def _request(self) -> None:
        """An instance says that it could take messages; that may come late, or never."""
        asks, owner = self.rng.sample(list(self.instances.values()), 2)
        queues = owner.queues
        if queues is not None and not self.is_cut(asks.name, owner.name):
            amount, names = self.rng.choice((1, 3, 10)), self.filters.some_names()
            self.at.after(
                self.rng.choice((1, 20, 300)),
                lambda: queues.request(asks.id, amount, names) if queues.alive else None,
            )

    def _take_over(self) -> None:
        """A person says that an instance is away, whether that is true or not."""
        here, away = self.rng.sample(list(self.instances.values()), 2)
        group_local = self.configs[0].initial_owner
        former = 0 if group_local == away.name else away.id
        if here.queues is not None and not (group_local == here.name and not former):
            until_back, end = self.rng.choice(((False, False), (True, False), (False, True)))
            ask = s.TakeOver(1, QUEUE, away.id if until_back or end else former, away.name)
            here.queues.ask(structs.replace(ask, until_back=until_back, end=end))

    # -- the end ------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything comes to the same, then consumers do all of it: at each instance, or at one
        that has to ask the others for theirs."""
        for worker in self.workers:
            worker.die()
        super().heal()
        owners_stops.end(self)
        self.wait(self.equal, "instances do not see the same queue")
        owners_stops.one_leaves(self)
        owners_stops.all_leave(self)
        self._compare()
        self.workers = []
        where = [*self.instances.values()]
        last = self.filters.last(where[:1] if self.alone else where)
        for number, (instance, text) in enumerate(last):
            worker = Worker(self, 100 + number)
            worker.diligent, worker.backlog, worker.filter = True, 50, text
            worker.go(instance)
            self.workers.append(worker)
        self.wait(self._empty, "not all is done")

    def wait(self, over: Callable[[], bool], otherwise: str) -> None:
        end_ms = self.at.now_ms + HEAL_MS
        while not over():
            self.demand(self.at.now_ms < end_ms, f"{otherwise}: {self._left()}")
            self.locals.go_on()
            for instance in self.instances.values():
                instance.start()
            self.at.run_until(self.at.now_ms + 200)

    def _states(self) -> list[Any]:
        return [one.queues.queue if one.queues else None for one in self.instances.values()]

    def equal(self) -> bool:
        return self._at_rest() and len({frozenset(one) for one in self.views()}) == 1

    def _at_rest(self) -> bool:
        for instance in self.instances.values():
            queues, journal = instance.queues, instance.journal
            one = queues.queue if queues is not None else None
            if queues is None or journal is None or one is None or one.replicated is None:
                return False
            if not one.ready or one.folded != journal.core.persisted or one.queue.going:
                return False
            if queues.core.manager.commits.open or one.replicated.stopped:
                return False
        return True

    @staticmethod
    def named(instance: OwnersInstance) -> dict[int, Message]:
        """The messages of an instance, by their positions there."""
        return {
            batch.position + n: message
            for batch in instance.batches() if batch.kind == KIND_PUBLISH
            for n, (message, _) in enumerate(messages(batch))
        }  # fmt: skip

    def views(self) -> list[set[tuple[Message, int, int]]]:
        """What each instance has in the queue, whose it is, and how often it failed."""
        views = []
        for instance, one in zip(self.instances.values(), self._states(), strict=True):
            named = self.named(instance)
            owners = one.replicated.ownership.owners(one.queue.here)
            failed = one.queue.counting.failures.of
            views.append(
                {(named[at], owner, failed(at)) for owner, many in owners.items() for at in many}
            )
        return views

    def _compare(self) -> None:
        """Each message belongs to one instance, which knows it."""
        for instance, one in zip(self.instances.values(), self._states(), strict=True):
            initial = self.configs[0].initial_owner == instance.name
            owners = one.replicated.ownership.owners(one.queue.here)
            mine = {at for owner, many in owners.items() for at in many
                    if owner == instance.id or (owner == 0 and initial)}  # fmt: skip
            self.demand(
                mine == set(one.queue.here - one.queue.places.foreign),
                f"{instance.name} offers other messages than it owns",
            )

    def _empty(self) -> bool:
        return self._at_rest() and not any(one.queue.here for one in self._states())

    def _left(self) -> str:
        lines = []
        for instance, one in zip(self.instances.values(), self._states(), strict=True):
            if one is None or one.replicated is None:
                lines.append(f"{instance.name}: no queue")
                continue
            queues = instance.queues
            assert queues is not None
            early = one.replicated.early
            lines.append(
                f"{instance.name}: here {list(one.queue.here)} foreign "
                f"{list(one.queue.places.foreign)} going {list(one.queue.going)} {one.folded=} "
                f"{queues.core.manager.commits.open=} {one.replicated.stopped=} {early.lowest=} "
                f"{one.queue.why_nothing(queues.now)} {one.replicated.view.lives}"
            )
        return "\n".join(lines)

    def verdict(self) -> None:
        super().verdict()
        self.look()
        for message in self.instances["a"].held():
            sent = self.unflagged[message] + self.flagged[message]
            self.demand(sent > 0, f"{message} was never sent")
            most = max(1, len(self.accepted[message])) + self.locals.others
            self.demand(
                self.unflagged[message] <= most,
                f"{message} was sent {self.unflagged[message]} times as if for the first time",
            )


def _gone_of(body: bytes) -> set[tuple[Origin, int]]:
    """The messages that a record says are done."""
    record = decoded(OUTCOMES, body)
    facts = facts_of(record) if record is not None else ()
    return {
        (one.origin, position)
        for fact in facts if isinstance(fact, OriginsGone)
        for one in fact.where
        for position in one.positions
    }  # fmt: skip


def _acts(body: bytes) -> bool:
    """Whether a record says that an instance acts for another one from then on."""
    facts = QUEUE_RECORD.decode(body).facts
    return any(isinstance(fact, StandIn) and fact.on for fact in facts)
