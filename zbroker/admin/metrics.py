"""GET /metrics: the numbers of /status for Prometheus, in its text format.

Labels are few and bounded: room, door, code, state, and queue (QUEUES_MAX of them at most). Nothing
that a client chooses (names, topics, filters) becomes one; queues are named by those who operate
the broker. A counter begins at 0 with its room's process, as Prometheus expects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from zbroker.admin.documents import Stats, age_s
from zbroker.config import setting_of
from zbroker.errors import CODES
from zbroker.wire.queue_surveys import QueueRow

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
STATES: Final = ("starting", "ready", "degraded", "stopping")
#: door: (metric, statistic, what it is), for each of its rooms
COUNTERS: Final = {
    "ingest": (
        ("messages_in", "messages", "Messages taken from publishers."),
        ("unrecorded", "unrecorded", "Messages that went to delivery only."),
        ("live_dropped", "live_dropped", "Unrecorded messages that did not get to delivery."),
    ),
    "delivery": (
        ("messages_out", "messages_out", "Messages sent to subscribers."),
        ("out_bytes", "bytes_out", "Bytes of bodies sent to subscribers."),
    ),
    "queues": (),
}
GAUGES: Final = {
    "ingest": (
        ("clients", "clients", "Connections that are logged on."),
        ("connections", "connections", "Connections of a door, whether logged on or not."),
    ),
    "delivery": (
        ("clients", "clients", "Connections that are logged on."),
        ("connections", "connections", "Connections of a door, whether logged on or not."),
        ("subscriptions", "subscriptions", "Running subscriptions."),
        ("lag_max_messages", "lag_max", "How far what the slowest one has handled is behind."),
    ),
    "queues": (
        ("clients", "clients", "Connections that are logged on."),
        ("connections", "connections", "Connections of a door, whether logged on or not."),
    ),
}
QUEUE_COUNTERS: Final = (
    ("queue_entered", "entered", "Messages that came into the queue."),
    ("queue_delivered", "delivered", "Messages sent to consumers, each time that they were."),
    ("queue_redelivered", "redelivered", "Of these, those that were sent before."),
    ("queue_acked", "acked", "Messages that were acknowledged."),
    ("queue_failed", "failed", "Deliveries that failed: given back, or their lease ended."),
    ("queue_dead", "dead", "Dead letters."),
    ("queue_expired", "expired", "Messages that expired."),
)
QUEUE_GAUGES: Final = (
    ("queue_depth", "depth", "Messages in the queue."),
    ("queue_ready", "ready", "Messages that a consumer may have at once."),
    ("queue_leased", "leased", "Messages that consumers have."),
    ("queue_delayed", "delayed", "Messages that wait for the end of a delay."),
    ("queue_consumers", "consumers", "Consumers of the queue."),
    ("queue_behind_positions", "behind", "Positions of the log that the queue has not read yet."),
    ("queue_log_bytes", "bytes", "Bytes of the log that are kept for the queue."),
    ("queue_memory_bytes", "memory_bytes", "Memory that the state of the queue takes."),
)
QUEUES_MAX: Final = 500  # with series of their own, by name; zbroker_queues counts all
JOURNAL_COUNTERS: Final = (
    ("written_bytes", "bytes_written", "Bytes written to the log."),
    ("duplicates", "duplicates", "Batches that came again and were dropped."),
    ("conflicts", "conflicts", "Batches that came again with another content."),
    ("flush_late", "flush_late", "Writes that became durable too late."),
)
JOURNAL_GAUGES: Final = (
    ("log_bytes", "bytes", "Bytes of all files of the log."),
    ("log_segments", "segments", "Segments of the log."),
    ("log_first_position", "first_position", "The oldest position that is kept."),
    ("log_persisted_position", "persisted", "The position behind the newest durable message."),
    ("log_damage", "damage", "Damaged places in the log."),
    ("disk_free_bytes", "free_bytes", "Free bytes on the disk of the log."),
    ("disk_bytes", "disk_bytes", "Size of the disk of the log."),
    ("publishing_accepted", "accepting", "1 unless the disk is nearly full."),
)
PROCESS_GAUGES: Final = (
    ("room_uptime_seconds", "uptime_s", "Seconds since this room was started."),
    ("room_restarts", "restarts", "How often this room was restarted."),
)
_CODE: Final = re.compile(r"(error|refused|cut)_([a-z_]+)")


def text(
    rooms: Mapping[str, Stats],
    status: Mapping[str, Any],
    refused: Mapping[str, int],
    queues: Sequence[QueueRow] = (),
    now_ns: int = 0,
) -> bytes:
    """Everything.

    rooms: their numbers; status: see document; refused: requests here, by code; queues: as of now;
    now_ns: wall clock, for their ages.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers(rooms, status, refused))
    registry.register(_Queues(queues, now_ns))
    return generate_latest(registry)


class _Numbers(Collector):
    """Of one moment."""

    def __init__(
        self, rooms: Mapping[str, Stats], status: Mapping[str, Any], refused: Mapping[str, int]
    ) -> None:
        self._rooms = rooms
        self._status = status
        self._refused = refused

    def collect(self) -> Iterable[Metric]:
        """In the order in which they are told."""
        yield from self._instance()
        yield from self._processes()
        yield from self._doors(COUNTERS, CounterMetricFamily)
        yield from self._doors(GAUGES, GaugeMetricFamily)
        yield from self._codes()
        yield from self._journal()

    def _instance(self) -> Iterator[Metric]:
        status = self._status
        state = _gauge("state", "The state of the instance: 1 for the one that it is in.", "state")
        for name in STATES:
            state.add_metric([name], float(status["state"] == name))
        state.add_metric(["other"], float(status["state"] not in STATES))
        yield state
        alarms = _gauge("alarm", "1 for each alarm that stands.", "code")
        for alarm in status["alarms"]:
            alarms.add_metric([alarm["code"]], 1)
        yield alarms
        refused = _counter("http_refused", "Requests here of somebody who may not.", "code")
        for code, count in sorted(self._refused.items()):
            refused.add_metric([code], count)
        yield refused
        problem = float(bool(status["security"].get("problem")))
        yield _gauge(
            "access_file_problem", "1 while the access file cannot be used.", value=problem
        )

    def _processes(self) -> Iterator[Metric]:
        rows = self._status["processes"]
        up = _gauge("room_ready", "1 if this room is ready.", "room")
        for row in rows:
            up.add_metric([row["room"]], float(row["state"] == "ready"))
        yield up
        for name, key, what in PROCESS_GAUGES:
            found = _gauge(name, what, "room")
            for row in rows:
                found.add_metric([row["room"]], _number(row.get(key)))
            yield found

    def _doors(
        self,
        table: Mapping[str, tuple[tuple[str, str, str], ...]],
        kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    ) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for room, numbers in self._rooms.items():
            for name, key, what in table.get(setting_of(room), ()):
                if key in numbers:
                    family = families.setdefault(
                        name, kind(f"zbroker_{name}", what, labels=["room"])
                    )
                    family.add_metric([room], _number(numbers[key]))
        yield from families.values()

    def _codes(self) -> Iterator[Metric]:
        """What doors count, as `error_CODE`, `refused_WHAT` and `cut_WHY`."""
        errors = _counter("errors", "Commands that a door answered with this code.", "door", "code")
        refused = _counter("refused", "Peers that a door refused, by what.", "door", "code")
        cut = _counter("cut", "Connections that a door cut, by why.", "door", "code")
        families = {"error": errors, "refused": refused, "cut": cut}
        found: dict[tuple[str, str, str], float] = {}
        for room, numbers in self._rooms.items():
            for key, value in numbers.items():
                match = _CODE.fullmatch(key)
                if match and setting_of(room) in COUNTERS:
                    code = "other" if match[1] == "error" and match[2] not in CODES else match[2]
                    at = (match[1], setting_of(room), code)
                    found[at] = found.get(at, 0) + _number(value)
        for (kind, door, code), count in sorted(found.items()):
            families[kind].add_metric([door, code], count)
        yield from families.values()

    def _journal(self) -> Iterator[Metric]:
        numbers = self._rooms.get("journal", {})
        for name, key, what in JOURNAL_COUNTERS:
            if key in numbers:
                yield CounterMetricFamily(f"zbroker_{name}", what, value=_number(numbers[key]))
        for name, key, what in JOURNAL_GAUGES:
            if key in numbers:
                yield GaugeMetricFamily(f"zbroker_{name}", what, value=_number(numbers[key]))
        if "sync_ms" in numbers:
            seconds = _number(numbers["sync_ms"]) / 1_000
            yield _gauge("sync_seconds", "How long the last sync of the log took.", value=seconds)


class _Queues(Collector):
    """Of one moment."""

    def __init__(self, rows: Sequence[QueueRow], now_ns: int) -> None:
        self._count = len(rows)
        self._rows = sorted(rows, key=lambda row: row.name)[:QUEUES_MAX]
        self._now_ns = now_ns

    def collect(self) -> Iterable[Metric]:
        """In the order in which they are told."""
        yield _gauge("queues", "Queues that there are.", value=float(self._count))
        if not self._rows:
            return
        for name, key, what in QUEUE_COUNTERS:
            counter = _counter(name, what, "queue")
            for row in self._rows:
                counter.add_metric([row.name], getattr(row, key))
            yield counter
        for name, key, what in QUEUE_GAUGES:
            gauge = _gauge(name, what, "queue")
            for row in self._rows:
                gauge.add_metric([row.name], getattr(row, key))
            yield gauge
        ages = _gauge("queue_oldest_seconds", "Age of the oldest message; 0: none.", "queue")
        for row in self._rows:
            ages.add_metric([row.name], age_s(row, self._now_ns) or 0.0)
        yield ages


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _gauge(name: str, what: str, *labels: str, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"zbroker_{name}", what, labels=labels or None, value=value)


def _counter(name: str, what: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"zbroker_{name}", what, labels=labels)
