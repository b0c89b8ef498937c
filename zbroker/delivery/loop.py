"""The delivery process: bookmark and live subscriptions.

Purpose   replays the log to subscribers and follows its end, locates points, splits the log
          into ranges for Spark. Nothing that is recorded is sent before it is durable.
Sockets   ROUTER tcp for clients ([listen] delivery), monitor and ZAP; SUB ipc marks; DEALER ipc
          journal; with a [[record]] table ROUTER ipc live; ROUTER ipc desk for questions of the
          admin. Each of several workers ([delivery] workers) has its own: live-2, desk-2, ...
Owns      nothing on disk; reads <data>/journal.
Settings  [listen] delivery; [limits] clients; [[record]]; [security].
Exits     0 when asked to stop.
Weakness  one thread: a slow disk delays all subscribers. Messages to a client that gives credit
          without reading are kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

import zmq

from zbroker.blocks.block_reader import BlockReader
from zbroker.blocks.read_request import Read
from zbroker.config import Config, socket_of
from zbroker.delivery import contract as de
from zbroker.delivery.core import DeliveryCore, DeliverySettings
from zbroker.delivery.ports import BlocksPort, LiveMessagesPort, PlansPort
from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Now, TurnPlan
from zbroker.engine.turn import Turn
from zbroker.filters import Vocabulary, own
from zbroker.limits import FRAME_SLACK_BYTES, HEADER_MAX_BYTES, MIB
from zbroker.log.reader import Log
from zbroker.recording import Recording
from zbroker.server import admin_endpoint, disconnects_file, ports
from zbroker.server.budgets import budget_of
from zbroker.server.process import EX_OK, Process, Stats
from zbroker.server.public_listener import PublicListener
from zbroker.wire import surveys as s

BURST_MAX: Final = 256  # commands of one turn
LIVE_LIMIT: Final = Limit(10_000, 4 * MIB)  # of one turn: unrecorded messages
READS_MAX: Final = 64  # blocks of one turn
READ_SLICE_MS: Final = 5  # how long a turn reads; bounds how long commands and watermarks wait
RULES_AT: Final = 2  # place of the access rules among the sources: before commands


def run(process: Process) -> int:
    """Serves subscribers until the supervisor stops it."""
    loop = DeliveryLoop(process)
    process.ready(loop.open())
    while not loop.done:
        loop.turn()
    return EX_OK


def vocabulary_of(config: Config) -> Vocabulary:
    """What filters of subscriptions may call. Raises: ClientError."""
    functions = own.load(config.filters.functions)
    return Vocabulary.of_instance(config.instance.name, config.instance.group, functions)


class DeliveryLoop:
    """Sockets and files of the delivery process, and its plan."""

    def __init__(self, process: Process) -> None:
        self._process, self._poller = process, zmq.Poller()
        config, clock, paths = process.config, process.clock, process.paths
        self._front = PublicListener(
            process, frame_bytes=HEADER_MAX_BYTES + FRAME_SLACK_BYTES, sndhwm=0
        )
        recording = Recording(config.record, nothing=config.records_nothing)
        settings = DeliverySettings(
            paths.token_key.read_bytes(), config.limits.clients, recording, self._front.access,
            process.incarnation, vocabulary_of(config), budget_of(config.limits),
            disconnects_file.read(paths.disconnects), process.room,
        )  # fmt: skip
        door = self._front.door
        self.core = DeliveryCore(settings, door.wires.quiet_ms, door.peer)
        self._journal = ports.JournalPort(process.context, paths, self._poller)
        self._listener = ports.ListenerPort(self._front, clock, self._poller)
        self._live = None
        if not recording.everything:
            self._live = LiveMessagesPort(process.context, self._ipc("live"), self._poller)
        desk = admin_endpoint.AdminEndpoint(
            process.context, self._ipc("desk"), s.TO_DESK, self._poller, process.log
        )
        self._questions = ports.QuestionsPort(desk)
        self._plans = PlansPort(lambda: Log(paths.journal, paths.archive), clock)
        self._supervisor = ports.SupervisorPort(process, self._poller, self._stats)
        self._log = BlocksPort(
            lambda: BlockReader(paths.journal, paths.archive, self._journal.open_segment)
        )
        self._turn: Turn[Any, Any] = Turn(
            self.core, self._plan(), self._performers(),
            lambda: Now(clock.mono_ms(), clock.wall_ns()),
        )  # fmt: skip
        self._wait_ms: int | None = 0
        self.done = False

    def _ipc(self, name: str) -> str:
        """Where this worker has the socket `name`."""
        return self._process.paths.ipc(socket_of(name, self._process.room))

    def _plan(self) -> TurnPlan:
        """The journal first: its watermarks say how far the log may be read."""
        process, few = self._process, ports.ONE
        sources: list[tuple[Any, Limit]] = [
            (self._journal, few),
            (self._listener, few),
            (ports.CommandsPort(self._front, self._poller), Limit(BURST_MAX)),
            (self._questions, few),
            (self._plans, few),
            (self._supervisor, few),
        ]
        if self._front.secure:
            sources.insert(RULES_AT, (ports.RulesPort(self._front, process.clock), few))
        if self._live is not None:
            sources.append((self._live, LIVE_LIMIT))
        return TurnPlan(sources, (Read, *get_args(de.Effect)), READ_SLICE_MS, READS_MAX)

    def _performers(self) -> dict[type, Callable[[Any], Any]]:
        door = self._front.door
        return {
            Read: self._log.read,
            e.Send: self._listener.send,
            e.Say: self._journal.say,
            e.Reconnect: self._journal.reconnect,
            e.Follow: self._journal.follow,
            e.LoggedOff: lambda effect: door.forget(effect.rid),
            e.LoggedOn: lambda effect: door.logged_on(effect.rid),
            e.Tell: self._questions.tell,
            e.NoteDisconnected: self._questions.note_disconnected,
            e.Note: self._supervisor.note,
            e.ForgetBlocks: self._forget,
            e.Exit: self._exit,
            de.PlanRanges: self._plans.begin,
            de.CloseFiles: self._log.close_files,
            de.GrantLive: self._grant,
        }

    def open(self) -> str:
        """Where clients may connect from now on."""
        return self._front.open()

    def turn(self) -> None:
        """Waits for something, then does one turn."""
        ready = dict(self._poller.poll(self._wait_ms))
        self._wait_ms = self._turn.run(ready)

    def _forget(self, effect: e.ForgetBlocks) -> None:
        self._log.forget(effect)
        self._plans.forget()

    def _grant(self, effect: de.GrantLive) -> None:
        assert self._live is not None, "nothing is granted where everything is recorded"
        self._live.grant(effect)

    def _stats(self) -> Stats:
        return {**self.core.stats(), **self._front.stats(), **self._log.stats()}

    def _exit(self, _effect: e.Exit) -> None:
        self.done = True
