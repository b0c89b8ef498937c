"""zbroker/ingest/chain.py: which sequence is before another one in its session."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zbroker.ingest.chain import PrevTracker


def test_a_new_session_begins_after_what_the_log_holds() -> None:
    used = PrevTracker()
    used.settled(7)
    assert (used.before(8), used.before(20), used.before(8)) == (7, 7, 7)
    assert (used.before(5), used.before(7)) == (None, None)


def test_sequences_that_follow_on_are_one_run() -> None:
    used = PrevTracker()
    for first in (1, 4, 7):
        used.use(first, first + 2)
    assert (len(used), used.before(5), used.before(10)) == (1, 4, 9)


def test_what_was_dropped_is_before_nothing() -> None:
    used = PrevTracker()
    used.use(1, 9)
    used.drop(4, 6)
    assert (len(used), used.before(4), used.before(5), used.before(7)) == (2, 3, 3, 3)
    used.drop(7, 9)
    assert (used.newest, used.before(20)) == (3, 3)


ranges = st.tuples(st.integers(1, 40), st.integers(0, 4)).map(lambda at: (at[0], at[0] + at[1]))


@given(st.lists(st.tuples(st.sampled_from(["use", "drop"]), ranges)), st.integers(1, 45))
def test_it_knows_what_a_set_of_sequences_knows(
    steps: list[tuple[str, tuple[int, int]]], wanted: int
) -> None:
    """But for what is used for the first time below the newest: clients number upwards."""
    used, model = PrevTracker(), set[int]()
    for what, (first, last) in steps:
        newest = max(model, default=0)
        if what == "use":
            used.use(first, last)
            model |= {seq for seq in range(first, last + 1) if seq > newest}
        else:
            used.drop(first, last)
            model -= set(range(first, last + 1))
    assert (used.before(wanted) or 0) == max((seq for seq in model if seq < wanted), default=0)
