"""Counts the messages of a log by topic and hour, and the outcome of messages of queues.

Sizes and ages are kept as counts of classes that are at most 1/16 wide, as in HdrHistogram: so a
percentile is right to 6 %, and smallest, largest and mean are exact.

Queues are judged by their records, which only a directory gives. A range gives when its messages
were appended (to the batch), and what its records say became of messages; both are put together on
the driver. A message that was appended before the stretch has no age.

    spark-submit .../zbroker/cli/spark/stats.py SOURCE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import DecodeError

from zbroker.clock import to_datetime
from zbroker.log.format import KIND_PUBLISH, KIND_QUEUE
from zbroker.log.reader import Gap
from zbroker.log.records import (
    QUEUE,
    Failed,
    MessagesGone,
    runs_of,
    unpack_positions,
)
from zbroker.spark.arrow import grouped
from zbroker.spark.directories import seek
from zbroker.spark.jobs.job_runner import Step, Stretch, collected
from zbroker.spark.log_hold import held
from zbroker.spark.ranges import LogRange
from zbroker.spark.replay import replay_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StatsReport(NamedTuple):
    """Rows with stable keys: by hour and topic; by queue."""

    topics: list[dict[str, Any]]
    queues: list[dict[str, Any]]


def stats(spark: SparkSession, stretch: Stretch, step: Step, parts: int = 1) -> StatsReport:
    """The counts of the stretch. Raises: ZBrokerError, as `plan_ranges` and `replay`."""
    ranges = stretch.sized(parts)
    with held(ranges):
        counted = collected(spark, ranges, count, step, "ranges")
    found: Tallies = {}
    for part, _ in counted:
        join(found, part)
    topics = [found[group].row(group) for group in sorted(found, key=lambda one: (one[1], one[0]))]
    by_queue = queues([facts for _, facts in counted if facts is not None])
    return StatsReport(topics, [queue.row(name) for name, queue in by_queue.items()])


def count(part: LogRange) -> tuple[Tallies, RangeFacts | None]:
    """In an executor. Raises: ZBrokerError."""
    found = tallied(replay_arrow(part, COLUMNS))
    return found, None if part.is_live else facts(part)


HOUR_US: Final = 3_600_000_000
COLUMNS: Final = ("topic", "timestamp", "payload")
_FINE_BITS: Final = 4
_US: Final = 1_000_000

Group = tuple[str, int]  # topic, hour since 1970 UTC


class Classes(Counter[int]):
    """How many values there are of each class."""

    def add(self, values: Any, weights: Any = None) -> None:  # noqa: ANN401 - arrays of numpy
        """Values from 0 on; weights: how often each one counts."""
        classes, index = np.unique(classes_of(values), return_inverse=True)
        counts = np.bincount(index, weights, len(classes))
        self.update(dict(zip(classes.tolist(), map(int, counts.tolist()), strict=True)))

    def percentile(self, share: float) -> int:
        """The lowest value of the class in which that share of all values ends; 0 if none."""
        left = share * self.total()
        for number in sorted(self):
            left -= self[number]
            if left <= 0:
                return lowest_of(number)
        return 0


def classes_of(values: Any) -> Any:  # noqa: ANN401 - arrays
    """The class of each value: itself below 16, then 16 classes between powers of two."""
    values = np.asarray(values, np.int64)
    bits = np.frexp(np.maximum(values, 1).astype(np.float64))[1]
    shift = np.maximum(bits - 1 - _FINE_BITS, 0)
    return (shift << _FINE_BITS) + (values >> shift)


def lowest_of(number: int) -> int:
    """The lowest value of a class."""
    shift = max((number >> _FINE_BITS) - 1, 0)
    return (number - (shift << _FINE_BITS)) << shift


@dataclass(slots=True)
class HourTally:
    """Messages of one topic in one hour; times in microseconds since 1970 UTC."""

    messages: int
    bytes: int
    smallest: int
    largest: int
    first_us: int
    last_us: int
    longest_gap_us: int
    sizes: Classes

    def append(self, more: HourTally) -> None:
        """Adds the tally of later messages."""
        gap = max(more.first_us - self.last_us, self.longest_gap_us, more.longest_gap_us)
        self.messages += more.messages
        self.bytes += more.bytes
        self.smallest = min(self.smallest, more.smallest)
        self.largest = max(self.largest, more.largest)
        self.last_us = max(self.last_us, more.last_us)
        self.longest_gap_us = gap
        self.sizes.update(more.sizes)

    def row(self, group: Group) -> dict[str, Any]:
        """With stable keys. per_s: between the first and the last message."""
        span_s = (self.last_us - self.first_us) / _US
        between = self.messages - 1
        return {
            "hour": to_datetime(group[1] * HOUR_US * 1_000).strftime("%Y-%m-%dT%H"),
            "topic": group[0],
            "messages": self.messages,
            "bytes": self.bytes,
            "per_s": round(between / span_s, 3) if span_s else None,
            "size_min": self.smallest,
            "size_mean": round(self.bytes / self.messages, 1),
            "size_p50": self.sizes.percentile(0.5),
            "size_p99": self.sizes.percentile(0.99),
            "size_max": self.largest,
            "gap_mean_s": round(span_s / between, 6) if between else None,
            "gap_max_s": round(self.longest_gap_us / _US, 6) if between else None,
        }


Tallies = dict[Group, HourTally]


def tallied(batches: Iterable[pa.RecordBatch]) -> Tallies:
    """Tallies of messages in the order of the log."""
    found: Tallies = {}
    for batch in batches:
        sizes = pc.binary_length(batch.column("payload"))  # instead of payloads, which are moved
        slim = batch.select(COLUMNS[:2]).append_column("size", sizes)
        join(found, {(topic, hour): _tally(rows) for hour, topic, rows in grouped(slim, HOUR_US)})
    return found


def join(found: Tallies, more: Tallies) -> None:
    """Adds tallies of later messages."""
    for group, tally in more.items():
        if group in found:
            found[group].append(tally)
        else:
            found[group] = tally


def _tally(rows: pa.RecordBatch) -> HourTally:
    times = rows.column("timestamp").cast(pa.int64()).to_numpy()
    sizes = rows.column("size").to_numpy()
    classes = Classes()
    classes.add(sizes)
    gaps: Any = np.diff(times)
    return HourTally(
        len(times), int(sizes.sum()), int(sizes.min()), int(sizes.max()), int(times[0]),
        int(times.max()), int(gaps.max(initial=0)), classes,
    )  # fmt: skip


_NS_PER_MS: Final = 1_000_000
_MS: Final = 1_000


class QueueRuns(NamedTuple):
    """Messages of a queue, as runs of positions [first, end), that left it or came back."""

    queue: str
    why: str
    back: bool
    time_ns: int
    runs: list[tuple[int, int]]


class RangeFacts(NamedTuple):
    """The facts of one range. marks: (position, time) of batches, rising."""

    marks: list[tuple[int, int]]
    left: list[QueueRuns]


def facts(part: LogRange) -> RangeFacts:
    """In an executor; of a range of a directory. Raises: OSError."""
    marks: list[tuple[int, int]] = []
    left: list[QueueRuns] = []
    with closing(part.open()) as log:
        for found in log.headers(seek(log, part.first), part.end):
            if isinstance(found, Gap) or found[0].position < part.first:
                continue
            batch, cursor = found
            if batch.kind == KIND_PUBLISH:
                marks.append((batch.position, batch.log_time))
            elif batch.kind == KIND_QUEUE and (body := log.body(batch, cursor)) is not None:
                left += _left(bytes(body), batch.log_time)
    return RangeFacts(marks, left)


def _left(body: bytes, time_ns: int) -> list[QueueRuns]:
    """The runs of a record; none if it cannot be read."""
    try:
        record = QUEUE.decode(body)
        facts = [fact for fact in record.facts if isinstance(fact, MessagesGone | Failed)]
        runs = [list(runs_of(unpack_positions(fact.where))) for fact in facts]
    except (DecodeError, UnicodeDecodeError, ValueError):
        return []
    return [
        QueueRuns(record.queue, fact.why, isinstance(fact, Failed), time_ns, where)
        for fact, where in zip(facts, runs, strict=True)
    ]


@dataclass(slots=True)
class QueueAges:
    """One queue: `ages` in milliseconds, of messages that left it; why, and why some came back.

    unknown: messages that left it, and were appended before the stretch.
    """

    left: Counter[str] = field(default_factory=Counter)
    back: Counter[str] = field(default_factory=Counter)
    ages: Classes = field(default_factory=Classes)
    oldest_ms: int = 0
    unknown: int = 0

    def row(self, name: str) -> dict[str, Any]:
        """With stable keys."""
        return {
            "queue": name,
            "left": self.left.total(),
            "redelivered": self.back.total(),
            "age_p50_s": self.ages.percentile(0.5) / _MS,
            "age_p99_s": self.ages.percentile(0.99) / _MS,
            "age_max_s": self.oldest_ms / _MS,
            "age_unknown": self.unknown,
            "left_why": dict(self.left),
            "redelivered_why": dict(self.back),
        }


def queues(parts: Iterable[RangeFacts]) -> dict[str, QueueAges]:
    """All queues of the stretch, by name. parts: in the order of the log."""
    parts = list(parts)
    marks = np.array([mark for part in parts for mark in part.marks], np.int64).reshape(-1, 2)
    found: dict[str, QueueAges] = {}
    for one in (one for part in parts for one in part.left):
        queue = found.setdefault(one.queue, QueueAges())
        counts = queue.back if one.back else queue.left
        counts[one.why] += sum(end - first for first, end in one.runs)
        if not one.back:
            _take(queue, marks, one.time_ns, one.runs)
    return dict(sorted(found.items()))


def _take(queue: QueueAges, marks: Any, time_ns: int, runs: Sequence[tuple[int, int]]) -> None:  # noqa: ANN401
    """Adds the ages of these messages, batch by batch."""
    starts = marks[:, 0]
    for first, end in runs:
        low = int(np.searchsorted(starts, first, "right"))
        high = int(np.searchsorted(starts, end - 1, "right"))
        known = max(first, int(starts[0])) if len(starts) else end
        queue.unknown += min(known, end) - first
        if known >= end:
            continue
        batches = marks[max(low - 1, 0) : high]
        begins = np.maximum(batches[:, 0], known)
        weights: Any = np.diff([*begins.tolist(), end])
        ages = np.maximum(time_ns - batches[:, 1], 0) // _NS_PER_MS
        queue.ages.add(ages, weights)
        queue.oldest_ms = max(queue.oldest_ms, int(ages.max()))
