"""Sessions and commits of clients in the queues process: conditions, answers, crashes."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from tests.queues.bench import AFTER_LEASE_MS, ANN, BOB, HERE, Bench
from zbroker.config import QueueConfig
from zbroker.log.format import KIND_QUEUE, KIND_TRANSACTION
from zbroker.log.records import TRANSACTION, MessagesGone, TransactionRecord, encode, ends_of
from zbroker.queues import transaction_commands
from zbroker.wire import queue_messages as q
from zbroker.wire.replicas import Replicated
from zbroker.wire.transactions import (
    ACCEPTS_MAX,
    Accepted,
    AttachSession,
    CommitTransaction,
    SessionAttached,
    TransactionCommitted,
)

WORK = QueueConfig("q", topic="t")
OTHER = QueueConfig("other", topic="u")


def bench(*configs: QueueConfig, **more: Any) -> Bench:
    at = Bench(*(configs or (WORK, OTHER)), **more)
    at.logon(BOB)
    at.logon()
    return at


def say(at: Bench, command: Any, rid: bytes = ANN) -> Any:
    """The answer, or None as long as there is none."""
    command.cid = "c"
    return at.say(command, rid)


def attach(at: Bench, session: str = "bills", rid: bytes = ANN, **more: Any) -> Any:
    return say(at, AttachSession(session, **more), rid)


def took(*positions: int, sid: str = "s") -> Accepted:
    queue = "other" if sid == "o" else "q"
    return Accepted(queue, sid, HERE.generation, ends_of(BitMap64(positions)))


def commit(
    at: Bench, epoch: int, number: int = 1, *accepts: Accepted, messages: int = 0,
    rid: bytes = ANN, **more: Any,
) -> Any:  # fmt: skip
    command = CommitTransaction("bills", epoch, number, messages, list(accepts), **more)
    return say(at, command, rid)


def code(answer: Any) -> str:
    return str(answer.code)


def at_once(at: Bench) -> list[TransactionRecord]:
    """Of the units that are under way."""
    return [TRANSACTION.decode(bodies[0]) for _, (_, bodies) in at.under_way]


def records(at: Bench) -> list[TransactionRecord]:
    return [TRANSACTION.decode(one.body) for one in at.log if one.kind == KIND_TRANSACTION]


# -- attach ---------------------------------------------------------------------------------------


def test_a_session_begins_in_an_epoch_above_all_before() -> None:
    at = bench()
    first = attach(at)
    assert isinstance(first, SessionAttached)
    assert (first.epoch, first.committed, first.number) == (at.now.wall_ns, 0, 0)
    again = attach(at)
    assert again.epoch == first.epoch + 1, "the clock has not moved"
    assert again.stage != first.stage
    at.restart()
    at.logon()
    at.pass_ms(5)
    assert attach(at).epoch == at.now.wall_ns


def test_sessions_of_two_principals_have_nothing_to_do_with_each_other() -> None:
    at = bench()
    one, other = attach(at), attach(at, rid=BOB)
    assert one.epoch == other.epoch
    assert isinstance(commit(at, one.epoch), TransactionCommitted)


@pytest.mark.parametrize("name", ["$mine", "a" * 201, ""])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    assert code(attach(bench(), name)) in ("reserved_name", "bad_field")


@pytest.mark.seed("001-22")
@pytest.mark.seed("001-25")
def test_the_answer_waits_for_the_log_and_says_what_was_committed_last() -> None:
    at = bench()
    epoch = attach(at).epoch
    commit(at, epoch, 3, messages=2)
    at.holding = True
    assert attach(at, rid=ANN) is None
    at.land()
    again = at.last()
    assert (again.committed, again.number, again.messages) == (epoch, 3, 2)
    assert at.log[-2].position == again.position + 2


@pytest.mark.seed("001-02")
def test_a_session_that_began_at_another_instance_has_to_be_forced() -> None:
    at = bench()
    body = encode(TransactionRecord("ann", "bills", 1 << 61, 0))
    at.record_of(KIND_TRANSACTION, body, HERE._replace(instance=0xDEF))
    assert code(attach(at)) == "session_elsewhere"
    assert attach(at, force=True).epoch == (1 << 61) + 1


def test_a_program_that_hung_does_not_take_its_session_back() -> None:
    at = bench()
    attach(at, holder="old")
    attach(at, holder="new")
    assert code(attach(at, holder="old", again=True)) == "session_fenced"
    assert isinstance(attach(at, holder="new", again=True), SessionAttached)
    assert isinstance(attach(at, holder="old"), SessionAttached), "it may begin anew"


def test_an_attach_that_was_not_answered_fences_not_its_own_program() -> None:
    at = bench()
    attach(at, holder="one")
    at.lose()
    at.logon()
    attach(at, holder="one", again=True)
    at.lose()  # before the answer came
    at.logon()
    assert isinstance(attach(at, holder="one", again=True), SessionAttached)


def test_of_two_that_attach_at_once_one_has_the_session() -> None:
    at = bench()
    at.holding = True
    attach(at, holder="a")
    attach(at, holder="b", rid=ANN)
    assert [one.after for one in at_once(at)] == [0, 0], "the journal takes the first of them"


def test_a_refused_attach_is_answered() -> None:
    at = bench()
    at.holding = True
    attach(at)
    at.refuse("too_large")
    assert at.codes() == ["too_large"]


def test_an_attach_that_came_too_late_looks_again_for_a_while() -> None:
    at = bench()
    at.holding = True
    attach(at, holder="one")
    at.refuse("session_fenced")
    assert at.codes() == []
    at.land()
    assert isinstance(at.last(), SessionAttached)
    attach(at, holder="one", again=True)
    for _ in range(transaction_commands.ATTACH_TRIES):
        at.refuse("session_fenced")
    assert at.codes() == ["not_ready"], "it is its program's, as far as is known"


def test_a_journal_that_does_not_answer_is_told_of() -> None:
    at = bench()
    at.silent = True
    assert attach(at) is None
    at.pass_ms(11_000)
    assert at.codes() == ["not_ready"]


def test_another_journal_is_asked_again_under_its_own_incarnation() -> None:
    at = bench()
    at.silent = True
    attach(at)
    at.die()
    at.silent = False
    at.come_back()
    assert isinstance(at.last(), SessionAttached)


def test_a_connection_attaches_a_bounded_number_of_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_commands, "ATTACHED_MAX", 2)
    at = bench()
    for name in ("a", "b", "a"):
        assert isinstance(attach(at, name), SessionAttached)
    assert code(attach(at, "c")) == "too_many"


# -- commits --------------------------------------------------------------------------------------


def test_a_commit_takes_messages_of_several_queues_in_one_unit() -> None:
    at = bench()
    at.consume()
    at.consume("other", "o")
    m = [0, *at.many(3)]
    [other] = at.publish(b"x", topic="u")
    epoch = attach(at).epoch
    at.holding = True
    assert commit(at, epoch, 1, took(m[1], m[2]), took(other, sid="o"), messages=5) is None
    assert at.kinds() == [KIND_TRANSACTION, KIND_QUEUE, KIND_QUEUE]
    assert at.here() == [m[1], m[2], m[3]], "nothing before it is in the log"
    at.land()
    answer = at.last()
    assert (answer.number, answer.messages, answer.accepted) == (1, 5, 3)
    assert (at.here(), at.here("other")) == ([m[3]], [])
    shown = next(one for one in at.log if one.topics == ["out"])
    assert answer.position == shown.position
    assert [fact.why for fact in at.facts(MessagesGone)] == ["acked", "acked"]
    assert at.one().counts.acked == 2


def test_one_of_messages_alone_and_one_of_nothing() -> None:
    at = bench()
    epoch = attach(at).epoch
    assert commit(at, epoch, 1, messages=1).position > 0
    assert commit(at, epoch, 2) == TransactionCommitted("bills", 2, cid="c")


@pytest.mark.parametrize(
    "what", ["not delivered", "of another consumer", "a consumer that is not there"]
)
def test_a_commit_of_what_is_not_held_here_changes_nothing(what: str) -> None:
    at = bench()
    at.consume(backlog=2)
    at.consume(sid="b", rid=BOB)
    m = [0, *at.many(3)]
    mine, others = at.got(), at.got("b")
    assert sorted(mine + others) == m[1:]
    epoch = attach(at).epoch
    wrong = {
        "not delivered": took(*mine, 99),
        "of another consumer": took(*mine, others[0]),
        "a consumer that is not there": took(*mine, sid="none"),
    }[what]
    assert code(commit(at, epoch, 1, wrong)) == "transaction_aborted"
    assert len(records(at)) == 1
    assert at.state(mine[0]) == "leased"
    assert commit(at, epoch, 1, took(*mine)).accepted == len(mine), "the number may come again"


@pytest.mark.parametrize("how", ["the lease ended", "acknowledged", "released", "cancelled"])
def test_what_is_held_no_more_aborts_it(how: str) -> None:
    at = bench()
    at.consume()
    m = [0, *at.many(2)]
    epoch = attach(at).epoch
    if how == "the lease ended":
        at.consume(sid="b", rid=BOB)
        at.pass_ms(AFTER_LEASE_MS)
        assert at.got("b"), "some of them went to another consumer"
    elif how == "acknowledged":
        at.ack(m[1])
    elif how == "released":
        at.release(m[1], delay_ms=10_000)
    else:
        at.send(q.Cancel("s", cid="c"))
    assert code(commit(at, epoch, 1, took(m[1], m[2]))) == "transaction_aborted"
    assert m[2] in at.here()


def test_what_another_command_of_the_same_turn_has_taken_aborts_it() -> None:
    at = bench()
    at.consume()
    m = [0, *at.many(2)]
    epoch = attach(at).epoch
    at.holding = True
    ack = q.Settle(sid="s", ends=ends_of(BitMap64([m[1]])), cid="a")
    at.send(ack, CommitTransaction("bills", epoch, 1, 0, [took(m[1], m[2])], "c"))
    assert at.codes() == ["transaction_aborted"]
    at.land()
    assert at.here() == [m[2]]


def test_two_commits_in_one_turn_take_a_message_once() -> None:
    at = bench()
    at.consume()
    m = [0, *at.many(2)]
    epoch = attach(at).epoch
    at.send(*[
        CommitTransaction("bills", epoch, number, 0, [took(m[1])], f"c{number}")
        for number in (1, 2)
    ])  # fmt: skip
    assert at.codes() == ["transaction_aborted"]
    assert [one.number for one in at.of(TransactionCommitted)] == [1]


@pytest.mark.parametrize("refusal", ["session_fenced", "transaction_aborted", "too_large"])
def test_what_the_journal_refuses_comes_again(refusal: str) -> None:
    at = bench()
    at.consume()
    m = [0, *at.many(2)]
    epoch = attach(at).epoch
    at.holding = True
    commit(at, epoch, 1, took(m[1], m[2]), messages=1)
    at.refuse(refusal)
    assert at.codes() == [refusal]
    assert at.here() == [m[1], m[2]]
    assert sorted(at.got())[:4] == [m[1], m[1], m[2], m[2]], "they were given again"


def test_what_is_refused_for_now_holds_back_what_comes_after_it() -> None:
    at = bench()
    at.consume()
    m = [0, *at.many(3)]
    epoch = attach(at).epoch
    at.holding = True
    commit(at, epoch, 1, took(m[1]))
    commit(at, epoch, 2, took(m[2]))
    at.refuse("disk_full")
    assert at.codes() == []
    at.holding = False
    at.pass_ms(300)
    assert [one.number for one in at.of(TransactionCommitted)] == [1, 2]


@pytest.mark.parametrize("what", ["never attached", "another epoch", "another connection"])
def test_only_the_connection_that_attached_commits(what: str) -> None:
    at = bench()
    epoch = 5 if what == "never attached" else attach(at).epoch
    rid = BOB if what == "another connection" else ANN
    wrong = epoch + 1 if what == "another epoch" else epoch
    assert code(commit(at, wrong, 1, rid=rid)) == "session_fenced"


def test_a_consumer_may_be_on_another_connection_of_the_same_client() -> None:
    at = bench()
    at.consume()
    [position] = at.many(1)
    at.logon(b"\0ann2", "ann")
    epoch = attach(at, rid=b"\0ann2").epoch
    assert commit(at, epoch, 1, took(position), rid=b"\0ann2").accepted == 1


def test_what_a_consumer_holds_is_taken_by_its_own_principal_alone() -> None:
    at = bench()
    at.consume()
    [position] = at.many(1)
    at.logon(b"\0eve1", "ann", principal="eve")
    epoch = attach(at, rid=b"\0eve1").epoch
    refused = commit(at, epoch, 1, took(position), rid=b"\0eve1")
    assert code(refused) == "transaction_aborted"


def test_a_replayable_queue_has_nothing_to_take() -> None:
    at = bench(QueueConfig("q", topic="t", kind="replayable"))
    at.consume(since="0")
    m = [0, *at.many(1)]
    assert code(commit(at, attach(at).epoch, 1, took(m[1]))) == "bad_field"


def test_a_message_of_an_at_most_once_queue_has_left_it_before() -> None:
    at = bench(QueueConfig("q", topic="t", semantics="at-most-once"))
    at.consume()
    m = [0, *at.many(1)]
    assert at.got() == [m[1]]
    assert code(commit(at, attach(at).epoch, 1, took(m[1]))) == "transaction_aborted"


def test_too_many_consumers_and_one_that_is_named_twice_are_refused() -> None:
    at = bench()
    epoch = attach(at).epoch
    many = [took(1, sid=f"s{number}") for number in range(ACCEPTS_MAX + 1)]
    assert code(commit(at, epoch, 1, *many)) == "too_many"
    assert code(commit(at, epoch, 1, took(1), took(2))) == "bad_field"


def test_the_answer_waits_for_synchronous_destinations() -> None:
    at = bench(sync=True)
    at.turn.hear(Replicated(at.journal, 0, 1))
    attach(at)
    assert at.of(SessionAttached) == []
    at.turn.hear(Replicated(at.journal, 1 << 40, 1))
    at.run()
    [attached] = at.of(SessionAttached)
    at.turn.hear(Replicated(at.journal, 0, 1))
    assert commit(at, attached.epoch, 1) is None


# -- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [True, False])
def test_a_journal_that_dies_under_way_commits_once(landed: bool) -> None:
    at = bench()
    at.consume()
    m = [0, *at.many(2)]
    epoch = attach(at).epoch
    at.doubt(lambda: commit(at, epoch, 1, took(m[1]), messages=3), landed=landed)
    [answer] = at.of(TransactionCommitted)
    assert (answer.messages, answer.accepted) == (3, 1)
    shown = [one for one in at.log if one.topics == ["out"]]
    assert [one.position for one in shown] == [answer.position]
    assert [one.number for one in records(at)] == [0, 1]
    assert at.here() == [m[2]]


@pytest.mark.parametrize("landed", [True, False])
def test_a_session_learns_after_a_restart_what_became_of_its_commit(landed: bool) -> None:
    at = bench()
    at.consume()
    m = [0, *at.many(2)]
    epoch = attach(at).epoch
    at.holding = True
    commit(at, epoch, 1, took(m[1]), messages=1)
    if landed:
        at.receipts = False
        at.land()
        at.receipts = True
    at.holding = False
    at.restart()
    at.logon()
    attached = attach(at)
    assert (attached.committed, attached.number) == ((epoch, 1) if landed else (0, 0))
    assert at.here() == ([m[2]] if landed else m[1:])
