"""What a client knows of messages that a filter of the broker kept out of the log."""

from __future__ import annotations

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zbroker.client.publisher import unrecorded
from zbroker.client.publisher.receipt import AckTracker, Receipt
from zbroker.client.publisher.unrecorded import SequenceRuns
from zbroker.errors import ZBrokerError

runs_ = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 5)), max_size=30)


def pack(*runs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", *run) for run in runs)


@given(starts=runs_)
def test_it_holds_what_was_reported_in_whatever_order(starts: list[tuple[int, int]]) -> None:
    filtered, model = SequenceRuns(), set()
    for first, more in starts:
        filtered.add(pack((first, first + more)))
        model |= set(range(first, first + more + 1))
        assert {n for n in range(70) if n in filtered} == model
        runs = filtered._runs
        assert all(a[1] + 1 < b[0] for a, b in pairwise(runs)), "not merged"


def test_a_cut_off_run_is_left_out() -> None:
    filtered = SequenceRuns()
    filtered.add(pack((1, 2), (5, 6))[:-1])
    assert [n for n in range(9) if n in filtered] == [1, 2]


def test_a_receipt_knows_by_its_sequence() -> None:
    track = AckTracker(7)
    track.unrecorded.filtered.add(pack((2, 2)))
    kept, left = (Receipt(track, "t", number) for number in (1, 2))
    assert kept.recorded is None, "nothing is settled"
    track.settled = 2
    assert (kept.recorded, kept.persisted, kept.wait(0)) == (True, True, "7|1|")
    assert (left.recorded, left.persisted, left.wait(0)) == (False, False, "")
    track.refuse(2, 2, ZBrokerError("bad_field", ""))
    assert left.recorded is None


def test_what_is_forgotten_is_not_known(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(unrecorded, "RUNS_MAX", 4)
    track = AckTracker(7)
    for n in range(1, 11, 2):
        track.unrecorded.filtered.add(pack((n, n)))
    track.settled = 10
    answers = [Receipt(track, "t", n).recorded for n in range(1, 11)]
    assert answers == [None, None, None, True, False, True, False, True, False, True]
