"""What the supervisor decides: compare what is known with what is wanted.

`handle` only changes what is known; `tick` returns what to do about it. Per room:

    down --start--> starting --beat: ready--> ready --exit--> down (started again after a back-off)
                        \\--exit--> down          \\--stop--> stopping --exit--> down

A room starts when every room it needs has been ready once, and stops when every room that needs it
is down. It is started again only after its old process is reaped.
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
HEALTHY_MS: Final = 10_000  # ready for so long: what comes is a new problem

StatValue = int | float | str
RoomStatus = dict[str, StatValue | dict[str, StatValue]]


@dataclass(slots=True)
class Room:
    """What is known of one room. `pid` is 0 while no process of it is."""

    name: str
    needs: tuple[str, ...] = ()
    listen: str = ""
    state: str = "down"
    pid: int = 0
    since_ms: int = 0  # of `state`
    started_ms: int = 0
    heard_ms: int = 0
    launched: bool = False  # asked for, its pid not told yet
    killed: bool = False
    ever_ready: bool = False
    restarts: int = 0
    backoff_ms: int = BACKOFF_MIN_MS
    start_at_ms: int = 0
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


class StopAsked(NamedTuple):
    """SIGTERM or SIGINT."""


Event = Started | Exited | Heard | StopAsked


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


class Announce(NamedTuple):
    """Tell where the rooms can be reached; `ready`: all of them serve, for the first time."""

    endpoints: dict[str, str]
    ready: bool


class Note(NamedTuple):
    """A log line: what happened and what comes next."""

    level: str
    text: str


class Halt(NamedTuple):
    """Everything has ended: exit with this status."""

    status: int


Effect = Start | AskStop | Kill | Announce | Note | Halt


class SupervisorCore:
    """The rooms of one instance, in the order in which they start."""

    def __init__(self, rooms: list[Room]) -> None:
        self.rooms = {room.name: room for room in rooms}
        self.stopping = False
        self.ready = False
        self._status = EX_OK
        self._endpoints: dict[str, str] = {}
        self._notes: list[Effect] = []

    # -- what is known

    def handle(self, event: Event, now_ms: int) -> None:
        """Takes in what happened."""
        if isinstance(event, StopAsked):
            self.stopping = True
            return
        room = self.rooms.get(event.room)
        if room is None:
            return  # not one of ours: a room that was started by hand
        if isinstance(event, Started):
            room.launched, room.pid = False, event.pid
            room.heard_ms = room.started_ms = now_ms
        elif event.pid != room.pid:
            return  # of a process that is gone
        elif isinstance(event, Heard):
            self._heard(room, event, now_ms)
        else:
            self._exited(room, event.status, now_ms)

    def _heard(self, room: Room, beat: Heard, now_ms: int) -> None:
        room.heard_ms, room.progress, room.stats = now_ms, beat.progress, beat.stats
        room.killed = room.killed and room.state == "stopping"  # that one is not about silence
        room.endpoint = beat.endpoint or room.endpoint
        if beat.state == "ready" and room.state == "starting":
            self._enter(room, "ready", now_ms)
            room.ever_ready = True

    def _exited(self, room: Room, status: int, now_ms: int) -> None:
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
            room.restarts += 1
            room.start_at_ms = now_ms + room.backoff_ms
            self._note("error", f"{room.name} ended with {how}; again in {room.backoff_ms} ms")
            room.backoff_ms = min(2 * room.backoff_ms, BACKOFF_MAX_MS)

    def _give_up(self, status: int, text: str) -> None:
        self._note("error", text + "; stopping everything")
        self.stopping, self._status = True, status

    # -- what is wanted

    def tick(self, now_ms: int) -> list[Effect]:
        """What to do now."""
        effects, self._notes = self._notes, []
        for room in self.rooms.values():
            if room.is_up:
                effects += self._watch(room, now_ms)
            elif not self.stopping and now_ms >= room.start_at_ms and self._may_start(room):
                room.launched, room.heard_ms = True, now_ms
                self._enter(room, "starting", now_ms)
                effects.append(Start(room.name, room.endpoint or room.listen, not room.ever_ready))
        effects += self._announce()
        if self.stopping and not any(room.is_up for room in self.rooms.values()):
            effects.append(Halt(self._status))
        return effects

    def _may_start(self, room: Room) -> bool:
        return all(self.rooms[name].ever_ready for name in room.needs)

    def _may_stop(self, room: Room) -> bool:
        return not any(other.is_up for other in self.rooms.values() if room.name in other.needs)

    def _watch(self, room: Room, now_ms: int) -> list[Effect]:
        if room.launched:
            return []  # the zygote answers; when it dies, everything does
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
        return [Note("error", text), Kill(room.name, room.pid)]

    def _quiet_from(self, room: Room) -> int:
        return room.since_ms if room.state == "stopping" else room.heard_ms

    def _deadline_ms(self, room: Room) -> int:
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
        for room in self.rooms.values():
            if room.is_up:
                times += [] if room.killed or room.launched else [self._deadline_ms(room)]
            elif not self.stopping and self._may_start(room):
                times.append(room.start_at_ms)
        return min(times, default=None)

    # -- what others see

    def state(self) -> str:
        """Of the whole instance."""
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
        for room in self.rooms.values():
            if (room.state == "down") == room.is_up:
                raise Bug(f"{room.name} is {room.state} with pid {room.pid}")
            if room.launched and room.pid:
                raise Bug(f"{room.name} was asked for while pid {room.pid} lives")
            if set(room.needs) - set(self.rooms):
                raise Bug(f"{room.name} needs a room that is not there")

    def _enter(self, room: Room, state: str, now_ms: int) -> None:
        room.state, room.since_ms = state, now_ms

    def _note(self, level: str, text: str) -> None:
        self._notes.append(Note(level, text))
