"""GET /metrics: the numbers of /status for Prometheus, in its text format.

Labels are few and bounded: `room`, `door`, `code`, `state`, `queue` (QUEUES_MAX of them at most),
`link` (destinations of the config), and `origin` (ORIGINS_MAX of them at most). Nothing that a
client chooses (names, topics, filters) becomes one; queues and destinations are named by operators.
A counter begins at 0 with its process, as Prometheus expects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from zbroker.admin.documents import Stats, age_s, elsewhere_s
from zbroker.admin.link_alarms import NO_LINKS, LinkObservation, is_up
from zbroker.config import setting_of
from zbroker.errors import CODES
from zbroker.wire.queue_surveys import QueueRow

Family = CounterMetricFamily | GaugeMetricFamily

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
STATES: Final = ("starting", "ready", "degraded", "stopping")
Row = tuple[str, str, str]  # metric, statistic, what it is

_LISTENER_GAUGES: Final[tuple[Row, ...]] = (
    ("clients", "clients", "Connections that are logged on."),
    ("connections", "connections", "Connections of a listener, whether logged on or not."),
)
#: for each process with this listener
COUNTERS: Final[dict[str, tuple[Row, ...]]] = {
    "ingest": (
        ("messages_in", "messages", "Messages taken from publishers."),
        ("queue_full_refused", "queue_full", "Messages refused as a queue was full."),
        ("unrecorded", "unrecorded", "Messages that went to delivery only."),
        ("live_dropped", "live_dropped", "Unrecorded messages that did not get to delivery."),
    ),
    "delivery": (
        ("messages_out", "messages_out", "Messages sent to subscribers."),
        ("out_bytes", "bytes_out", "Bytes of bodies sent to subscribers."),
    ),
    "queues": (),
}
GAUGES: Final[dict[str, tuple[Row, ...]]] = {
    "ingest": _LISTENER_GAUGES,
    "delivery": (
        *_LISTENER_GAUGES,
        ("subscriptions", "subscriptions", "Running subscriptions."),
        ("lag_max_messages", "lag_max", "The lag of the slowest subscription, in messages."),
    ),
    "queues": _LISTENER_GAUGES,
}
QUEUE_COUNTERS: Final = (
    ("queue_entered", "entered", "Messages that came into the queue."),
    ("queue_delivered", "delivered", "Messages sent to consumers, each time that they were sent."),
    ("queue_redelivered", "redelivered", "Messages sent to consumers again."),
    ("queue_acked", "acked", "Messages that were acknowledged."),
    ("queue_failed", "failed", "Deliveries that failed: released, or their lease ended."),
    ("queue_dead", "dead", "Dead letters."),
    ("queue_expired", "expired", "Messages that expired."),
    ("queue_dropped", "dropped", "Messages that were more than `max_length` or `max_bytes` allow."),
)
QUEUE_GAUGES: Final = (
    ("queue_depth", "depth", "Messages in the queue."),
    ("queue_ready", "ready", "Messages that a consumer may have at once."),
    ("queue_leased", "leased", "Messages that consumers have leased."),
    ("queue_delayed", "delayed", "Messages that wait for the end of a delay."),
    ("queue_full", "full", "1 while publishers are refused, as `overflow` says."),
    ("queue_elsewhere", "elsewhere", "Messages that belong to other instances."),
    ("queue_consumers", "consumers", "Consumers of the queue."),
    ("queue_behind_positions", "behind", "Positions of the log that the queue has not read yet."),
    ("queue_log_bytes", "bytes", "Bytes of the log that are kept for the queue."),
    ("queue_memory_bytes", "memory_bytes", "Memory that the state of the queue takes."),
)
QUEUES_MAX: Final = 500  # with series of their own, by name; zbroker_queues counts all
ORIGINS_MAX: Final = 100  # with missing ranges: those with most of them; a sum counts all
LINK_GAUGES: Final = (
    ("lag", "lag", "Positions of the log that the destination lacks."),
    ("on_the_way_bytes", "on_the_way_bytes", "Bytes that were sent and are not answered yet."),
    ("paused", "paused", "1 while the link is paused by hand."),
    ("downgraded", "downgraded", "1 while acknowledgements do not wait for the destination."),
)
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
    ("log_persisted_position", "persisted", "The position after the newest durable message."),
    ("log_damage", "damage", "Damaged places in the log."),
    ("disk_free_bytes", "free_bytes", "Free bytes on the disk of the log."),
    ("disk_bytes", "disk_bytes", "Size of the disk of the log."),
    ("publishing_accepted", "accepting", "1 unless the disk is nearly full."),
)
PROCESS_GAUGES: Final = (
    ("room_uptime_seconds", "uptime_s", "Seconds since this process was started."),
    ("room_restarts", "restarts", "How often this process was restarted."),
)
#: by kind of code
CODE_COUNTERS: Final = {
    "error": ("errors", "Commands that were answered with this code."),
    "refused": ("refused", "Peers that a listener refused, by what."),
    "cut": ("cut", "Connections that a listener cut, by why."),
}
_CODE: Final = re.compile(r"(error|refused|cut)_([a-z_]+)")


def text(
    stats: Mapping[str, Stats],
    status: Mapping[str, Any],
    refused: Mapping[str, int],
    queues: Sequence[QueueRow] = (),
    now_ns: int = 0,
    links: LinkObservation = NO_LINKS,
) -> bytes:
    """Everything.

    stats: the numbers of each process; status: see documents; refused: requests here, by code;
    queues: as of now; now_ns: wall clock, for their ages; links: as of now.
    """
    found = _Families(
        *_instance(status, refused), *_processes(status["processes"]),
        *_listeners(stats, COUNTERS, CounterMetricFamily),
        *_listeners(stats, GAUGES, GaugeMetricFamily),
        *_codes(stats), *_journal(stats.get("journal", {})),
        *_branches(stats.get("journal", {}), now_ns), *_queues(queues, now_ns), *_links(links),
    )  # fmt: skip
    registry = CollectorRegistry(auto_describe=False)
    registry.register(found)
    return generate_latest(registry)


class _Families(Collector):
    """The metrics of one moment, in the order in which they are shown."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _instance(status: Mapping[str, Any], refused: Mapping[str, int]) -> Iterator[Metric]:
    here = status["state"] if status["state"] in STATES else "other"
    states = {name: float(name == here) for name in (*STATES, "other")}
    yield _gauges(
        "state", "The state of the instance: 1 for the one that it is in.", "state", states
    )
    alarms = dict.fromkeys((alarm["code"] for alarm in status["alarms"]), 1)
    yield _gauges("alarm", "1 for each alarm that is raised.", "code", alarms)
    what = "Requests here that were refused for want of rights."
    yield _counters("http_refused", what, "code", dict(sorted(refused.items())))
    problem = float(bool(status["security"].get("problem")))
    yield _gauge("access_file_problem", "1 while the access file cannot be used.", problem)


def _processes(rows: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    ready = {row["room"]: float(row["state"] == "ready") for row in rows}
    yield _gauges("room_ready", "1 if this process is ready.", "room", ready)
    for name, key, what in PROCESS_GAUGES:
        yield _gauges(name, what, "room", {row["room"]: _number(row.get(key)) for row in rows})


def _listeners(
    stats: Mapping[str, Stats], table: Mapping[str, tuple[Row, ...]], kind: type[Family]
) -> Iterable[Metric]:
    families: dict[str, Family] = {}
    for process, numbers in stats.items():
        for name, key, what in table.get(setting_of(process), ()):
            if key in numbers:
                family = families.setdefault(name, kind(f"zbroker_{name}", what, labels=["room"]))
                family.add_metric([process], _number(numbers[key]))
    return families.values()


def _codes(stats: Mapping[str, Stats]) -> Iterable[Metric]:
    """What listeners count, as `error_CODE`, `refused_WHAT` and `cut_WHY`."""
    families = {
        kind: CounterMetricFamily(f"zbroker_{name}", what, labels=["door", "code"])
        for kind, (name, what) in CODE_COUNTERS.items()
    }
    found: Counter[tuple[str, str, str]] = Counter()
    for process, numbers in stats.items():
        for key, value in numbers.items():
            match = _CODE.fullmatch(key)
            if match and setting_of(process) in COUNTERS:
                code = "other" if match[1] == "error" and match[2] not in CODES else match[2]
                found[match[1], setting_of(process), code] += int(_number(value))
    for (kind, listener, code), count in sorted(found.items()):
        families[kind].add_metric([listener, code], count)
    return families.values()


def _journal(numbers: Stats) -> Iterator[Metric]:
    for table, make in (
        (JOURNAL_COUNTERS, CounterMetricFamily),
        (JOURNAL_GAUGES, GaugeMetricFamily),
    ):
        for name, key, what in table:
            if key in numbers:
                yield make(f"zbroker_{name}", what, value=_number(numbers[key]))
    if "sync_ms" in numbers:
        seconds = _number(numbers["sync_ms"]) / 1_000
        yield _gauge("sync_seconds", "How long the last sync of the log took.", seconds)


def _branches(numbers: Stats, now_ns: int) -> Iterator[Metric]:
    """Distributed transactions, which the journal counts."""
    counts = {
        state: _number(numbers[f"branches_{state}"])
        for state in ("prepared", "decided") if f"branches_{state}" in numbers
    }  # fmt: skip
    if not counts:
        return
    what = "Distributed transactions: prepared; or decided by operators, and not forgotten."
    yield _gauges("branches", what, "state", counts)
    age_s = max(0.0, now_ns / 1e9 - _number(numbers["branches_since_s"]))
    what = "Age of the oldest prepared distributed transaction; 0: none."
    yield _gauge("branch_oldest_seconds", what, age_s if counts["prepared"] else 0.0)


def _queues(rows: Sequence[QueueRow], now_ns: int) -> Iterator[Metric]:
    yield _gauge("queues", "Queues that there are.", float(len(rows)))
    shown = sorted(rows, key=lambda row: row.name)[:QUEUES_MAX]
    if not shown:
        return
    for table, make in ((QUEUE_COUNTERS, _counters), (QUEUE_GAUGES, _gauges)):
        for name, key, what in table:
            yield make(name, what, "queue", {row.name: getattr(row, key) for row in shown})
    ages = {row.name: age_s(row, now_ns) or 0.0 for row in shown}
    yield _gauges("queue_oldest_seconds", "Age of the oldest message; 0: none.", "queue", ages)
    ages = {row.name: elsewhere_s(row, now_ns) or 0.0 for row in shown}
    what = "Age here of the oldest message that belongs to another instance; 0: none."
    yield _gauges("queue_elsewhere_oldest_seconds", what, "queue", ages)


def _links(seen: LinkObservation) -> Iterator[Metric]:
    """Links to destinations. Other instances choose the names of those from them: no label."""
    yield from _missing(seen.missing)
    if not seen.rows:
        return
    up = {row.name: float(is_up(row)) for row in seen.rows}
    yield _gauges("replication_up", "1 while the link has a session.", "link", up)
    for name, key, what in LINK_GAUGES:
        values = {row.name: float(getattr(row, key)) for row in seen.rows}
        yield _gauges(f"replication_{name}", what, "link", values)
    stopped = {row.name: float(len(row.stopped)) for row in seen.rows}
    yield _gauges("replication_stopped_origins", "Origins that are not sent.", "link", stopped)
    kept = {row.name: float(seen.log_bytes.get(row.name, 0)) for row in seen.rows}
    yield _gauges("replication_log_bytes", "Bytes of the log kept for the link.", "link", kept)


def _missing(ranges: Mapping[str, int]) -> Iterator[Metric]:
    """Also of an instance that only receives."""
    if not ranges:
        return
    every = float(sum(ranges.values()))
    yield _gauge("replication_missing_ranges", "Ranges that are not in this log.", every)
    most = sorted(ranges.items(), key=lambda item: (-item[1], item[0]))[:ORIGINS_MAX]
    what = "Ranges of the origin that are not in this log."
    yield _gauges("replication_origin_missing_ranges", what, "origin", dict(most))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(f"zbroker_{name}", what, value=value)


def _gauges(name: str, what: str, label: str, values: Mapping[str, float]) -> Metric:
    return _filled(GaugeMetricFamily(f"zbroker_{name}", what, labels=[label]), values)


def _counters(name: str, what: str, label: str, values: Mapping[str, float]) -> Metric:
    return _filled(CounterMetricFamily(f"zbroker_{name}", what, labels=[label]), values)


def _filled(family: Family, values: Mapping[str, float]) -> Metric:
    """With a value for each of the label's."""
    for label, value in values.items():
        family.add_metric([label], value)
    return family
