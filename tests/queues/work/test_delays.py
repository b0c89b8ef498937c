"""What is not offered before its time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.queues.work.delays import Delays, due_of
from zbroker.queues.work.values import MS_NS

SOME = st.sets(st.integers(0, 9), min_size=1)


@given(st.integers(0, 1 << 60), st.integers(1, 366 * 86_400_000))
def test_a_delay_is_at_most_a_1024th_longer_than_asked_for(now_ns: int, delay_ms: int) -> None:
    late = due_of(now_ns, delay_ms) - (now_ns + delay_ms * MS_NS)
    assert 0 <= late <= max(1, delay_ms // 1_024) * MS_NS


def test_no_delay_is_no_time() -> None:
    assert due_of(5, 0) == 0


STEP = st.tuples(st.sampled_from(["put", "drop", "pause", "wait", "time"]), SOME, st.integers(1, 9))


@given(st.lists(STEP, max_size=40))
def test_what_waits_is_over_at_its_newest_time(steps: list) -> None:
    delays, dues, waiting, now = Delays(), dict[int, int](), set[int](), 0
    for what, chosen, number in steps:
        positions = BitMap64(chosen)
        if what == "put":
            delays.drop(positions)
            delays.put(positions, now + number)
            dues |= dict.fromkeys(chosen, now + number)
            waiting -= chosen
        elif what == "drop":
            delays.drop(positions)
            dues = {position: due for position, due in dues.items() if position not in chosen}
            waiting -= chosen
        elif what == "pause":
            delays.pause(positions)
            waiting -= chosen
        elif what == "wait":
            assert set(delays.wait(positions)) == chosen & set(dues)
            waiting |= chosen & set(dues)
        else:
            now += number
            over = {position for position, due in dues.items() if due <= now}
            assert set(delays.over(now)) == over & waiting
            dues = {position: due for position, due in dues.items() if position not in over}
            waiting -= over
        assert set(delays.waiting) == waiting
        assert [delays.due(position) for position in range(10)] == [dues.get(p) for p in range(10)]
        next_ns = delays.next_ns
        assert not dues or (next_ns is not None and next_ns <= min(dues.values()))
        delays.check()
    twin = Delays()
    twin.load(*delays.dump())
    twin.wait(BitMap64(waiting))
    assert set(twin.over(1 << 60)) == waiting


def test_bytes_of_another_size_are_refused() -> None:
    positions, dues = Delays().dump()
    with pytest.raises(ValueError, match="numbers"):
        Delays().load(positions, dues + bytes(8))
