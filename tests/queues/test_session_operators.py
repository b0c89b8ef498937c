"""Sessions for operators: the list, and the end of one."""

from __future__ import annotations

from tests.queues.bench import ANN, BOB
from tests.queues.test_transaction_commands import attach, bench, code, commit, records
from zbroker.wire import queue_surveys as s
from zbroker.wire import session_surveys as y


def test_operators_see_who_has_a_session_and_what_it_committed_last() -> None:
    at = bench()
    epoch = attach(at).epoch
    commit(at, epoch, 3, messages=2)
    attach(at, "other", BOB)
    at.lose(BOB)
    found = at.ask(y.AskSessionRows(1, limit=10))
    assert [(row.principal, row.session, row.client) for row in found.rows] == [
        ("ann", "bills", "ann"), ("bob", "other", "")
    ]  # fmt: skip
    row = found.rows[0]
    assert (row.epoch, row.committed, row.number, row.messages) == (epoch, epoch, 3, 2)
    assert at.ask(y.AskSessionRows(1, limit=1)).left_out == 1


def test_a_session_that_is_ended_commits_nothing_more() -> None:
    at = bench()
    epoch = attach(at).epoch
    assert at.ask(y.EndSession(1, "ann", "bills", dry_run=True)) == s.Changed(1, 1)
    assert len(records(at)) == 1
    assert at.ask(y.EndSession(1, "ann", "bills")) == s.Changed(1, 1)
    assert [one.epoch for one in records(at)] == [epoch, epoch + 1]
    assert at.ask(y.AskSessionRows(1, limit=1)).rows[0].client == ""
    at.holding = True
    commit(at, epoch, 1)
    at.refuse("session_fenced")
    assert at.codes() == ["session_fenced"], "the journal knows a higher epoch"
    at.holding = False
    assert attach(at, rid=ANN).epoch > epoch + 1


def test_one_that_is_not_there_cannot_be_ended() -> None:
    at = bench()
    assert code(at.ask(y.EndSession(1, "ann", "none"))) == "unknown_session"


def test_a_journal_that_does_not_answer_is_reported() -> None:
    at = bench()
    at.silent = True
    at.ask(y.AskSessionRows(1, limit=1))
    at.ask(y.EndSession(2, "ann", "bills"))
    at.pass_ms(11_000)
    assert [one.code for _, one in at.reported] == ["not_ready", "not_ready"]
