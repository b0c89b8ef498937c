"""Distributed transactions for operators: the list, decisions, and what `explain` says of locks."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from tests.queues.bench import HERE, Bench
from tests.queues.test_branch_commands import ENDS, X, decide, listed, locked, prepare, states
from tests.queues.test_branches_elsewhere import lock_there, of_peer
from tests.queues.test_replicated import LOWER, THIRD, Shared
from tests.queues.test_transaction_commands import attach, bench, code
from zbroker.config import QueueConfig
from zbroker.log.format import KIND_BRANCH
from zbroker.log.records import BRANCH, BranchRecord, encode
from zbroker.wire import branch_surveys as b
from zbroker.wire import queue_surveys as s
from zbroker.wire.branches import BranchDecided
from zbroker.xids import Xid


def change(at: Bench, decision: Any, xid: Xid = X, **more: Any) -> Any:
    return at.ask(b.ChangeBranch(1, "ann", xid, decision, **more))


def records(at: Bench) -> list[BranchRecord]:
    return [BRANCH.decode(one.body) for one in at.log if one.kind == KIND_BRANCH]


def explained(at: Bench, position: int, queue: str = "q") -> s.Explained:
    found = at.ask(s.Explain(1, queue, position))
    assert isinstance(found, s.Explained)
    return found


# -- list -----------------------------------------------------------------------------------------


def test_operators_see_the_branches_of_all_principals_with_what_they_lock() -> None:
    at, _ = locked()
    epoch = attach(at).epoch
    prepare(at, epoch, xid=Xid(7, "second"), number=2)
    found = at.ask(b.AskBranchRows(1, limit=10))
    first, second = found.rows
    assert (first.principal, first.xid, first.state, first.session) == (
        "ann", Xid(7, "second"), "prepared", "bills"
    )  # fmt: skip
    assert (second.xid, second.messages, second.accepted, second.queues) == (X, 2, 2, ["q"])
    assert (second.instance, second.here) == (HERE.instance, True)
    assert 0 < first.prepared_ns - second.prepared_ns < 1_000_000_000
    assert at.ask(b.AskBranchRows(1, limit=1)).left_out == 1
    assert [one.xid for one in at.ask(b.AskBranchRows(1, xid=X, limit=9)).rows] == [X]
    assert at.ask(b.AskBranchRows(1, "bob", limit=9)).rows == []


def test_branches_of_other_instances_are_listed_as_such() -> None:
    at = Shared()
    of_peer(at, "prepared", accepted=2)
    [row] = at.ask(b.AskBranchRows(1, limit=10)).rows
    assert (row.instance, row.here, row.accepted) == (LOWER.instance, False, 2)


# -- decide ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ENDS)
def test_what_an_operator_decides_holds_and_is_kept_for_its_transaction_manager(
    decision: str,
) -> None:
    at, m = locked()
    done = change(at, decision)
    commits = decision == "commit"
    assert (done.code, done.accepted, done.mixed) == ("", 2, False)
    assert (done.messages, done.position > 0) == ((2, True) if commits else (0, False))
    assert at.here() == m[2 if commits else 0 :]
    assert records(at)[-1].heuristic
    assert listed(at) == [(str(X), "committed" if commits else "rolled_back", 2)]
    assert isinstance(decide(at, decision), BranchDecided), "it asks, and is answered"
    other = ENDS[1 - ENDS.index(decision)]
    assert code(change(at, other)) == "branch_decided"
    assert code(change(at, "forget")) == ""
    assert listed(at) == []


def test_the_answer_comes_when_it_is_durable() -> None:
    at, _ = locked()
    at.holding = True
    before = len(at.reported)
    change(at, "commit")
    assert len(at.reported) == before
    at.land()
    assert at.reported[-1][1] == b.BranchChanged(1, records_position(at), 2, 2)


def records_position(at: Bench) -> int:
    return next(one.position for one in at.log if one.topics == ["out"])


@pytest.mark.parametrize("decision", ENDS)
def test_a_dry_run_says_what_would_come_of_it_and_changes_nothing(decision: str) -> None:
    at, m = locked()
    count = len(at.log)
    messages = 2 if decision == "commit" else 0
    assert change(at, decision, dry_run=True) == b.BranchChanged(1, 0, messages, 2)
    assert len(at.log) == count
    assert states(at, m[:2]) == ["locked", "locked"]
    assert change(at, decision).accepted == 2


def test_a_dry_run_is_refused_as_the_change_would_be() -> None:
    at, _ = locked()
    assert code(change(at, "forget", dry_run=True)) == "bad_command"
    assert code(change(at, "commit", Xid(7, "none"), dry_run=True)) == "unknown_branch"
    change(at, "commit")
    assert code(change(at, "rollback", dry_run=True)) == "branch_decided"


def test_what_another_instance_prepared_is_rolled_back_by_force_alone() -> None:
    at = Shared()
    m = at.from_peer(2, LOWER)
    of_peer(at, "prepared", accepted=2)
    lock_there(at, (1, 2))
    assert code(change(at, "commit", force=True)) == "branch_elsewhere"
    assert code(change(at, "rollback")) == "branch_elsewhere"
    assert change(at, "rollback", force=True, dry_run=True).accepted == 2
    assert states(at, m) == ["locked", "locked"]
    assert change(at, "rollback", force=True).accepted == 2
    assert states(at, m) == ["elsewhere", "elsewhere"]
    assert code(change(at, "forget")) == "branch_elsewhere"
    assert code(change(at, "forget", force=True)) == ""


def test_of_several_instances_that_prepared_one_name_one_is_named() -> None:
    at = Shared()
    for instance in (LOWER, THIRD):
        said = BranchRecord("ann", X, "prepared", "bills", instance.instance, 1)
        at.arrives(KIND_BRANCH, encode(said), instance)
    refused = change(at, "rollback", force=True)
    assert (refused.code, f"{THIRD.instance:016x}" in refused.reason) == ("branch_elsewhere", True)
    assert code(change(at, "rollback", force=True, instance=5)) == "unknown_branch"
    assert code(change(at, "rollback", force=True, instance=THIRD.instance)) == ""
    rows = at.ask(b.AskBranchRows(1, limit=10)).rows
    assert {row.instance: row.state for row in rows} == {
        LOWER.instance: "prepared", THIRD.instance: "rolled_back",
    }  # fmt: skip
    assert code(decide(at, "rollback", force=True)) == "branch_elsewhere"
    assert isinstance(decide(at, "rollback", force=True, instance=LOWER.instance), BranchDecided)


def test_a_refused_decision_is_reported() -> None:
    at, m = locked()
    at.holding = True
    change(at, "commit")
    at.refuse("too_large")
    assert code(at.reported[-1][1]) == "too_large"
    assert states(at, m[:2]) == ["locked", "locked"]


def test_a_journal_that_does_not_answer_is_reported() -> None:
    at, m = locked()
    at.silent = True
    before = len(at.reported)
    at.ask(b.AskBranchRows(1, limit=1))
    change(at, "commit")
    at.ask(s.Explain(3, "q", m[0]))
    at.pass_ms(11_000)
    rows, changed, why = (one for _, one in at.reported[before:])
    assert (rows.code, changed.code) == ("not_ready", "not_ready")
    assert isinstance(rows, b.BranchesSurveyed)
    assert isinstance(changed, b.BranchChanged)
    assert (why.state, why.code) == ("locked", ""), "what is known here is said all the same"
    assert "one of principal 'ann', and is not known" in why.lines[1]


# -- explain --------------------------------------------------------------------------------------


def test_a_locked_message_names_the_branch_that_has_it() -> None:
    at, m = locked()
    epoch = attach(at).epoch
    prepare(at, epoch, xid=Xid(7, "second"), number=2)
    found = explained(at, m[1])
    assert found.state == "locked"
    assert found.lines[0] == (
        "a distributed transaction that is prepared, and not decided, has locked it"
    )
    assert found.lines[1].startswith(
        f"that is {X} of principal 'ann', prepared on instance {HERE.instance:016x} at 1970"
    )
    assert explained(at, m[2]).state == "leased"
    decide(at, "rollback")
    assert explained(at, m[1]).state == "leased"


def test_the_same_by_bookmark() -> None:
    at, m = locked()
    found = at.ask(s.Explain(1, "q", bookmark=at.bookmark(m[0])))
    assert found.state == "locked"
    assert str(X) in found.lines[1]


def test_a_lock_whose_branch_is_not_known_names_its_principal() -> None:
    at = Shared()
    m = at.from_peer(1, LOWER)
    lock_there(at, (1, 1))
    assert (
        explained(at, m[0]).lines[1] == "that is one of principal 'ann', and was decided just now"
    )


def test_a_queue_whose_messages_are_locked_says_how_to_list_the_branches() -> None:
    at, m = locked()
    at.ack(m[2])
    found = explained(at, 0)
    assert any(
        "2 messages are locked" in line and "zbroker-admin transaction ls" in line
        for line in found.lines
    )


def test_locked_messages_are_browsed_by_their_state() -> None:
    at, m = locked()
    found = at.ask(s.BrowseQueue(1, "q", state="locked"))
    assert BitMap64(row.position for row in found.rows) == BitMap64(m[:2])
    assert {row.state for row in found.rows} == {"locked"}


def test_a_replayable_queue_is_explained_as_before() -> None:
    at = bench(QueueConfig("q", topic="t", kind="replayable"))
    [position] = at.publish(b"x")
    assert explained(at, position).state == "kept"
