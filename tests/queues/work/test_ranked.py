"""Messages by priority, next to a sorted list."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.queues.work import ranked
from zbroker.queues.work.ranked import Ranked
from zbroker.queues.work.values import Arrivals

PRIORITY = st.one_of(st.integers(0, 3), st.integers(0, 60), st.just((1 << 64) - 1))
STEP = st.one_of(
    st.tuples(st.just("enter"), st.lists(PRIORITY, min_size=1, max_size=30)),
    st.tuples(st.sampled_from(["add", "discard", "forget", "among"]), st.sets(st.integers(0, 200))),
    st.tuples(st.just("take"), st.integers(1, 40)),
)


@settings(max_examples=300)
@given(st.lists(STEP, max_size=25))
def test_the_highest_come_first_and_of_these_the_oldest(steps: list) -> None:
    ready, standing, away, at = Ranked(), dict[int, int](), dict[int, int](), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranked, "LEVELS_MAX", 3)
        patch.setattr(ranked, "BAND_MAX", 12)
        patch.setattr(ranked, "SORTED_MAX", 5)
        for what, given_ in steps:
            chosen = [] if what in ("enter", "take") else sorted(given_)
            if what == "enter":
                new = dict(enumerate(given_, at))
                at += len(given_)
                ready.enter(Arrivals(BitMap64(new), array("Q", new.values())))
                standing |= new
            elif what == "add":
                back = {position: away.pop(position) for position in chosen if position in away}
                ready.add(BitMap64(back))
                standing |= back
            elif what == "discard":
                out = {p: standing.pop(p) for p in chosen if p in standing}
                ready.discard(BitMap64(out))
                away |= out
            elif what == "forget":
                gone = {position for position in chosen if position in away}
                ready.forget(BitMap64(gone))
                away = {position: its for position, its in away.items() if position not in gone}
            else:
                among = None if what == "take" else BitMap64(chosen)
                count = given_ if what == "take" else 7
                order = sorted(standing, key=lambda position: (-standing[position], position))
                expected = [p for p in order if among is None or p in among][:count]
                assert ready.count(count, among=among) == len(expected)
                parts = ready.take(count, among=among)
                assert [position for part in parts for position in part] == expected
                away |= {position: standing.pop(position) for position in expected}
            assert set(ready.standing) == set(standing)
            ready.check(BitMap64(standing) | BitMap64(away))


def test_each_set_that_is_taken_has_one_priority() -> None:
    ready = Ranked()
    ready.enter(Arrivals(BitMap64([1, 2, 3, 4]), array("Q", [5, 9, 5, 9])))
    assert ready.take(3) == [BitMap64([2, 4]), BitMap64([1])]


def test_as_many_priorities_as_messages_take_at_most_30_bytes_a_message() -> None:
    ready, many = Ranked(), 60_000
    for at in range(0, many, 1_000):
        priorities = [(position * 2_654_435_761) % (1 << 32) for position in range(at, at + 1_000)]
        ready.enter(Arrivals(BitMap64(range(at, at + 1_000)), array("Q", priorities)))
    assert ready.memory_bytes() < 30 * many
