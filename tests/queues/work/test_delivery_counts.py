"""Counts of many messages, next to Python's Counter."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.queues.work.delivery_counts import COUNT_MAX, DeliveryCounts, DeliveryTally

POSITIONS = st.sets(st.integers(0, 12))
ALL = BitMap64(range(13))


@given(st.lists(st.tuples(st.sampled_from(["add", "add", "add", "drop"]), POSITIONS), max_size=30))
def test_a_tally_is_a_counter(steps: list[tuple[str, set[int]]]) -> None:
    tally, expected = DeliveryTally(), Counter[int]()
    for what, positions in steps:
        if what == "add":
            tally.add(BitMap64(positions))
            expected.update(positions)
        else:
            tally.drop(BitMap64(positions))
            for position in positions:
                del expected[position]
        assert [tally.of(position) for position in ALL] == [expected[position] for position in ALL]
        for least in (1, 2, 3, 5, 40):
            assert set(tally.least(least, ALL)) == {p for p in ALL if expected[p] >= least}
    assert set(tally.counted) == set(+expected)


def test_a_count_ends_at_what_the_wire_can_tell() -> None:
    tally, one = DeliveryTally(), BitMap64([7])
    for _ in range(COUNT_MAX + 5):
        tally.add(one)
    assert tally.of(7) == COUNT_MAX


def test_a_suspect_counts_as_one_delivery_more() -> None:
    counting, both = DeliveryCounts(), BitMap64([1, 2])
    counting.failed(both, "lease_ended")
    counting.suspects = BitMap64([2, 3])
    assert [counting.deliveries(position) for position in range(5)] == [0, 1, 2, 1, 0]
    assert set(counting.delivered(1, ALL)) == {1, 2, 3}
    assert set(counting.delivered(2, ALL)) == {2}
    assert counting.delivered(0, ALL) == ALL
    assert set(counting.before(ALL)) == {1, 2, 3}


@given(st.lists(POSITIONS, max_size=6), st.integers(1, 4))
def test_the_last_step_has_all_that_failed_more_often(fails: list[set[int]], steps: int) -> None:
    counting, expected = DeliveryCounts(), Counter[int]()
    for positions in fails:
        counting.failed(BitMap64(positions), "cancelled")
        expected.update(positions)
    reported = {p: step for step, part in counting.by_failures(ALL, steps) for p in part}
    assert reported == {position: min(expected[position], steps - 1) for position in ALL}
