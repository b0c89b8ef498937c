"""Publishers, ingest, queues and journal in one world: one seed, clock, network and disk.

The cores are the product's own, and so is the turn of the journal. Faults: any process killed at
any moment, power cuts, a nearly full disk, lost client connections. Afterwards the world heals and
must converge; then the log is compared with what was promised.

Planted bugs (`World(seed, bug=...)`) prove that the world can fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any
from unittest import mock

import msgspec
from msgspec.structs import replace

from tests.sim.disk import SimCrash, SimDisk
from tests.sim.hand import HandNode
from tests.sim.ingest_process import INGEST, IngestProcess
from tests.sim.journal_process import INSTANCE, JournalNode
from tests.sim.net import Net, Pipe, Scheduler
from tests.sim.queues_node import QueuesNode, Unit, judge
from zbroker.client import effects as ef
from zbroker.client.publisher import core as c
from zbroker.client.publisher import packer
from zbroker.client.publisher.store import MemoryStore
from zbroker.engine.contract import Now
from zbroker.ids import publisher_id
from zbroker.journal import core
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, Log
from zbroker.recording import Recording
from zbroker.wire import codec
from zbroker.wire import messages as m

START_NS = 1_700_000_000_000_000_000
HEAL_MS = 60_000
JOURNAL_BEAT_MS = 50  # some beats are in short histories, too


class Violation(AssertionError):
    """The world broke a promise."""


@dataclass
class Kept:
    """A publish store in a directory, as far as a killed client leaves it to its next life.

    The real one is compared with a list in tests/client/publisher/test_file_store.py.

    numbers: the application's number of each sequence that is owed. staged: not packed yet.
    """

    store: MemoryStore = field(default_factory=MemoryStore)
    numbers: dict[int, int] = field(default_factory=dict)
    staged: list[Any] = field(default_factory=list)

    def next_life(self, bug: str) -> Kept:
        """The same as a new process finds it: no round, and what was staged is packed."""
        store = MemoryStore()
        store.recorded, store.next_sequence = self.store.recorded, self.store.next_sequence
        again = store.next_sequence if bug == "what is kept gets new numbers" else 0
        numbers = {}
        for index in range(len(self.store.batches)):
            batch = replace(self.store.batches[index], round=0)
            shift = again and store.next_sequence - batch.first
            batch.first, batch.last = batch.first + shift, batch.last + shift
            for sequence in range(batch.first, batch.last + 1):
                numbers[sequence] = self.numbers[sequence - shift]
            store.append(batch)
        kept = Kept(store, numbers)
        if bug != "staged messages are forgotten":
            kept._adopt(self.staged)
        return kept

    def _adopt(self, items: list[Any]) -> None:
        if not items or not self.store.next_sequence:
            return  # before the first logon nothing is taken from the application
        for run in packer.split(packer.rows(items)):
            batch = packer.pack(run)
            batch.first, batch.prev = self.store.next_sequence, self.store.next_sequence - 1
            batch.last = batch.first + batch.count - 1
            self.store.append(batch)
            for n, item in enumerate(run.items):
                self.numbers[batch.first + n] = int(item.value)


@dataclass
class App:
    """One publishing application over all its lives: what it counted and what it was promised."""

    name: str
    keeps: bool = False  # its publish store is in a directory
    by_hand: bool = False  # a client without the library, which leaves `prev` out
    sent: int = 0  # messages handed to the library; their payload is their number
    acked: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)  # were in the store of a client that was killed
    kept: Kept = field(default_factory=Kept)


class SimClock:
    """Time as writer and recovery see it."""

    def __init__(self, at: Scheduler) -> None:
        self._at = at

    def wall_ns(self) -> int:
        return START_NS + self._at.now_ms * 1_000_000

    def mono_ms(self) -> int:
        return self._at.now_ms


class ClientNode:
    """One life of a publishing application: the library's core and its socket."""

    def __init__(self, world: World, app: App) -> None:
        self.world = world
        self.app = app
        self.alive = True
        self.ended: Exception | None = None
        instance = f"{app.name}-{next(world.incarnations)}"
        logon = m.Logon(app.name, instance, heartbeat_s=0.2)
        kept = app.kept.next_life(world.bug)
        self.core = c.PublisherCore(logon, world.clock.wall_ns(), world.rng.random, kept.store)
        self.inbox: list[_Item] = []
        self.logged_on = False
        self.numbers = kept.numbers  # sequence -> the application's number, until settled
        self.pipe: Pipe | None = None
        self._turn()

    def publish(self, messages: int) -> None:
        """The application hands `messages` to the library."""
        for _ in range(messages):
            self.inbox.append(_Item(self._topic(), b"%d" % self.app.sent))
            self.app.sent += 1
        self._pack()

    def _topic(self) -> str:
        return f"t{self.world.rng.randrange(3)}"

    def _pack(self) -> None:
        """Like the library: nothing is numbered before the first logon is answered."""
        if not self.logged_on or not self.inbox:
            return
        inbox, self.inbox = self.inbox, []
        for run in packer.split(packer.rows(inbox)):  # type: ignore[arg-type]
            batch = packer.pack(run)
            effects = self.core.add(batch, self.world.at.now_ms)
            for n, item in enumerate(run.items):
                self.numbers[batch.first + n] = int(item.value)
            self._perform(effects)
        self._learn()

    def _turn(self) -> None:
        if self.alive:
            self._perform(self.core.tick(Now(self.world.at.now_ms, 0), drained=True))
            self._learn()
            self.world.at.after(5, self._turn)

    def _event(self, event: Any) -> None:
        if self.alive:
            self._perform(self.core.handle(event, Now(self.world.at.now_ms, 0)))
            self._learn()
            self._pack()

    def _perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, ef.Connect):
                if self.pipe is not None:
                    self.world.net.close(self.pipe)
                self.pipe = self.world.net.dealer(
                    Pipe(
                        INGEST,
                        lambda frame: self._event(codec.ANSWERS.decode(frame)),
                        lambda: self._event(ef.Lost()),
                        lambda: self._event(ef.Connected()),
                    )
                )
            elif isinstance(effect, ef.SendCommand):
                assert self.pipe is not None
                self.world.net.send(self.pipe, (codec.encode(effect.command), effect.body))
            elif isinstance(effect, ef.LogonAccepted):
                self.logged_on = True
            elif isinstance(effect, ef.MessagesRefused):
                self.app.refused |= {
                    self.numbers.pop(s) for s in range(effect.first, effect.last + 1)
                }
            elif isinstance(effect, ef.Ended):
                self.ended = effect.error

    def _learn(self) -> None:
        """What is below the settled mark and not refused was promised to be durable."""
        for sequence in [s for s in self.numbers if s <= self.core.settled]:
            self.app.acked.add(self.numbers.pop(sequence))

    def die(self) -> None:
        self.alive = False
        if self.app.keeps:
            self.app.kept = Kept(self.core.store, self.numbers, self.inbox)
            if not self.core.store.next_sequence:
                self.app.lost |= {int(item.value) for item in self.inbox}
        else:
            self.app.lost |= {*self.numbers.values(), *(int(item.value) for item in self.inbox)}
        if self.pipe is not None:
            self.world.net.close(self.pipe)


@dataclass
class _Item:
    topic: str
    value: bytes
    time: int | None = None
    extra: None = None


class World:
    """One simulated history."""

    ingest_process = IngestProcess
    client_node = ClientNode
    recording: Recording | None = None
    may_keep = True
    may_be_by_hand = True

    def __init__(self, seed: int, bug: str = "", steps: int = 60) -> None:
        self.seed = seed
        self.bug = bug
        self.steps = steps
        self.rng = Random(seed)
        self.at = Scheduler(self.rng)
        self.clock = SimClock(self.at)
        self.net = Net(self.at)
        self.disk = SimDisk(self.rng)
        self.salt = lambda: self.rng.getrandbits(64)
        self.incarnations = count(1)
        self.disk_nearly_full = False
        self.receipt_loss = self.rng.choice([0.0, 0.0, 0.2])
        self.apps = [
            App(f"p{n}", keeps=self.may_keep and self.rng.random() < 0.5)
            for n in range(self.rng.randint(1, 3))
        ]
        if self.may_be_by_hand and self.rng.random() < 0.5:
            self.apps.append(App("hand", by_hand=True))
        self.journal: JournalNode | None = None
        self._start_journal()
        self.ingest: IngestProcess | None = self.ingest_process(self)
        self.clients = {app.name: self._client(app) for app in self.apps}
        self.units: dict[Unit, list[tuple[int, bytes]]] = {}  # all that were ever sent
        self.receipted: dict[Unit, tuple[int, int]] = {}  # first and last position
        self.queues = QueuesNode(self)
        self.faults: list[str] = []

    def run(self) -> None:
        """Safety with faults, then liveness without, then the verdict."""
        with mock.patch.object(core, "BEAT_MS", JOURNAL_BEAT_MS):
            for _ in range(self.steps):
                self._step()
                self.at.run_until(self.at.now_ms + self.rng.choice([1, 5, 20, 60]))
            self._heal()
            self._verdict()

    # -- faults -------------------------------------------------------------------------------

    def _step(self) -> None:
        if self.rng.random() < 0.3:
            self.queues.work()
        roll = self.rng.random()
        if roll < 0.68:
            app = self.rng.choice(self.apps)
            self.clients[app.name].publish(self.rng.choice([1, 1, 3, 10]))
        elif roll < 0.78:
            self._disturb_journal()
        elif roll < 0.84:
            self._end_ingest()
        elif roll < 0.88:
            self._restart_client(self.rng.choice(self.apps))
        elif roll < 0.92:
            self.disk_nearly_full = not self.disk_nearly_full
        elif roll < 0.93:
            self._cut_connection(self.rng.choice(self.apps))
        elif roll < 0.95:
            self._stall(self.rng.choice(self.apps))
        elif roll < 0.98:
            self._crash_at_a_boundary()
        else:
            self._restart_queues()

    def _crash_at_a_boundary(self) -> None:
        """The journal dies at the k-th boundary from here: in a commit, roll-over or recovery."""
        left = self.rng.randint(1, 40)

        def hook(name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.disk.hook = _no_crash
                raise SimCrash(name)

        self.disk.hook = hook

    def crashed(self, node: JournalNode | None) -> None:
        """The journal died at a boundary."""
        if node is None or node is self.journal:
            self._kill_journal(power_cut=self.rng.random() < 0.5, node=node)

    def _kill_journal(self, power_cut: bool, node: JournalNode | None = None) -> None:
        node = node or self.journal
        if node is None:
            return
        self.faults.append("power cut" if power_cut else "journal killed")
        node.die()
        self.journal = None
        self.disk.power_cut() if power_cut else self.disk.crash()
        if power_cut and self.ingest is not None:
            self.kill_ingest()
        self.at.after(self.rng.randint(0, 100), self._start_journal)

    def _disturb_journal(self) -> None:
        if self.rng.random() < 0.2:
            self._hang_journal()
        else:
            self._kill_journal(power_cut=self.rng.random() < 0.5)

    def _hang_journal(self) -> None:
        """It reads nothing for a while, in which ingest may die, and so may the next one."""
        if self.journal is None:
            return
        self.faults.append("journal hung")
        hung_ms = self.rng.choice((50, 500, 2_000))
        self.journal.hang(hung_ms)
        for _ in range(self.rng.choice((0, 0, 2))):
            self.at.after(self.rng.randint(0, hung_ms), self.kill_ingest)

    def _start_journal(self) -> None:
        """Starts the journal; it may die while it recovers, then it is started again."""
        if self.journal is not None:
            return
        try:
            self.journal = JournalNode(self)
        except SimCrash:
            self.faults.append("recovery killed")
            self.disk.power_cut() if self.rng.random() < 0.5 else self.disk.crash()
            self.at.after(self.rng.randint(0, 100), self._start_journal)

    def _end_ingest(self) -> None:
        """At once, before or after one of its next effects, or when it has settled everything."""
        if self.ingest is None:
            return
        roll = self.rng.random()
        if roll < 0.4:
            self.kill_ingest()
        elif roll < 0.7:
            self.ingest.dies_in(self.rng.randint(1, 20))
        else:
            self.ingest.stop()

    def kill_ingest(self, fault: str = "ingest killed") -> None:
        if self.ingest is None:
            return
        self.faults.append(fault)
        self.ingest.die()
        self.ingest = None
        self.at.after(self.rng.randint(0, 100), self._start_ingest)

    def _start_ingest(self) -> None:
        if self.ingest is None:
            self.ingest = self.ingest_process(self)

    def _restart_queues(self) -> None:
        self.faults.append("queues killed")
        self.queues.die()
        self.queues = QueuesNode(self)

    def _restart_client(self, app: App) -> None:
        self.faults.append(f"{app.name} killed")
        self.clients[app.name].die()
        self.clients[app.name] = self._client(app)

    def _client(self, app: App) -> ClientNode | HandNode:
        return HandNode(self, app) if app.by_hand else self.client_node(self, app)

    def _cut_connection(self, app: App) -> None:
        """TCP breaks: frames on their way vanish, the library is informed by its socket monitor."""
        pipe = self.clients[app.name].pipe
        if pipe is None or pipe.listener is None:
            return
        self.faults.append(f"{app.name} cut")
        pipe.listener.pipes.pop(pipe.rid, None)
        pipe.listener = None
        pipe.queue.clear()
        self.at.after(self.rng.randint(0, 50), pipe.on_lost)
        self.at.after(self.rng.randint(0, 50), lambda: self.net._connect(pipe))

    def _stall(self, app: App) -> None:
        """A client does not read for a while: what it is sent waits, and then is not sent."""
        pipe = self.clients[app.name].pipe
        if pipe is not None and pipe.listener is not None:
            self.faults.append(f"{app.name} stalled")
            self.net.stall(pipe, self.rng.choice((20, 100, 300)), self.rng.choice((0, 1, 3)))

    # -- the end ------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.disk_nearly_full = False
        self.receipt_loss = 0.0
        self.disk.hook = _no_crash
        self._start_journal()
        if self.ingest is not None:
            self.ingest.dies_in(None)
        self._start_ingest()
        for client in self.clients.values():
            if client.ended is None:
                client.publish(1)
        end_ms = self.at.now_ms + HEAL_MS
        while self.at.now_ms < end_ms and any(
            client.numbers or client.inbox or self.queues.waiting
            for client in self.clients.values()
        ):
            self.at.run_until(self.at.now_ms + 500)

    def _verdict(self) -> None:
        for name, client in self.clients.items():
            if client.ended is not None:
                raise Violation(f"{name} ended: {client.ended}")
            if client.numbers or client.inbox:
                waiting = len(client.numbers) + len(client.inbox)
                raise Violation(f"{name} waits for {waiting} acks after healing")
        self.demand(not self.queues.waiting, f"{len(self.queues.waiting)} units wait after healing")
        assert self.journal is not None
        batches = self.read(self.journal.core.persisted)
        judge(self, batches, INSTANCE)
        found = _numbers(batches, {publisher_id(app.name) for app in self.apps})
        for app in self.apps:
            self._compare(app, found.get(publisher_id(app.name), []))

    def demand(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Violation(otherwise)

    def read(self, limit: int) -> list[Batch]:
        """The log below `limit`; positions without gaps."""
        hook, self.disk.hook = self.disk.hook, _no_crash
        log = Log(disk=self.disk)
        cursor, found = log.seek(1), list[Batch]()
        while cursor.position < limit:
            batches, after = log.read(cursor, limit, 1 << 20)
            if after == cursor:
                raise Violation(f"nothing can be read at {cursor}, the log ends at {limit}")
            cursor = after
            for batch in batches:
                if isinstance(batch, Gap):
                    raise Violation(f"{batch} below persisted")
                found.append(batch)
        self.disk.hook = hook
        return found

    def _compare(self, app: App, numbers: list[int]) -> None:
        if len(set(numbers)) != len(numbers):
            raise Violation(
                f"{app.name}: stored twice: {[n for n in numbers if numbers.count(n) > 1][:5]}"
            )
        if numbers != sorted(numbers):
            raise Violation(f"{app.name}: out of order")
        missing = app.acked - set(numbers)
        if missing:
            raise Violation(f"{app.name}: acknowledged and lost: {sorted(missing)[:5]}")
        unexplained = set(range(app.sent)) - set(numbers) - app.lost - app.refused
        if unexplained:
            raise Violation(f"{app.name}: neither stored nor given up: {sorted(unexplained)[:5]}")


def _numbers(batches: list[Batch], publishers: set[int]) -> dict[int, list[int]]:
    """Per publisher, the numbers that the log holds, in log order."""
    found: dict[int, list[int]] = {}
    for batch in batches:
        if batch.kind == KIND_PUBLISH and batch.publisher in publishers:
            body = msgspec.msgpack.decode(bytes(batch.body))[batch.skip :]
            found.setdefault(batch.publisher, []).extend(int(data) for data in body)
    return found


def _no_crash(_boundary: str) -> None:
    pass
