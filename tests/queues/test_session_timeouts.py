"""Sessions with a time-out in the queues process: what they hold, who ends them, and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import AFTER_LEASE_MS, ANN, BOB, HERE, Bench, Got
from tests.queues.test_transaction_commands import (
    OTHER as OTHER_QUEUE,
)
from tests.queues.test_transaction_commands import (
    WORK,
    at_once,
    attach,
    bench,
    code,
    commit,
    records,
    say,
    took,
)
from zbroker.config import QueueConfig
from zbroker.limits import SESSION_TIMEOUT_MAX_MS
from zbroker.log.format import KIND_TRANSACTION
from zbroker.log.records import TransactionRecord, encode
from zbroker.queues import session_timeouts
from zbroker.wire import queue_messages as q
from zbroker.wire import session_surveys as y
from zbroker.wire.transactions import DetachSession, SessionDetached, TransactionCommitted

MINE, OTHER = b"\0ann2", b"\0ann3"  # further connections of ann
MINUTE = 60_000


class Kept(Bench):
    """epoch: of the session. low, high: messages."""

    epoch = low = high = 0


def kept(*configs: QueueConfig, holder: str = "me") -> Kept:
    """A session is attached by ANN, and its consumer, of another connection, has two messages."""
    at = Kept(*(configs or (WORK, OTHER_QUEUE)))
    at.logon(BOB)
    at.logon()
    logon(at, MINE, OTHER)
    at.low, at.high = at.many(2)
    at.epoch = attach(at, timeout_ms=MINUTE, holder=holder).epoch
    join(at)
    assert at.got() == [at.low, at.high]
    return at


def logon(at: Bench, *rids: bytes) -> None:
    for rid in rids:
        at.logon(rid, principal="ann", name="ann")


def join(at: Kept, epoch: int = 0, rid: bytes = MINE, sid: str = "s", **more: Any) -> None:
    """A consumer of the session begins."""
    epoch = epoch or at.epoch
    at.consume(rid=rid, sid=sid, session="bills", epoch=epoch, holder="h", **more)


def other_takes(at: Bench) -> list[Got]:
    """What a consumer of no session is given."""
    at.consume(rid=BOB, sid="o")
    return at.seen("o")


def kinds(at: Bench) -> list[tuple[str, int | None]]:
    """The ends of the log, and what they come after."""
    return [(one.ended, one.after) for one in records(at) if one.ended]


# -- attach ---------------------------------------------------------------------------------------


def test_nothing_more_is_recorded_without_a_time_out() -> None:
    at = bench()
    attach(at, holder="me")
    [record] = records(at)
    assert (record.timeout_ms, record.ended) == (0, "")
    assert b"timeout" not in bytes(at.log[-1].body)
    at.lose()
    at.pass_ms(SESSION_TIMEOUT_MAX_MS)
    assert len(records(at)) == 1


@pytest.mark.seed("001-21")
def test_a_time_out_is_granted_up_to_the_maximum() -> None:
    at = bench()
    assert attach(at, timeout_ms=5).timeout_ms == 5
    answer = attach(at, timeout_ms=1 << 50)
    assert answer.timeout_ms == records(at)[-1].timeout_ms == SESSION_TIMEOUT_MAX_MS


# -- what is held ---------------------------------------------------------------------------------


def test_what_a_session_holds_has_no_lease() -> None:
    at = kept()
    [consuming] = at.of(q.Consuming, MINE)
    assert consuming.lease_ms == 0
    at.pass_ms(10 * AFTER_LEASE_MS)
    assert other_takes(at) == []
    at.ack(at.low, rid=MINE)
    assert at.here() == [at.high]


def test_an_extension_does_not_give_it_one() -> None:
    at = kept()
    at.extend(at.low, rid=MINE, lease_ms=10)
    at.consume(rid=BOB, sid="o")
    at.send(q.Extend(cid="c", queue="q", ends=[at.low, at.high + 1], lease_ms=10), rid=BOB)
    at.pass_ms(1_000)
    assert at.seen("o") == []


def test_messages_of_other_consumers_come_back_as_ever() -> None:
    at = kept()
    at.consume(rid=BOB, sid="o", backlog=1)
    [mine] = at.many(1)
    at.pass_ms(AFTER_LEASE_MS)
    assert [one.position for one in at.seen("o") if one.deliveries == 2] in ([mine], [])
    assert at.state(at.low) == "leased"


@pytest.mark.seed("001-10")
def test_a_lost_consumer_is_waited_for_as_long_as_its_session() -> None:
    at = kept()
    at.lose(MINE)
    at.pass_ms(10 * AFTER_LEASE_MS)
    assert other_takes(at) == []
    logon(at, MINE)
    join(at, holding=[at.low, at.high + 1], generation=HERE.generation)
    assert at.of(q.Consuming, MINE)[-1].kept == [at.low, at.high + 1]
    at.pass_ms(10 * AFTER_LEASE_MS)
    assert at.seen("o") == []


def test_a_consumer_that_begins_again_replaces_the_one_before() -> None:
    """The loss of its connection was not noticed: nothing may wait for what never comes back."""
    at = kept()
    join(at, rid=OTHER, sid="again", holding=[at.low, at.high], generation=HERE.generation)
    assert at.of(q.Consuming, OTHER)[-1].kept == [at.low, at.high]
    assert at.got("again") == [at.high], "what it does not hold comes again"
    assert at.errors() == [("session_ended", None, "s")]


def test_a_message_of_a_cancelled_consumer_comes_back_at_once() -> None:
    at = kept()
    at.send(q.Cancel("s"), rid=MINE)
    assert [one.position for one in other_takes(at)] == [at.low, at.high]


@pytest.mark.parametrize("epoch", [-1, 1])
def test_a_consumer_of_another_epoch_is_refused(epoch: int) -> None:
    at = kept()
    join(at, at.epoch + epoch, OTHER, "x")
    assert at.codes() == ["session_fenced"]


def test_a_session_of_another_principal_or_without_a_time_out_has_no_consumers() -> None:
    at = bench()
    epoch = attach(at, rid=BOB, timeout_ms=MINUTE).epoch
    at.consume(session="bills", epoch=epoch)
    epoch = attach(at, "other").epoch
    at.consume(session="other", epoch=epoch)
    assert at.codes() == ["session_fenced"] * 2


def test_an_at_most_once_queue_has_nothing_that_could_be_kept() -> None:
    at = kept(QueueConfig("q", topic="t", semantics="at-most-once", lease=0))
    at.lose(MINE)
    assert at.here() == []


def test_a_transaction_takes_what_its_session_holds() -> None:
    at = kept()
    at.lose()
    logon(at, ANN)
    epoch = attach(at, holder="me", again=True, timeout_ms=MINUTE).epoch
    accepted = took(at.low, at.high)
    accepted.holder = "h"
    assert isinstance(commit(at, epoch, 1, accepted), TransactionCommitted)
    assert at.here() == []


# -- ends -----------------------------------------------------------------------------------------


@pytest.mark.seed("001-04")
def test_a_session_without_a_connection_waits_and_then_ends_by_a_record() -> None:
    at = kept()
    at.lose()
    at.pass_ms(MINUTE - 1)
    assert (other_takes(at), kinds(at)) == ([], [])
    at.pass_ms(1)
    assert kinds(at) == [("timed out", at.epoch)]
    assert records(at)[-1].epoch == at.epoch + 1
    assert at.seen("o") == [Got(at.low, 2), Got(at.high, 2)]
    assert at.errors() == [("session_fenced", None, "s")], "its consumer hears that"
    assert at.notes[-1].name == "queues.session_timed_out"
    at.pass_ms(10 * MINUTE)
    assert len(kinds(at)) == 1


def test_a_time_out_is_a_delivery_that_failed() -> None:
    at = kept(QueueConfig("q", topic="t", max_deliveries=1, dead_letter="dead"))
    at.lose()
    at.pass_ms(MINUTE)
    assert [topic for topic, _, _ in at.letters()] == ["dead"] * 2


def test_a_program_that_is_back_in_time_keeps_what_it_holds() -> None:
    at = kept()
    at.lose()
    at.pass_ms(MINUTE - 1)
    logon(at, ANN)
    again = attach(at, holder="me", again=True, timeout_ms=MINUTE)
    at.pass_ms(10 * MINUTE)
    assert (other_takes(at), kinds(at)) == ([], [])
    join(at, rid=OTHER, sid="late")
    assert at.codes() == ["session_ended"], "the epoch before is of the same program"
    at.ack(at.low, rid=OTHER, sid="late")
    at.lose()
    at.pass_ms(MINUTE)
    assert kinds(at) == [("timed out", again.epoch)]


@pytest.mark.parametrize("holder", ["other", ""])
def test_another_program_gets_all_of_it_again(holder: str) -> None:
    at = kept(holder=holder and "me")
    attach(at, holder=holder, timeout_ms=MINUTE)
    assert other_takes(at) == [Got(at.low, 2), Got(at.high, 2)]
    assert at.errors() == [("session_fenced", None, "s")]


def test_a_connection_that_was_replaced_is_not_missed() -> None:
    at = kept()
    attach(at, holder="me", again=True, rid=OTHER, timeout_ms=MINUTE)
    at.lose(ANN)
    at.pass_ms(10 * MINUTE)
    assert kinds(at) == []


@pytest.mark.seed("001-20")
def test_a_detach_ends_it_at_once_everywhere() -> None:
    at = kept()
    command = DetachSession("bills", at.epoch)
    assert say(at, command, OTHER) == SessionDetached("bills", "c")
    assert kinds(at) == [("detached", at.epoch)]
    assert other_takes(at) == [Got(at.low, 2), Got(at.high, 2)]
    assert isinstance(say(at, command, OTHER), SessionDetached), "it may not have been answered"
    assert len(kinds(at)) == 1
    assert attach(at).ended == "detached"


def test_a_detach_is_of_one_epoch_and_of_its_instance() -> None:
    at = kept()
    assert code(say(at, DetachSession("bills", 1))) == "session_fenced"
    assert code(say(at, DetachSession("none", 1))) == "session_fenced"
    body = encode(TransactionRecord("ann", "bills", 1 << 61))
    at.record_of(KIND_TRANSACTION, body, HERE._replace(instance=0xDEF))
    assert code(say(at, DetachSession("bills", 1 << 61))) == "session_elsewhere"


def test_a_detach_and_an_attach_that_race_are_in_an_order() -> None:
    at = kept()
    at.holding = True
    say(at, DetachSession("bills", at.epoch))
    at.refuse("session_fenced")
    assert at.codes() == ["session_fenced"]


@pytest.mark.seed("001-40")
def test_an_exception_ends_it_and_is_known_until_it_begins_again() -> None:
    at = kept()
    say(at, DetachSession("bills", at.epoch, "bad_order", "no price"))
    assert [one.position for one in other_takes(at)] == [at.low, at.high]
    [row] = at.ask(y.AskSessionRows(1, limit=1)).rows
    assert (row.state, row.ended, row.code, row.text) == (
        "ended", "exception", "bad_order", "no price"
    )  # fmt: skip
    again = attach(at, timeout_ms=5)
    assert (again.ended, again.code, again.text) == ("exception", "bad_order", "no price")
    [row] = at.ask(y.AskSessionRows(1, limit=1)).rows
    assert (row.state, row.ended, row.timeout_ms) == ("attached", "", 5)
    at.lose()
    assert at.ask(y.AskSessionRows(1, limit=1)).rows[0].state == "waiting"


def test_operators_end_it_with_all_that_it_holds() -> None:
    at = kept()
    at.ask(y.EndSession(1, "ann", "bills"))
    assert other_takes(at) == [Got(at.low, 2), Got(at.high, 2)]
    assert kinds(at)[0][0] == "ended by an operator"


def test_a_program_whose_session_ended_is_told_why() -> None:
    at = kept()
    at.lose()
    at.pass_ms(MINUTE)
    logon(at, ANN)
    answer = attach(at, holder="me", again=True, timeout_ms=MINUTE)
    assert answer.code == "session_fenced"
    assert "timed out" in answer.reason


# -- several instances ----------------------------------------------------------------------------


@pytest.mark.seed("001-37")
def test_a_time_out_that_comes_after_an_attach_ends_nothing() -> None:
    at = kept()
    at.lose()
    logon(at, ANN)
    at.holding = True
    at.pass_ms(MINUTE - 1)
    attach(at, holder="me", again=True, timeout_ms=MINUTE)
    at.pass_ms(1)
    assert [one.ended for one in at_once(at)] == ["", "timed out"]
    assert {one.after for one in at_once(at)} == {at.epoch}
    at.land(1)
    at.refuse("session_fenced")
    at.holding = False
    at.pass_ms(10 * MINUTE)
    assert (other_takes(at), at.codes(), kinds(at)) == ([], [], [])


def test_an_attach_that_comes_after_a_time_out_is_told_of_it() -> None:
    at = kept()
    at.lose()
    logon(at, ANN)
    at.holding = True
    at.pass_ms(MINUTE)
    attach(at, holder="me", again=True, timeout_ms=MINUTE)
    assert [one.ended for one in at_once(at)] == ["timed out", ""]
    at.land(1)
    at.refuse("session_fenced", 1)
    assert at.codes() == ["session_fenced"] * 2, "its consumer, and the attach"
    assert "timed out" in at.last().reason


@pytest.mark.seed("001-38")
def test_sessions_of_another_instance_never_time_out_here() -> None:
    at = bench()
    body = encode(TransactionRecord("ann", "bills", 1 << 61, timeout_ms=5))
    at.record_of(KIND_TRANSACTION, body, HERE._replace(instance=0xDEF))
    at.restart()
    at.pass_ms(SESSION_TIMEOUT_MAX_MS)
    assert len(records(at)) == 1


def test_a_session_that_was_forced_to_begin_elsewhere_is_over_here() -> None:
    at = kept()
    body = encode(TransactionRecord("ann", "bills", 1 << 61, holder="me", timeout_ms=MINUTE))
    at.record_of(KIND_TRANSACTION, body, HERE._replace(instance=0xDEF))
    assert other_takes(at) == [Got(at.low, 2), Got(at.high, 2)]
    at.lose()
    at.pass_ms(10 * MINUTE)
    assert kinds(at) == []


# -- restarts -------------------------------------------------------------------------------------


def test_after_a_restart_each_session_has_its_whole_time() -> None:
    at = kept()
    attach(at, "over", timeout_ms=MINUTE, holder="me")
    say(at, DetachSession("over", records(at)[-1].epoch))
    at.pass_ms(MINUTE)
    at.restart()
    at.pass_ms(MINUTE - 1)
    assert kinds(at)[1:] == []
    at.pass_ms(1)
    assert kinds(at)[1:] == [("timed out", at.epoch)]


def test_many_sessions_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_timeouts, "ROWS_MAX", 2)
    at = bench()
    for name in "abcde":
        attach(at, name, timeout_ms=MINUTE)
    at.restart()
    at.pass_ms(MINUTE)
    assert len(kinds(at)) == 5


def test_a_consumer_may_be_back_before_its_session() -> None:
    at = kept()
    at.restart()
    logon(at, MINE)
    at.silent = True
    at.restart()
    logon(at, MINE)
    join(at)
    assert at.codes() == ["not_ready"], "it is not known yet"
    at.silent = False
    at.pass_ms(11_000)
    at.pass_ms(session_timeouts.AGAIN_MS)
    join(at)
    assert at.codes()[1:] == []


def test_nobody_is_late_while_there_is_no_journal() -> None:
    at = kept()
    at.lose()
    at.die()
    at.pass_ms(2 * MINUTE)
    at.come_back()
    assert kinds(at) == []
    at.pass_ms(MINUTE)
    assert len(kinds(at)) == 1


def test_one_that_the_journal_forgot_is_over() -> None:
    at = kept()
    at.lose()
    at.holding = True
    at.pass_ms(MINUTE)
    at.log = [one for one in at.log if one.kind != KIND_TRANSACTION]
    at.holding = False
    at.refuse("session_fenced")
    assert [one.position for one in other_takes(at)] == [at.low, at.high]


def test_an_end_that_was_refused_is_tried_again() -> None:
    at = kept()
    at.lose()
    at.holding = True
    at.pass_ms(MINUTE)
    at.refuse("too_large")
    at.holding = False
    at.pass_ms(session_timeouts.AGAIN_MS)
    assert len(kinds(at)) == 1
