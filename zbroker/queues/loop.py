"""The queues process: work queues and replayable queues over the log.

Purpose   folds the log into the state of every queue, gives messages to consumers under leases,
          commits what becomes of them, makes dead letters, sets points; answers the admin about all
          of it. Nothing is given before it is durable, and no ack is answered before it is.
Sockets   ROUTER tcp for consumers ([listen] queues), monitor and ZAP; SUB ipc marks; DEALER ipc
          journal; ROUTER ipc queues-desk for questions of the admin.
Owns      <data>/queues: LMDB tables with the state of the queues, which may be deleted; a note in
          /dev/shm of how far each was delivered, likewise.
Settings  [listen] queues; [[queue]]; [limits] clients; [[record]]; [security].
Exits     0 when asked to stop; 74 when the journal lost what was read of it: the next start reads
          it again; 78 when a [[queue]] table cannot follow from what the log knows of that queue.
Weakness  one thread for all queues. Without its tables a start reads the log from the oldest
          message that a queue may need.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, get_args

import zmq

from zbroker.blocks.block_reader import BlockReader
from zbroker.engine import effects as e
from zbroker.engine.contract import MS_NS, Limit, Now, TurnPlan
from zbroker.engine.turn import Turn
from zbroker.filters import Payloads
from zbroker.limits import FRAME_SLACK_BYTES, HEADER_MAX_BYTES
from zbroker.queues import effects as qe
from zbroker.queues.core import QueuesCore, QueuesSettings
from zbroker.queues.delivered import Delivered
from zbroker.queues.effects import TablesLoaded
from zbroker.queues.log_work import LogWork, Matcher
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.tables import TableWriter
from zbroker.recording import Recording
from zbroker.server import admin_endpoint, disconnects_file, ports
from zbroker.server.budgets import budget_of
from zbroker.server.process import EX_OK, Process, Stats
from zbroker.server.public_listener import PublicListener
from zbroker.wire import queue_surveys as s

BURST_MAX: Final = 256  # commands of one turn
READ_SLICE_MS: Final = 5  # how long a turn follows the log; bounds how long commands wait
RULES_AT: Final = 2  # place of the access rules among the sources: before commands
READS_MAX: Final = 1_000  # blocks of one turn: the slice of time ends before


def run(process: Process) -> int:
    """Serves consumers until asked to stop."""
    loop = QueuesLoop(process)
    try:
        loop.open()
        while not loop.done:
            loop.turn()
    finally:
        loop.close()
    return EX_OK


class QueuesLoop:
    """Sockets and files of the queues process, and its plan."""

    def __init__(self, process: Process) -> None:
        self._process, self._poller = process, zmq.Poller()
        config, clock = process.config, process.clock
        self._front = PublicListener(
            process, frame_bytes=HEADER_MAX_BYTES + FRAME_SLACK_BYTES, sndhwm=0
        )
        recording = Recording(config.record, nothing=config.records_nothing)
        settings = QueuesSettings(
            process.paths.token_key.read_bytes(), config.limits.clients, process.incarnation,
            recording, self._front.access, budget_of(config.limits),
            disconnects_file.read(process.paths.disconnects),
        )  # fmt: skip
        manager = QueueRegistry(process.incarnation, config.queue, recording)
        door = self._front.door
        self.core = QueuesCore(settings, manager, door.wires.quiet_ms, door.peer)
        self._journal = ports.JournalPort(process.context, process.paths, self._poller)
        self._listener = ports.ListenerPort(self._front, clock, self._poller)
        self._supervisor = ports.SupervisorPort(process, self._poller, self._stats)
        desk = admin_endpoint.AdminEndpoint(
            process.context, process.paths.ipc("queues-desk"), s.TO_QUEUES_DESK, self._poller,
            process.log,
        )  # fmt: skip
        self._questions = ports.QuestionsPort(desk)
        self._saving = TableWriter(Path(process.paths.queues), clock)
        self._delivered: Delivered | None = None
        self._work = LogWork(
            BlockReader(process.paths.journal, process.paths.archive, self._journal.open_segment),
            self._listener.sent,
            Matcher(recording.type_of, Payloads), self._sending,
            sees_all=not self._front.access.on,
        )  # fmt: skip
        zero_ns = clock.wall_ns() - clock.mono_ms() * MS_NS
        self._turn: Turn[Any, Any] = Turn(
            self.core, self._plan(), self._performers(),
            lambda: Now(clock.mono_ms(), clock.wall_ns(), zero_ns),
        )  # fmt: skip
        self._wait_ms: int | None = 0
        self.done = False

    def _plan(self) -> TurnPlan:
        """The journal first: what landed makes room for what clients do."""
        process, few = self._process, ports.ONE
        sources: list[tuple[Any, Limit]] = [
            (self._journal, few),
            (self._listener, few),
            (ports.CommandsPort(self._front, self._poller), Limit(BURST_MAX)),
            (self._questions, few),
            (self._saving, few),
            (self._supervisor, few),
        ]
        if self._front.secure:
            sources.insert(RULES_AT, (ports.RulesPort(self._front, process.clock), few))
        return TurnPlan(sources, get_args(qe.Effect), READ_SLICE_MS, READS_MAX)

    def _performers(self) -> dict[type, Callable[[Any], Any]]:
        door = self._front.door
        return {
            **self._work.performers,
            e.Send: self._listener.send,
            e.Say: self._journal.say,
            e.Reconnect: self._journal.reconnect,
            e.Follow: self._journal.follow,
            e.LoggedOff: lambda effect: door.forget(effect.rid),
            e.LoggedOn: lambda effect: door.logged_on(effect.rid),
            e.Note: self._supervisor.note,
            e.Progress: self._supervisor.progress,
            e.Ready: lambda _: self._process.ready(door.endpoint),
            e.Exit: self._exit,
            e.Tell: self._questions.tell,
            e.NoteDisconnected: self._questions.note_disconnected,
            qe.Load: self._load,
            qe.SaveTables: self._saving.save,
            qe.TrackDeliveries: self._track,
        }

    def open(self) -> None:
        """Makes sure that connections without a key are refused."""
        self._front.open()

    def turn(self) -> None:
        """Waits for something, then does one turn."""
        ready = dict(self._poller.poll(self._wait_ms))
        self._wait_ms = self._turn.run(ready)

    # -- tables and the note of deliveries ------------------------------------------------------

    def _load(self, effect: qe.Load) -> TablesLoaded:
        self._work.begin(effect.here, effect.persisted)
        self._delivered = Delivered(effect.here, self._process.paths.queues / "sent.id")
        if self._delivered.failed:
            text = "queues.no_note: %s; after a kill more may be flagged as redelivered"
            self._process.log.warning(text, self._delivered.failed)
        saved = self._saving.load(effect.here, effect.persisted)
        return TablesLoaded(saved, self._delivered.before)

    def _track(self, effect: qe.TrackDeliveries) -> None:
        assert self._delivered is not None, "queues begin after the tables were loaded"
        self._delivered.begin(effect.queue, effect.life, effect.position)

    def _sending(self, give: qe.Give) -> None:
        """Before anything is sent: after a crash it is known to be the second time."""
        if self._delivered is not None:
            self._delivered.sending(give.to.queue, give.life, give.positions.max())

    # -- the process --------------------------------------------------------------------------

    def _stats(self) -> Stats:
        return {**self.core.stats(), **self._front.stats()}

    def _exit(self, _effect: e.Exit) -> None:
        self.done = True

    def close(self) -> None:
        """Ends the helper thread and closes the tables."""
        self._saving.close()
        if self._delivered is not None:
            self._delivered.close()
