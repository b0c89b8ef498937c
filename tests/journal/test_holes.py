"""Holes of one publisher: what is missing below its highest sequence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.journal import holes
from zbroker.journal.holes import HOLES_MAX, POSSIBLE_MAX, Hole


@pytest.mark.parametrize(
    ("high", "first", "prev", "new_session", "expected"),
    [
        (3, 4, 3, False, None),
        (3, 4, 3, True, None),
        (3, 9, 3, False, None),  # its publisher says that it left out 4 to 8
        (3, 9, 6, False, Hole(4, 6, 6)),
        (3, 9, 3, True, Hole(4, 8)),  # another session may have written them elsewhere
        (3, 9, 6, True, Hole(4, 8, 6)),
        (0, 9, 0, True, Hole(1, 8)),
    ],
)
def test_a_hole_opens_where_something_may_be_missing(
    high: int, first: int, prev: int, new_session: bool, expected: Hole | None
) -> None:
    assert holes.opened(high, first, prev, new_session=new_session) == expected


@pytest.mark.parametrize(
    ("first", "last", "prev", "left"),
    [
        (4, 9, 3, []),
        (4, 6, 3, [Hole(7, 9, 9)]),
        (7, 9, 6, [Hole(4, 6, 6)]),
        (7, 9, 3, [Hole(4, 6)]),
        (6, 7, 4, [Hole(4, 5, 4), Hole(8, 9, 9)]),
    ],
)
def test_what_arrives_late_shrinks_or_splits_its_hole(
    first: int, last: int, prev: int, left: list[Hole]
) -> None:
    of_one = [Hole(4, 9, 9)]
    holes.fill(of_one, first, last, prev)
    assert of_one == left


def test_runs_that_are_held_are_what_lies_between_the_missing_ones() -> None:
    missing = holes.missing([Hole(4, 6), Hole(9, 9)], 12, 2, 15)
    assert missing == [(4, 6), (9, 9), (13, 15)]
    assert holes.held(missing, 2, 15) == [(2, 3), (7, 8), (10, 12)]
    assert holes.missing([Hole(4, 6)], 12, 7, 9) == []


def test_too_many_holes_give_up_the_lowest_one() -> None:
    of_one = [Hole(n * 2, n * 2, n * 2) for n in range(1, HOLES_MAX + 2)]
    assert holes.give_up(of_one) == [Hole(2, 2, 2)]
    assert len(of_one) == HOLES_MAX


def test_holes_that_may_be_none_are_given_up_before_those_that_are() -> None:
    of_one = [Hole(2, 2, 2), *[Hole(n * 4, n * 4) for n in range(1, POSSIBLE_MAX + 2)]]
    assert holes.give_up(of_one) == [Hole(4, 4)]
    assert of_one[0] == Hole(2, 2, 2)


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(0, 5), st.booleans()),
        max_size=25,
    )
)
def test_holes_and_what_is_held_never_overlap(
    arrivals: list[tuple[int, int, int, bool]],
) -> None:
    """Every batch says an honest `prev`; whatever comes in whatever order is stored once."""
    of_one: list[Hole] = []
    high, held = 0, set[int]()
    for first, count, back, new in arrivals:
        last, prev = first + count - 1, max(0, first - 1 - back)
        for begin, end in holes.missing(of_one, high, first, last):
            run = set(range(begin, end + 1))
            assert not run & held, "missing, but held"
            if begin > high:
                hole = holes.opened(
                    high, begin, prev if begin == first else begin - 1, new_session=new
                )
                of_one += [hole] if hole else []
                high = end
            else:
                holes.fill(of_one, begin, end, prev if begin == first else begin - 1)
            held |= run
        holes.check(of_one, high)
        in_holes = {n for hole in of_one for n in range(hole.first, hole.last + 1)}
        assert not in_holes & held
        if all(new for *_, new in arrivals):
            assert in_holes | held == set(range(1, high + 1)), "nothing is forgotten"
