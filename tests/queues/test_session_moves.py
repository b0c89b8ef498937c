"""Sessions that are handed over from one instance to another, each side for itself."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.queues.bench import ANN, BOB, HERE, Got
from tests.queues.test_session_timeouts import (
    MINE,
    MINUTE,
    OTHER,
    Kept,
    join,
    logon,
    other_takes,
)
from tests.queues.test_transaction_commands import WORK, attach, bench, code, records
from zbroker.log.format import KIND_TRANSACTION
from zbroker.log.records import Failed, TransactionRecord, encode
from zbroker.queues import session_moves
from zbroker.queues.session_moves import AGAIN_MS, WAIT_MS
from zbroker.wire import queue_messages as q
from zbroker.wire import session_surveys as y
from zbroker.wire.owner_requests import AskHandOver, HandOverRequest
from zbroker.wire.transactions import SessionAttached

THERE = HERE._replace(instance=0xDEF)
EPOCH = 1 << 61  # of the other instance
BEGUN = TransactionRecord("ann", "bills", EPOCH, holder="me", timeout_ms=MINUTE)
HANDED = replace(BEGUN, epoch=EPOCH + 1, after=EPOCH, to=HERE.instance)
WANTED = HandOverRequest(THERE.instance, "ann", "bills", 0)


def elsewhere(**more: Any) -> Kept:
    """The session has begun at the other instance."""
    at = Kept(WORK, replicates=True, **more)
    at.logon()
    logon(at, MINE, OTHER)
    from_there(at, BEGUN)
    return at


def here(holder: str = "me", **more: Any) -> Kept:
    """It is attached here, and its consumer has two messages."""
    at = Kept(WORK, replicates=True)
    at.logon()
    at.logon(BOB)
    logon(at, MINE, OTHER)
    at.low, at.high = at.many(2)
    at.epoch = attach(at, holder=holder, timeout_ms=MINUTE, **more).epoch
    join(at)
    assert at.got() == [at.low, at.high]
    return at


def from_there(at: Kept, record: TransactionRecord) -> None:
    at.record_of(KIND_TRANSACTION, encode(record), THERE)


def asked(at: Kept) -> list[AskHandOver]:
    return [one for one in at.to_replication if isinstance(one, AskHandOver)]


def request(at: Kept, epoch: int = 0, **more: Any) -> list[TransactionRecord]:
    """The other instance asks for it. Returns: hand-overs so far."""
    at.turn.hear(replace(WANTED, epoch=epoch or at.epoch, **more))
    at.run()
    return [one for one in records(at) if one.to]


# -- where a client attaches ----------------------------------------------------------------------


@pytest.mark.seed("001-02")
def test_the_instance_where_it_is_is_asked_until_it_has_handed_it_over() -> None:
    at = elsewhere()
    assert attach(at, holder="me", again=True, timeout_ms=MINUTE) is None
    at.pass_ms(AGAIN_MS)
    at.pass_ms(AGAIN_MS)
    assert len(asked(at)) == 3
    assert {*map(repr, asked(at))} == {
        repr(AskHandOver(THERE.instance, "ann", "bills", EPOCH, "me"))
    }
    from_there(at, HANDED)
    at.pass_ms(AGAIN_MS)
    answer = at.last()
    assert isinstance(answer, SessionAttached)
    assert (answer.epoch, answer.ended) == (EPOCH + 2, "")
    [begin] = [one for one in records(at) if one.epoch == EPOCH + 2]
    assert begin.after == EPOCH + 1
    count = len(asked(at))
    at.pass_ms(10 * AGAIN_MS)
    assert len(asked(at)) == count


def test_it_does_not_begin_before_the_record_is_in_this_log() -> None:
    at = elsewhere()
    attach(at)
    at.pass_ms(WAIT_MS - AGAIN_MS)
    assert [one.epoch for one in records(at)] == [EPOCH]


def test_a_silent_instance_is_waited_for_up_to_a_bound() -> None:
    at = elsewhere()
    attach(at)
    at.pass_ms(WAIT_MS + 2 * AGAIN_MS)
    assert code(at.last()) == "session_elsewhere"
    assert f"{THERE.instance:016x}" in at.last().reason
    at.pass_ms(WAIT_MS)
    assert at.codes() == ["session_elsewhere"]
    assert attach(at, force=True).epoch == EPOCH + 1


def test_a_program_that_lost_it_meanwhile_hears_that() -> None:
    at = elsewhere()
    assert attach(at, holder="old", again=True) is None
    assert asked(at)[-1].holder == "old", "it takes it from no other program"
    at.pass_ms(WAIT_MS + 2 * AGAIN_MS)
    assert at.codes() == ["session_fenced"]


def test_a_program_that_begins_takes_it_from_whoever_has_it() -> None:
    at = elsewhere()
    attach(at, holder="new")
    assert asked(at)[-1].holder == ""


def test_a_newer_epoch_is_asked_for_as_soon_as_it_is_known() -> None:
    at = elsewhere()
    attach(at)
    from_there(at, replace(BEGUN, epoch=EPOCH + 5))
    at.pass_ms(AGAIN_MS)
    assert asked(at)[-1].epoch == EPOCH + 5


def test_an_instance_that_got_it_meanwhile_is_asked_next() -> None:
    at = elsewhere()
    attach(at)
    from_there(at, replace(HANDED, to=0x123))
    at.pass_ms(AGAIN_MS)
    assert (asked(at)[-1].owner, asked(at)[-1].epoch) == (0x123, EPOCH + 1)


def test_one_that_was_over_says_why_also_here() -> None:
    at = elsewhere()
    ended = replace(BEGUN, epoch=EPOCH + 1, ended="exception", code="bad_order", timeout_ms=0)
    from_there(at, ended)
    attach(at)
    from_there(at, replace(ended, epoch=EPOCH + 2, to=HERE.instance))
    at.pass_ms(AGAIN_MS)
    assert (at.last().ended, at.last().code) == ("exception", "bad_order")


def test_a_client_that_is_gone_begins_nothing_but_its_session_times_out_here() -> None:
    at = elsewhere()
    attach(at, timeout_ms=MINUTE)
    at.lose(ANN)
    from_there(at, HANDED)
    at.pass_ms(AGAIN_MS)
    assert [one.epoch for one in records(at)] == [EPOCH, EPOCH + 1]
    at.pass_ms(2 * MINUTE)
    assert records(at)[-1].ended == "timed out"
    assert records(at)[-1].after == EPOCH + 1


def test_one_that_was_handed_over_times_out_here_after_a_restart() -> None:
    at = elsewhere()
    from_there(at, HANDED)
    at.restart()
    at.pass_ms(2 * MINUTE)
    assert records(at)[-1].ended == "timed out"


def test_a_consumer_that_is_faster_than_its_session_waits_for_it() -> None:
    at = elsewhere()
    attach(at, holder="me", again=True, timeout_ms=MINUTE)
    at.many(1)
    join(at, epoch=EPOCH)
    assert at.codes() == ["not_ready"]
    from_there(at, HANDED)
    at.pass_ms(AGAIN_MS)
    join(at, epoch=at.of(SessionAttached)[-1].epoch)
    assert isinstance(at.of(q.Consuming, MINE)[-1], q.Consuming)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("before", [0, 1])
def test_an_epoch_that_was_not_heard_of_is_waited_for(before: int, force: bool) -> None:
    """before: in whichever epoch this instance had the session itself."""
    at = Kept(WORK, replicates=True)
    at.logon()
    if before:
        attach(at, holder="me")
    begun = records(at)
    said = {"holder": "me", "again": True, "force": force, "epoch": EPOCH}
    assert attach(at, **said) is None
    at.pass_ms(AGAIN_MS)
    assert (records(at), asked(at)) == (begun, [])
    from_there(at, BEGUN if force else HANDED)
    at.pass_ms(AGAIN_MS)
    assert at.last().epoch == (EPOCH + 1 if force else EPOCH + 2)
    assert at.codes() == []


@pytest.mark.parametrize("force", [False, True])
def test_an_epoch_that_is_never_heard_of_is_elsewhere(force: bool) -> None:
    at = Kept(WORK, replicates=True)
    at.logon()
    attach(at, holder="me", again=True, force=force, epoch=EPOCH)
    at.pass_ms(WAIT_MS + 2 * AGAIN_MS)
    assert code(at.last()) == "session_elsewhere"
    assert "whose log is not here" in at.last().reason
    at.pass_ms(2 * MINUTE)
    assert records(at) == []


def test_an_instance_without_links_has_the_only_log() -> None:
    at = bench()
    assert attach(at, holder="me", again=True, epoch=EPOCH).epoch < EPOCH


def test_too_many_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_moves, "WAITING_MAX", 1)
    at = elsewhere()
    attach(at)
    assert code(attach(at, rid=OTHER)) == "too_many"


def test_an_instance_without_links_asks_no_one() -> None:
    at = bench()
    at.record_of(KIND_TRANSACTION, encode(BEGUN), THERE)
    assert code(attach(at)) == "session_elsewhere"
    assert not at.to_replication


def test_a_journal_that_does_not_answer_is_asked_again() -> None:
    at = elsewhere()
    attach(at)
    at.silent = True
    at.pass_ms(AGAIN_MS)
    at.answer("not_ready")
    assert at.codes() == ["not_ready"]


# -- where it was ---------------------------------------------------------------------------------


@pytest.mark.seed("001-03")
def test_what_it_held_comes_back_at_once_and_counts_as_no_failure() -> None:
    at = here()
    [record] = request(at)
    assert (record.epoch, record.after, record.to) == (at.epoch + 1, at.epoch, THERE.instance)
    assert (record.holder, record.timeout_ms, record.ended) == ("me", MINUTE, "")
    assert at.errors() == [("not_ready", None, "s")], "its consumers go on where it does"
    assert other_takes(at) == [Got(at.low, 2), Got(at.high, 2)]
    assert not at.facts(Failed)


def test_a_request_of_an_epoch_that_is_over_changes_nothing() -> None:
    at = here()
    assert request(at, epoch=at.epoch - 1) == []
    [first] = request(at)
    assert request(at) == [first]
    assert request(at, epoch=first.epoch) == [first], "it is there now"


def test_a_program_that_lost_it_takes_nothing_from_its_successor() -> None:
    at = here()
    assert request(at, holder="old") == []
    assert len(request(at, holder="me")) == 1


def test_the_first_of_two_instances_gets_it() -> None:
    at = here()
    at.holding = True
    for instance in (THERE.instance, 0x123):
        at.turn.hear(replace(WANTED, epoch=at.epoch, instance=instance))
    at.run()
    at.land(1)
    at.refuse("session_fenced")
    assert [one.to for one in records(at) if one.to] == [THERE.instance]


def test_it_is_asked_for_there_when_its_program_comes_back() -> None:
    at = here()
    request(at)
    assert attach(at, holder="me", again=True) is None
    assert asked(at)[-1].owner == THERE.instance
    from_there(at, TransactionRecord("ann", "bills", EPOCH, holder="me", to=HERE.instance))
    at.pass_ms(AGAIN_MS)
    assert at.last().epoch == EPOCH + 1


def test_a_refused_record_hands_over_nothing() -> None:
    at = here()
    at.holding = True
    request(at)
    at.refuse("session_fenced")
    at.pass_ms(MINUTE)
    assert other_takes(at) == []


def test_a_request_for_this_very_instance_is_not_heard() -> None:
    at = here()
    assert request(at, instance=HERE.instance) == []


def test_operators_see_where_it_is() -> None:
    at = here()
    request(at)
    [row] = at.ask(y.AskSessionRows(1, limit=1)).rows
    assert (row.instance, row.state, row.client) == (THERE.instance, "", "")
