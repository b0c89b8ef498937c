"""What the supervisor decides: compare what is known with what is wanted.

`handle` takes in what happened, `tick` says what to do about it. Per process:

    down --start--> starting --beat: ready--> ready --exit--> down (started again after a back-off)
                        \\--exit--> down          \\--stop--> stopping --exit--> down

A process starts when every process it needs has been ready once, and stops when every process that
needs it is down. It is started again only after its old process is reaped. Without a zygote nothing
can be started; what runs goes on, and the zygote is started again like a process.

Silence counts only while the supervisor runs: one that was stopped, or whose machine was, finds
heartbeats that have not been read yet.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import Struct, field

from zbroker.engine.contract import Now
from zbroker.engine.effects import Exit, Note, Tell
from zbroker.engine.events import Asked, StopAsked
from zbroker.errors import Bug
from zbroker.wire.supervision import AskStatus, Beat, Status

EX_OK: Final = 0
EX_BUG: Final = 70  # sysexits: an internal error; also a process that ended without being asked
EX_STORAGE: Final = 74  # sysexits: I/O error
EX_CONFIG: Final = 78  # sysexits: a wrong config is not retried

SILENT_MAX_MS: Final = 10_000  # twenty beats; a loaded machine may miss some
START_SILENT_MAX_MS: Final = 60_000  # from the last progress: one step of a recovery may be long
STOP_MAX_MS: Final = 10_000  # a process that is asked to stop has at most a group to sync
BACKOFF_MIN_MS: Final = 100  # a crash must cost clients little
BACKOFF_MAX_MS: Final = 5_000  # and a crash loop must cost the machine little
HEALTHY_MS: Final = 10_000  # ready for this long: a later failure is a new problem
LAUNCH_MAX_MS: Final = 30_000  # a fork takes milliseconds; the zygote's first imports take longer
LOOK_MS: Final = 2_000  # it looks so often although nothing comes, to know that it ran
AWAY_MS: Final = 2 * LOOK_MS  # after so long without a look it did not run: silence begins again
ZYGOTE_TRIES_MAX: Final = 5  # without a single fork in this run: it cannot work here

StatValue = int | float | str
ProcessStatus = dict[str, StatValue | dict[str, StatValue]]


class Restarts(Struct, kw_only=True):
    """How often a process was started again, and when the next start is due."""

    restarts: int = 0
    backoff_ms: int = BACKOFF_MIN_MS
    start_at_ms: int = 0

    def failed(self, now_ms: int) -> int:
        """Counts a failure; after how long (ms) the process starts again."""
        wait_ms = self.backoff_ms
        self.restarts += 1
        self.start_at_ms = now_ms + wait_ms
        self.backoff_ms = min(2 * wait_ms, BACKOFF_MAX_MS)
        return wait_ms


class ProcessState(Restarts):
    """The state of one process. `pid` is 0 while it does not run."""

    name: str
    needs: tuple[str, ...] = ()
    listen: str = ""
    state: str = "down"
    pid: int = 0
    rid: bytes = b""  # where its beats come from
    since_ms: int = 0  # of `state`
    started_ms: int = 0
    heard_ms: int = 0
    launched: bool = False  # requested, its pid not reported yet
    killed: bool = False
    ever_ready: bool = False
    endpoint: str = ""
    progress: str = ""
    stats: dict[str, StatValue] = field(default_factory=dict)

    @property
    def is_up(self) -> bool:
        return self.launched or self.pid != 0

    def enter(self, state: str, now_ms: int) -> None:
        """It is in this state from now on."""
        self.state, self.since_ms = state, now_ms

    def status(self, now_ms: int) -> ProcessStatus:
        """What `status` shows of it."""
        return {
            "room": self.name,
            "pid": self.pid,
            "state": self.state,
            "restarts": self.restarts,
            "uptime_s": (now_ms - self.started_ms) // 1000 if self.pid else 0,
            "progress": self.progress,
            "endpoint": self.endpoint,
            "stats": self.stats,
        }


class ZygoteState(Restarts):
    """The state of the zygote, which forks the processes. `pid` is 0 while there is none."""

    pid: int = 0
    is_up: bool = True  # it is started before there is a core
    ending: bool = False
    has_forked: bool = False  # in this run


# -- events ---------------------------------------------------------------------------------------


class ChildForked(Struct, tag=True):
    """A process, of itself before it does anything else: the zygote forked it."""

    name: str = msgspec.field(name="room")
    pid: int


class NotForked(Struct, tag=True):
    """The zygote: the system has no memory, or no number, for another process."""

    name: str = msgspec.field(name="room")


class ChildEnded(NamedTuple):
    """A child is reaped. status: its exit code, or minus the signal that ended it."""

    pid: int
    status: int


class ZygoteStarted(NamedTuple):
    """Another zygote runs."""

    pid: int


class ZygoteLost(NamedTuple):
    """The zygote has ended; every answer that it gave was handled before."""


Event = ChildForked | NotForked | ChildEnded | ZygoteStarted | ZygoteLost | Asked | StopAsked


# -- effects --------------------------------------------------------------------------------------


class Start(NamedTuple):
    """Fork this process; it binds `listen`. first: it was never ready in this run."""

    name: str
    listen: str
    first: bool


class AskStop(NamedTuple):
    """Ask the process to finish and exit. rid: where it is heard, b"" if it never was."""

    name: str
    pid: int
    rid: bytes


class Kill(NamedTuple):
    """End the process at once."""

    name: str
    pid: int


class StartZygote(NamedTuple):
    """Start another one; the one before has ended. Answered by ZygoteStarted."""


class EndZygote(NamedTuple):
    """It does not answer: kill it. What it answered until now still counts, then it is lost."""


class Announce(NamedTuple):
    """Publish where the processes are reached; `ready`: all of them serve, for the first time."""

    endpoints: dict[str, str]
    ready: bool


Effect = Start | AskStop | Kill | StartZygote | EndZygote | Announce | Tell | Note | Exit


class SupervisorCore:
    """The processes of one instance, in the order in which they start. own: the supervisor."""

    def __init__(
        self, own: ProcessState, zygote: ZygoteState, processes: list[ProcessState]
    ) -> None:
        self.own, self.zygote = own, zygote
        self.processes = {process.name: process for process in processes}
        self.stopping = False
        self.ready = False
        self.exit_status = EX_OK
        self._endpoints: dict[str, str] = {}
        self._looked_ms = own.started_ms
        self._back_ms = 0  # it did not run before: messages may wait that were not read yet

    # -- what is known

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Takes in what happened."""
        if isinstance(event, Asked):
            return self._asked(event, now.mono_ms)
        if isinstance(event, ChildForked):
            return self._forked(event, now.mono_ms)
        if isinstance(event, ChildEnded):
            # a child that is none of them is a zygote, or a helper that lost its parent
            ended = [one for one in self.processes.values() if one.pid == event.pid]
            return [note for one in ended for note in self._ended(one, event.status, now.mono_ms)]
        if isinstance(event, NotForked):
            process = self.processes[event.name]
            # unless it was forked all the same: only the one between was killed
            return self._ended(process, EX_BUG, now.mono_ms) if process.launched else []
        if isinstance(event, ZygoteLost):
            return self._zygote_lost(now.mono_ms)
        if isinstance(event, ZygoteStarted):
            self.zygote.pid = event.pid
        else:
            self.stopping = True
        return []

    def _asked(self, event: Asked, now_ms: int) -> list[Effect]:
        """A beat of a process, or the admin's question."""
        if isinstance(event.question, AskStatus):
            status = Status(event.question.cid, self.state(), self.status(now_ms))
            return [Tell(event.rid, status)]
        beat: Beat = event.question
        process = self.processes.get(beat.process)
        if process is None or beat.pid != process.pid:
            return []  # of a process that was started by hand, or is gone
        process.rid, process.heard_ms = event.rid, now_ms
        process.progress, process.stats = beat.progress, beat.stats
        process.killed = process.killed and process.state == "stopping"  # not about silence
        process.endpoint = beat.endpoint or process.endpoint
        if beat.state == "ready" and process.state == "starting":
            process.enter("ready", now_ms)
            process.ever_ready = True
        return []

    def _forked(self, event: ChildForked, now_ms: int) -> list[Effect]:
        process = self.processes[event.name]
        if not process.launched:
            return [Kill(event.name, event.pid)]  # it was taken for one that cannot come
        process.launched, process.pid = False, event.pid
        process.heard_ms = process.started_ms = now_ms
        self.zygote.has_forked, self.zygote.backoff_ms = True, BACKOFF_MIN_MS
        return []

    def _ended(self, process: ProcessState, status: int, now_ms: int) -> list[Effect]:
        asked = process.state == "stopping"
        if process.state == "ready" and now_ms - process.since_ms >= HEALTHY_MS:
            process.backoff_ms = BACKOFF_MIN_MS
        process.pid, process.rid, process.launched, process.killed = 0, b"", False, False
        process.enter("down", now_ms)
        if asked and status == EX_OK:
            return []
        name = process.name
        if status == EX_CONFIG:
            return self._give_up(status, f"{name}: its config is wrong, see its last log line")
        if status == EX_STORAGE and not process.ever_ready:
            return self._give_up(
                status, f"{name}: its storage cannot be used, see its last log line"
            )
        values = {"process": name, "pid": process.pid, "status": status}
        how = f"{name} ended with " + (
            f"exit code {status}" if status >= 0 else f"signal {-status}"
        )
        if self.stopping:
            return [
                Note(
                    "supervisor.process_ended",
                    f"{how} while stopping; nothing to do",
                    values=values,
                )
            ]
        text = f"{how}; again in {process.failed(now_ms)} ms"
        return [Note("supervisor.process_ended", text, "error", values)]

    def _zygote_lost(self, now_ms: int) -> list[Effect]:
        """Its pending forks will never be reported; the supervisor owns what it forked."""
        zygote = self.zygote
        zygote.pid, zygote.is_up, zygote.ending = 0, False, False
        wait_ms = zygote.failed(now_ms)
        for process in self.processes.values():
            if process.launched:
                process.launched = False
                process.enter("down", now_ms)
        if self.stopping:
            return []
        if not zygote.has_forked and zygote.restarts >= ZYGOTE_TRIES_MAX:
            return self._give_up(EX_BUG, "the zygote ends before it starts anything")
        text = (
            "the zygote, which starts processes, has ended; those that run go on, another zygote "
            f"is started in {wait_ms} ms"
        )
        return [Note("supervisor.zygote_ended", text, "error", {"wait_ms": wait_ms})]

    def _give_up(self, status: int, text: str) -> list[Effect]:
        self.stopping, self.exit_status = True, status
        text = f"{text}; stopping everything"
        return [Note("supervisor.gave_up", text, "error", {"status": status})]

    # -- what is wanted

    def tick(self, now: Now, *, drained: bool) -> list[Effect]:
        """What to do now."""
        now_ms = now.mono_ms
        if now_ms - self._looked_ms >= AWAY_MS:
            self._back_ms = now_ms
        self._looked_ms = now_ms
        effects = self._watch_zygote(now_ms)
        for process in self.processes.values():
            if process.is_up:
                effects += self._watch(process, now_ms)
            elif now_ms >= process.start_at_ms and self._may_start(process):
                process.launched, process.heard_ms = True, now_ms
                process.enter("starting", now_ms)
                listen = process.endpoint or process.listen
                effects.append(Start(process.name, listen, not process.ever_ready))
        effects += self._announce()
        if self.stopping and not any(process.is_up for process in self.processes.values()):
            effects.append(Exit())
        return effects

    def _watch_zygote(self, now_ms: int) -> list[Effect]:
        zygote = self.zygote
        if not zygote.is_up:
            if self.stopping or now_ms < zygote.start_at_ms:
                return []
            zygote.is_up = True
            return [StartZygote()]
        asked = [self._quiet_from(one) for one in self.processes.values() if one.launched]
        if zygote.ending or not asked or now_ms < min(asked) + LAUNCH_MAX_MS:
            return []
        zygote.ending = True
        quiet_ms = now_ms - min(asked)
        text = f"the zygote has started nothing for {quiet_ms} ms; killed"
        note = Note("supervisor.zygote_killed", text, "error", {"quiet_ms": quiet_ms})
        return [note, EndZygote()]

    def _may_start(self, process: ProcessState) -> bool:
        can_fork = self.zygote.is_up and not self.zygote.ending and not self.stopping
        return can_fork and all(self.processes[name].ever_ready for name in process.needs)

    def _may_stop(self, process: ProcessState) -> bool:
        others = self.processes.values()
        return not any(other.is_up for other in others if process.name in other.needs)

    def _watch(self, process: ProcessState, now_ms: int) -> list[Effect]:
        if process.launched:
            return []  # the zygote answers, or is lost
        if self.stopping and process.state != "stopping" and self._may_stop(process):
            process.enter("stopping", now_ms)
            return [AskStop(process.name, process.pid, process.rid)]
        if process.killed or now_ms < self._deadline_ms(process):
            return []
        process.killed = True
        why = "does not stop" if process.state == "stopping" else "is silent"
        quiet_ms = now_ms - self._quiet_from(process)
        text = f"{process.name} (pid {process.pid}) {why} for {quiet_ms} ms; killed"
        values = {"process": process.name, "pid": process.pid, "quiet_ms": quiet_ms}
        note = Note("supervisor.process_killed", text, "error", values)
        return [note, Kill(process.name, process.pid)]

    def _quiet_from(self, process: ProcessState) -> int:
        last_ms = process.since_ms if process.state == "stopping" else process.heard_ms
        return max(last_ms, self._back_ms)

    def _deadline_ms(self, process: ProcessState) -> int:
        patience = {"stopping": STOP_MAX_MS, "starting": START_SILENT_MAX_MS}
        return self._quiet_from(process) + patience.get(process.state, SILENT_MAX_MS)

    def _announce(self) -> list[Effect]:
        endpoints = {one.name: one.endpoint for one in self.processes.values() if one.endpoint}
        all_ready = self._all_ready()
        if endpoints == self._endpoints and (self.ready or not all_ready):
            return []
        news = all_ready and not self.ready
        self._endpoints, self.ready = endpoints, self.ready or all_ready
        return [Announce(dict(endpoints), news)]

    def _all_ready(self) -> bool:
        return all(process.state == "ready" for process in self.processes.values())

    def next_read(self) -> None:
        """Nothing: it reads no log."""

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do, if nothing happens before."""
        times, deadlines = [], []
        if not self.zygote.is_up and not self.stopping:
            times.append(self.zygote.start_at_ms)
        for process in self.processes.values():
            if process.launched:
                if not self.zygote.ending:
                    deadlines.append(self._quiet_from(process) + LAUNCH_MAX_MS)
            elif process.is_up:
                if not process.killed:
                    deadlines.append(self._deadline_ms(process))
            elif self._may_start(process):
                times.append(process.start_at_ms)
        if deadlines:
            times.append(min(*deadlines, self._looked_ms + LOOK_MS))
        return min(times, default=None)

    # -- what others see

    def state(self) -> str:
        """The state of the whole instance."""
        if self.stopping:
            return "stopping"
        if not self.ready:
            return "starting"
        return "ready" if self._all_ready() else "degraded"

    def status(self, now_ms: int) -> list[ProcessStatus]:
        """One map per process, its own first."""
        own, zygote = self.own, self.zygote
        own.state = self.state()
        own.stats = {"zygote": zygote.pid, "zygote_restarts": zygote.restarts}
        return [process.status(now_ms) for process in (own, *self.processes.values())]

    def check(self) -> None:
        """Asserts what is always true."""
        if not self.zygote.is_up and any(one.launched for one in self.processes.values()):
            raise Bug("a process was asked for, and there is no zygote")
        for process in self.processes.values():
            if (process.state == "down") == process.is_up:
                raise Bug(f"{process.name} is {process.state} with pid {process.pid}")
            if process.launched and process.pid:
                raise Bug(f"{process.name} was asked for while pid {process.pid} lives")
            if set(process.needs) - set(self.processes):
                raise Bug(f"{process.name} needs a process that is not there")
