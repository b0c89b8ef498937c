"""Claims about how the accuracy of a rate is measured."""

from __future__ import annotations

import pytest

from perf.pacing import Arrivals, lead_of, rate_of


def test_the_rate_counts_from_the_first_message() -> None:
    assert rate_of(Arrivals([5.0, 5.1, 5.2], [1, 11, 21])) == pytest.approx(100)


def test_messages_on_schedule_lead_by_nothing() -> None:
    assert lead_of(Arrivals([5.0, 5.1, 5.2], [1, 11, 21]), 100) == pytest.approx(0)


def test_the_lead_is_the_worst_one() -> None:
    assert lead_of(Arrivals([5.0, 5.1, 5.2], [1, 14, 21]), 100) == pytest.approx(3)


def test_late_messages_lead_by_nothing() -> None:
    assert lead_of(Arrivals([5.0, 6.0], [1, 11]), 100) == pytest.approx(0)
