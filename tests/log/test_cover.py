"""What a vector covers of a log, by hand and against a model; and how readers move one on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.journal.test_origins import HERE, THERE, batch, tie
from tests.sim.two_world import advance
from zbroker.ids import Origin
from zbroker.journal.origins import Tie
from zbroker.log.cover import Cover, dominates, passed, steps, tied_runs
from zbroker.log.format import Batch
from zbroker.log.reader import Gap, Skipped

MINE, THEIRS = Origin(HERE, 1), Origin(THERE, 1)


def at(sequence: int, count: int, position: int) -> Batch:
    made = batch(position, HERE, position, count)
    made.sequence = sequence
    return made


def test_what_lies_above_the_vector_is_left() -> None:
    one = at(sequence=7, count=4, position=50)
    assert Cover({}).left(one) == [(7, 10)]
    assert Cover({MINE: 51}).left(one) == [(9, 10)]
    assert Cover({MINE: 53}).left(one) == []
    assert Cover({MINE: 99}).left(one) == []
    assert Cover({THEIRS: 99, Origin(HERE, 2): 99}).left(one) == [(7, 10)]


def test_a_message_is_covered_by_its_other_origin_too() -> None:
    one = at(sequence=7, count=4, position=50)
    ties = [Tie(77, 8, 9, *THEIRS, 103, 60)]
    assert Cover({THEIRS: 102}, ties).left(one) == [(7, 10)]
    assert Cover({THEIRS: 103}, ties).left(one) == [(7, 7), (9, 10)]
    assert Cover({THEIRS: 104}, ties).left(one) == [(7, 7), (10, 10)]
    assert Cover({THEIRS: 104, MINE: 50}, ties).left(one) == [(10, 10)]
    assert Cover({THEIRS: 104}, [replace(ties[0], publisher=78)]).left(one) == [(7, 10)]


def test_a_vector_advances_by_messages_and_ties() -> None:
    vector: dict[Origin, int] = {}
    for one in (at(7, 4, 50), tie(60, 8, 9, 103), at(7, 1, 20)):
        advance(vector, one)
    assert vector == {MINE: 53, THEIRS: 104}


def test_a_vector_dominates_what_it_covers_all_of() -> None:
    assert dominates({MINE: 5, THEIRS: 1}, {MINE: 5})
    assert not dominates({MINE: 5}, {MINE: 5, THEIRS: 1})
    assert not dominates({MINE: 4}, {MINE: 5})


@given(
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(1, 9)), max_size=4),
    st.integers(0, 12),
)
def test_left_is_what_no_origin_covers(
    own: int, tied: list[tuple[int, int, int]], theirs: int
) -> None:
    one = at(sequence=3, count=8, position=3)
    ties = [Tie(77, first, first + n - 1, *THEIRS, p, i) for i, (first, n, p) in enumerate(tied)]
    expected = {
        sequence
        for sequence in range(3, 11)
        if sequence > own
        and not any(
            t.first <= sequence <= t.last and t.position + sequence - t.first <= theirs
            for t in ties
        )
    }
    left = Cover({MINE: own, THEIRS: theirs}, ties).left(one)
    assert {s for first, last in left for s in range(first, last + 1)} == expected
    assert left == sorted(left)


def test_ties_of_messages_before_a_place_are_left_out() -> None:
    ties = [Tie(77, 1, 3, *THEIRS, 101, 20), Tie(77, 8, 9, *THEIRS, 104, 60)]
    assert list(tied_runs({THEIRS: 104}, ties)) == [(77, 1, 3), (77, 8, 8)]
    assert list(tied_runs({THEIRS: 104}, ties, 30)) == [(77, 8, 8)]


def test_picks_of_a_body_are_those_that_are_not_covered() -> None:
    one = at(sequence=7, count=4, position=50)
    cover = Cover({MINE: 50}, tied=[(77, 9, 9)])
    assert list(cover.picks(one, range(4))) == [1, 3]
    picks = [1, 2]
    assert Cover({MINE: 50}).picks(one, picks) is picks
    assert list(cover.picks(one, [0, 2])) == []


def test_what_was_passed_is_the_newest_message_of_each_origin() -> None:
    items = [at(7, 4, 50), tie(54, 8, 9, 103), at(11, 2, 55), Gap(57, 60, "damaged")]
    assert passed(items, 50, 60) == {MINE: 56, THEIRS: 104}
    assert passed(items, 50, 52) == {MINE: 51}
    assert passed(items, 55, 56) == {MINE: 55}
    assert passed(items, 57, 60) == {}


def test_of_what_was_skipped_the_newest_message_is_known() -> None:
    items = [Skipped(1, 9, 77, 3, THEIRS, 44), Skipped(9, 20, 0, 0)]
    assert passed(items, 1, 20) == {THEIRS: 44}
    assert passed(items, 1, 8) == {}
    assert [one.end for one in steps(items, 1, 20)] == [9]
