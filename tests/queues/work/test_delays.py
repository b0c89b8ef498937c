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
    positions, dues, _ = Delays().dump()
    with pytest.raises(ValueError, match="numbers"):
        Delays().load(positions, dues + bytes(8))


DAY_MS = 86_400_000
CENTURY_NS = 36_500 * DAY_MS * MS_NS


@pytest.mark.parametrize("from_tables", [True, False])
def test_a_time_of_a_process_that_began_under_a_wrong_clock_is_the_longest_delay_away(
    from_tables: bool,
) -> None:
    delays, now = Delays(), 10**18
    delays.put(BitMap64([1, 2]), due_of(now + CENTURY_NS, 2_000), 2_000)
    delays.put(BitMap64([3]), due_of(now, 5_000), 5_000)
    delays.drop(BitMap64([2]))
    if from_tables:
        dumped, delays = delays.dump(), Delays()
        delays.load(*dumped)
    delays.wait(BitMap64([1, 3]))
    assert delays.wake_ns(now) == now
    assert not delays.over(now)
    delays.check()
    assert delays.due(1) == delays.due(3) == due_of(now, 5_000) == delays.wake_ns(now)
    assert set(delays.over(due_of(now, 5_000))) == {1, 3}
    delays.check()


def test_a_time_that_a_right_clock_gave_stays_as_it_is() -> None:
    """Also when a later process reads it, and one of an earlier release did not say how long."""
    now, due = 10**18, due_of(10**18, 366 * DAY_MS)
    for delay_ms in (366 * DAY_MS, 0):
        delays = Delays()
        delays.put(BitMap64([1]), due, delay_ms)
        delays.wait(BitMap64([1]))
        for later in (0, 1, 10**15):
            assert not delays.over(now + later)
            assert delays.due(1) == delays.wake_ns(now + later) == due


def test_tables_of_an_earlier_release_do_not_say_how_long_a_delay_is() -> None:
    delays, now = Delays(), 10**18
    delays.put(BitMap64([1]), due_of(now, 5_000), 5_000)
    positions, dues, _ = delays.dump()
    for times in (dues, due_of(now + CENTURY_NS, 5_000).to_bytes(8, "little")):
        older = Delays()
        older.load(positions, times)
        older.wait(BitMap64([1]))
        assert not older.over(now)
        due = older.due(1)
        assert due is not None
        assert due <= due_of(now, 366 * DAY_MS)
