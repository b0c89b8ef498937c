"""The ingest process: publishers log on and publish here.

Purpose   answers logons (after the journal did), checks and packs what clients publish, forwards it
          to the journal, acknowledges what is persisted. Unrecorded messages go to delivery.
Sockets   ROUTER tcp for clients ([listen] ingest), monitor and ZAP; DEALER ipc journal; SUB ipc
          marks; ROUTER ipc ingest-desk for questions of the admin; with a [[record]] table DEALER
          ipc live, live-2, ... of each delivery worker.
Owns      nothing on disk.
Settings  [limits]; [[record]]; [ingest] spin_us; [delivery] workers; [security].
Exits     0 when asked to stop.
Weakness  one thread: about half a million single publishes per second is its limit on one core.
          While the journal's credit is used up no client is read, so what is not recorded waits
          too. A batch of recorded and unrecorded messages is cut and packed again here.

It spins: for spin_us after the last event it looks again instead of sleeping, as long as few
messages come per turn; waking a sleeping core costs more than all the rest of one publish.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

import zmq

from zbroker.config import delivery_rooms, socket_of
from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Now, TurnPlan
from zbroker.engine.turn import Turn
from zbroker.ingest.contract import Effect, IngestSettings, PublishLimits, Verify
from zbroker.ingest.core import IngestCore
from zbroker.ingest.ports import EndpointsFile, LivePort, PasswordPort
from zbroker.limits import FRAME_SLACK_BYTES, INGEST_TURN_MAX, MIB
from zbroker.recording import Recording
from zbroker.server import admin_endpoint, disconnects_file, ports
from zbroker.server.process import EX_OK, Process, Stats
from zbroker.server.public_listener import PublicListener
from zbroker.wire import surveys as s

SEND_HWM: Final = 1_000  # answers queued per client; beyond it they are merged by the core
TURN_BYTES_MAX: Final = (
    8 * MIB
)  # of one turn: commands that are read and not handled yet are in memory


def run(process: Process) -> int:
    """Serves publishers until the supervisor stops it."""
    loop = IngestLoop(process)
    loop.open()
    while not loop.done:
        loop.turn()
    process.close()
    return EX_OK


class IngestLoop:
    """Sockets and files of the ingest process, and its plan."""

    def __init__(self, process: Process) -> None:
        self._process, self._poller = process, zmq.Poller()
        config, clock = process.config, process.clock
        self._limits = PublishLimits(
            config.limits.message_bytes, config.limits.batch_bytes, config.limits.window_bytes,
            config.limits.clients, config.journal.time == "publisher",
            config.limits.clients_of_one,
        )  # fmt: skip
        frame_bytes = max(self._limits.message_bytes, self._limits.batch_bytes) + FRAME_SLACK_BYTES
        self._front = PublicListener(process, frame_bytes=frame_bytes, sndhwm=SEND_HWM)
        door = self._front.door
        settings = self._settings()
        self.core = IngestCore(settings, door.wires.quiet_ms, door.peer)
        context, paths = process.context, process.paths
        self._journal = ports.JournalPort(context, paths, self._poller)
        self._live = LivePort(context, paths, self._poller, settings.live)
        self._listener = ports.ListenerPort(self._front, clock, self._poller)
        self._commands = ports.CommandsPort(self._front, self._poller)
        self._passwords = PasswordPort(self._poller)
        desk = admin_endpoint.AdminEndpoint(
            context, paths.ipc("ingest-desk"), s.TO_INGEST_DESK, self._poller, process.log
        )
        self._questions = ports.QuestionsPort(desk)
        self._supervisor = ports.SupervisorPort(process, self._poller, self._stats)
        self._sleep = ports.PollPort(self._poller)
        self._turn: Turn[Any, Any] = Turn(
            self.core, self._plan(), self._performers(),
            lambda: Now(clock.mono_ms(), clock.wall_ns()),
        )  # fmt: skip
        self._wait_ms: int | None = 0
        self.done = False

    def _settings(self) -> IngestSettings:
        process, config = self._process, self._process.config
        workers = delivery_rooms(config)
        return IngestSettings(
            self._limits, process.incarnation,
            Recording(config.record, nothing=config.records_nothing), workers,
            [socket_of("live", worker) for worker in workers], self._front.access,
            process.paths.token_key.read_bytes(),
            disconnects_file.read(process.paths.disconnects).number, config.ingest.spin_us,
        )  # fmt: skip

    def _plan(self) -> TurnPlan:
        """The journal first: receipts free windows. Grants come before clients, so that messages
        go to subscribers that were there before them."""
        process, few = self._process, ports.ONE
        sources: list[tuple[Any, Limit]] = [
            (self._journal, few),
            (self._live, few),
            (self._listener, few),
            (self._passwords, few),
        ]
        if self._front.secure:
            sources.append((ports.RulesPort(self._front, process.clock), few))
        sources += [
            (self._questions, few),
            (EndpointsFile(process), few),
            (self._commands, Limit(INGEST_TURN_MAX, TURN_BYTES_MAX)),
            (self._supervisor, few),
        ]
        return TurnPlan(sources, get_args(Effect))

    def _performers(self) -> dict[type, Callable[[Any], Any]]:
        door = self._front.door
        return {
            e.Answer: self._listener.answer,
            e.Say: self._say,
            e.Reconnect: self._reconnect,
            e.LoggedOff: lambda effect: door.forget(effect.rid),
            e.LoggedOn: lambda effect: door.logged_on(effect.rid),
            e.Tell: self._questions.tell,
            e.NoteDisconnected: self._questions.note_disconnected,
            e.Gate: self._commands.gate,
            e.Pace: self._sleep.pace,
            e.Ready: lambda _: self._process.ready(door.endpoint),
            e.Exit: self._exit,
            Verify: self._passwords.verify,
        }

    def open(self) -> None:
        """Makes sure that connections without a key are refused."""
        self._front.open()

    def turn(self) -> None:
        """Waits for something, then does one turn."""
        self._wait_ms = self._turn.run(self._sleep.wait(self._wait_ms))

    def _say(self, effect: e.Say) -> None:
        (self._journal if effect.link == e.JOURNAL else self._live).say(effect)

    def _reconnect(self, effect: e.Reconnect) -> None:
        port = self._journal if effect.link in (e.JOURNAL, e.WATERMARKS) else self._live
        port.reconnect(effect)

    def _stats(self) -> Stats:
        return {**self.core.stats(), **self._front.stats()}

    def _exit(self, _effect: e.Exit) -> None:
        self.done = True
