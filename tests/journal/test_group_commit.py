"""Group commit without a disk: groups, receipts, watermarks, log time, incarnations."""

from __future__ import annotations

from array import array

import pytest

from zbroker.ids import publisher_id
from zbroker.journal.effects import WriteGroup
from zbroker.journal.group_builder import CONFLICTS_MAX, Conflict, JournalSettings, LogEnd
from zbroker.journal.group_commit import Effect, GroupCommit
from zbroker.journal.holes import Hole
from zbroker.journal.missing_ranges import MissingRow
from zbroker.journal.sessions import Sessions
from zbroker.limits import GROUP_MAX_BYTES
from zbroker.log.format import (
    GROUP_ALIGN,
    GROUP_LENGTH,
    KIND_POINT,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    crc32c,
    encode_batch_header,
)
from zbroker.wire import internal as m
from zbroker.wire.messages import Columns

MINE, THEIRS = 77, 55
RID = b"\0ingest"
BODY = b"\x91\xc4\x01a"


def welcomed(publisher_time: bool = False) -> GroupCommit:
    core = GroupCommit(
        JournalSettings(9, MINE, publisher_time=publisher_time), Sessions(), LogEnd(1, 1, 0)
    )
    [welcome] = core.receive(RID, m.Hello("ingest", THEIRS), [])
    assert isinstance(welcome.message, m.Welcome)
    assert welcome.message.echo == THEIRS
    return core


def step(core: GroupCommit, wall_ns: int = 1_000) -> tuple[WriteGroup | None, list[Effect]]:
    """One group, written and synced."""
    group = core.group(wall_ns)
    if group is not None:
        core.written_to(group.end, core.serial)
    sends = core.synced(core.written)
    core.check()
    return group, sends


def opened(core: GroupCommit, name: str = "p", wall_ns: int = 1_000) -> m.Opened:
    core.receive(RID, m.Open(1, MINE, name, ""), [])
    _, sends = step(core, wall_ns)
    answers = [s.message for s in sends if isinstance(s.message, m.Opened)]
    assert len(answers) == 1
    return answers[0]


def test_a_logon_hears_how_many_ranges_are_missing() -> None:
    core = welcomed()
    assert opened(core).missing == 0
    core.sessions.missing.note(MissingRow(8, 1, 4, 9, "skipped"))
    assert opened(core).missing == 1


def append(
    core: GroupCommit, ordinal: int, *entries: m.Entry, incarnation: int = MINE, confirmed: int = 0
) -> None:
    core.receive(
        RID, m.Append(incarnation, ordinal, confirmed, list(entries)), [BODY] * len(entries)
    )


def entry(
    session: int, seq: int, count: int = 1, prev: int | None = None, columns: Columns | None = None
) -> m.Entry:
    return m.Entry(
        publisher_id("p"), session, seq, count, prev, crc32c(BODY), None, ["t"], None, columns
    )


def receipts(sends: list[Effect]) -> list[m.ReceiptItem]:
    return [
        item for s in sends if isinstance(s.message, m.JournalReceipt) for item in s.message.items
    ]


@pytest.mark.seed("001-35")
@pytest.mark.seed("002-03")
@pytest.mark.seed("004-17")
def test_nothing_leaves_before_the_sync() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1))
    group = core.group(1_000)
    assert group is not None
    core.written_to(group.end, core.serial)
    assert core.synced(core.persisted) == []
    assert core.beat() == [core.watermarks()]
    assert core.persisted == 1
    assert receipts(core.synced(group.end)) == [m.ReceiptItem(1, 2, 1)]


def test_the_publisher_record_is_once_before_the_first_batch() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1), entry(session, 2))
    group, _ = step(core)
    append(core, 3, entry(session, 3))
    after, _ = step(core)
    assert group is not None
    assert after is not None
    assert [b.kind for b in group.batches] == [KIND_PUBLISHER, KIND_PUBLISH, KIND_PUBLISH]
    assert [b.position for b in group.batches + after.batches] == [1, 2, 3, 4]


def test_a_logon_is_answered_after_what_was_forwarded_before_it() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1, 3))
    answer = opened(core, wall_ns=5_000)
    assert (answer.seq, answer.acked) == (3, 3)
    assert answer.session > session


def test_appends_for_another_incarnation_are_dropped() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1), incarnation=MINE + 1)
    assert step(core) == (None, [])


def test_only_the_newest_connection_of_a_process_is_listened_to() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1))
    core.receive(b"\0other", m.Hello("ingest", THEIRS + 1, [m.OpenSession("p", "", session)]), [])
    append(core, 2, entry(session, 2))
    assert step(core)[0] is None, "what the old one had queued is sent again by the new one"


def test_a_lost_receipt_is_repeated_on_the_beat_until_it_is_confirmed() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1))
    append(core, 2, entry(session, 2))
    step(core)
    assert [item.ordinal for item in receipts(core.beat())] == [1, 2]
    core.receive(RID, m.Confirm(MINE, 1), [])
    assert [item.ordinal for item in receipts(core.beat())] == [2]
    append(core, 3, entry(session, 3), confirmed=2)
    assert [item.ordinal for item in receipts(step(core)[1])] == [3]


def test_a_gap_is_refused_with_the_high_and_so_is_what_follows() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1, prev=0), entry(session, 3, prev=2), entry(session, 4, prev=3))
    items = receipts(step(core)[1])
    assert [(i.code, i.high) for i in items] == [("", 1), ("sequence_gap", 1), ("sequence_gap", 1)]


def test_what_overlaps_is_cut_and_takes_no_position() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1, 3, prev=0))
    append(core, 2, entry(session, 2, 5, prev=1))
    group, sends = step(core)
    assert group is not None
    cut = group.batches[-1]
    assert (cut.skip, cut.sequence, cut.position, cut.prev, cut.end_position) == (2, 4, 5, 3, 8)
    assert receipts(sends)[-1] == m.ReceiptItem(2, 7, 6, 2)


def test_log_time_never_goes_back() -> None:
    core = welcomed()
    session = opened(core).session
    times = []
    for ordinal, wall_ns in enumerate((5_000, 3_000, 6_000), 1):
        append(core, ordinal, entry(session, ordinal))
        group, _ = step(core, wall_ns)
        assert group is not None
        times.append(group.batches[-1].log_time)
    assert times == [5_000, 5_000, 6_000]


def test_publisher_time_is_made_monotonic_message_by_message() -> None:
    core = welcomed(publisher_time=True)
    session = opened(core).session
    column = Columns(time=array("q", [5, 9, 7, 12]).tobytes())
    append(core, 1, entry(session, 1, 4, columns=column))
    group, _ = step(core, wall_ns=10**18)
    assert group is not None
    batch = group.batches[-1]
    assert batch.columns is not None
    assert batch.columns.time is not None
    assert array("q", batch.columns.time).tolist() == [5, 9, 9, 12]
    assert batch.log_time == group.log_time == 12


def test_a_full_disk_refuses_and_so_what_follows_is_refused() -> None:
    core = welcomed()
    session = opened(core).session
    core.accepting = False
    append(core, 1, entry(session, 1, prev=0))
    assert [i.code for i in receipts(step(core)[1])] == ["disk_full"]
    core.accepting = True
    append(core, 2, entry(session, 2, prev=1))
    append(core, 3, entry(session, 1, prev=0))
    append(core, 4, entry(session, 2, prev=1))
    assert [i.code for i in receipts(step(core)[1])] == ["sequence_gap", "", ""]


def test_a_group_commit_is_bounded_and_the_rest_waits() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, *[entry(session, seq) for seq in range(1, 1_001)])
    sizes = []
    while core.backlog:
        group, _ = step(core)
        assert group is not None
        sizes.append(len(group.batches))
    assert max(sizes) <= 334
    assert sum(sizes) == 1_001


# -- what the loop asks -----------------------------------------------------------------------


def test_a_process_is_known_by_its_newest_connection() -> None:
    core = welcomed()
    assert core.process_of(RID) == "ingest"
    core.receive(b"\0other", m.Hello("ingest", THEIRS), [])
    assert (core.process_of(RID), core.process_of(b"\0other")) == ("", "ingest")


def test_a_group_takes_no_more_than_was_said() -> None:
    core = welcomed()
    session = opened(core).session
    disk_bytes = []
    for count, topics in ((1, ["t"]), (3, ["a" * 255, "b" * 255]), (50, ["t"] * 9)):
        columns = Columns(array("H", [0] * count).tobytes()) if len(topics) > 1 else None
        first = core.sessions.get(publisher_id("p"))
        assert first is not None
        one = m.Entry(
            publisher_id("p"), session, first.high + 1, count, None, 0, None, topics, None, columns
        )  # fmt: skip
        core.receive(RID, m.Append(MINE, 1, 0, [one]), [b"x" * 1_000])
        core.want_state()
        said = core.next_group_bytes()
        group, _ = step(core)
        assert group is not None
        took = sum(len(encode_batch_header(b, 0, 0)) + b.body_length + 8 for b in group.batches)
        disk_bytes.append((took + GROUP_LENGTH + GROUP_ALIGN, said))
    assert all(took <= said for took, said in disk_bytes), disk_bytes


def test_the_next_group_is_bounded_although_more_waits() -> None:
    core = welcomed()
    session = opened(core).session
    size = 1 << 20
    for seq in range(1, 21):
        core.receive(RID, m.Append(MINE, seq, 0, [entry(session, seq)]), [b"x" * size])
    assert GROUP_MAX_BYTES < core.next_group_bytes() < GROUP_MAX_BYTES + 2 * size
    while core.backlog:
        step(core)
    assert core.next_group_bytes() < 2_000


def test_conflicts_are_given_once_and_are_bounded() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1, 2))
    step(core)
    other = entry(session, 1, 2)
    other.crc += 1
    append(core, 2, *[other] * (CONFLICTS_MAX + 5))
    step(core)
    kept = core.take_conflicts()
    assert (len(kept), core.conflicts, core.take_conflicts()) == (
        CONFLICTS_MAX,
        CONFLICTS_MAX + 5,
        [],
    )
    assert kept[0] == Conflict(
        1_000, other.publisher, "p", session, 1, 2, other.crc, 3, other.topics, None, BODY
    )


def test_a_fenced_journal_refuses_publishers_for_now() -> None:
    core = welcomed()
    session = opened(core).session
    core.fenced = True
    append(core, 1, entry(session, 1))
    assert [i.code for i in receipts(step(core)[1])] == ["not_ready"]
    core.fenced = False
    append(core, 2, entry(session, 2, prev=1))
    append(core, 3, entry(session, 1))
    assert [i.code for i in receipts(step(core)[1])] == ["sequence_gap", ""]


def test_a_control_record_is_after_what_waited_before_it() -> None:
    core = welcomed()
    session = opened(core).session
    append(core, 1, entry(session, 1))
    core.append_control(KIND_POINT, b"map")
    core.receive(b"\0new", m.Hello("ingest", THEIRS + 1, [m.OpenSession("p", "", session)]), [])
    group, _ = step(core)
    assert group is not None
    assert [(b.kind, b.origin_position) for b in group.batches] == [(KIND_POINT, 1)], (
        "a new connection of ingest drops only what ingest had queued"
    )


def test_a_publisher_that_goes_on_over_a_hole_says_so() -> None:
    core = welcomed()
    session = opened(core).session
    over = entry(session, 9, prev=6)
    over.hole = True
    append(core, 1, entry(session, 1, 3, prev=0), over)
    group, sends = step(core)
    assert group is not None
    assert [i.code for i in receipts(sends)] == ["", ""]
    assert group.batches[-1].prev == 6
    known = core.sessions.get(publisher_id("p"))
    assert known is not None
    assert known.holes == [Hole(4, 6, 6)]


def test_a_hello_of_a_socket_that_was_given_up_since_is_not_heard() -> None:
    core = welcomed()
    [welcome] = core.receive(b"\0new", m.Hello("ingest", THEIRS, number=2), [])
    assert welcome.rid == b"\0new"
    assert core.receive(b"\0old", m.Hello("ingest", THEIRS, number=1), []) == []
    assert core.process_of(b"\0new") == "ingest"
    assert core.process_of(b"\0old") == ""
