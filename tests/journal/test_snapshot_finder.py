"""Finding state snapshots in a log, newest segment first."""

from __future__ import annotations

import pytest

from tests.journal import build
from tests.journal.whole import Whole
from zbroker.ids import Origin
from zbroker.journal import snapshot, snapshot_finder

HERE = Origin(build.INSTANCE, 1)


@pytest.fixture
def whole() -> Whole:
    made = Whole()
    made.publish("p", 1, 3)
    return made


def newest(whole: Whole) -> tuple[int, int] | None:
    found = snapshot_finder.newest(whole.log, whole.core.persisted)
    return (found.position, found.serial) if found is not None else None


def next_segment(whole: Whole, *, state: bool = True) -> int:
    """Begins a segment; the position of the snapshot in it."""
    whole.roll_over()
    whole.log.refresh()
    position = whole.core.next_position
    if state:
        whole.state()
    return position


def test_a_log_without_one_has_none(whole: Whole) -> None:
    assert newest(whole) is None


def test_it_is_at_the_beginning_of_the_newest_segment_that_has_one(whole: Whole) -> None:
    next_segment(whole)
    second = next_segment(whole)
    next_segment(whole, state=False)
    assert newest(whole) == (second, 3)


def test_an_older_one_is_found_when_the_newest_is_damaged(whole: Whole) -> None:
    first = next_segment(whole)
    next_segment(whole)
    whole.damage(whole.states()[-1])
    assert newest(whole) == (first, 2)


def test_it_may_be_anywhere_in_its_segment(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_finder, "HEAD_BATCHES", 2)
    next_segment(whole, state=False)
    for seq in range(4, 9):
        whole.publish("p", seq)
    position = whole.core.next_position
    whole.state()
    assert newest(whole) is None, "a log from position 1 needs none"
    whole.remove_oldest()
    assert newest(whole) == (position, 2)


def test_one_that_ends_in_the_next_segment_begins_in_the_one_before(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        whole.publish(f"publisher-{number}", 1)
    real = snapshot.Cutter
    monkeypatch.setattr(
        snapshot, "Cutter", lambda folds, through: real(folds, through, part_bytes=900)
    )
    seq = 4
    while build.SEGMENT_BYTES - whole.writer.end > 2_500:
        whole.publish("p", seq, size=300)
        seq += 1
    first, serial = whole.core.next_position, whole.writer.serial
    whole.state()
    whole.log.refresh()
    assert whole.writer.serial == serial + 1, "or this test tests nothing"
    assert newest(whole) == (first, serial)
    assert whole.core.state_serial == serial


def test_heads_tell_how_far_origins_were_and_how_segments_began(whole: Whole) -> None:
    next_segment(whole)
    next_segment(whole)
    heads = list(snapshot_finder.origins_at_heads(whole.log, whole.core.persisted))
    assert [head.serial for head in heads] == [3, 2]
    starts = {start.serial: start.position for start in whole.log.starts}
    for head in heads:
        below = [b for b in whole.batches() if b.kind == 1 and b.position < head.position]
        assert head.seen == {HERE: below[-1].end_position - 1}
        before = [b for b in below if b.position < starts[head.serial]]
        assert head.begun == {HERE: before[-1].end_position - 1}


def test_after_a_restart_a_segment_still_knows_how_it_began(whole: Whole) -> None:
    next_segment(whole, state=False)
    whole.restart()
    whole.state()
    [head] = snapshot_finder.origins_at_heads(whole.log, whole.core.persisted)
    start = whole.log.starts[-1].position
    assert head.begun == {HERE: start - 1}
