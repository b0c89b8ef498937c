"""Links that a person pauses, resumes, downgrades and upgrades."""

from __future__ import annotations

from typing import Any

import pytest

from tests.replication.build import HERE, Link, batch, records
from tests.replication.test_core import Process
from zbroker.engine import events as ev
from zbroker.engine.effects import Note, Tell
from zbroker.limits import BEAT_MS, U63_MAX
from zbroker.replication.effects import CloseLink, ConnectLink, PublishMark, SayOn
from zbroker.replication.link_rows import row_of
from zbroker.replication.outgoing_link import AGAIN_MS, SILENCE_MS
from zbroker.wire import replication as w
from zbroker.wire.internal import Holds
from zbroker.wire.replicas import (
    AskLinks,
    ChangeLink,
    ForgetPeer,
    LinkAction,
    LinkChanged,
    Links,
    OriginRows,
    PeerForgotten,
)

RID = b"admin"


def change(process: Process, what: LinkAction, link: str = "there", **more: Any) -> LinkChanged:
    """What an operator is answered."""
    effects = process.hears(ev.Asked(RID, ChangeLink(7, what, link, **more)))
    (tell,) = (effect for effect in effects if isinstance(effect, Tell))
    assert isinstance(tell.answer, LinkChanged)
    assert (tell.rid, tell.answer.cid) == (RID, 7)
    return tell.answer


def row(process: Process) -> Any:
    """The link to the only destination, as people see it."""
    effects = process.hears(ev.Asked(RID, AskLinks(8)))
    (tell,) = (effect for effect in effects if isinstance(effect, Tell))
    assert isinstance(tell.answer, Links)
    (found,) = tell.answer.rows
    return found


def marks(process: Process) -> list[tuple[int, int]]:
    """What ingest and delivery heard: through, and how many are waited for."""
    said = [effect.message for effect in process.effects if isinstance(effect, PublishMark)]
    return [(message.through, message.needed) for message in said]


# -- the sending end ------------------------------------------------------------------------------


def paused(link: Link) -> list[Any]:
    return link._kept(link.end.pause(link.now_ms))


def test_a_link_with_nothing_on_its_way_is_closed_at_once() -> None:
    link = Link()
    link.connect({HERE: 9})
    assert paused(link) == [CloseLink("there")]
    assert (link.end.state, row_of(link.end, 9).state) == ("down", "paused")


def test_a_paused_link_says_nothing_however_long_it_lasts() -> None:
    link = Link()
    link.connect({HERE: 9})
    paused(link)
    assert link.tick(10**9) == []
    assert link.end.next_wake_ms() == U63_MAX
    assert link.end.next_read(1 << 40) is None


def test_what_is_on_its_way_is_awaited_before_a_link_is_closed() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1), batch(2))
    assert paused(link) == []
    assert link.end.next_read(1 << 40) is None, "nothing more is read"
    assert row_of(link.end, 9).state == "sending"
    assert row_of(link.end, 9).paused
    link.receipt(2)  # the name of the publisher, and the first record
    assert link.end.state == "sending"
    assert CloseLink("there") in link.receipt(3, since=2)
    assert link.end.state == "down"


def test_the_mark_counts_what_was_judged_last_and_stays_there() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1), batch(2))
    paused(link)
    link.receipt(3)
    assert link.end.mark == 3
    link.tick(SILENCE_MS + 1)
    assert link.end.mark == 3


def test_a_paused_link_goes_down_with_its_destination_too() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    paused(link)
    link.tick(SILENCE_MS + 1)
    assert row_of(link.end, 9).state == "paused"
    assert link.tick(10**9) == []


def test_a_resumed_link_says_hello_at_once_and_sends_what_is_lacking() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    paused(link)
    link.receipt(2)
    link.end.resume(link.now_ms)
    connect, said = link.tick()
    assert isinstance(connect, ConnectLink)
    assert isinstance(said, SayOn)
    link.welcomed({HERE: 1})
    assert records(link.reads(batch(1), batch(2))) == [(1, 2, 1)]


def test_a_link_that_is_resumed_before_it_is_closed_goes_on() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    paused(link)
    link.end.resume(link.now_ms)
    link.receipt(2)
    assert link.end.state == "sending"
    assert records(link.reads(batch(2))) == [(1, 2, 1)]


def test_a_block_that_was_read_while_the_link_was_paused_is_read_again() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    read = link.end.next_read(10)
    assert read is not None
    paused(link)
    link.end.resume(link.now_ms)
    assert link.end.next_read(10) == read


def test_a_destination_that_never_answered_can_be_paused() -> None:
    link = Link()
    link.tick()
    assert link.end.state == "greeting"
    assert paused(link) == [CloseLink("there")]
    assert link.tick(10**9) == []
    assert link.hears(w.LinkEnded(link.end.session, "late")) == []


def test_a_refused_record_is_not_sent_again_by_a_paused_link() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    paused(link)
    link.receipt(2, w.LinkItem(2, "disk_full", "no space"))
    assert link.tick(AGAIN_MS) == []
    assert row_of(link.end, 9).state == "paused"


# -- the process ----------------------------------------------------------------------------------


def test_an_operator_pauses_and_resumes_a_link() -> None:
    process = Process("there")
    process.welcomed()
    process.tick()
    answer = change(process, "pause")
    assert (answer.code, "it counts as lagging" in answer.text) == ("", True)
    assert "ends with the replication process" in answer.text
    assert CloseLink("there") in process.effects
    assert (row(process).state, row(process).paused) == ("paused", True)
    assert process.core.stats()["paused"] == 1
    assert change(process, "resume").text == "it is sent what it lacks from its mark on, 0"
    assert [e for e in process.tick() if isinstance(e, ConnectLink)]
    assert not row(process).paused


def test_a_change_is_in_the_log_of_the_process() -> None:
    process = Process("there")
    change(process, "pause")
    (note,) = (effect for effect in process.effects if isinstance(effect, Note))
    assert (note.name, note.values) == ("replication.pause", {"link": "there"})
    assert "asked for by an operator" in note.text


def test_a_downgrade_by_hand_is_published_at_once_and_lasts() -> None:
    process = Process("there")
    process.welcomed()
    assert marks(process)[-1] == (0, 1)
    answer = change(process, "downgrade")
    assert "acknowledgements wait for no other instance" in answer.text
    assert marks(process)[-1] == (U63_MAX, 0)
    for _ in range(10):
        process.tick(10**6)
    assert (row(process).downgraded, row(process).by_hand) == (True, True)
    assert change(process, "upgrade").text.startswith(
        "acknowledgements wait for 1 synchronous destination; "
    )
    assert marks(process)[-1] == (0, 1)
    last = [effect for effect in process.effects if isinstance(effect, PublishMark)][-1]
    assert last.to_all, "who does not follow each mark believes that none is waited for"
    assert (row(process).downgraded, row(process).by_hand) == (False, False)


def test_the_others_are_waited_for_when_one_is_downgraded() -> None:
    process = Process("there", "elsewhere", "far")
    process.welcomed()
    text = change(process, "downgrade").text
    assert text.startswith("acknowledgements wait for 2 synchronous destinations; ")


@pytest.mark.parametrize("what", ["pause", "resume", "downgrade", "upgrade"])
def test_a_dry_run_only_says_what_would_be(what: LinkAction) -> None:
    process = Process("there")
    process.welcomed()
    process.tick()
    before = row(process)
    assert change(process, what, dry_run=True).text
    assert row(process) == before


@pytest.mark.parametrize("what", ["pause", "resume", "downgrade", "upgrade"])
def test_a_destination_that_there_is_none_of_is_not_found(what: LinkAction) -> None:
    answer = change(Process("b", "a"), what, "x")
    assert (answer.code, answer.reason) == (
        "not_found", "there is no destination 'x'; there are: a, b"
    )  # fmt: skip
    assert change(Process(), what, "x").reason.endswith("there are: none")


@pytest.mark.parametrize("what", ["downgrade", "upgrade"])
def test_an_asynchronous_destination_cannot_be_downgraded(what: LinkAction) -> None:
    process = Process("there", sync=False)
    answer = change(process, what)
    assert (answer.code, "is asynchronous" in answer.reason) == ("bad_field", True)
    assert "lagging" not in change(process, "pause").text


# -- a destination that is gone for good ----------------------------------------------------------


def test_the_journal_writes_down_what_is_forgotten_before_it_is_answered() -> None:
    process = Process("there")
    process.welcomed()
    effects = process.hears(ev.Asked(RID, ChangeLink(7, "forget", "there")))
    assert not [one for one in effects if isinstance(one, Tell)]
    [asked] = [one for one in process.said() if isinstance(one, ForgetPeer)]
    tell, _ = process.hears(PeerForgotten(asked.cid))
    assert (tell.rid, tell.answer.cid, tell.answer.code) == (RID, 7, "")
    assert "messages that only there holds are lost" in tell.answer.text
    assert process.hears(PeerForgotten(asked.cid)) == []


def test_a_refusal_of_the_journal_is_the_answer() -> None:
    process = Process("there")
    process.welcomed()
    process.hears(ev.Asked(RID, ChangeLink(7, "forget", "there")))
    [asked] = [one for one in process.said() if isinstance(one, ForgetPeer)]
    tell, _ = process.hears(PeerForgotten(asked.cid, code="not_ready", reason="undecided"))
    assert (tell.answer.code, tell.answer.reason) == ("not_ready", "undecided")


def test_without_a_journal_nothing_is_forgotten() -> None:
    process = Process("there")
    assert change(process, "forget").code == "not_ready"


def test_a_destination_that_answers_is_not_gone() -> None:
    process = Process("there")
    process.welcomed()
    process.core.outgoing["there"].state = "finding"
    assert change(process, "forget").code == "bad_field"


def test_no_log_is_kept_for_a_forgotten_destination_until_it_is_back() -> None:
    process = Process("there", "other")
    process.welcomed()
    asked = process.said()[-1]
    rows = OriginRows(asked.cid, HERE.generation, 1, [], [], ["there"], 33)
    process.core._begins[asked.cid] = None
    process.hears(rows)
    found = [one for one in process.tick(BEAT_MS) if isinstance(getattr(one, "message", 0), Holds)]
    assert [holding.what for holding in found[-1].message.holdings] == ["other"]
    (tell,) = process.hears(ev.Asked(RID, AskLinks(8)))
    assert tell.answer.open_generations == 33
    assert [(r.forgotten, r.unanswered) for r in tell.answer.rows] == [(True, True), (False, True)]
    process.core.own.forgotten = frozenset({"there", "other"})
    found = [one for one in process.tick(BEAT_MS) if isinstance(getattr(one, "message", 0), Holds)]
    assert found[-1].message.holdings == []
