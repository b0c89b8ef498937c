"""What of each origin a cursor has passed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zbroker.delivery import passage
from zbroker.delivery.passage import Passage
from zbroker.ids import Origin
from zbroker.log.cover import PassedRun

A, B, HERE = Origin(1, 1), Origin(2, 1), Origin(9, 1)


def test_it_begins_with_what_was_passed_before() -> None:
    assert Passage({A: 3}).vector(10, HERE) == {A: 3}


def test_it_is_never_empty() -> None:
    """An empty one would be asked for as the place where the subscription began first."""
    assert Passage({}).vector(10, HERE) == {HERE: 0}


def test_what_is_held_is_not_passed() -> None:
    one = Passage({A: 3})
    one.go([PassedRun(10, 14, A, 4), PassedRun(14, 16, B, 1), PassedRun(16, 20, A, 8)])
    assert one.vector(20, HERE) == {A: 11, B: 2}
    assert one.vector(17, HERE) == {A: 8, B: 2}
    assert one.vector(12, HERE) == {A: 5}
    assert one.vector(10, HERE) == {A: 3}


def test_what_is_settled_stays() -> None:
    one = Passage({})
    one.go([PassedRun(10, 14, A, 4), PassedRun(14, 16, B, 1)])
    one.settle(14)
    one.back(14)
    assert one.vector(14, HERE) == {A: 7}
    assert one.vector(16, HERE) == {A: 7}, "it went back, and passes that again"


def test_it_goes_back_into_the_middle_of_a_batch() -> None:
    one = Passage({})
    one.go([PassedRun(10, 14, A, 4)])
    one.back(12)
    assert one.vector(20, HERE) == {A: 5}


def test_messages_of_old_logs_are_of_this_instance() -> None:
    one = Passage({})
    one.add({Origin(0, 0): 7})
    assert one.vector(8, HERE) == {HERE: 7}


def test_two_that_go_on_together_have_passed_what_both_have() -> None:
    one, other = Passage({A: 3, B: 2}), Passage({A: 2})
    one.meet(other)
    assert one.vector(9, HERE) == {A: 2}


def test_a_copy_is_apart() -> None:
    one = Passage({A: 1})
    other = one.copy()
    other.add({A: 9})
    assert one.vector(1, HERE) == {A: 1}


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 3)), max_size=40))
def test_however_much_is_held_no_more_is_passed_than_was(found: list[tuple[Origin, int]]) -> None:
    before, passage.STEPS_MAX = passage.STEPS_MAX, 6
    try:
        one, position, at = Passage({}), 1, {A: 1, B: 1}
        places: list[tuple[int, dict[Origin, int]]] = []
        for origin, count in found:
            one.go([PassedRun(position, position + count, origin, at[origin])])
            position += count
            at[origin] += count
            places.append((position, {o: last - 1 for o, last in at.items() if last > 1}))
        for end, vector in places:
            named = one.vector(end, HERE)
            assert all(named[o] <= vector.get(o, 0) for o in named)
        if places:
            assert one.vector(position, HERE) == places[-1][1]
    finally:
        passage.STEPS_MAX = before  # type: ignore[misc]
