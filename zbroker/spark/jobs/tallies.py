"""What is counted of messages, so that counts of ranges can be put together. Pure.

Sizes and ages are kept as counts of classes that are at most 1/16 wide, as in HdrHistogram: so a
percentile is right to 6 %, and smallest, largest and mean are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zbroker.clock import to_datetime

HOUR_US: Final = 3_600_000_000
COLUMNS: Final = ("topic", "timestamp", "payload")
_FINE_BITS: Final = 4
_FINE: Final = 1 << _FINE_BITS
_US: Final = 1_000_000

Group = tuple[str, int]  # topic, hour since 1970 UTC


@dataclass(slots=True)
class Classes:
    """How many values there are of each class."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, values: Any, weights: Any = None) -> None:  # noqa: ANN401 - arrays of numpy
        """Values from 0 on; weights: how often each one counts."""
        classes, index = np.unique(classes_of(values), return_inverse=True)
        counts = np.bincount(index, weights, len(classes))
        self.merge(dict(zip(classes.tolist(), map(int, counts.tolist()), strict=True)))

    def merge(self, more: Mapping[int, int]) -> None:
        """Adds other counts."""
        for number, count in more.items():
            self.counts[number] = self.counts.get(number, 0) + count

    def percentile(self, share: float) -> int:
        """The lowest value of the class in which that share of all values ends; 0 if none."""
        left = share * sum(self.counts.values())
        for number in sorted(self.counts):
            left -= self.counts[number]
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
        """What comes behind it in the log."""
        gap = max(more.first_us - self.last_us, self.longest_gap_us, more.longest_gap_us)
        self.messages += more.messages
        self.bytes += more.bytes
        self.smallest = min(self.smallest, more.smallest)
        self.largest = max(self.largest, more.largest)
        self.last_us = max(self.last_us, more.last_us)
        self.longest_gap_us = gap
        self.sizes.merge(more.sizes.counts)

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
    """Of messages in the order of the log."""
    found: Tallies = {}
    for batch in batches:
        if batch.num_rows:
            join(found, _of_batch(batch))
    return found


def join(found: Tallies, more: Tallies) -> None:
    """Adds what comes behind it."""
    for group, tally in more.items():
        if group in found:
            found[group].append(tally)
        else:
            found[group] = tally


def _of_batch(batch: pa.RecordBatch) -> Tallies:
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    times = batch.column("timestamp").cast(pa.int64()).to_numpy()
    sizes = pc.binary_length(batch.column("payload")).to_numpy()
    keys = times // HOUR_US * len(names) + topics.indices.to_numpy()
    order = np.argsort(keys, kind="stable")
    keys, times, sizes = keys[order], times[order], sizes[order]
    bounds = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
    found: Tallies = {}
    for first, end in pairwise(bounds):
        hour, code = divmod(int(keys[first]), len(names))
        found[names[code], hour] = _tally(times[first:end], sizes[first:end])
    return found


def _tally(times: Any, sizes: Any) -> HourTally:  # noqa: ANN401 - arrays
    classes = Classes()
    classes.add(sizes)
    gaps: Any = np.diff(times)
    return HourTally(
        len(times), int(sizes.sum()), int(sizes.min()), int(sizes.max()), int(times[0]),
        int(times.max()), int(gaps.max(initial=0)), classes,
    )  # fmt: skip
