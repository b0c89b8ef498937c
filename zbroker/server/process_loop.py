"""The loops of what a Turn drives: the supervisor, its processes, those with a public listener.

The loop of each process adds what it opens, its plan and its performers: it makes its core and its
ports in its constructor, and ends that with `begin`.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import zmq

from zbroker import sockets
from zbroker.clock import Clock
from zbroker.cpus import CpuChoice
from zbroker.engine import effects as e
from zbroker.engine.contract import MS_NS, Core, Limit, Now, Performers, Source, TurnPlan
from zbroker.engine.turn import Turn
from zbroker.limits import FRAME_SLACK_BYTES, HEADER_MAX_BYTES
from zbroker.recording import Recording
from zbroker.server import disconnects_file
from zbroker.server.admin_endpoint import AdminEndpoint, Questions
from zbroker.server.ports import (
    CommandsPort,
    JournalPort,
    ReplicatedPort,
    RulesPort,
    SupervisorPort,
)
from zbroker.server.process import EX_OK, Process, Stats
from zbroker.server.public_listener import PublicListener

ONE: Final = Limit(1)  # of sources with a bound of their own
BURST: Final = Limit(256)  # commands of one turn
LOOK_S: Final = 0.02
READ_SLICE_MS: Final = 5  # how long a turn reads the log: bounds how long commands wait


class TurnLoop:
    """Waits for sockets and turns a core, until that says that all is done."""

    _turn: Turn[Any, Any]

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self.clock, self.log, self.poller = clock, log, zmq.Poller()
        self.hot = zmq.Poller()  # what hot sources wait for
        self.done = False
        self._heard = False  # something came in the last turn
        self._stale = False  # `_wait_ms` is older than that
        self._look_s = 0.0  # when all sources are looked at again
        self._wait_ms: int | None = 0
        self._spin_s = 0.0
        self._cpu = CpuChoice()

    def begin(self, core: Core[Any, Any], plan: TurnPlan, performers: Performers) -> None:
        """From now on it can turn. performers: besides those of every loop."""
        clock = self.clock
        zero_ns = clock.wall_ns() - clock.mono_ms() * MS_NS
        common: Performers = {
            e.Note: self._note, e.Pace: self._pace, e.RunOn: self._run_on, e.Exit: self._exit,
        }  # fmt: skip
        self._turn = Turn(
            core, plan, {**common, **performers},
            lambda: Now(clock.mono_ms(), clock.wall_ns(), zero_ns),
        )  # fmt: skip

    def run(self) -> int:
        """Turns until all is done. Returns: the exit code."""
        try:
            self.open()
            while not self.done:
                self.turn()
        finally:
            self.close()
        return EX_OK

    def turn(self) -> None:
        """Waits for something, then does one turn.

        With a pace it looks before it sleeps: waking a sleeping core costs more than one publish.
        Then it looks at hot sources only, each LOOK_S at the others, too.
        """
        if self._spin_s and self._heard and self._wait_ms != 0:
            found = sockets.spin(self.hot, self._spin_s)
            if found and time.monotonic() < self._look_s:
                self._turn.run(dict(found), hot=True)
                self._stale = True
                return
            self._stale = self._stale or bool(found)
        ready = dict(self.poller.poll(0 if self._stale else self._wait_ms))
        self._look_s = time.monotonic() + LOOK_S
        self._heard, self._stale = bool(ready), False
        self._wait_ms = self._turn.run(ready)

    def open(self) -> None:
        """Before the first turn."""

    def close(self) -> None:
        """After the last turn, also after an error."""

    def _note(self, effect: e.Note) -> None:
        log = getattr(self.log, effect.level)
        log("%s: %s", effect.name, effect.text, extra={"values": effect.values})

    def _pace(self, effect: e.Pace) -> None:
        self._spin_s = effect.spin_us / 1e6

    def _run_on(self, effect: e.RunOn) -> None:
        self._cpu.run_on(effect.cpu)

    def _exit(self, _effect: e.Exit) -> None:
        self.done = True


class ProcessLoop(TurnLoop):
    """A process that the supervisor watches."""

    core: Any  # with `stats`, besides what Core says

    def __init__(self, process: Process) -> None:
        super().__init__(process.clock, process.log)
        self.process, self.endpoint = process, ""  # where clients connect
        self.supervisor = SupervisorPort(process, self.poller, self.stats)

    def begin(self, core: Core[Any, Any], plan: TurnPlan, performers: Performers) -> None:
        """See TurnLoop."""
        self.core = core
        common: Performers = {e.Progress: self.supervisor.progress, e.Ready: self.ready}
        super().begin(core, plan, {**common, **performers})

    def stats(self) -> Stats:
        """What a heartbeat reports."""
        return dict(self.core.stats())

    def ready(self, _effect: e.Ready) -> None:
        """The process serves from now on."""
        self.process.stats = self.stats()
        self.process.ready(self.endpoint)


class ListenerLoop(ProcessLoop):
    """A process with a public listener, which follows the journal and answers the admin process.

    questions: what the admin process asks at the ipc socket `asked_at`.
    """

    def __init__(
        self, process: Process, asked_at: str, questions: Questions, *,
        frame_bytes: int = HEADER_MAX_BYTES + FRAME_SLACK_BYTES, sndhwm: int = 0,
        every_write: bool = False,
    ) -> None:  # fmt: skip
        """every_write: see JournalPort."""
        super().__init__(process)
        config, paths, poller = process.config, process.paths, self.poller
        self.recording = Recording(config.record, nothing=config.records_nothing)
        self.disconnects = disconnects_file.read(paths.disconnects)
        self.token_key = paths.token_key.read_bytes()
        self.listener = PublicListener(process, poller, frame_bytes=frame_bytes, sndhwm=sndhwm)
        connections, self.access = self.listener.connections, self.listener.rules.access
        self.quiet_ms, self.peer = connections.wires.quiet_ms, connections.peer
        self.endpoint = connections.endpoint
        self.commands = CommandsPort(connections, poller, self.hot)
        self.journal = JournalPort(
            process.context, paths, poller, self.hot, every_write=every_write
        )
        self.questions = AdminEndpoint(
            process.context, paths.ipc(asked_at), questions, poller, process.log
        )
        self.rules: list[tuple[Source, Limit]] = []  # a source only while security is on
        if config.security.on:
            self.rules.append((RulesPort(self.listener.rules, process.clock), ONE))
        self._marks: ReplicatedPort | None = None

    def begin(self, core: Core[Any, Any], plan: TurnPlan, performers: Performers) -> None:
        """See TurnLoop."""
        common: Performers = {
            e.Send: self.listener.send,
            e.Answer: self.listener.answer,
            e.LoggedOff: self.listener.logged_off,
            e.LoggedOn: self.listener.logged_on,
            e.Gate: self.commands.gate,
            e.Tell: self.questions.tell,
            e.NoteDisconnected: self.questions.note_disconnected,
            e.Say: self.journal.say,
            e.Reconnect: self.journal.reconnect,
            e.Follow: self.journal.follow,
            e.FollowMark: self._follow_mark,
        }
        super().begin(core, plan, {**common, **performers})

    def marks(self, *, on: bool) -> list[tuple[Source, Limit]]:
        """Those of the replication process. on: there are synchronous destinations."""
        if not on:
            return []
        self._marks = ReplicatedPort(self.process.context, self.process.paths, self.poller)
        return [(self._marks, ONE)]

    def _follow_mark(self, effect: e.FollowMark) -> None:
        assert self._marks is not None, "without synchronous destinations no mark is waited for"
        self._marks.follow(effect)

    def sources(self) -> list[tuple[Source, Limit]]:
        """In the order for clients that read the log: what the journal says makes room for what
        they do, and says how far the log may be read; their commands are judged by the newest
        rules."""
        return [
            (self.journal, ONE),
            (self.listener, ONE),
            *self.rules,
            (self.commands, BURST),
            (self.questions, ONE),
        ]

    def open(self) -> None:
        """Makes sure that connections without a key are refused."""
        self.listener.connections.self_test()

    def stats(self) -> Stats:
        """See ProcessLoop."""
        return {**super().stats(), **self.listener.stats()}
