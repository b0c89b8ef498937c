"""How much one side differs from another: ratios of the same round, with a bootstrap interval.

What slows a machine down for a minute slows both sides of a round down, so the ratio within a round
says more than the ratio of two medians.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95
SEED: Final = 1  # the same results make the same table


class Ratio(NamedTuple):
    """The median of the rounds' ratios, and the interval it lies in with 95 % confidence."""

    median: float
    low: float
    high: float
    rounds: int

    @property
    def differs(self) -> bool:
        """The interval does not contain 1. Says little below five rounds."""
        return not self.low <= 1.0 <= self.high


def paired(base: Mapping[int, float], other: Mapping[int, float]) -> Ratio | None:
    """Other to base, over the rounds that both have. Keys are numbers of rounds."""
    ratios = [other[number] / base[number] for number in sorted(base) if number in other]
    if not ratios:
        return None
    return Ratio(statistics.median(ratios), *interval(ratios), len(ratios))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """A percentile bootstrap of the median."""
    chance = random.Random(SEED)
    medians = sorted(
        statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    outside = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return medians[outside], medians[-1 - outside]
