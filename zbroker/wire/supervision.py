"""What the supervisor, its processes and the admin process say to each other, on its ipc socket."""

from __future__ import annotations

from msgspec import field

from zbroker.wire.internal import Correlated, InternalMessage


class Beat(InternalMessage, tag="beat"):
    """process -> supervisor, every BEAT_MS. state: starting, ready, stopping. stats: for status."""

    process: str = field(name="room")
    pid: int
    incarnation: int
    state: str
    progress: str = ""
    endpoint: str = ""
    stats: dict[str, int | float | str] = {}


class Stop(InternalMessage, tag="stop"):
    """supervisor -> process: finish what was accepted, then exit 0."""


class AskStatus(Correlated, tag="ask_status"):
    """admin -> supervisor. Answered by Status."""


class Status(Correlated, tag="status"):
    """supervisor -> admin: one Beat-like map per process, with restarts and uptime."""

    state: str
    processes: list[dict[str, int | float | str | dict[str, int | float | str]]] = field(
        name="rooms"
    )


ToSupervisor = Beat | AskStatus
FromSupervisor = Stop | Status
