"""What the log says of queues: how long messages stood in them, and how often they came back.

A range gives when its messages were appended (to the batch), and what its records say became of
messages; both are put together on the driver. What was appended before the stretch has no age.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import DecodeError

from zbroker.log.format import KIND_PUBLISH, KIND_QUEUE
from zbroker.log.queue_records import (
    QUEUE,
    AnyFact,
    Failed,
    MessagesGone,
    runs_of,
    unpack_positions,
)
from zbroker.log.reader import Gap, Log
from zbroker.spark.directories import seek
from zbroker.spark.jobs.tallies import Classes
from zbroker.spark.ranges import LogRange

_NS_PER_MS: Final = 1_000_000
_MS: Final = 1_000


class QueueRuns(NamedTuple):
    """Messages of a queue, as runs of positions [first, behind), that left it or came back."""

    queue: str
    why: str
    back: bool
    time_ns: int
    runs: list[tuple[int, int]]


class RangeFacts(NamedTuple):
    """Of one range. marks: (position, time) of batches, rising."""

    marks: list[tuple[int, int]]
    left: list[QueueRuns]


def facts(part: LogRange) -> RangeFacts:
    """In an executor; of a range of a directory. Raises: OSError."""
    marks: list[tuple[int, int]] = []
    left: list[QueueRuns] = []
    with closing(Log(Path(part.source), Path(part.archive) if part.archive else None)) as log:
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
    """What a record says; what cannot be read says nothing."""
    try:
        record = QUEUE.decode(body)
        return [
            QueueRuns(record.queue, fact.why, isinstance(fact, Failed), time_ns, _runs(fact))
            for fact in record.facts
            if isinstance(fact, MessagesGone | Failed)
        ]
    except (DecodeError, UnicodeDecodeError, ValueError):
        return []


def _runs(fact: AnyFact) -> list[tuple[int, int]]:
    assert isinstance(fact, MessagesGone | Failed), fact
    return list(runs_of(unpack_positions(fact.where)))


@dataclass(slots=True)
class QueueAges:
    """Of one queue: `ages` in milliseconds, of messages that left it; why, and why some came back.

    unknown: messages that left it, and were appended before the stretch.
    """

    left: dict[str, int] = field(default_factory=dict)
    back: dict[str, int] = field(default_factory=dict)
    ages: Classes = field(default_factory=Classes)
    oldest_ms: int = 0
    unknown: int = 0

    def row(self, name: str) -> dict[str, Any]:
        """With stable keys."""
        return {
            "queue": name,
            "left": sum(self.left.values()),
            "redelivered": sum(self.back.values()),
            "age_p50_s": self.ages.percentile(0.5) / _MS,
            "age_p99_s": self.ages.percentile(0.99) / _MS,
            "age_max_s": self.oldest_ms / _MS,
            "age_unknown": self.unknown,
            "left_why": self.left,
            "redelivered_why": self.back,
        }


def queues(parts: Iterable[RangeFacts]) -> dict[str, QueueAges]:
    """All queues of the stretch, by name. parts: in the order of the log."""
    parts = list(parts)
    marks = np.array([mark for part in parts for mark in part.marks], np.int64).reshape(-1, 2)
    found: dict[str, QueueAges] = {}
    for one in (one for part in parts for one in part.left):
        queue = found.setdefault(one.queue, QueueAges())
        counts = queue.back if one.back else queue.left
        counts[one.why] = counts.get(one.why, 0) + sum(end - first for first, end in one.runs)
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
