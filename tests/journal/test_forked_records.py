"""What a host has of a closed generation beyond its end is taken again by its instance.

The journal is that of instance 9 in generation 3; generation 1 was closed at 5, host 8 has more.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.journal.linked import (
    HERE,
    LINK,
    MINE,
    THERE,
    WALL,
    P,
    commit,
    give,
    name,
    open_link,
    record,
    send,
)
from zbroker.ids import Origin, publisher_id
from zbroker.journal.effects import Where
from zbroker.journal.fold import LogFold
from zbroker.journal.generation_closer import ClosableGeneration
from zbroker.journal.group_builder import JournalSettings, LogEnd
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.locate_vector import Vectors
from zbroker.journal.sessions import Sessions
from zbroker.log import records
from zbroker.log.cover import Cover
from zbroker.log.format import (
    FLAG_SHOWS,
    KIND_ABORT,
    KIND_CLOSED,
    KIND_NOOP,
    KIND_ORIGIN,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    KIND_STAGED,
    KIND_TIE,
    Batch,
)
from zbroker.log.former_names import FormerName, former_names
from zbroker.replication.records import record_of
from zbroker.wire import internal as m
from zbroker.wire.internal import Record
from zbroker.wire.replicas import (
    AskOrigins,
    ForkOrigin,
    OriginForked,
    OriginRows,
    SkipMissing,
)

OLD, NOW = Origin(HERE, 1), Origin(HERE, 3)
END, LAST = 5, 9


def old(seq: int, count: int = 1, at: int = 0, **more: Any) -> Record:
    """A record of the old generation, whose positions are its sequences."""
    at = at or seq
    more = {"after": at - 1, **more}
    made = record(seq, count, at, **more)
    made.instance = HERE
    return made


def closed() -> tuple[GroupCommit, list[Batch]]:
    """The journal, and its log."""
    core = GroupCommit(JournalSettings(HERE, MINE), Sessions(HERE), LogEnd(3, 1, 0))
    core.receive(LINK, m.Hello("replication", 1), [])
    open_link(core)
    core.sessions.origins.meet([(3, 1)])
    core.sessions.fold_name(P, "p", "")
    log, [item] = give(core, old(1, END))
    assert not item.code
    core.close_generation(ClosableGeneration(1, END))
    return core, log + commit(core)[0]


def ask(core: GroupCommit, last: int = LAST, **more: Any) -> tuple[list[Batch], OriginForked]:
    given = {"generation": 1, "host": THERE, "instance": HERE, **more}
    core.receive(LINK, ForkOrigin(7, MINE, last=last, **given), [])
    group = core.group(WALL)
    core.written_to(core.next_position, core.serial)
    [said] = [
        a.message for a in core.synced(core.next_position)
        if isinstance(getattr(a, "message", None), OriginForked)
    ]  # fmt: skip
    return (group.batches if group is not None else []), said


def taking(last: int = LAST) -> tuple[GroupCommit, list[Batch]]:
    core, log = closed()
    batches, said = ask(core, last)
    assert (said.code, said.end) == ("", END)
    return core, log + batches


def said(core: GroupCommit) -> OriginRows:
    core.receive(LINK, AskOrigins(8, MINE), [])
    core.group(WALL)
    [rows] = [
        a.message for a in core.synced(core.next_position)
        if isinstance(getattr(a, "message", None), OriginRows)
    ]  # fmt: skip
    return rows


def reach(core: GroupCommit) -> int:
    """Up to where the old generation is here, as peers hear it."""
    [end] = said(core).closed
    return end.end


def names(batch: Batch) -> list[FormerName]:
    return list(former_names(batch.extra))


def test_without_the_decision_of_a_person_it_is_refused_with_the_way_out() -> None:
    core, _ = closed()
    batches, [item] = give(core, old(6))
    assert (batches, item.code) == ([], "fork")
    assert f"replication fork {HERE:016x}.1 --keep" in item.reason


def test_a_message_is_stored_as_one_of_the_newest_generation_with_its_former_name() -> None:
    core, _ = taking()
    [batch], [item] = give(core, old(6, 2))
    assert (batch.kind, batch.origin, batch.origin_position) == (KIND_PUBLISH, NOW, batch.position)
    assert (batch.sequence, batch.taken, batch.body_crc) == (6, 2, 6)
    assert names(batch) == [FormerName(OLD, 6, 6)]
    assert (item.code, item.position) == ("", batch.end_position - 1)
    assert reach(core) == 7


def test_what_comes_again_is_here() -> None:
    core, _ = taking()
    give(core, old(6, 2))
    batches, [item] = give(core, old(6, 2))
    assert (batches, item.code, item.duplicate) == ([], "", 2)
    batches, _ = give(core, old(7, 2, crc=6))
    assert [(b.sequence, b.taken) for b in batches] == [(8, 1)]


def test_a_message_that_is_here_leaves_a_record_with_its_former_name() -> None:
    core, _ = taking()
    give(core, record(7, 1, 1))  # its publisher sent it to another instance, too
    first, here, last = give(core, old(6, 3))[0]
    assert [b.kind for b in (first, here, last)] == [KIND_PUBLISH, KIND_NOOP, KIND_PUBLISH]
    assert (here.origin, here.sequence, names(here)) == (NOW, 7, [FormerName(OLD, 6, 6)])
    [tie] = core.sessions.origins.ties
    assert (tie.first, tie.last, tie.origin, tie.position) == (7, 7, OLD, 7)


def test_the_same_sequence_with_another_content_is_a_conflict() -> None:
    core, _ = taking()
    give(core, record(6, 1, 1, crc=77))
    give(core, old(6))
    [conflict] = core.take_conflicts()
    assert (conflict.seq, conflict.crc) == (6, 6)


def test_a_second_closing_record_says_that_all_is_here() -> None:
    core, _ = taking()
    *_, closing = give(core, old(6, 4))[0]
    assert closing.kind == KIND_CLOSED
    assert records.CLOSED.decode(closing.body) == records.ClosedRecord(1, END, LAST)
    [row] = core.sessions.origins.closed
    assert (row.end, row.beyond, row.takes, row.host) == (END, LAST, 0, 0)
    assert (row.again, row.again_position) == (NOW, closing.position)
    batches, [item] = give(core, old(10))
    assert (batches, item.code) == ([], "fork")


def test_nothing_is_taken_from_another_host() -> None:
    core, _ = taking()
    open_link(core, 2, peer=7)
    batches, [item] = give(core, old(6), link=2)
    assert (batches, item.code) == ([], "fork")


def test_another_history_of_the_same_names_is_not_taken() -> None:
    core, _ = taking()
    batches, [item] = give(core, old(6, after_crc=12))
    assert (batches, item.code, "keep the data directory" in item.reason) == ([], "fork", True)
    assert not give(core, old(6, after_crc=1))[1][0].code
    assert give(core, old(7, after_crc=12))[1][0].code == "fork"
    assert not give(core, old(7, after_crc=6))[1][0].code


def test_other_records_are_counted_only() -> None:
    core, _ = taking()
    for at, kind in ((6, KIND_NOOP), (7, KIND_ABORT)):
        [batch], [item] = give(core, Record(kind, HERE, 1, at, at - 1, 0))
        assert (batch.kind, names(batch), item.code) == (KIND_NOOP, [FormerName(OLD, 0, at)], "")
    part = old(8)
    part.kind, part.extra = KIND_STAGED, [(7, b"token")]
    [batch], _ = give(core, part)
    assert (batch.kind, batch.sequence, reach(core)) == (KIND_NOOP, 0, 8)


def test_a_tie_keeps_the_name_of_its_messages() -> None:
    core, _ = taking()
    tie = old(4, 2, at=6, skip=1)
    tie.kind, tie.seq = KIND_TIE, 5
    [batch], _ = give(core, tie)
    assert (batch.kind, batch.sequence, batch.skip) == (KIND_NOOP, 5, 1)
    assert [(t.first, t.last, t.position) for t in core.sessions.origins.ties] == [(4, 5, 5)]
    assert reach(core) == 6


def test_a_commit_is_refused_until_a_person_gives_it_up() -> None:
    core, _ = taking()
    batches, [item] = give(core, old(6, 2, flags=FLAG_SHOWS))
    assert (batches, item.code) == ([], "stage_unknown")
    assert give(core, old(8))[1][0].code == "origin_gap"
    core.receive(LINK, SkipMissing(MINE, 1, *OLD, 6, 7), [])
    assert [names(b) for b in commit(core)[0]] == [[FormerName(OLD, 0, 7)]]
    assert [b.kind for b in give(core, old(8, 2))[0]] == [KIND_PUBLISH, KIND_CLOSED]
    assert core.sessions.missing.below() == {}


def test_a_session_of_the_publisher_here_is_not_ended() -> None:
    core, _ = closed()
    ask(core)
    opened = core.sessions.open("p", "", 3).session
    [batch], _ = give(core, old(6, session=1 << 40))
    known = core.sessions.get(P)
    assert known is not None
    assert known.session == opened < batch.session
    assert core.sessions.open("p", "", 3).session > batch.session, "no number is given twice"


@pytest.mark.parametrize("session", [0, 9])
def test_what_was_published_elsewhere_between_two_lost_sessions_is_missing(session: int) -> None:
    """Both are newer than the session that this log knows, and neither is that one."""
    core, _ = closed()
    ask(core)
    if session:
        core.sessions.open("p", "", session)
    give(core, old(6, session=1 << 40))
    [batch], _ = give(core, old(12, at=7, session=1 << 41, prev=6))
    assert core.sessions.runs(P, 6, 12)[0] == [(7, 11)]
    known = core.sessions.get(P)
    assert known is not None
    assert known.newest == batch.session == 1 << 41


def test_names_of_publishers_come_first() -> None:
    core, _ = taking()
    name(core, "q")
    sent = old(6, publisher=publisher_id("q"))
    sent.seq, sent.prev = 1, 0
    named, batch = give(core, sent)[0]
    assert (named.kind, named.origin, batch.origin) == (KIND_PUBLISHER, NOW, NOW)


# -- what a person asks for -----------------------------------------------------------------------


def test_asked_twice_it_is_one_record() -> None:
    core, _ = closed()
    [batch], first = ask(core)
    assert records.ORIGIN.decode(batch.body) == records.OriginRecord(
        *OLD, since=END + 1, position=LAST, forked=THERE
    )
    assert batch.kind == KIND_ORIGIN
    assert ask(core) == ([], first)


def test_after_it_was_done_there_is_nothing_to_take() -> None:
    core, _ = taking()
    give(core, old(6, 4))
    batches, answer = ask(core)
    assert (batches, answer.code) == ([], "not_found")


def test_a_host_that_has_more_is_asked_for_the_rest() -> None:
    core, _ = taking()
    give(core, old(6, 4))
    open_link(core, 2, peer=7)
    assert ask(core, 11, host=7)[1].code == ""
    *_, closing = give(core, old(10, 2, after_crc=6), link=2)[0]
    assert records.CLOSED.decode(closing.body) == records.ClosedRecord(1, END, 11)


def test_a_dry_run_changes_nothing() -> None:
    core, _ = closed()
    batches, answer = ask(core, dry_run=True)
    assert (batches, answer.code, answer.end) == ([], "", END)
    assert give(core, old(6))[1][0].code == "fork"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"instance": THERE}, "bad_field"),
        ({"generation": 2}, "not_found"),
        ({"generation": 3}, "bad_field"),
        ({"last": END}, "not_found"),
    ],
)
def test_what_cannot_be_taken_is_refused(more: dict[str, Any], code: str) -> None:
    core, _ = closed()
    batches, answer = ask(core, **more)
    assert (batches, answer.code) == ([], code)


def test_two_contents_in_an_open_generation_are_not_joined() -> None:
    core, _ = closed()
    batches, answer = ask(core, generation=3)
    assert (batches, answer.code) == ([], "bad_field")
    assert "nothing was changed" in answer.reason
    assert "publish again what only the other one has" in answer.reason


def test_a_fenced_journal_says_so() -> None:
    core, _ = taking()
    core.fenced = True
    assert ask(core, 11)[1].code == "not_ready"
    assert give(core, old(6))[1][0].code == "not_ready"


def test_a_reader_that_begins_before_they_are_durable_may_get_them_under_new_names() -> None:
    """It begins at the durable end, and they come after that."""
    core, _ = taking()
    send(core, old(6, 4))
    assert core.group(WALL) is not None
    seen = {OLD: LAST, NOW: core.persisted - 1}

    def comes() -> bool:
        where = Where(HERE, 3, 1, core.persisted, False, *core.durable_origins)
        vectors = Vectors(cast(Any, SimpleNamespace(sessions=core.sessions)))
        return vectors.passed_by(seen, core.persisted, where).forked

    assert comes()
    core.written_to(core.next_position, core.serial)
    assert comes()
    core.synced(core.next_position)
    assert not comes()


# -- what a restart knows -------------------------------------------------------------------------


def folded(log: list[Batch]) -> Sessions:
    fold = LogFold(HERE)
    fold.sessions.origins.meet([(3, 1)])
    for batch in log:
        fold(batch, 1)
    return fold.sessions


@pytest.mark.parametrize("taken", [0, 1, 2, 4])
def test_a_crash_forgets_nothing_of_it(taken: int) -> None:
    core, log = taking()
    give_log = [old(6 + n) for n in range(taken)]
    for one in give_log:
        log += give(core, one)[0]
    [before], [after] = core.sessions.origins.closed, folded(log).origins.closed
    assert (after.end, after.beyond, after.takes, after.host, after.crc) == (
        before.end, before.beyond, before.takes, before.host, before.crc,
    )  # fmt: skip
    assert (after.again, after.again_position) == (before.again, before.again_position)


# -- vectors --------------------------------------------------------------------------------------


def test_who_saw_a_message_under_its_former_name_is_not_sent_it() -> None:
    core, _ = taking()
    [batch] = give(core, old(6, 3))[0]
    assert Cover({OLD: 7}).left(batch) == [(8, 8)]
    assert Cover({OLD: 8}).left(batch) == []
    assert Cover({OLD: END}).left(batch) == Cover({}).left(batch) == [(6, 8)]


def test_only_a_vector_that_passes_the_second_closing_has_all_old_names() -> None:
    core, _ = taking()
    *_, closing = give(core, old(6, 4))[0]
    closed = core.sessions.origins.closed
    [row] = closed
    first, second = {NOW: row.by_position}, {NOW: closing.position}
    assert closed.fill(first) == {**first, OLD: END}
    assert closed.fill(second) == {**second, OLD: LAST}
    assert closed.compact({**second, OLD: LAST}) == second
    for left in ({**first, OLD: LAST}, {**first, OLD: END + 1}):
        assert closed.compact(left) == left == closed.fill(left)


# -- on other instances ---------------------------------------------------------------------------


class Other:
    """The host, or a third instance, which gets records of instance 9 over a link."""

    def __init__(self, has: int) -> None:
        self.core = GroupCommit(JournalSettings(THERE, MINE), Sessions(THERE), LogEnd(1, 1, 0))
        self.core.receive(LINK, m.Hello("replication", 1), [])
        open_link(self.core, peer=HERE)
        self.core.sessions.fold_name(P, "p", "")
        give(self.core, old(1, END))
        for seq in range(END + 1, has + 1):
            give(self.core, old(seq))
        self.at = 0

    def gets(self, *batches: Batch) -> tuple[list[Batch], list[m.ReceiptItem]]:
        stored: list[Batch] = []
        items: list[m.ReceiptItem] = []
        for batch in batches:
            sent, body = record_of(batch, self.at, None)
            new, judged = give(self.core, sent, body=bytes(body))
            stored, items = stored + new, items + judged
            self.at = sent.last if not judged[-1].code else self.at
        return stored, items

    @property
    def row(self) -> Any:
        [row] = self.core.sessions.origins.closed
        return row


def closing(end: int = END, forked: int = 0, at: int = 20) -> Batch:
    body = records.encode(records.ClosedRecord(1, end, forked))
    return Batch(
        KIND_CLOSED, at, 0, 0, 0, 0, 1, WALL, [], body, 0, len(body), 0, 0, *NOW, at
    )  # fmt: skip


def test_the_host_does_not_close_it_before_all_that_it_has_is_taken() -> None:
    host = Other(LAST)
    for record_ in (closing(), closing(forked=LAST - 1)):
        batches, [item] = host.gets(record_)
        assert (batches, item.code) == ([], "fork")
    assert not host.gets(closing(forked=LAST))[1][0].code
    assert (host.row.end, host.row.position, host.row.beyond) == (END, END, LAST)
    assert reach(host.core) == LAST


def test_on_the_host_they_are_ties_and_its_messages_keep_their_names() -> None:
    core, _ = taking()
    *taken, second = give(core, old(6, 4))[0]
    host = Other(LAST)
    host.gets(closing(forked=LAST, at=5))
    batches, _ = host.gets(*taken)
    assert [(b.kind, b.origin) for b in batches] == [(KIND_TIE, NOW)]
    origins = host.core.sessions.origins
    assert origins.messages[OLD] == LAST  # who has read all has seen these names, too
    assert origins.closed.fill({NOW: 5})[OLD] == END
    host.gets(second)
    assert OLD not in origins.messages
    assert origins.closed.fill({NOW: second.origin_position})[OLD] == LAST


def test_a_third_instance_stores_them_and_knows_their_former_names() -> None:
    core, _ = taking()
    *taken, second = give(core, old(6, 4))[0]
    third = Other(END)
    third.gets(closing(at=5))
    other = record(7, 1, 1)
    other.instance = 5
    give(third.core, other)
    batches, _ = third.gets(*taken)
    assert [b.kind for b in batches] == [KIND_PUBLISH, KIND_TIE, KIND_PUBLISH]
    ties = {(t.first, t.last, t.origin) for t in third.core.sessions.origins.ties}
    assert ties == {(7, 7, NOW), (7, 7, OLD)}
    assert third.row.beyond == LAST
    third.gets(second)
    assert third.row.again_position == second.origin_position


def test_a_wrong_former_name_is_refused() -> None:
    for wrong in (FormerName(Origin(7, 1), 1, 1), FormerName(Origin(THERE, 1), 1, 1)):
        core, _ = closed()
        sent = record(6, 1, 1)
        sent.extra = [wrong.column()]
        assert give(core, sent)[1][0].code == "bad_field"
    core, _ = closed()
    sent = record(6, 1, 1)
    sent.extra = [(9, b"short")]
    assert give(core, sent)[1][0].code == "bad_field"
