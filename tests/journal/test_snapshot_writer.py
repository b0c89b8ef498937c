"""When a snapshot is written, and from when on it counts."""

from __future__ import annotations

import pytest

from zbroker.ids import publisher_id
from zbroker.journal import snapshot
from zbroker.journal.effects import WriteGroup
from zbroker.journal.group_builder import JournalSettings
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.sessions import PublisherRow, Sessions
from zbroker.log.format import KIND_PUBLISH, KIND_STATE
from zbroker.wire import internal as m

MINE, RID = 77, b"\0ingest"
P = publisher_id("p")


@pytest.fixture
def core() -> GroupCommit:
    """Two hundred publishers are known; ingest is there."""
    sessions = Sessions(9)
    for number in range(200):
        sessions.fold_row(PublisherRow(number, f"publisher-{number}", "", 1, 1, 1, 1, 1))
    made = GroupCommit(JournalSettings(9, MINE), sessions, 1, 300, 0)
    made.receive(RID, m.Hello("ingest", 1), [])
    made.serial = 4
    return made


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = snapshot.Cutter
    monkeypatch.setattr(
        snapshot, "Cutter", lambda folds, through: real(folds, through, part_bytes=2_000)
    )


def append(core: GroupCommit, seq: int, size: int = 10) -> None:
    known = core.sessions.get(P)
    if known is None:
        core.receive(RID, m.Open(1, MINE, "p", ""), [])
        step(core)
        known = core.sessions.get(P)
    assert known is not None
    entry = m.Entry(P, known.session, seq, 1, None, 0, None, ["t"])
    core.receive(RID, m.Append(MINE, seq, 0, [entry]), [b"x" * size])


def step(core: GroupCommit) -> WriteGroup | None:
    group = core.group(1_000)
    core.written_to(core.next_position, core.serial)
    core.synced(core.next_position)
    return group


def test_a_wish_is_a_reason_for_a_group(core: GroupCommit) -> None:
    assert core.backlog == 0
    core.want_state()
    assert core.backlog == 1
    group = step(core)
    assert group is not None
    assert [(b.kind, b.position, b.count) for b in group.batches] == [(KIND_STATE, 300, 1)]
    assert core.backlog == 0


def test_the_group_begins_with_it(core: GroupCommit) -> None:
    append(core, 1)
    core.want_state()
    group = step(core)
    assert group is not None
    kinds = [b.kind for b in group.batches]
    assert (kinds[0], kinds[-1]) == (KIND_STATE, KIND_PUBLISH)


@pytest.mark.usefixtures("small_parts")
def test_a_large_one_goes_part_by_part_and_holds_nobody_up(core: GroupCommit) -> None:
    append(core, 1)
    step(core)
    core.want_state()
    groups, seq = [], 2
    while core.backlog:
        append(core, seq)
        group = step(core)
        assert group is not None
        groups.append([b.kind for b in group.batches if b.kind in (KIND_STATE, KIND_PUBLISH)])
        seq += 1
    assert len(groups) > 3
    assert groups == [[KIND_STATE, KIND_PUBLISH]] * len(groups)


@pytest.mark.usefixtures("small_parts")
def test_it_counts_for_the_segment_of_its_first_part_when_all_is_durable(
    core: GroupCommit,
) -> None:
    core.want_state()
    step(core)
    core.serial = 5
    while core.backlog:
        assert core.state_serial == 0
        group = core.group(1_000)
        assert group is not None
        core.written_to(group.end, core.serial)
        assert core.state_serial == 0
        core.synced(group.end)
    assert core.state_serial == 4


def test_one_that_is_larger_than_all_written_since_waits(core: GroupCommit) -> None:
    """Else small segments and a large table would cause snapshots for ever."""
    core.want_state()
    step(core)
    core.want_state()
    assert core.backlog == 0
    append(core, 1, size=100)
    group = step(core)
    assert group is not None
    assert KIND_STATE not in [b.kind for b in group.batches]
    append(core, 2, size=100_000)
    step(core)
    assert core.backlog == 1
    group = step(core)
    assert group is not None
    assert [b.kind for b in group.batches] == [KIND_STATE]


@pytest.mark.usefixtures("small_parts")
def test_a_wish_during_one_is_for_another_one_behind_it(core: GroupCommit) -> None:
    core.want_state()
    step(core)
    core.want_state()
    while core.backlog:
        step(core)
    append(core, 1, size=100_000)
    step(core)
    assert core.backlog == 1


def test_a_fenced_journal_writes_none(core: GroupCommit) -> None:
    core.fenced = True
    core.want_state()
    assert core.backlog == 0
    core.fenced = False
    assert core.backlog == 1


def test_none_is_written_where_not_even_a_part_fits(core: GroupCommit) -> None:
    core.state_fits = False
    core.want_state()
    assert core.backlog == 0
    core.state_fits = True
    assert core.backlog == 1


def test_on_a_nearly_full_disk_a_small_one_is_written_and_a_large_one_pauses(
    core: GroupCommit, monkeypatch: pytest.MonkeyPatch, small_parts: None
) -> None:
    monkeypatch.setattr("zbroker.journal.snapshot.STATE_BODY_BYTES", 3_000)
    core.accepting = False
    core.want_state()
    parts = 0
    while core.backlog:
        step(core)
        parts += 1
    assert (parts, core.state_serial) == (2, 0)
    core.accepting = True
    while core.backlog:
        step(core)
    assert core.state_serial == 4
