"""The JSON documents of /status and /queues, and the values of a queue definition. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, get_origin, get_type_hints

import msgspec
from msgspec import structs

from zbroker.clock import format_time
from zbroker.config import setting_of
from zbroker.config.queues import QueueConfig
from zbroker.config.tree import ConfigKey, fields
from zbroker.errors import ClientError
from zbroker.toml_source import did_you_mean
from zbroker.wire import queue_surveys as q
from zbroker.wire.internal import Status
from zbroker.wire.queue_messages import BrowsedRow

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


NS_PER_S: Final = 1_000_000_000
COUNTERS: Final = q.QueueCounters.__struct_fields__
_DEFAULTS: Final = QueueConfig(name="-")
#: numbers of a row that are added up over all queues
SUMS: Final = ("depth", "ready", "leased", "delayed", "consumers", *COUNTERS)


def queue(row: q.QueueRow, rates: Mapping[str, float], now_ns: int) -> dict[str, Any]:
    """One queue as it stands in a list."""
    here = row.depth > 0
    return {
        "name": row.name,
        "kind": row.kind,
        "topic": row.topic,
        "regex": row.regex,
        "source": row.source,
        "life": row.life,
        "created": row.created,
        "state": row.state,
        "depth": row.depth,
        "ready": row.ready,
        "leased": row.leased,
        "delayed": row.delayed,
        "going": row.going,
        "consumers": row.consumers,
        "first": row.first if here else None,
        "last": row.last if here else None,
        "oldest": None if row.oldest_ns is None else format_time(row.oldest_ns),
        "oldest_s": age_s(row, now_ns),
        "behind": row.behind,
        "barrier": row.barrier,
        "holding": row.holding,
        "bytes": row.bytes,
        "idle_s": None if row.idle_ms is None else row.idle_ms / 1_000,
        "memory_bytes": row.memory_bytes,
        **{name: getattr(row, name) for name in COUNTERS},
        "rates": dict(rates),
    }


def age_s(row: q.QueueRow, now_ns: int) -> float | None:
    """How old its oldest message is, by log time."""
    if row.oldest_ns is None:
        return None
    return round(max(0, now_ns - row.oldest_ns) / NS_PER_S, 3)


def definition(row: q.QueueRow) -> dict[str, Any]:
    """All that the queue is, also what nobody set: durations in ms, sizes in bytes."""
    known = {name: getattr(_DEFAULTS, name) for name in QueueConfig.__struct_fields__}
    return known | {"name": row.name} | row.definition


def setting(row: q.QueueRow, name: str) -> Any:  # noqa: ANN401 - what the config has there
    """One key of it."""
    return row.definition.get(name, getattr(_DEFAULTS, name))


def totals(rows: Sequence[q.QueueRow]) -> dict[str, Any]:
    """Of all queues together, for the status."""
    return {"count": len(rows)} | {name: sum(getattr(row, name) for row in rows) for name in SUMS}


def consumer(row: q.ConsumerRow) -> dict[str, Any]:
    """A consumer as it is in a list: the keys are the fields of its row."""
    return structs.asdict(row)


def message(row: BrowsedRow) -> dict[str, Any]:
    """One message of a queue."""
    return {
        "position": row.position,
        "bookmark": row.bookmark,
        "topic": row.topic,
        "time": format_time(row.time_ns),
        "size": row.size,
        "state": row.state,
        "deliveries": row.deliveries,
        "failures": row.failures,
        "owner": row.owner,
        "due_ms": row.due_ms,
    }


def payload(data: bytes) -> dict[str, str]:
    """As JSON can hold it."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": b64encode(data).decode()}


def point(row: q.PointRow) -> dict[str, Any]:
    """One named place. set_at: the position of the record that set it."""
    return structs.asdict(row)


CODE: Final = "bad_queue"


def read_definition(given: Mapping[str, Any], *, texts: bool = False) -> dict[str, Any]:
    """The same in ms and bytes. texts: every value is text, as on a command line.

    Raises: ClientError bad_queue.
    """
    return {key: _value(_field(key), value, texts) for key, value in given.items()}


def keys() -> list[str]:
    """What a definition may have; the name of a queue stands elsewhere."""
    return [key for key in _fields() if key != "name"]


@cache
def _fields() -> dict[str, ConfigKey]:
    return {one.name: one for one in fields(QueueConfig)}


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(QueueConfig, include_extras=True)


def _field(key: str) -> ConfigKey:
    if key in keys():
        return _fields()[key]
    raise ClientError(CODE, f"a queue has no `{key[:64]}`", did_you_mean(key, keys()))


def _value(field: ConfigKey, value: Any, texts: bool) -> object:  # noqa: ANN401 - a value of JSON
    if texts and get_origin(field.type) is list:
        value = [part for part in map(str.strip, value.split(",")) if part]
    try:
        return msgspec.convert(field.read(value), _types()[field.name], strict=not texts)
    except (msgspec.ValidationError, ValueError) as error:
        hint = field.hint or field.description
        raise ClientError(CODE, f"`{field.name}`: {error}", hint) from None
