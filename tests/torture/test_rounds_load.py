"""What publishers of the rounds understand of their client."""

from __future__ import annotations

from tests.torture.rounds_load import numbers_behind
from zbroker.client import effects


def test_the_messages_that_a_broker_lacks_are_known_by_number() -> None:
    first = 1_795_747_514_087_942_851
    error = effects.broker_behind(first + 7, first + 4)
    assert numbers_behind(error.reason, first) == {5, 6, 7}


def test_missing_ranges_of_instances_are_no_messages_of_it() -> None:
    assert numbers_behind(effects.broker_behind(103, 100, missing=2).reason, 100) == {1, 2, 3}
