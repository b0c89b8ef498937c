"""The delivery process: bookmark and live subscriptions.

Purpose   replays the log to subscribers and follows its end, tells where points are, splits the log
          into ranges for Spark. Nothing that is recorded is sent before it is durable.
Sockets   ROUTER tcp for clients ([listen] delivery), monitor and ZAP; SUB ipc marks; DEALER ipc
          journal; with a [[record]] table ROUTER ipc live; ROUTER ipc desk for questions of the
          admin. Of several workers ([delivery] workers) each has its own: live-2, desk-2, ...
Owns      nothing on disk; reads <data>/journal.
Settings  [listen] delivery; [limits] clients; [[record]]; [security].
Exits     0 when told to stop.
Weakness  one thread: a slow disk delays all subscribers. What was sent to a client that gives
          credit without reading is kept in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Final

import zmq

from zbroker import sockets
from zbroker.blocks.block_reader import BlockReader
from zbroker.blocks.read_request import Read
from zbroker.config import Config, socket_of
from zbroker.delivery import ranges
from zbroker.delivery.admin_endpoint import Desk
from zbroker.delivery.core import Core, Settings
from zbroker.delivery.effects import Ask, Effect, Plan
from zbroker.delivery.live_listener import LiveDoor
from zbroker.engine.effects import Note, Send
from zbroker.errors import StorageError
from zbroker.filters import Vocabulary, own
from zbroker.limits import BEAT_MS, FRAME_SLACK_BYTES, HEADER_MAX_BYTES
from zbroker.log.reader import Log
from zbroker.recording import Recording
from zbroker.server import disconnects_file
from zbroker.server.budgets import budget_of
from zbroker.server.journal_link import Events, JournalLink
from zbroker.server.peers import Received
from zbroker.server.process import EX_OK, Process
from zbroker.server.public_listener import PublicListener
from zbroker.wire.internal import Hello, Located, Watermarks, Welcome

BURST_MAX: Final = 256  # commands of one turn
READS_MAX: Final = 64  # blocks of one turn
READ_SLICE_MS: Final = 5  # how long a turn reads; bounds how long commands and marks wait
PLAN_SLICE_MS: Final = 3  # how long a turn works on ranges
LET_GO_MS: Final = 30_000  # how long a file that was removed or moved may be kept open


def run(process: Process) -> int:
    """Serves subscribers until told to stop."""
    room = DeliveryRoom(process)
    process.ready(room.open())
    while not process.stopping:
        room.turn()
    return EX_OK


def vocabulary_of(config: Config) -> Vocabulary:
    """What filters of subscriptions may call. Raises: ClientError."""
    functions = own.load(config.filters.functions)
    return Vocabulary.of_instance(config.instance.name, config.instance.group, functions)


class DeliveryRoom:
    """Moves frames between clients, core, journal and log."""

    def __init__(self, process: Process) -> None:
        self._process = process
        key, config = process.paths.token_key.read_bytes(), process.config
        recording = Recording(config.record, nothing=config.records_nothing)
        frame_bytes = HEADER_MAX_BYTES + FRAME_SLACK_BYTES
        self._front = PublicListener(process, frame_bytes=frame_bytes, sndhwm=0)
        self._door = self._front.door
        settings = Settings(
            key, config.limits.clients, recording, self._front.access, process.incarnation,
            vocabulary_of(config),
            budget_of(config.limits),
        )  # fmt: skip
        self.core = Core(settings, self._door.wires.quiet_ms)
        self._router = self._door.router
        self._poller = zmq.Poller()
        self._door.register(self._poller)
        self._poller.register(self._router, zmq.POLLIN)
        self._poller.register(process.link, zmq.POLLIN)
        hello = Hello(process.room, process.incarnation)
        self._journal = JournalLink(process.context, process.paths, hello, self._poller)
        self._desk = Desk(
            process.context, self._ipc("desk"), process.incarnation, self._poller, process.log
        )
        self.core.connections.disconnects = disconnects_file.read(process.paths.disconnects)
        self._live: LiveDoor | None = None
        if not recording.everything:
            self._live = LiveDoor(
                process.context, self._ipc("live"), process.incarnation, self._poller
            )
        self._reading: BlockReader | None = None
        self._incarnation = 0
        self._plans: deque[tuple[Plan, Generator[None, None, ranges.Ranges]]] = deque()
        self._stats_ms = self._holds_ms = self._let_go_ms = 0
        self._told_floor, self._told_eager = 0, False

    def open(self) -> str:
        """Where clients may connect now."""
        return self._front.open()

    def _ipc(self, name: str) -> str:
        """Where this worker has the socket `name`."""
        return self._process.paths.ipc(socket_of(name, self._process.room))

    def turn(self) -> None:
        """Waits for something, then handles what came and sends what is due."""
        events = dict(self._poller.poll(self._wait_ms()))
        now_ms = self._process.clock.mono_ms()
        self._read_journal(events, now_ms)
        self._hold(now_ms)
        self._front.turn(events, now_ms, self.core.refusals)
        access = self._front.look(now_ms)
        if access is not None:
            self._perform(self.core.entitle(access))
        drained = True
        if self._router in events:
            commands = self._commands()
            drained = len(commands) < BURST_MAX
            now_s = self._process.clock.wall_ns() / 1e9
            self._perform(self.core.turn(commands, now_ms, now_s))
        if self._live is not None:
            self._read_live(self._live, now_ms)
        self._read_log()
        self._plan(now_ms)
        self._perform(self.core.tick(now_ms, drained=drained))
        self._mind_the_door()
        self._perform(self._desk.answer(self.core, now_ms, self._door.peer))
        if now_ms >= self._stats_ms:
            self._stats_ms = now_ms + BEAT_MS
            self._process.stats = self._stats()
        self._process.turn()

    def _mind_the_door(self) -> None:
        """Says who is logged on: others may not stay. Who left first may be back."""
        connections = self.core.connections
        for rid in connections.left:
            self._door.forget(rid)
        for rid in connections.came:
            if rid in connections:
                self._door.logged_on(rid)
        connections.left.clear()
        connections.came.clear()

    def _wait_ms(self) -> int:
        if self.core.busy or self._plans:
            return 0
        wake_ms = self.core.next_wake_ms()
        now_ms = self._process.clock.mono_ms()
        wait_ms = self._process.wait_ms()
        if wake_ms is not None:
            wait_ms = max(0, min(wait_ms, wake_ms - now_ms))
        return self._front.wait_ms(wait_ms, now_ms)

    # -- receiving ----------------------------------------------------------------------------

    def _read_journal(self, events: Events, now_ms: int) -> None:
        self._journal.tick(now_ms)
        for said in self._journal.heard(events, now_ms):
            if isinstance(said, Watermarks):
                self._met(said.incarnation)
                self._perform(self.core.marks(said))
            elif isinstance(said, Welcome):
                self._met(said.incarnation)
                self._holds_ms = 0
                self._perform(self.core.welcomed(said))
            elif isinstance(said, Located):
                self._perform(self.core.located(said))

    def _hold(self, now_ms: int) -> None:
        """Tells the journal what is needed: on each beat, and at once when it is something else."""
        floor, eager = self.core.cursors.floor, self.core.cursors.eager
        welcomed_by = self._journal.welcomed_by
        told = (floor, eager) == (self._told_floor, self._told_eager)
        if not welcomed_by or (told and now_ms < self._holds_ms):
            return
        wall_ms = self._process.clock.wall_ns() // 1_000_000
        holds = self.core.needs.holds(welcomed_by, (plan for plan, _ in self._plans), wall_ms)
        self._journal.say(holds)
        if self._reading is not None and (floor != self._told_floor or now_ms >= self._let_go_ms):
            self._let_go_ms = now_ms + LET_GO_MS
            self._reading.let_go()
        self._told_floor, self._told_eager, self._holds_ms = floor, eager, now_ms + BEAT_MS

    def _met(self, incarnation: int) -> None:
        """A new journal may have set bytes aside: what was read is forgotten."""
        if incarnation == self._incarnation:
            return
        self._incarnation = incarnation
        if self._reading is not None:
            self._reading.reset()
        self._plans = deque((plan, self._begin(plan)) for plan, _ in self._plans)

    def _commands(self) -> list[Received]:
        commands: list[Received] = []
        while len(commands) < BURST_MAX:
            found = self._door.receive()
            if found is None:
                break
            rid, frames, over, key, _ = found
            commands.append(Received(rid, [frame.buffer for frame in frames], over, key))
        return commands

    def _read_live(self, live: LiveDoor, now_ms: int) -> None:
        """Passes on what is not recorded, then grants more."""
        for entries, bodies in live.read():
            wall_ns = self._process.clock.wall_ns()
            self._perform(self.core.unrecorded(entries, bodies, wall_ns, now_ms))
        live.tick(now_ms, wanted=bool(self.core.connections))

    # -- sending ------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        gone: set[bytes] = set()
        for effect in effects:
            if type(effect) is Send:
                if effect.rid not in gone and not self._send(effect):
                    gone.add(effect.rid)
            elif isinstance(effect, Ask):
                self._journal.say(effect.locate)
            elif isinstance(effect, Plan):
                self._plans.append((effect, self._begin(effect)))
            elif isinstance(effect, Note):
                self._process.log.warning("%s: %s", effect.name, effect.text)
        for rid in gone:
            self.core.gone(rid)

    def _send(self, effect: Send) -> bool:
        """False when the peer is gone."""
        return sockets.send_to(self._router, effect.rid, effect.header, effect.body)

    # -- reading the log ----------------------------------------------------------------------

    def _read_log(self) -> None:
        """Blocks for a slice of time: what comes in meanwhile waits no longer."""
        begun_ms = self._process.clock.mono_ms()
        for _ in range(READS_MAX):
            read = self.core.next_read()
            if read is None:
                return
            self._perform(self._read(read))
            if self._process.clock.mono_ms() - begun_ms >= READ_SLICE_MS:
                return

    def _read(self, read: Read) -> list[Effect]:
        try:
            if self._reading is None:
                paths = self._process.paths
                self._reading = BlockReader(paths.journal, paths.archive)
            block = self._reading.read(read)
        except StorageError as error:
            return self.core.read_failed(read, str(error))
        return self.core.blocks(read, block, self._process.clock.mono_ms())

    def _begin(self, plan: Plan) -> Generator[None, None, ranges.Ranges]:
        """A plan has a Log of its own: it stops in the middle, while other reads go on."""
        log = Log(self._process.paths.journal, self._process.paths.archive)
        try:
            return (yield from ranges.plan(log, plan.start, plan.end, plan.parts))
        finally:
            log.close()

    def _plan(self, now_ms: int) -> None:
        """Works on the oldest plan for a slice of time."""
        clock = self._process.clock
        while self._plans and clock.mono_ms() - now_ms <= PLAN_SLICE_MS:
            plan, steps = self._plans[0]
            try:
                next(steps)
            except StopIteration as done:
                self._plans.popleft()
                self._perform(self.core.plans.planned(plan, done.value))
            except StorageError as error:
                self._plans.popleft()
                self._perform(self.core.plans.failed(plan, str(error)))

    def _stats(self) -> dict[str, int | float | str]:
        counts, reading, live = self.core.counts, self._reading, self._live
        unrecorded = {"unrecorded": live.taken, "dropped": counts.dropped} if live else {}
        return {
            "clients": len(self.core.connections),
            "subscriptions": sum(len(one.subscriptions) for one in self.core.connections.values()),
            "lag_max": self.core.cursors.lag_max,
            "messages_out": counts.messages_out,
            "bytes_out": counts.bytes_out,
            "errors": counts.errors,
            **self._front.stats(),
            "rewound": counts.rewound,
            "fell_back": self.core.cursors.fell_back,
            **unrecorded,
            "read_cache_hits": reading.hits if reading else 0,
            "read_cache_misses": reading.misses if reading else 0,
        }
