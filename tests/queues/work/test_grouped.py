"""One of each key at a time, in order, next to lists."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.queues.work import grouped
from zbroker.queues.work.grouped import Grouped
from zbroker.queues.work.values import Arrivals

STEP = st.one_of(
    st.tuples(st.just("enter"), st.lists(st.integers(-1, 3), min_size=1, max_size=12)),
    st.tuples(st.sampled_from(["add", "discard", "gone", "among"]), st.sets(st.integers(0, 90))),
    st.tuples(st.just("take"), st.integers(1, 9)),
)


@settings(max_examples=300)
@given(st.lists(STEP, max_size=30))
def test_the_head_of_each_key_that_is_not_busy_is_next(steps: list) -> None:
    ready, keys, away, taken, at = Grouped(), dict[int, int](), set[int](), set[int](), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped, "STEP", 3)
        for what, given_ in steps:
            chosen = set() if what in ("enter", "take") else given_
            if what == "enter":
                new = dict(enumerate(given_, at))
                at += len(given_)
                ready.enter(Arrivals(BitMap64(new), groups=array("q", new.values())))
                keys |= new
            elif what == "add":
                ready.add(BitMap64(chosen & away))
                taken -= chosen & away
                away -= chosen
            elif what == "discard":
                out = (chosen & set(keys)) - away
                ready.discard(BitMap64(out))
                away |= out
            elif what == "gone":
                gone = chosen & away
                ready.forget(BitMap64(gone))
                keys = {position: key for position, key in keys.items() if position not in gone}
                away -= gone
                taken -= gone
            else:
                among = None if what == "take" else BitMap64(chosen)
                count = given_ if what == "take" else 3
                heads = [p for p in sorted(keys) if _is_head(p, keys, away, taken)]
                expected = [p for p in heads if among is None or p in among][:count]
                assert ready.count(count, among=among) == len(expected)
                parts = ready.take(count, among=among)
                assert [position for part in parts for position in part] == expected
                away |= set(expected)
                taken |= set(expected)
            assert set(ready.standing) == set(keys) - away
            ready.check(BitMap64(keys))


def _is_head(position: int, keys: dict[int, int], away: set[int], taken: set[int]) -> bool:
    if position in away:
        return False
    if not keys[position]:
        return True
    mates = [other for other, key in keys.items() if key == keys[position]]
    return min(mates) == position and not taken.intersection(mates)


def test_one_that_comes_late_goes_first() -> None:
    ready = Grouped()
    ready.enter(Arrivals(BitMap64([10, 11]), groups=array("q", [7, 7])))
    assert ready.count(9) == 1
    ready.enter(Arrivals(BitMap64([3]), groups=array("q", [7])))
    assert ready.take(9) == [BitMap64([3])]
    ready.forget(BitMap64([3]))
    assert ready.take(9) == [BitMap64([10])]


def test_one_that_comes_late_waits_for_the_one_under_way() -> None:
    ready = Grouped()
    ready.enter(Arrivals(BitMap64([10]), groups=array("q", [7])))
    ready.take(1)
    ready.enter(Arrivals(BitMap64([3]), groups=array("q", [7])))
    assert ready.take(9) == []
    ready.forget(BitMap64([10]))
    assert ready.take(9) == [BitMap64([3])]


def test_a_key_of_its_own_for_each_message_takes_at_most_60_bytes_a_message() -> None:
    ready, many = Grouped(), 60_000
    for at in range(0, many, 1_000):
        keys = array("q", [position * 7_919 + 1 for position in range(at, at + 1_000)])
        ready.enter(Arrivals(BitMap64(range(at, at + 1_000)), groups=keys))
    ready.take(1_000)
    assert ready.memory_bytes() < 60 * many


def test_one_key_for_all_messages_takes_at_most_60_bytes_a_message() -> None:
    ready, many = Grouped(), 60_000
    ready.enter(Arrivals(BitMap64(range(many)), groups=array("q", [5] * many)))
    assert ready.count(9) == 1
    assert ready.memory_bytes() < 60 * many
