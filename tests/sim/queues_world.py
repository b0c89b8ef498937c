"""The queues process, its journal and its consumers in one world: one seed, clock and network.

Core and manager of the process and the core of the journal are the product's own; see
queues_process, queues_journal and queues_clients for what moves them, queues_judge for what is
promised. Faults: the process killed at any step, with its tables or without; the journal killed
with what was not synced; lost and frozen consumers; slow turns; a full disk; units refused;
receipts lost; a clock that jumps; old parts of the log removed. Queues are made, altered, deleted,
purged and requeued meanwhile. Afterwards the world heals, and everything must be drained.

Planted bugs (`World(seed, bug=...)`) prove that the world can fail.
"""

from __future__ import annotations

from array import array
from collections import Counter
from contextlib import ExitStack
from itertools import count
from random import Random
from typing import Any
from unittest import mock

from tests.sim.net import Net, Scheduler
from tests.sim.queues_bugs import planted
from tests.sim.queues_clients import Admin, Client, Want, payload
from tests.sim.queues_journal import PUBLISHER, JournalNode, SimLog
from tests.sim.queues_judge import Judge, Violation
from tests.sim.queues_process import ProcessNode
from zbroker.config import QueueConfig, RecordConfig
from zbroker.engine import journal_session
from zbroker.ids import publisher_id
from zbroker.journal import core as journal_core
from zbroker.queues import core, dispatch, journal_client, registry, snapshots
from zbroker.queues.core import QueuesCore
from zbroker.queues.registry import QueueRegistry, SavedQueue
from zbroker.queues.snapshots import Key, Snapshot, position_of
from zbroker.queues.work import consumers
from zbroker.recording import Recording
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire import bodies
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.full_queues import FullQueues
from zbroker.wire.internal import Hello

START_NS = 1_700_000_000_000_000_000
#: what is rare or slow matters in short histories, too. AHEAD: positions of the horizon
SCALED: list[tuple[Any, str, int]] = [
    (dispatch, "AHEAD", 12), (registry, "AHEAD", 12), (core, "AGAIN_MS", 60),
    (journal_client, "HOLDS_MS", 100), (journal_session, "WELCOME_WAIT_MS", 200),
    (journal_core, "BEAT_MS", 50),
    (snapshots, "SAVE_MS", 100),  # changes: see queues_process
    (consumers, "BACKLOG_LEAST", 2), (consumers, "BACKLOG_MOST", 7), (consumers, "ROUND_MS", 60),
]  # fmt: skip
HEAL_MS = 90_000
DEAD = "dead"

#: the queues that a world may begin with; all take from t0 or t1
POOL: dict[str, dict[str, Any]] = {
    "plain": {"max_per_subscription": 0},
    "filter": {"regex": True, "topic": "t.", "filter": "/p > 0", "lease": 500},
    "priority": {"priority": "/p", "max_per_subscription": 0},
    "group": {"group_key": "/g", "retry_delay": [0, 120]},
    "barrier": {"barrier": "/b = 1", "topic": "t1"},
    "once": {"semantics": "at-most-once", "lease": 0, "max_per_subscription": 8},
    "once-group": {"semantics": "at-most-once", "lease": 0, "group_key": "/g"},
    "limits": {
        "max_deliveries": 3, "max_cancels": 2, "dead_letter": DEAD, "retry_delay": [30, 200]
    },
    "expiring": {"expiration": 900, "dead_letter": DEAD},
    "strict": {
        "leasing": "strict", "fairness": "round-robin", "max_backlog": 12, "max_per_subscription": 0
    },
    "now": {"recovery_point": "now", "fairness": "fast", "topic": "t1"},
    "replay": {"kind": "replayable"},
    "replay-some": {"kind": "replayable", "filter": "/p > 0", "topic": "t1"},
    "for-ever": {"lease": 0, "max_deliveries": 4},
}  # fmt: skip
ALTERED: list[dict[str, Any]] = [
    {"lease": "100ms"}, {"lease": "2s"}, {"max_per_subscription": 3}, {"max_deliveries": 2},
    {"retry_delay": ["50ms"]}, {"fairness": "fast"},
]  # fmt: skip


def config_of(name: str) -> QueueConfig:
    """A queue of the pool, or that of the dead letters."""
    if name == DEAD:
        return QueueConfig(DEAD, lease=400)
    given = {"topic": "t0", **POOL[name]}
    if given.get("kind") != "replayable":
        given = {"lease": 400, "max_per_subscription": 10, **given}
    return QueueConfig(name, **given)


#: what a config may say of the types of topics when queues know theirs already
DRIFTED = [RecordConfig("t.", regex=True, type="binary"), RecordConfig(".*", regex=True)]


class World:
    """One simulated history. A world of more than this says of which types its parts are."""

    pool = POOL
    scaled = SCALED
    judge_type: type[Judge] = Judge
    log_type: type[SimLog] = SimLog
    journal_type: type[JournalNode] = JournalNode

    def __init__(self, seed: int, bug: str = "", steps: int = 70) -> None:
        self.seed, self.bug, self.steps = seed, bug, steps
        rng = self.rng = Random(seed)
        self.at = Scheduler(rng)
        self.net = Net(self.at)
        self.incarnations, self._cids = count(1), count(1)
        self.publisher = publisher_id(PUBLISHER)
        self.disk_full = 0  # 1: publishers are refused; 2: units, too
        self.receipt_loss = rng.choice((0.0, 0.0, 0.1))
        self.refusals = rng.choice((0.0, 0.0, 0.05))
        self.unfit: dict[tuple[int, ...], bool] = {}  # units, by checksums: refused for good?
        self.slow_sync = rng.choice((0.0, 0.3, 0.8))
        self.healing = False
        self.thrifty = rng.random() < 0.3  # all is done soon, so the log can be removed
        self.poll_ms = 40
        self.slow_until_ms = self.unreadable_until_ms = self.deaths = self._wall_shift_ms = (
            self._published
        ) = 0
        self.noted: dict[tuple[str, int], int] = {}  # of deliveries, by queue and life
        self.drifted = False  # the config says other types than the queues know
        self.tables: dict[Key, SavedQueue] = {}
        self.tables_upto = 0
        self.faults: list[str] = []
        self.configs = self._first_queues()
        self.judge = self.judge_type(self)
        self.log = self.log_type(self)
        self.admin = Admin(self)
        self.journal: JournalNode | None = None
        self.process: ProcessNode | None = None
        self._start_journal()
        self._start_process()
        self.clients: list[Client] = []
        for _ in range(rng.randint(1, 3)):
            self._new_client()
        # else some queues have no consumer, and hold all of the log
        if self.thrifty or rng.random() < 0.5:
            for config in self.configs:
                self._want(self.clients[0], config.name)

    def _first_queues(self) -> list[QueueConfig]:
        names = self.rng.sample(list(POOL), self.rng.randint(1, 1 if self.thrifty else 4))
        return [config_of(name) for name in [*names, DEAD]]

    def core_of(self, settings: ListenerSettings, manager: QueueRegistry) -> QueuesCore:
        """The core of the process, with the planted bug."""
        core = QueuesCore(settings, manager)
        planted(self.bug, core)
        return core

    def recording(self) -> Recording:
        """What the config says at a start of the process."""
        self.drifted = self.rng.random() < 0.3 and not self._new()
        if self.drifted:
            self.faults.append("types changed")
        return Recording(DRIFTED if self.drifted else [])

    @property
    def log_start(self) -> int:
        """What is before is removed, or will be."""
        return self.journal.core.commit.log_start if self.journal is not None else self.log.oldest

    def wall_ns(self) -> int:
        return START_NS + (self.at.now_ms + self._wall_shift_ms) * 1_000_000

    def cid(self) -> str:
        return f"n{next(self._cids)}"

    @property
    def checks(self) -> Counter[str]:
        return self.judge.checks

    def tables_up_to(self, persisted: int) -> dict[tuple[str, int], SavedQueue]:
        """What the tables hold of this log."""
        found = {}
        for key, one in self.tables.items():
            position = position_of(one.position, self.tables_upto, persisted)
            if position is not None:
                found[key] = SavedQueue(position, one.horizon, dict(one.rows))
        return found

    def write_tables(self, taken: Snapshot) -> None:
        """As tables.py does it."""
        kept = {} if taken.whole else self.tables
        self.tables = {key: one for key, one in kept.items() if key not in taken.gone} | taken.many
        self.tables_upto = taken.upto

    def run(self) -> None:
        """Safety with faults, then liveness without, then the verdict."""
        with ExitStack() as patches:
            for where, name, value in self.scaled:
                patches.enter_context(mock.patch.object(where, name, value))
            self.at.run_until(40)
            for _ in range(self.steps):
                self._step()
                self.at.run_until(self.at.now_ms + self.rng.choice((1, 5, 20, 60, 150)))
            self._heal()
            assert self.process is not None
            self.judge.verdict(self.process)

    # -- what happens -------------------------------------------------------------------------

    def _step(self) -> None:
        rng = self.rng
        for client in self.clients:
            if rng.random() < 0.5:
                client.act()
        if rng.random() < 0.35:
            self._publish()
        if rng.random() < 0.25:
            rng.choice((self._operate, self._operate, self._fault, self._fault, self._define))()
        if rng.random() < 0.3 and self.journal is not None and not self._new():
            self.journal.raise_log_start()

    def _new(self) -> bool:
        """A queue is being made: whether it has what is removed meanwhile is not promised."""
        begun = {name for name, ref in self.judge.refs.items() if ref.begun or ref.ended}
        known = begun >= {*self.judge.refs, *(config.name for config in self.configs)}
        return not known or any(isinstance(ask, s.Define) for ask in self.admin.open.values())

    def _publish(self) -> None:
        rng = self.rng
        if self.journal is None or self.disk_full:
            return
        many = rng.choice((1, 1, 3, 8))
        payloads = [payload(self._published + at, rng) for at in range(many)]
        self._published += many
        topics = rng.choice((["t0"], ["t1"], ["t2"], ["t0", "t1"]))
        columns = m.Columns()
        if len(topics) > 1:
            columns.index = bodies.to_little(array("H", (rng.randrange(2) for _ in payloads)))
        if rng.random() < 0.15:
            ends = (rng.choice((0, self.wall_ns() + rng.randint(0, 10**9))) for _ in payloads)
            columns.expiry = bodies.to_little(array("q", ends))
        self._send(topics, payloads, columns if columns != m.Columns() else None)

    def _send(self, topics: list[str], payloads: list[bytes], columns: m.Columns | None) -> None:
        """A batch on its way through ingest."""
        assert self.journal is not None
        self.journal.publish(topics, payloads, columns)

    def ingest_hears(self, said: FullQueues) -> None:
        """Which queues are full, where the world has an ingest."""

    def _new_client(self) -> None:
        client = Client(self, f"c{len(self.clients)}-{self.cid()}")
        self.clients.append(client)
        client.diligent = self.thrifty
        for _ in range(self.rng.randint(1, 3)):
            self._want(client, self.rng.choice(self._names()))

    def _names(self) -> list[str]:
        alive = [name for name, ref in self.judge.refs.items() if not ref.ended]
        return alive or [config.name for config in self.configs]

    def _want(self, client: Client, queue: str) -> None:
        """One more consumer, of any kind."""
        rng, holder = self.rng, self.cid()
        command = q.Consume(holder, queue, holder=holder, credit=rng.choice((300, 4_000, 1 << 20)))
        if self._replays(queue):
            since: list[str | None] = ["0", "now", *(f"point:{name}" for name in self.judge.points)]
            since += [bookmark for bookmark in [self._bookmark(queue)] if bookmark]
            command.since = rng.choice(since)
            command.selector = rng.choice((None, None, "/p > 0"))
        else:
            command.backlog = rng.choice((0, 0, 1, 5))
            command.filter = rng.choice((None, None, None, "/p > 0"))
        want = Want(command)
        client.wants.append(want)
        if client.logged_on:
            client.consume(want)

    def _replays(self, queue: str) -> bool:
        ref = self.judge.refs.get(queue)
        known = {config.name: config for config in self.configs}
        config = ref.config if ref is not None else known[queue]
        return config.kind == "replayable"

    def _bookmark(self, queue: str) -> str:
        ref = self.judge.refs.get(queue)
        known = ref.ever if ref is not None and self.rng.random() < 0.3 else ref and ref.here
        if not known:
            return ""
        return self.log.bookmark(self.rng.choice(list(known)))

    # -- operators ----------------------------------------------------------------------------

    def _operate(self) -> None:
        rng = self.rng
        queue = rng.choice(self._names())
        roll = rng.random()
        if roll < 0.25:
            change = s.SetPoint if roll < 0.2 else s.RemovePoint
            self.admin.ask(change(0, rng.choice(("p0", "p1"))))
        elif roll < 0.55:
            before = rng.randint(1, self.log.next_position) if rng.random() < 0.8 else 0
            point = rng.choice(list(self.judge.points)) if self.judge.points else ""
            by_point = point if rng.random() < 0.3 else ""
            self.admin.ask(s.Purge(0, queue, before, by_point, rng.random() < 0.5))
        elif roll < 0.85:
            dead = [name for name, ref in self.judge.refs.items() if ref.dead] or [queue]
            self.admin.ask(s.Requeue(0, rng.choice(dead), limit=rng.choice((1, 1_000))))
        else:
            self.admin.ask(s.BrowseQueue(0, queue, state=rng.choice(("", "ready", "leased"))))

    def _define(self) -> None:
        rng = self.rng
        made = [ref for name, ref in self.judge.refs.items() if name.startswith("own")]
        alive = [ref for ref in made if not ref.ended]
        roll = rng.random()
        if roll < 0.5 or not alive:
            if self.drifted:
                return  # it would have these types
            free = {"own0", "own1"} - {ref.name for ref in alive}
            if free:
                table = {"topic": "t0", **self.pool[rng.choice(list(self.pool))]}
                table = {key: _text(key, value) for key, value in table.items()}
                self.admin.ask(s.Define(0, "create", min(free), table))
        elif roll < 0.75:
            self.admin.ask(s.Define(0, "alter", rng.choice(alive).name, rng.choice(ALTERED)))
        else:
            self.admin.ask(s.Define(0, "delete", rng.choice(alive).name))

    # -- faults -------------------------------------------------------------------------------

    def _fault(self) -> None:
        faults = (
            self.kill_process, self.kill_process, self._stop_process, self._kill_process_soon,
            self.kill_journal, self.kill_journal, self._cut, self._cut, self._freeze, self._slow,
            self._fill_disk, self._fail_reads, self._jump, self._replace_client, self._new_consumer,
            self._displace,
        )  # fmt: skip
        self.rng.choice(faults)()

    def kill_process(self) -> None:
        """The process dies; with its tables, or without."""
        self.deaths = 0
        if self.process is None:
            return
        self.faults.append("room killed")
        if self.rng.random() < 0.3:
            self.faults.append("tables deleted")
            self.tables = {}
        self.process.die()
        self.process = None
        self.at.after(self.rng.choice((10, 30, 200)), self._start_process)

    def _kill_process_soon(self) -> None:
        """At one of its next steps, whichever that is."""
        self.deaths = self.rng.randint(1, 40)

    def _stop_process(self) -> None:
        """It is asked to stop, and ends when it has saved its state."""
        if self.process is not None:
            self.faults.append("room stopped")
            self.process.stop()

    def end_process(self) -> None:
        """It has ended by itself."""
        assert self.process is not None
        self.process.die()
        self.process = None
        self.at.after(self.rng.choice((10, 30, 200)), self._start_process)

    def _start_process(self) -> None:
        if self.process is None:
            self.process = ProcessNode(self)

    def kill_journal(self) -> None:
        """The journal dies with what was not synced, or with some of it."""
        if self.journal is None:
            return
        self.faults.append("journal killed")
        self.journal.die()
        self.journal = None
        self.at.after(self.rng.choice((0, 20, 200)), self._start_journal)

    def _displace(self) -> None:
        """The journal reads a Hello of a dead queues process after that of this one."""
        if self.journal is not None:
            self.faults.append("late hello")
            self.journal.hear(b"late", Hello("queues", next(self.incarnations)))

    def _start_journal(self) -> None:
        if self.journal is None:
            self.journal = self.journal_type(self)

    def _cut(self) -> None:
        self.faults.append("connection cut")
        self.rng.choice(self.clients).cut()

    def _freeze(self) -> None:
        self.faults.append("consumer frozen")
        client = self.rng.choice(self.clients)
        client.frozen = not client.frozen

    def _replace_client(self) -> None:
        """A program dies, and another one comes."""
        self.faults.append("consumer killed")
        client = self.rng.choice(self.clients)
        client.die()
        self.clients.remove(client)
        self._new_client()

    def _new_consumer(self) -> None:
        self._want(self.rng.choice(self.clients), self.rng.choice(self._names()))

    def _slow(self) -> None:
        self.faults.append("room slow")
        self.slow_until_ms = self.at.now_ms + self.rng.choice((100, 500, 1_500))

    def _fail_reads(self) -> None:
        self.faults.append("reads failed")
        self.unreadable_until_ms = self.at.now_ms + self.rng.choice((50, 400))

    def _fill_disk(self) -> None:
        self.faults.append("disk full")
        self.disk_full = self.rng.choice((1, 2))
        self.at.after(self.rng.choice((30, 300, 1_500)), self._free_disk)

    def _free_disk(self) -> None:
        self.disk_full = 0

    def _jump(self) -> None:
        self.faults.append("clock jumped")
        self._wall_shift_ms += self.rng.choice((-700, -50, 50, 2_000))

    # -- the end ------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.healing = True
        self.disk_full = self.deaths = self.slow_until_ms = self.unreadable_until_ms = 0
        self.receipt_loss = self.refusals = 0.0
        self._start_journal()
        self._start_process()
        worker = Client(self, "worker")
        self.clients.append(worker)
        for client in self.clients:
            client.frozen, client.diligent = False, True
        end_ms = self.at.now_ms + HEAL_MS
        while not self._drained():
            if self.at.now_ms > end_ms:
                raise Violation(f"not drained: {self._left()}")
            self._staff(worker)
            self.at.run_until(self.at.now_ms + 200)

    def _staff(self, worker: Client) -> None:
        """Somebody without a filter works at every queue."""
        there = {want.command.queue for want in worker.wants if want.wanted}
        for name in self._names():
            if name not in there and not self._replays(name):
                want = Want(q.Consume("", name, holder=name, credit=1 << 20))
                worker.wants.append(want)
                if worker.logged_on:
                    worker.consume(want)

    def _drained(self) -> bool:
        if self.process is None:
            return False  # it was asked to stop before, and starts again
        many = self.process.core.manager
        running = many.running.values()
        return (
            many.known
            and not many.commits.open
            and not any(client.said for client in self.clients)
            and all(one.ready and one.folded == self.judge.end for one in running)
            and not any(one.queue.going or one.entries or one.facts for one in running)
            and not any(
                one.queue.here for one in running if one.definition.config.kind == "work"
            )
        )  # fmt: skip

    def _left(self) -> str:
        if self.process is None:
            return "the process is not there"
        many = self.process.core.manager
        lines = [f"{many.commits.open} units, known {many.known}"]
        lines += [f"{client.name} said {client.said}" for client in self.clients if client.said]
        for one in many.running.values():
            why = one.queue.why_nothing(self.process.now)
            text = f"{one.name}: {list(one.queue.here)}, {one.ready=}, {one.folded=}, {why}"
            lines.append(text)
        return "\n".join(lines)


def _text(key: str, value: Any) -> Any:
    if key in ("lease", "expiration"):
        return f"{value}ms" if value else value
    return [f"{each}ms" for each in value] if key == "retry_delay" else value
