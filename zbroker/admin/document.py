"""The answer to GET /status, from what the supervisor knows of the rooms. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from zbroker.config import setting_of
from zbroker.wire.internal import Status

_JOURNAL_KEYS: Final = ("first_position", "written", "persisted", "segments", "bytes", "durability")
_PROCESS_KEYS: Final = ("room", "pid", "state", "restarts", "uptime_s", "progress")
_MAX: Final = "_max"  # how the name of a number ends that is the largest one, not a count

Stats = dict[str, Any]


class LocalFacts(NamedTuple):
    """What this process adds. rates: of the last seconds. running: run/instance.json.

    queues: of all of them together.
    """

    running: dict[str, Any]
    alarms: list[dict[str, str]]
    data_dir: str
    rates: dict[str, float]
    security: dict[str, Any]
    queues: dict[str, Any]


def stats_of(status: Status) -> dict[str, Stats]:
    """The numbers of each room."""
    rooms: list[dict[str, Any]] = [dict(room) for room in status.rooms]
    return {str(room["room"]): dict(room.get("stats", {})) for room in rooms}


def added(workers: list[Stats]) -> Stats:
    """The numbers of several workers together; what is no number is the first one's."""
    total: Stats = {}
    for numbers in workers:
        for key, value in numbers.items():
            if key not in total:
                total[key] = value
            elif isinstance(value, int | float):
                both = (total[key], value)
                total[key] = max(both) if key.endswith(_MAX) else sum(both)
    return total


def delivery_of(stats: dict[str, Stats]) -> Stats:
    """The numbers of all delivery workers together."""
    return added([numbers for room, numbers in stats.items() if setting_of(room) == "delivery"])


def document(status: Status, here: LocalFacts) -> dict[str, Any]:
    """Keys are added over time, never changed."""
    running, stats = here.running, stats_of(status)
    delivery = delivery_of(stats)
    journal = stats.get("journal", {})
    first = {key: journal.pop(key) for key in _JOURNAL_KEYS if key in journal}
    return {
        "instance": running.get("instance", ""),
        "name": running.get("name", ""),
        "group": running.get("group", ""),
        "state": status.state,
        "url": running.get("url", ""),
        "version": running.get("version", ""),
        "started": running.get("started", ""),
        "data_dir": here.data_dir,
        "alarms": here.alarms,
        "endpoints": running.get("endpoints", {}),
        "clients": stats.get("ingest", {}).get("clients", 0),
        "subscriptions": delivery.get("subscriptions", 0),
        "queues": here.queues,
        "rates": here.rates,
        "security": here.security,
        "journal": first | journal,
        "ingest": stats.get("ingest", {}),
        "delivery": delivery,
        "supervisor": stats.get("supervisor", {}),
        "processes": [{key: room.get(key, "") for key in _PROCESS_KEYS} for room in status.rooms],
    }
