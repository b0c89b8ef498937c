"""Branches of distributed transactions in the queues process: conditions, locks, answers."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pyroaring import BitMap64

from tests.queues.bench import AFTER_LEASE_MS, ANN, BOB, HERE, Bench, Got
from tests.queues.test_transaction_commands import attach, bench, code, commit, say, took
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import BlockRead, Read
from zbroker.config import QueueConfig
from zbroker.log.format import FLAG_UNIT, KIND_BRANCH, KIND_QUEUE
from zbroker.log.reader import Cursor
from zbroker.log.records import BRANCH, Failed, Locked, MessagesGone
from zbroker.queues.snapshots import Snapshots
from zbroker.queues.work.queue import Queue
from zbroker.transaction_tokens import token_of
from zbroker.wire import queue_messages as q
from zbroker.wire.branches import (
    BranchDecided,
    BranchList,
    BranchPrepared,
    DecideBranch,
    ListBranches,
    PrepareTransaction,
)
from zbroker.wire.queue_surveys import Define
from zbroker.wire.transactions import Accepted
from zbroker.xids import Xid

X: Final = Xid(7, "transfer-1", "broker")
ENDS: Final = ["commit", "rollback"]


def prepare(
    at: Bench, epoch: int, *accepts: Accepted, xid: Xid = X, number: int = 1, messages: int = 0,
    rid: bytes = ANN, **more: Any,
) -> Any:  # fmt: skip
    command = PrepareTransaction("bills", epoch, number, xid, messages, list(accepts), **more)
    return say(at, command, rid)


def decide(at: Bench, decision: Any, xid: Xid = X, rid: bytes = ANN, **more: Any) -> Any:
    return say(at, DecideBranch(xid, decision, **more), rid)


def listed(at: Bench, rid: bytes = ANN, **more: Any) -> list[tuple[str, str, int]]:
    answer = say(at, ListBranches(**more), rid)
    assert isinstance(answer, BranchList)
    return [(str(one.xid), one.state, one.accepted) for one in answer.branches]


def holding(at: Bench, count: int) -> tuple[list[int], int]:
    """A consumer holds so many messages of "q", and a session is attached. Returns: where they
    are, and its epoch."""
    at.consume()
    return at.many(count), attach(at).epoch


def locked(*configs: QueueConfig) -> tuple[Bench, list[int]]:
    """A branch has the first two of three messages of "q", and two staged ones."""
    at = bench(*configs)
    m, epoch = holding(at, 3)
    assert isinstance(prepare(at, epoch, took(*m[:2]), messages=2), BranchPrepared)
    return at, m


def states(at: Bench, positions: list[int]) -> list[str]:
    return [at.state(one) for one in positions]


# -- prepare --------------------------------------------------------------------------------------


def test_what_is_prepared_is_locked_in_one_unit_with_its_record() -> None:
    at = bench()
    at.consume()
    at.consume("other", "o")
    m = at.many(3)
    [other] = at.publish(b"x", topic="u")
    epoch = attach(at).epoch
    at.holding = True
    assert prepare(at, epoch, took(*m[:2]), took(other, sid="o"), messages=5) is None
    assert at.kinds() == [KIND_BRANCH, KIND_QUEUE, KIND_QUEUE]
    at.land()
    assert at.last() == BranchPrepared(X, 5, 3, "c")
    assert states(at, m) == ["locked", "locked", "leased"]
    assert at.state(other, "other") == "locked"
    said = BRANCH.decode(next(one.body for one in at.log if one.kind == KIND_BRANCH))
    assert (said.state, said.messages, said.accepted, said.queues) == (
        "prepared",
        5,
        3,
        ["other", "q"],
    )
    branch = "ann", token_of("bills", epoch, 1)
    assert [fact.branch for fact in at.facts(Locked)] == [branch, branch]


def test_the_answer_comes_when_the_locks_were_read() -> None:
    at = bench()
    m, epoch = holding(at, 1)
    at.reading = False
    assert prepare(at, epoch, took(*m)) is None
    at.reading = True
    at.run()
    assert isinstance(at.last(), BranchPrepared)
    assert isinstance(decide(at, "commit"), BranchDecided)


@pytest.mark.parametrize("what", ["not held", "another epoch", "attached by no one"])
def test_what_cannot_be_prepared_changes_nothing(what: str) -> None:
    at = bench()
    at.consume()
    m = at.many(1)
    epoch = attach(at).epoch if what != "attached by no one" else 5
    wrong = [99] if what == "not held" else []
    answer = prepare(at, epoch + (what == "another epoch"), took(*m, *wrong))
    assert code(answer) == ("transaction_aborted" if what == "not held" else "session_fenced")
    assert states(at, m) == ["leased"]
    assert not [one for one in at.log if one.kind == KIND_BRANCH]


def test_a_refused_prepare_gives_back_what_it_had() -> None:
    at = bench()
    m, epoch = holding(at, 1)
    at.holding = True
    prepare(at, epoch, took(*m))
    at.refuse("branch_exists")
    assert at.codes() == ["branch_exists"]
    assert at.seen()[-1] == Got(m[0], 2), "it comes again, flagged"


def test_the_session_goes_on_while_a_branch_is_prepared() -> None:
    at, m = locked()
    epoch = attach(at).epoch
    assert commit(at, epoch, 1, took(m[2])).accepted == 1
    assert listed(at) == [(str(X), "prepared", 2)]


def test_a_branch_says_which_transaction_of_its_session_it_was() -> None:
    """A client whose prepare was not answered compares that: its xid may have another branch."""
    at = bench()
    epoch = attach(at).epoch
    assert isinstance(prepare(at, epoch, number=3), BranchPrepared)
    [branch] = say(at, ListBranches(xid=X)).branches
    assert (branch.session, branch.epoch, branch.number) == ("bills", epoch, 3)


# -- locks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ENDS)
def test_nothing_but_a_decision_is_about_what_is_locked(decision: str) -> None:
    at, m = locked()
    at.pass_ms(AFTER_LEASE_MS)
    at.ack(*m[:2], sid=None, queue="q")
    assert at.settled()[-1] == (0, 2), "whoever says so"
    at.reject(*m[:2])
    at.release(*m[:2])
    at.send(q.PurgeQueue("q"), q.Cancel("s"))
    at.lose()
    at.logon()
    at.gives.clear()
    at.consume(sid="again")
    assert at.got("again") in ([], m[2:])
    assert states(at, m[:2]) == ["locked", "locked"]
    answer = decide(at, decision)
    assert (answer.accepted, answer.mixed) == (2, False)
    assert at.here() == m[2 if decision == "commit" else 0 :], "the third one was leased"


def test_an_acknowledgement_that_was_on_its_way_is_not_lost_in_a_lock() -> None:
    """Anybody may acknowledge what is leased; it waits for what was decided before."""
    at = bench()
    m, epoch = holding(at, 1)
    at.holding = True
    prepare(at, epoch, took(*m))
    at.ack(*m, sid=None, queue="q")
    at.land()
    assert at.settled()[-1] == (0, 1)


@pytest.mark.parametrize("tables", [True, False])
def test_a_restart_keeps_what_is_locked(tables: bool) -> None:
    at, m = locked()
    saved = Snapshots().take(at.manager).many if tables else None
    at.restart(saved)
    at.logon()
    at.gives.clear()
    at.consume()
    assert at.got() == [m[2]]
    assert states(at, m[:2]) == ["locked", "locked"]
    assert decide(at, "rollback").accepted == 2
    assert all(one.deliveries > 1 for one in at.seen() if one.position in m[:2])
    assert set(at.got()) == set(m)


def test_expired_messages_are_locked_until_they_are_decided() -> None:
    at, m = locked(QueueConfig("q", topic="t", expiration=5_000), QueueConfig("other", topic="u"))
    at.pass_ms(20_000)
    assert states(at, m[:2]) == ["locked", "locked"]
    decide(at, "rollback")
    assert at.here() == m[2:], "a consumer has that one"
    assert "time_limit" in [fact.why for fact in at.facts(MessagesGone)]


def test_the_next_of_a_group_waits_for_the_one_that_is_locked() -> None:
    at = bench(QueueConfig("q", topic="t", group_key="/k"))
    at.consume()
    m = at.publish(b'{"k": 1}') + at.publish(b'{"k": 1}')
    epoch = attach(at).epoch
    prepare(at, epoch, took(m[0]))
    saved = Snapshots().take(at.manager).many
    assert at.got() == [m[0]]
    at.restart(saved)
    at.logon()
    at.consume()
    assert at.got() == [m[0]], "also after a restart"
    decide(at, "commit")
    assert at.got() == m


def test_a_queue_with_locked_messages_is_not_deleted() -> None:
    at, _ = locked()
    answer = say(at, q.DeleteQueue("q"))
    assert code(answer) in ("queue_in_use", "bad_queue")
    declared = bench()
    say(declared, q.DeclareQueue("mine", settings={"topic": "t"}))
    declared.consume("mine")
    m = declared.many(1)
    epoch = attach(declared).epoch
    prepare(declared, epoch, Accepted("mine", "s", HERE.generation, [m[0], m[0] + 1]))
    assert code(say(declared, q.DeleteQueue("mine"))) == "queue_in_use"
    decide(declared, "commit")
    declared.send(q.Cancel("s"))
    assert isinstance(say(declared, q.DeleteQueue("mine")), q.QueueChanged)


def _made_by_an_operator() -> tuple[Bench, int, Accepted]:
    """One whose queue may be deleted; an epoch, and what a consumer holds."""
    at = bench()
    at.ask(Define(1, "create", "mine", {"topic": "x"}))
    at.consume("mine")
    [m] = at.publish(b"1", topic="x")
    return at, attach(at).epoch, Accepted("mine", "s", HERE.generation, [m, m + 1])


def test_a_queue_whose_messages_are_about_to_be_locked_is_not_deleted() -> None:
    at, epoch, accepted = _made_by_an_operator()
    at.holding = True
    prepare(at, epoch, accepted)
    assert at.ask(Define(2, "delete", "mine")).code == "queue_in_use"
    at.refuse("too_large")
    at.holding = False
    assert at.one("mine").reserved == 0
    assert at.ask(Define(3, "delete", "mine")).code == ""


def test_messages_of_a_queue_that_is_being_deleted_are_not_prepared() -> None:
    """Its branch would take nothing, and its messages would be published all the same."""
    at, epoch, accepted = _made_by_an_operator()
    at.holding = True
    at.ask(Define(2, "delete", "mine"))
    assert code(prepare(at, epoch, accepted)) == "not_ready"


# -- decide ---------------------------------------------------------------------------------------


def test_a_commit_shows_its_messages_and_takes_what_was_locked() -> None:
    at, m = locked()
    answer = decide(at, "commit")
    shown = next(one for one in at.log if one.topics == ["out"])
    assert answer == BranchDecided(X, "commit", shown.position, 2, 2, cid="c")
    assert at.here() == [m[2]]
    assert [fact.why for fact in at.facts(MessagesGone)] == ["acked"]
    assert at.one().counts.acked == 2
    assert listed(at) == []
    assert code(decide(at, "commit")) == "unknown_branch"


def test_a_rollback_gives_back_what_was_locked_as_delivered_before() -> None:
    at, m = locked()
    assert decide(at, "rollback") == BranchDecided(X, "rollback", 0, 0, 2, cid="c")
    assert [fact.why for fact in at.facts(Failed)] == ["cancelled"]
    assert at.seen()[-2:] == [Got(m[0], 2), Got(m[1], 2)]
    assert code(decide(at, "commit")) == "unknown_branch"


def test_a_branch_without_messages_and_locks_is_decided_as_well() -> None:
    at = bench()
    epoch = attach(at).epoch
    assert prepare(at, epoch) == BranchPrepared(X, cid="c")
    assert decide(at, "commit") == BranchDecided(X, "commit", cid="c")


@pytest.mark.parametrize("first", ENDS)
def test_of_two_decisions_at_once_one_holds(first: str) -> None:
    at, m = locked()
    second = ENDS[1 - ENDS.index(first)]
    at.holding = True
    decide(at, first)
    decide(at, second)
    at.reading = False
    at.land(1)
    at.refuse("unknown_branch")
    assert at.codes() == ["unknown_branch"]
    at.reading = True
    at.fold()
    at.holding = False
    assert at.here() == ([m[2]] if first == "commit" else m)
    assert states(at, m[:2]) == ["gone"] * 2 if first == "commit" else ["leased"] * 2


def test_a_roll_back_is_not_begun_twice() -> None:
    """One of two units may be refused, and the other one hold: what was acknowledged in between
    would be delivered again."""
    at, m = locked()
    at.holding = True
    decide(at, "rollback")
    decide(at, "rollback")
    assert at.codes() == ["not_ready"]
    at.refuse("too_large")
    decide(at, "rollback")
    at.holding = False
    at.land()
    assert at.here() == m
    assert states(at, m[:2]) == ["leased"] * 2


@pytest.mark.parametrize("decision", ENDS)
def test_a_refused_decision_leaves_the_locks(decision: str) -> None:
    at, m = locked()
    at.holding = True
    decide(at, decision)
    at.refuse("too_large")
    assert at.codes() == ["too_large"]
    assert states(at, m[:2]) == ["locked", "locked"]
    at.holding = False
    assert decide(at, decision).accepted == 2


def test_a_decision_waits_until_the_queues_were_read() -> None:
    at, _ = locked()
    at.reading = False
    at.restart()
    at.logon()
    assert code(decide(at, "commit")) == "not_ready"
    at.reading = True
    at.fold()
    assert decide(at, "commit").accepted == 2


@pytest.mark.parametrize("decision", ENDS)
def test_a_decision_waits_until_all_of_the_unit_was_read(decision: str) -> None:
    """A block may end between the record and the locks. Whoever lists branches knows of it then."""
    at = bench()
    m, epoch = holding(at, 1)
    at.reading = False
    prepare(at, epoch, took(*m))
    record, locks = at.log[-2:]
    assert (record.kind, locks.kind) == (KIND_BRANCH, KIND_QUEUE)
    record.flags |= FLAG_UNIT
    read = at.core.next_read()
    assert isinstance(read, Read)
    end = locks.position
    items = [one for one in at.log if read.cursor.position <= one.position < end]
    at.turn.hear(BlockRead(read, Block(read.cursor, items, Cursor(1, end, end))))
    assert listed(at) == [(str(X), "prepared", 1)]
    assert code(decide(at, decision)) == "not_ready"
    at.reading = True
    at.run()
    assert decide(at, decision).accepted == 1
    assert states(at, m) == (["gone"] if decision == "commit" else ["leased"])


def test_a_branch_is_decided_by_anybody_of_its_principal_and_by_nobody_else() -> None:
    at, _ = locked()
    assert code(decide(at, "commit", rid=BOB)) == "unknown_branch", "names are of a principal"
    assert listed(at, BOB) == []
    assert listed(at) == [(str(X), "prepared", 2)]
    assert listed(at, xid=Xid(7, "other")) == []
    at.lose()
    at.logon()
    assert decide(at, "commit").accepted == 2


def test_what_an_operator_decided_is_answered_and_kept() -> None:
    at, _ = locked()
    assert code(decide(at, "forget")) == "bad_command"
    assert decide(at, "commit", heuristic=True).accepted == 2
    assert listed(at) == [(str(X), "committed", 2)]
    assert decide(at, "commit") == BranchDecided(X, "commit", 0, 2, 2, cid="c")
    assert code(decide(at, "rollback")) == "branch_decided"
    assert decide(at, "forget") == BranchDecided(X, "forget", cid="c")
    assert code(decide(at, "forget")) == "unknown_branch"


def test_a_dump_of_locks_that_is_damaged_is_refused() -> None:
    at, m = locked()
    rows = at.one().queue.dump()
    again = Queue(at.one().definition.config)
    again.load(rows)
    again.check()
    assert again.places.locks.all == BitMap64(m[:2])
    for bad in (b"", b"no", b"\x91\x93\xa1a\xa1b\xc4\x01x"):
        with pytest.raises(ValueError, match=r".+"):
            Queue(at.one().definition.config).load(rows | {"locked": bad})
