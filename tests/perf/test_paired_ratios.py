"""Claims about ratios of rounds and their interval."""

from __future__ import annotations

import pytest

from perf.paired_ratios import interval, paired


def test_a_slow_minute_for_both_sides_changes_no_ratio() -> None:
    base = {0: 100.0, 1: 10.0, 2: 100.0}
    other = {0: 120.0, 1: 12.0, 2: 120.0}
    found = paired(base, other)
    assert found is not None
    assert found == pytest.approx((1.2, 1.2, 1.2, 3))
    assert found.differs


def test_only_rounds_that_both_have_count() -> None:
    found = paired({0: 1.0, 1: 1.0}, {1: 2.0, 2: 50.0})
    assert found is not None
    assert (found.median, found.rounds) == (2.0, 1)


def test_without_a_common_round_there_is_no_ratio() -> None:
    assert paired({0: 1.0}, {1: 2.0}) is None


def test_noise_around_one_is_no_difference() -> None:
    ratios = [0.9, 1.1, 0.95, 1.05, 1.0, 0.97, 1.02]
    found = paired(dict.fromkeys(range(7), 1.0), dict(enumerate(ratios)))
    assert found is not None
    assert not found.differs


def test_the_interval_holds_the_median_and_lies_within_the_values() -> None:
    values = [1.0, 1.2, 1.1, 1.4, 1.3]
    low, high = interval(values)
    assert min(values) <= low <= 1.2 <= high <= max(values)


def test_more_rounds_make_the_interval_narrower() -> None:
    def width(values: list[float]) -> float:
        low, high = interval(values)
        return high - low

    assert width([0.8, 0.9, 1.0, 1.1, 1.2] * 8) < width([0.8, 0.9, 1.0, 1.1, 1.2])


def test_the_same_results_have_the_same_interval() -> None:
    values = [1.0, 1.5, 0.7, 1.1]
    assert interval(values) == interval(values)
