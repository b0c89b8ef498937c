"""What is told of queues, their consumers, their messages and points, as JSON. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from zbroker.clock import format_time
from zbroker.config.queues import QueueConfig
from zbroker.wire import queue_surveys as q
from zbroker.wire.queue_messages import BrowsedRow

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
