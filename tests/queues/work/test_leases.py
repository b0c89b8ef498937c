"""When leases end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.queues.work.leases import MessageLeases, end_of

SOME = st.sets(st.integers(0, 9), min_size=1)


@given(st.integers(0, 10**9), st.integers(1, 366 * 86_400_000))
def test_a_visibility_timeout_is_at_most_a_128th_longer_than_asked_for(
    now_ms: int, lease_ms: int
) -> None:
    end = end_of(now_ms, lease_ms)
    assert end is not None
    assert 0 <= end - (now_ms + lease_ms) <= max(1, lease_ms // 128)


def test_a_lease_of_0_has_no_end() -> None:
    assert end_of(5, 0) is None
    leases = MessageLeases()
    leases.give(BitMap64([1]), None)
    assert leases.next_ms is None
    assert leases.end(1) is None


STEP = st.tuples(
    st.sampled_from(["give", "move", "cap", "done", "back", "time"]),
    SOME,
    st.one_of(st.none(), st.integers(1, 40)),
)


@given(st.lists(STEP, max_size=40))
def test_every_lease_ends_when_its_last_end_says(steps: list) -> None:
    leases, ends, now = MessageLeases(), dict[int, int | None](), 0
    for what, chosen, number in steps:
        free = {position for position in chosen if position not in ends}
        held = {position for position in chosen if position in ends}
        end = None if number is None else now + number
        if what == "give":
            leases.give(BitMap64(free), end)
            ends |= dict.fromkeys(free, end)
        elif what == "move":
            leases.move(BitMap64(held), end)
            ends |= dict.fromkeys(held, end)
        elif what == "cap":
            limit = now + (number or 1)
            leases.cap(BitMap64(held), limit)
            for position in held:
                old = ends[position]
                ends[position] = limit if old is None else min(old, limit)
        elif what in ("done", "back"):
            leases.done(BitMap64(held))
            ends = {position: its for position, its in ends.items() if position not in held}
            leases.forget(BitMap64(held))  # done: acknowledged; here it may come again, too
        else:
            now += number or 1
            expected = {p for p, its in ends.items() if its is not None and its <= now}
            assert set(leases.over(now)) == expected
            leases.done(BitMap64(expected))
            ends = {position: its for position, its in ends.items() if position not in expected}
        assert set(leases.leased) == set(ends)
        for position, its in ends.items():
            assert leases.end(position) == its
        known = [its for its in ends.values() if its is not None]
        assert leases.first_end(BitMap64(ends)) == min(known, default=None)
        next_ms = leases.next_ms
        assert not known or (next_ms is not None and next_ms <= min(known))
        leases.check(BitMap64(range(10)) - leases.leased)
