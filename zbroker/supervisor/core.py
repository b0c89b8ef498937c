"""What the supervisor decides: compare what is known with what is wanted.

`handle` only changes what is known; `tick` returns what to do about it. Per room:

    down --start--> starting --beat: ready--> ready --exit--> down (started again after a back-off)
                        \\--exit--> down          \\--stop--> stopping --exit--> down

A room starts when every room it needs has been ready once, and stops when every room that needs it
is down. It is started again only after its old process is reaped. Without a zygote nothing can be
started; what runs goes on, and the zygote is started again like a room.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zbroker.errors import Bug

EX_OK: Final = 0
EX_BUG: Final = 70  # sysexits: an internal error; also a room that ended without being asked
EX_STORAGE: Final = 74  # sysexits: I/O error
EX_CONFIG: Final = 78  # sysexits: a wrong config is not retried

SILENT_MAX_MS: Final = 10_000  # twenty beats; a loaded machine may miss some
START_SILENT_MAX_MS: Final = 60_000  # from the last progress: one step of a recovery may be long
STOP_MAX_MS: Final = 10_000  # a room that is asked to stop has at most a group to sync
BACKOFF_MIN_MS: Final = 100  # a crash must cost clients little
BACKOFF_MAX_MS: Final = 5_000  # and a crash loop must cost the machine little
HEALTHY_MS: Final = 10_000  # ready for this long: a later failure is a new problem
LAUNCH_MAX_MS: Final = 30_000  # a fork takes milliseconds; the zygote's first imports take longer
ZYGOTE_TRIES_MAX: Final = 5  # without a single fork in this run: it cannot work here

StatValue = int | float | str
RoomStatus = dict[str, StatValue | dict[str, StatValue]]


@dataclass(slots=True, kw_only=True)
class Restarts:
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


@dataclass(slots=True)
class ProcessState(Restarts):
    """The state of one process. `pid` is 0 while it does not run."""

    name: str
    needs: tuple[str, ...] = ()
    listen: str = ""
    state: str = "down"
    pid: int = 0
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


# -- events ---------------------------------------------------------------------------------------


class Started(NamedTuple):
    """The zygote forked `room`."""

    room: str
    pid: int


class Exited(NamedTuple):
    """The process is reaped. `status`: its exit code, or minus the signal that ended it.

    pid 0: it could not be forked.
    """

    room: str
    pid: int
    status: int


class Heard(NamedTuple):
    """A beat of a room."""

    room: str
    pid: int
    state: str
    progress: str
    endpoint: str
    stats: dict[str, StatValue]


class ZygoteLost(NamedTuple):
    """The zygote has ended; every answer that it gave was handled before."""


class StopSignal(NamedTuple):
    """SIGTERM or SIGINT."""


Event = Started | Exited | Heard | ZygoteLost | StopSignal


# -- effects --------------------------------------------------------------------------------------


class Start(NamedTuple):
    """Fork this room; it binds `listen`. first: it was never ready in this run."""

    room: str
    listen: str
    first: bool


class AskStop(NamedTuple):
    """Tell the room to finish and exit."""

    room: str
    pid: int


class Kill(NamedTuple):
    """End the process at once."""

    room: str
    pid: int


class StartZygote(NamedTuple):
    """Start another one; the one before has ended."""


class EndZygote(NamedTuple):
    """It does not answer: kill it. What it answered until now still counts, then it is lost."""


class Announce(NamedTuple):
    """Tell where the rooms can be reached; `ready`: all of them serve, for the first time."""

    endpoints: dict[str, str]
    ready: bool


class LogLine(NamedTuple):
    """A log line: what happened and what comes next."""

    level: str
    text: str


class Halt(NamedTuple):
    """Everything has ended: exit with this status."""

    status: int


Effect = Start | AskStop | Kill | StartZygote | EndZygote | Announce | LogLine | Halt


@dataclass(slots=True)
class ZygoteState(Restarts):
    """The state of the zygote, which forks the processes."""

    is_up: bool = True  # it is started before there is a core
    ending: bool = False
    has_forked: bool = False  # in this run


class SupervisorCore:
    """The rooms of one instance, in the order in which they start."""

    def __init__(self, rooms: list[ProcessState]) -> None:
        self.rooms = {room.name: room for room in rooms}
        self.zygote = ZygoteState()
        self.stopping = False
        self.ready = False
        self._status = EX_OK
        self._endpoints: dict[str, str] = {}
        self._notes: list[Effect] = []

    # -- what is known

    def handle(self, event: Event, now_ms: int) -> None:
        """Takes in what happened."""
        if isinstance(event, StopSignal):
            self.stopping = True
            return
        if isinstance(event, ZygoteLost):
            self._zygote_lost(now_ms)
            return
        room = self.rooms.get(event.room)
        if room is None:
            return  # not one of ours: a room that was started by hand
        if isinstance(event, Started) and not room.launched:
            self._notes.append(Kill(room.name, event.pid))  # it was taken for one that cannot come
        elif isinstance(event, Started):
            room.launched, room.pid = False, event.pid
            room.heard_ms = room.started_ms = now_ms
            self.zygote.has_forked, self.zygote.backoff_ms = True, BACKOFF_MIN_MS
        elif event.pid != room.pid:
            return  # of a process that is gone
        elif isinstance(event, Heard):
            self._heard(room, event, now_ms)
        else:
            self._exited(room, event.status, now_ms)

    def _heard(self, room: ProcessState, beat: Heard, now_ms: int) -> None:
        room.heard_ms, room.progress, room.stats = now_ms, beat.progress, beat.stats
        room.killed = room.killed and room.state == "stopping"  # that one is not about silence
        room.endpoint = beat.endpoint or room.endpoint
        if beat.state == "ready" and room.state == "starting":
            self._enter(room, "ready", now_ms)
            room.ever_ready = True

    def _exited(self, room: ProcessState, status: int, now_ms: int) -> None:
        asked = room.state == "stopping"
        if room.state == "ready" and now_ms - room.since_ms >= HEALTHY_MS:
            room.backoff_ms = BACKOFF_MIN_MS
        room.pid, room.launched, room.killed = 0, False, False
        self._enter(room, "down", now_ms)
        if asked and status == EX_OK:
            return
        how = f"exit code {status}" if status >= 0 else f"signal {-status}"
        if status == EX_CONFIG:
            self._give_up(status, f"{room.name}: its config is wrong, see its last log line")
        elif status == EX_STORAGE and not room.ever_ready:
            self._give_up(status, f"{room.name}: its storage cannot be used, see its last log line")
        elif self.stopping:
            self._note("warning", f"{room.name} ended with {how} while stopping; nothing to do")
        else:
            self._note("error", f"{room.name} ended with {how}; again in {room.failed(now_ms)} ms")

    def _zygote_lost(self, now_ms: int) -> None:
        """Its pending forks will never be reported; the supervisor owns what it forked."""
        zygote = self.zygote
        zygote.is_up, zygote.ending = False, False
        wait_ms = zygote.failed(now_ms)
        for room in self.rooms.values():
            if room.launched:
                room.launched = False
                self._enter(room, "down", now_ms)
        if self.stopping:
            return
        if not zygote.has_forked and zygote.restarts >= ZYGOTE_TRIES_MAX:
            self._give_up(EX_BUG, "the zygote ends before it starts anything")
            return
        self._note(
            "error",
            "the zygote, which starts processes, has ended; those that run go on, another zygote "
            f"is started in {wait_ms} ms",
        )

    def _give_up(self, status: int, text: str) -> None:
        self._note("error", text + "; stopping everything")
        self.stopping, self._status = True, status

    # -- what is wanted

    def tick(self, now_ms: int) -> list[Effect]:
        """What to do now."""
        effects, self._notes = self._notes, []
        effects += self._watch_zygote(now_ms)
        for room in self.rooms.values():
            if room.is_up:
                effects += self._watch(room, now_ms)
            elif now_ms >= room.start_at_ms and self._may_start(room):
                room.launched, room.heard_ms = True, now_ms
                self._enter(room, "starting", now_ms)
                effects.append(Start(room.name, room.endpoint or room.listen, not room.ever_ready))
        effects += self._announce()
        if self.stopping and not any(room.is_up for room in self.rooms.values()):
            effects.append(Halt(self._status))
        return effects

    def _watch_zygote(self, now_ms: int) -> list[Effect]:
        zygote = self.zygote
        if not zygote.is_up:
            if self.stopping or now_ms < zygote.start_at_ms:
                return []
            zygote.is_up = True
            return [StartZygote()]
        asked = [room.heard_ms for room in self.rooms.values() if room.launched]
        if zygote.ending or not asked or now_ms < min(asked) + LAUNCH_MAX_MS:
            return []
        zygote.ending = True
        text = f"the zygote has started nothing for {now_ms - min(asked)} ms; killed"
        return [LogLine("error", text), EndZygote()]

    def _may_start(self, room: ProcessState) -> bool:
        can_fork = self.zygote.is_up and not self.zygote.ending and not self.stopping
        return can_fork and all(self.rooms[name].ever_ready for name in room.needs)

    def _may_stop(self, room: ProcessState) -> bool:
        return not any(other.is_up for other in self.rooms.values() if room.name in other.needs)

    def _watch(self, room: ProcessState, now_ms: int) -> list[Effect]:
        if room.launched:
            return []  # the zygote answers, or is lost
        if self.stopping and room.state != "stopping" and self._may_stop(room):
            self._enter(room, "stopping", now_ms)
            return [AskStop(room.name, room.pid)]
        if room.killed or now_ms < self._deadline_ms(room):
            return []
        room.killed = True
        why = "does not stop" if room.state == "stopping" else "is silent"
        text = (
            f"{room.name} (pid {room.pid}) {why} for {now_ms - self._quiet_from(room)} ms; killed"
        )
        return [LogLine("error", text), Kill(room.name, room.pid)]

    def _quiet_from(self, room: ProcessState) -> int:
        return room.since_ms if room.state == "stopping" else room.heard_ms

    def _deadline_ms(self, room: ProcessState) -> int:
        patience = {"stopping": STOP_MAX_MS, "starting": START_SILENT_MAX_MS}
        return self._quiet_from(room) + patience.get(room.state, SILENT_MAX_MS)

    def _announce(self) -> list[Effect]:
        endpoints = {room.name: room.endpoint for room in self.rooms.values() if room.endpoint}
        all_ready = all(room.state == "ready" for room in self.rooms.values())
        if endpoints == self._endpoints and (self.ready or not all_ready):
            return []
        news = all_ready and not self.ready
        self._endpoints, self.ready = endpoints, self.ready or all_ready
        return [Announce(dict(endpoints), news)]

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do, if nothing happens before."""
        times = []
        if not self.zygote.is_up and not self.stopping:
            times.append(self.zygote.start_at_ms)
        for room in self.rooms.values():
            if room.launched:
                times += [] if self.zygote.ending else [room.heard_ms + LAUNCH_MAX_MS]
            elif room.is_up:
                times += [] if room.killed else [self._deadline_ms(room)]
            elif self._may_start(room):
                times.append(room.start_at_ms)
        return min(times, default=None)

    # -- what others see

    def state(self) -> str:
        """The state of the whole instance."""
        if self.stopping:
            return "stopping"
        if not self.ready:
            return "starting"
        all_ready = all(room.state == "ready" for room in self.rooms.values())
        return "ready" if all_ready else "degraded"

    def status(self, now_ms: int) -> list[RoomStatus]:
        """One map per room."""
        return [
            {
                "room": room.name,
                "pid": room.pid,
                "state": room.state,
                "restarts": room.restarts,
                "uptime_s": (now_ms - room.started_ms) // 1000 if room.pid else 0,
                "progress": room.progress,
                "endpoint": room.endpoint,
                "stats": room.stats,
            }
            for room in self.rooms.values()
        ]

    def check(self) -> None:
        """Asserts what is always true."""
        if not self.zygote.is_up and any(room.launched for room in self.rooms.values()):
            raise Bug("a room was asked for, and there is no zygote")
        for room in self.rooms.values():
            if (room.state == "down") == room.is_up:
                raise Bug(f"{room.name} is {room.state} with pid {room.pid}")
            if room.launched and room.pid:
                raise Bug(f"{room.name} was asked for while pid {room.pid} lives")
            if set(room.needs) - set(self.rooms):
                raise Bug(f"{room.name} needs a room that is not there")

    def _enter(self, room: ProcessState, state: str, now_ms: int) -> None:
        room.state, room.since_ms = state, now_ms

    def _note(self, level: str, text: str) -> None:
        self._notes.append(LogLine(level, text))
