"""Claims about percentiles, and about the correction for coordinated omission."""

from __future__ import annotations

import pytest

from perf.latency_histogram import HIGHEST_US, LatencyHistogram


def of(*seconds: float) -> LatencyHistogram:
    histogram = LatencyHistogram()
    histogram.record(seconds)
    return histogram


def test_percentiles_are_exact_to_three_digits() -> None:
    histogram = of(*(n / 1e3 for n in range(1, 1_001)))  # 1 ms to 1 s
    assert histogram.percentile_ms(50) == pytest.approx(500, rel=1e-3)
    assert histogram.percentile_ms(99) == pytest.approx(990, rel=1e-3)
    assert histogram.percentile_ms(100) == pytest.approx(1_000, rel=1e-3)


def test_a_stall_of_a_closed_loop_counts_for_each_message_that_was_not_sent() -> None:
    plain, corrected = LatencyHistogram(), LatencyHistogram()
    samples = [0.001] * 99 + [1.0]  # one message of a hundred waited for a second
    plain.record(samples)
    corrected.record_corrected(samples, interval_s=0.01)
    assert plain.percentile_ms(99) == pytest.approx(1, rel=1e-3)
    assert corrected.count == 99 + 100
    # the hundred messages that were due in that second waited 10, 20 ... 1,000 ms
    assert corrected.percentile_ms(75) == pytest.approx(500, rel=0.02)


def test_a_loop_without_stalls_is_not_changed_by_the_correction() -> None:
    corrected = LatencyHistogram()
    corrected.record_corrected([0.001, 0.002, 0.003], interval_s=0.01)
    assert corrected.count == 3


def test_rounds_add_up() -> None:
    first, second = of(0.001, 0.002), of(0.003)
    first.add(second)
    assert first.count == 3
    assert first.percentile_ms(100) == pytest.approx(3, rel=1e-3)


def test_the_text_form_has_all_samples() -> None:
    histogram = of(0.001, 0.5, 20.0)
    again = LatencyHistogram(histogram.encoded)
    assert again.count == 3
    assert again.curve() == histogram.curve()


def test_the_curve_rises_to_the_slowest_sample() -> None:
    curve = of(*(n / 1e3 for n in range(1, 101))).curve()
    assert [point.ms for point in curve] == sorted(point.ms for point in curve)
    assert curve[-1].percent == 100
    assert curve[-1].ms == pytest.approx(100, rel=1e-3)


def test_without_samples_there_is_no_curve() -> None:
    assert LatencyHistogram().curve() == []
    assert LatencyHistogram().percentile_ms(99) == 0


def test_what_is_out_of_range_counts_at_its_end() -> None:
    histogram = of(-0.1, 0.0, 10_000.0)
    assert histogram.count == 3
    assert histogram.percentile_ms(100) == pytest.approx(HIGHEST_US / 1e3, rel=1e-3)
