"""Latencies in an HdrHistogram, which keeps every percentile and can be added up over rounds.

A closed loop that waits for each answer sends nothing while it waits, so a stall shows up in one
sample only (coordinated omission). `record_corrected` adds the samples that a steady sender would
have had meanwhile. An open loop does not need it: its samples count from when a message was due.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from hdrh.histogram import HdrHistogram

LOWEST_US: Final = 1
HIGHEST_US: Final = 10 * 60 * 1_000_000  # nothing here waits longer
DIGITS: Final = 3
TICKS: Final = 5  # points of the curve each time the distance to 100 % halves


class Point(NamedTuple):
    """So many percent of the samples took at most `ms`."""

    percent: float
    ms: float


class LatencyHistogram:
    """Samples in seconds, kept in microseconds with three significant digits."""

    def __init__(self, encoded: str | None = None) -> None:
        """encoded: what `encoded` of another one was."""
        made = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
        self._histogram = made if encoded is None else HdrHistogram.decode(encoded)

    def record(self, seconds: Iterable[float]) -> None:
        """Adds samples as they are."""
        for each in seconds:
            self._histogram.record_value(_microseconds(each))

    def record_corrected(self, seconds: Iterable[float], interval_s: float) -> None:
        """Adds samples of a closed loop that was to send every `interval_s`."""
        interval_us = _microseconds(interval_s)
        for each in seconds:
            self._histogram.record_corrected_value(_microseconds(each), interval_us)

    def add(self, other: LatencyHistogram) -> None:
        """Adds all samples of another one."""
        self._histogram.add(other._histogram)

    @property
    def count(self) -> int:
        """How many samples it has."""
        return int(self._histogram.get_total_count())

    def percentile_ms(self, percent: float) -> float:
        """What so many percent of the samples took at most; 0 without samples."""
        return float(self._histogram.get_value_at_percentile(percent)) / 1e3 if self.count else 0.0

    def curve(self) -> list[Point]:
        """Points for a plot, closer together towards 100 %."""
        if not self.count:
            return []
        points = self._histogram.get_percentile_iterator(TICKS)
        return [
            Point(each.percentile_level_iterated_to, each.value_iterated_to / 1e3)
            for each in points
        ]

    @property
    def encoded(self) -> str:
        """As text, in the format that HdrHistogram's other tools read."""
        return bytes(self._histogram.encode()).decode()


def _microseconds(seconds: float) -> int:
    return min(HIGHEST_US, max(LOWEST_US, round(seconds * 1e6)))
