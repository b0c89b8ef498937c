"""What is of no use any more, next to a dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.queues.work import expiry
from zbroker.queues.work.expiry import Expiry

SECOND = 10**9
RUN = st.tuples(st.integers(0, 30), st.integers(1, 6), st.integers(1, 4))
STEP = st.one_of(
    st.tuples(st.just("enter"), st.lists(RUN, max_size=5)),
    st.tuples(st.sampled_from(["gone", "forget"]), st.sets(st.integers(0, 60))),
    st.tuples(st.just("time"), st.integers(1, 12)),
)


@given(st.lists(STEP, max_size=25))
def test_what_is_here_expires_at_its_time(steps: list) -> None:
    here, times, now, at = BitMap64(), dict[int, int](), 0, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiry, "_SWEPT_MIN", 3)
        found = Expiry(here)
        for what, given_ in steps:
            if what == "enter":
                runs = []
                for due, gap, size in given_:
                    first = at + gap - 1
                    at = first + size
                    runs.append((now + due * SECOND // 3, first, at))
                    here.add_range(first, at)
                    times |= dict.fromkeys(range(first, at), runs[-1][0])
                found.enter(runs)
            elif what == "gone":
                here -= BitMap64(given_)
                times = {position: due for position, due in times.items() if position in here}
            elif what == "forget":
                found.forget(BitMap64(given_))
                times = {position: due for position, due in times.items() if position not in given_}
            else:
                now += given_ * SECOND // 3
                over = {position for position, due in times.items() if due <= now}
                assert set(found.over(now)) == over
                times = {position: due for position, due in times.items() if position not in over}
            assert not times or (found.next_ns or 0) <= min(times.values())
            found.check()
        twin = Expiry(here)
        twin.load(found.dump())
        assert set(twin.over(1 << 62)) == set(times)


def test_runs_of_what_is_gone_do_not_pile_up() -> None:
    here = BitMap64()
    found = Expiry(here)
    for at in range(100_000):
        found.enter([(at * SECOND // 100, 2 * at, 2 * at + 1)])
    assert found.memory_bytes() < 1_000_000


def test_neighbours_that_expire_together_are_one_run() -> None:
    found = Expiry(BitMap64(range(1_000)))
    found.enter([(5, at, at + 1) for at in range(1_000)])
    assert found.memory_bytes() < 1_000
    assert len(found.over(5)) == 1_000


def test_numbers_that_are_no_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="do not make runs"):
        Expiry(BitMap64()).load(bytes(16))
