"""The JSON documents of /status and /queues, and the values of a queue definition. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, get_origin

import msgspec
from msgspec import Struct, structs

from zbroker.clock import format_time
from zbroker.config import setting_of
from zbroker.config.queues import QueueConfig
from zbroker.config.tree import fields
from zbroker.errors import ClientError
from zbroker.toml_source import did_you_mean
from zbroker.wire import queue_surveys as q
from zbroker.wire.queue_messages import BrowsedRow
from zbroker.wire.supervision import Status

COUNTERS: Final = q.QueueCounters.__struct_fields__
#: numbers of a row that are added up over all queues
SUMS: Final = ("depth", "ready", "leased", "delayed", "consumers", *COUNTERS)
NS_PER_S: Final = 1_000_000_000
CODE: Final = "bad_queue"

_JOURNAL_KEYS: Final = ("first_position", "written", "persisted", "segments", "bytes", "durability")
_PROCESS_KEYS: Final = ("room", "pid", "state", "restarts", "uptime_s", "progress")
_INSTANCE_KEYS: Final = ("instance", "name", "group", "url", "version", "started")
_MAX: Final = "_max"  # how the name of a number ends that is the largest one, not a count
_DEFAULTS: Final = QueueConfig(name="-")

Stats = dict[str, Any]


def row_document(row: Struct, *left_out: str, **more: object) -> dict[str, Any]:
    """The fields of a row, but for some, and more: what JSON says of it."""
    found = structs.asdict(row)
    for name in left_out:
        del found[name]
    return found | more


def time_text(ns: int | None) -> str | None:
    """A time of the log (ns since 1970) as text; None where it is not known."""
    return None if ns is None else format_time(ns)


# -- /status --------------------------------------------------------------------------------------


class LocalFacts(NamedTuple):
    """What this process adds. rates: of the last seconds. running: run/instance.json.

    queues: of all of them together. replication: of all links; empty where there are none.
    """

    running: dict[str, Any]
    alarms: list[dict[str, str]]
    data_dir: str
    rates: dict[str, float]
    security: dict[str, Any]
    queues: dict[str, Any]
    replication: dict[str, Any]


def stats_of(status: Status) -> dict[str, Stats]:
    """The numbers of each process."""
    processes: list[dict[str, Any]] = [dict(one) for one in status.processes]
    return {str(one["room"]): dict(one.get("stats", {})) for one in processes}


def added(workers: list[Stats]) -> Stats:
    """The numbers of several workers together; a text is the first one's."""
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
    return added([numbers for name, numbers in stats.items() if setting_of(name) == "delivery"])


def document(status: Status, here: LocalFacts) -> dict[str, Any]:
    """The document of GET /status. Keys are added over time, never changed."""
    running, stats = here.running, stats_of(status)
    delivery = delivery_of(stats)
    journal, ingest = stats.get("journal", {}), stats.get("ingest", {})
    first = {key: journal.pop(key) for key in _JOURNAL_KEYS if key in journal}
    return {
        **{key: running.get(key, "") for key in _INSTANCE_KEYS},
        "state": status.state,
        "data_dir": here.data_dir,
        "alarms": here.alarms,
        "endpoints": running.get("endpoints", {}),
        "clients": ingest.get("clients", 0),
        "subscriptions": delivery.get("subscriptions", 0),
        "queues": here.queues,
        "replication": here.replication,
        "rates": here.rates,
        "security": here.security,
        "journal": first | journal,
        "ingest": ingest,
        "delivery": delivery,
        "supervisor": stats.get("supervisor", {}),
        "processes": [{key: one.get(key, "") for key in _PROCESS_KEYS} for one in status.processes],
    }


# -- queues ---------------------------------------------------------------------------------------


def queue(row: q.QueueRow, rates: Mapping[str, float], now_ns: int) -> dict[str, Any]:
    """One queue of a list: every field of its row but the definition."""
    here = row.depth > 0
    return row_document(
        row, "definition", "oldest_ns", "idle_ms", "owners", "elsewhere_ns",
        elsewhere_first=row.elsewhere_first or None,
        elsewhere_s=elsewhere_s(row, now_ns),
        first=row.first if here else None, last=row.last if here else None,
        oldest=time_text(row.oldest_ns), oldest_s=age_s(row, now_ns),
        idle_s=None if row.idle_ms is None else row.idle_ms / 1_000, rates=dict(rates),
    )  # fmt: skip


def age_s(row: q.QueueRow, now_ns: int) -> float | None:
    """How old its oldest message is, by log time."""
    return seconds_since(row.oldest_ns, now_ns)


def elsewhere_s(row: q.QueueRow, now_ns: int) -> float | None:
    """The same of the oldest one that belongs to another instance."""
    return seconds_since(row.elsewhere_ns, now_ns)


def seconds_since(since_ns: int | None, now_ns: int) -> float | None:
    """s from a log time until now; a time that is yet to come is now."""
    return None if since_ns is None else round(max(0, now_ns - since_ns) / NS_PER_S, 3)


def definition(row: q.QueueRow) -> dict[str, Any]:
    """Every key of its definition, with defaults: durations in ms, sizes in bytes."""
    return structs.asdict(_DEFAULTS) | {"name": row.name} | row.definition


def setting(row: q.QueueRow, name: str) -> Any:  # noqa: ANN401 - what the config has there
    """One key of its definition."""
    return row.definition.get(name, getattr(_DEFAULTS, name))


def totals(rows: Sequence[q.QueueRow]) -> dict[str, Any]:
    """All queues together, for the status."""
    return {"count": len(rows)} | {name: sum(getattr(row, name) for row in rows) for name in SUMS}


def message(row: BrowsedRow) -> dict[str, Any]:
    """One message of a queue."""
    return row_document(row, "time_ns", time=format_time(row.time_ns))


# -- definitions as people write them: "30s", "10GiB" ---------------------------------------------


def read_definition(given: Mapping[str, Any], *, texts: bool = False) -> dict[str, Any]:
    """The same in ms and bytes. texts: every value is text, as on a command line.

    Raises: ClientError bad_queue.
    """
    return {key: _value(key, value, texts) for key, value in given.items()}


def keys() -> list[str]:
    """The keys of a definition; the name of the queue is not one of them."""
    return [one.name for one in fields(QueueConfig) if one.name != "name"]


def _value(key: str, value: Any, texts: bool) -> object:  # noqa: ANN401 - a value of JSON
    if key not in keys():
        raise ClientError(CODE, f"a queue has no `{key[:64]}`", did_you_mean(key, keys()))
    field = next(one for one in fields(QueueConfig) if one.name == key)
    if texts and get_origin(field.type) is list:
        value = [part for part in map(str.strip, value.split(",")) if part]
    try:
        return field.convert(value, strict=not texts)
    except (msgspec.ValidationError, ValueError) as error:
        hint = field.hint or field.description
        raise ClientError(CODE, f"`{key}`: {error}", hint) from None
