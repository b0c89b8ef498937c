"""Claims about the order of turns, and about how a plan reaches another process."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from perf.round_plan import QUICK, WORKLOADS, Plan, fits, order, plan_of


def test_two_sides_take_turns_at_beginning() -> None:
    assert [order(["a", "b"], number) for number in range(3)] == [
        ["a", "b"], ["b", "a"], ["a", "b"]
    ]  # fmt: skip


@pytest.mark.parametrize("sides", [1, 2, 3, 9])
def test_each_side_has_each_place_once_in_as_many_rounds(sides: int) -> None:
    names = [str(number) for number in range(sides)]
    places = Counter(
        (place, name) for number in range(sides) for place, name in enumerate(order(names, number))
    )
    assert len(places) == sides**2
    assert set(places.values()) == {1}


@pytest.mark.parametrize("plan", [QUICK, Plan()])
def test_a_plan_survives_json(plan: Plan) -> None:
    assert plan_of(json.loads(json.dumps(plan.as_json()))) == plan


def test_the_quick_plan_is_a_part_of_the_whole_one() -> None:
    assert set(QUICK.workloads) <= set(WORKLOADS)
    assert QUICK.messages < Plan().messages


def test_no_round_is_begun_that_would_end_too_late() -> None:
    assert fits(elapsed_s=80, longest_s=20, limit_s=105)
    assert not fits(elapsed_s=90, longest_s=20, limit_s=105)


def test_one_round_is_measured_however_short_the_time_is() -> None:
    assert fits(elapsed_s=0, longest_s=0, limit_s=0)


def test_the_quick_plan_ends_within_two_minutes() -> None:
    assert QUICK.limit_s < 120
