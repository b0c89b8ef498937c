"""Claims about judging sequences: what is a gap, a jump, a repeat, out of order; what is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zbroker.spark.jobs.sequences import UNSAID, SequenceFinding, SequenceRun, joined, judge


def judged(*runs: SequenceRun) -> list[tuple[str, int, int]]:
    return [(found.kind, found.first, found.last) for found in judge(runs)]


def test_what_goes_on_is_right() -> None:
    assert judged(SequenceRun(1, 1, 9, 1, 0), SequenceRun(1, 10, 12, 10, 9)) == []


def test_what_was_issued_and_is_not_there_is_a_gap() -> None:
    assert judged(SequenceRun(1, 1, 9, 1, 0), SequenceRun(1, 15, 16, 10, 14)) == [("gap", 10, 14)]


def test_what_was_never_issued_is_no_gap() -> None:
    assert judged(SequenceRun(1, 1, 9, 1, 0), SequenceRun(1, 15, 16, 10, 9)) == []


def test_a_new_publisher_may_begin_anywhere() -> None:
    assert judged(SequenceRun(1, 100, 109, 1, 99)) == []


def test_without_the_word_of_the_publisher_it_is_a_jump() -> None:
    found = judge([SequenceRun(1, 1, 9, 1), SequenceRun(1, 15, 16, 10)])
    assert found == [SequenceFinding("jump", 1, 10, 14, 10)]
    assert not found[0].fails


def test_what_comes_twice_is_a_repeat() -> None:
    assert judged(SequenceRun(1, 1, 9, 1, 0), SequenceRun(1, 8, 12, 10, 9)) == [("repeat", 8, 9)]


def test_what_comes_after_a_higher_one_is_out_of_order_but_not_lost() -> None:
    runs = [SequenceRun(1, 1, 3, 1, 0), SequenceRun(1, 7, 9, 4, 6), SequenceRun(1, 4, 6, 7, 3)]
    assert judged(*runs) == [("order", 4, 6)]


def test_what_comes_late_by_a_failover_fills_its_hole() -> None:
    runs = [
        SequenceRun(1, 1, 3, 1, 0),
        SequenceRun(1, 7, 9, 4, 6),
        SequenceRun(1, 4, 5, 7, 3, late=True),
    ]
    assert judged(*runs) == [("gap", 6, 6)]


def test_publishers_do_not_mix() -> None:
    assert (
        judged(
            SequenceRun(1, 1, 9, 1, 0), SequenceRun(2, 5, 6, 10, 4), SequenceRun(1, 10, 11, 12, 9)
        )
        == []
    )


steps = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4)), max_size=25)


@given(steps)
def test_it_finds_what_a_list_of_all_sequences_finds(steps: list[tuple[int, int]]) -> None:
    runs = [SequenceRun(7, first, first + more, at) for at, (first, more) in enumerate(steps)]
    there: set[int] = set()
    repeats, order, skipped, high = [], [], set(), 0
    for run in runs:
        for sequence in range(run.first, run.last + 1):
            if sequence in there:
                repeats.append(sequence)
            elif sequence < high:
                order.append(sequence)
        if there:
            skipped |= set(range(high + 1, run.first))
        there |= set(range(run.first, run.last + 1))
        high = max(high, run.last)
    assert listed("repeat", runs) == sorted(repeats)
    assert listed("order", runs) == sorted(order)
    assert listed("jump", runs) == sorted(skipped - there)


def listed(kind: str, runs: list[SequenceRun]) -> list[int]:
    found = [one for one in judge(runs) if one.kind == kind]
    return sorted(number for one in found for number in range(one.first, one.last + 1))


@given(steps, st.integers(0, 25))
def test_runs_that_are_put_together_are_judged_the_same(
    steps: list[tuple[int, int]], cut: int
) -> None:
    runs = [
        SequenceRun(7, first, first + more, at, first - 1) for at, (first, more) in enumerate(steps)
    ]
    again = joined([*joined(runs[:cut]), *joined(runs[cut:])])
    for kind in ("gap", "repeat", "order"):
        assert listed(kind, again) == listed(kind, runs)


def test_runs_that_go_on_are_one() -> None:
    runs = [SequenceRun(1, 1, 9, 1), SequenceRun(2, 1, 1, 10), SequenceRun(1, 10, 12, 11)]
    assert joined(runs) == [
        SequenceRun(1, 1, 12, 1, UNSAID), SequenceRun(2, 1, 1, 10)
    ]  # fmt: skip
