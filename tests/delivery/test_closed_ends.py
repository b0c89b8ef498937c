"""Vectors of subscriptions that run on forget generations that have ended."""

from __future__ import annotations

import pytest

from zbroker.delivery.closed_ends import ClosedEnds
from zbroker.delivery.passage import Passage
from zbroker.ids import Origin
from zbroker.log.cover import PassedRun
from zbroker.wire.replicas import ClosedEnd

A1, A2, A3, A4, B1 = (*(Origin(7, number) for number in (1, 2, 3, 4)), Origin(8, 1))
#: generation 1 ended at 10, as record 12 of generation 2 says; and so on
CLOSED = ClosedEnds([ClosedEnd(7, 1, 10, 2, 12, 10), ClosedEnd(7, 2, 12, 3, 15, 12)], 100)
FORKED = ClosedEnds([ClosedEnd(7, 1, 10, 2, 12, 14, 4, 40)], 100)
TAKEN = ClosedEnds([ClosedEnd(7, 1, 10, 2, 12, 14)], 100)


@pytest.mark.parametrize(
    ("vector", "left"),
    [
        ({A1: 10, B1: 5}, {A3: 15, B1: 5}),
        ({A1: 10, A2: 11, A3: 20}, {A3: 20}),
        ({A2: 11}, {A3: 15}),
        ({A1: 3}, {A3: 15}),
        ({A1: 11, A2: 11}, {A1: 11, A3: 15}),
        ({B1: 5}, {B1: 5}),
        ({}, {}),
    ],
)
def test_the_record_that_closed_a_generation_is_named_instead(
    vector: dict[Origin, int], left: dict[Origin, int]
) -> None:
    assert CLOSED.without(vector, 100) == left
    assert CLOSED.without(left, 100) == left


@pytest.mark.parametrize(
    ("vector", "left"),
    [
        ({A1: 10, A3: 20}, {A3: 20}),
        ({A1: 10, A3: 14}, {A1: 10, A3: 14}),
        ({A1: 10, A2: 11}, {A1: 10, A2: 11}),
        ({A1: 10, A2: 12}, {A2: 12}),
        ({A1: 10, A2: 12, A3: 15}, {A3: 15}),
    ],
)
def test_before_the_closing_records_are_passed_only_what_the_vector_implies_is_dropped(
    vector: dict[Origin, int], left: dict[Origin, int]
) -> None:
    assert CLOSED.without(vector, 99) == left


@pytest.mark.parametrize(
    ("closed", "seen", "left"),
    [
        (FORKED, 10, {A2: 12}),
        (FORKED, 14, {A4: 40}),
        (FORKED, 15, {A1: 15}),
        (TAKEN, 14, {A1: 14}),
    ],
)
def test_what_was_seen_beyond_an_end_stays_until_all_of_it_is_here_again(
    closed: ClosedEnds, seen: int, left: dict[Origin, int]
) -> None:
    assert closed.without({A1: seen}, 100) == left


def test_a_cursor_forgets_when_all_before_is_settled() -> None:
    passage = Passage({A1: 10, A3: 13})
    passage.go([PassedRun(90, 91, A3, 14), PassedRun(105, 106, A3, 22)])
    passage.forget(CLOSED, 106)
    assert passage.vector(91, A3) == {A1: 10, A3: 14}
    assert passage.dropped() == {}
    passage.settle(91)
    passage.forget(CLOSED, 106)
    assert passage.dropped() == {A1: 10}
    assert passage.dropped() == {}
    assert passage.vector(105, A3) == {A3: 15}
    assert passage.vector(106, A3) == {A3: 22}
