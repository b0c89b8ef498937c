"""Branches of distributed transactions where a queue is on several instances, whose records come in
any order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import HERE
from tests.queues.test_branch_commands import X, decide, holding, listed, prepare, states
from tests.queues.test_replicated import LOWER, THERE, THIRD, Shared
from tests.queues.test_transaction_commands import code, commit, took
from zbroker.ids import Origin
from zbroker.log import queue_records as r
from zbroker.log.format import FLAG_UNIT, KIND_BRANCH, KIND_OUTCOMES
from zbroker.log.records import BranchRecord, encode
from zbroker.transaction_tokens import token_of
from zbroker.wire.branches import BranchPrepared


def record(state: str, **more: Any) -> bytes:
    said = {"session": "bills", "epoch": 5, "number": 1, "queues": ["q"]} | more
    return encode(BranchRecord("ann", X, state, **said))  # type: ignore[arg-type]


def of_peer(at: Shared, state: str, **more: Any) -> None:
    at.arrives(KIND_BRANCH, record(state, **more), LOWER)


def of_third(at: Shared, state: str, **more: Any) -> None:
    at.arrives(KIND_BRANCH, record(state, **more), THIRD)


def lock_there(
    at: Shared, *origins: tuple[int, int], number: int = 1, origin: Origin = LOWER
) -> None:
    where = [r.OriginSet(*LOWER, [first, count]) for first, count in origins]
    lock = r.OriginsLocked(where, ("ann", token_of("bills", 5, number)))
    at.facts_of(lock, origin=origin)


def failed(*steps: int, why: str = "cancelled") -> r.OriginsFailed:
    return r.OriginsFailed([r.OriginSet(*LOWER, [*steps])], why)


def half_decided(state: str) -> tuple[Shared, int]:
    """A locked message, of whose decision the record was read, and not yet the rest of its unit."""
    at = Shared()
    [m] = at.from_peer(1, LOWER)
    of_peer(at, "prepared", accepted=1)
    lock_there(at, (1, 1))
    at.reading = False
    of_peer(at, state, accepted=1)
    at.log[-1].flags |= FLAG_UNIT
    at.reading = True
    at.run()
    assert at.state(m) == "locked"
    return at, m


def test_another_instance_does_not_decide_it_but_by_force() -> None:
    at = Shared()
    m = at.from_peer(2, LOWER)
    of_peer(at, "prepared", accepted=2)
    lock_there(at, (1, 2))
    assert states(at, m) == ["locked", "locked"]
    assert code(decide(at, "commit")) == "branch_elsewhere"
    assert code(decide(at, "commit", force=True)) == "branch_elsewhere"
    assert code(decide(at, "rollback")) == "branch_elsewhere"
    assert decide(at, "rollback", force=True).accepted == 2
    assert states(at, m) == ["elsewhere", "elsewhere"]
    assert listed(at) == [(str(X), "rolled_back", 2)]


def test_locked_messages_stay_so_when_their_owner_changes() -> None:
    at = Shared()
    m = at.from_peer(2, LOWER)
    at.consume()
    of_peer(at, "prepared", accepted=1)
    lock_there(at, (1, 1))
    at.move([r.OriginSet(*LOWER, [1, 2])], takeover=True, seen=True, origin=HERE)
    assert at.got() == [m[1]]
    assert states(at, m[:1]) == ["locked"]
    decide(at, "rollback", force=True)
    assert at.got() == [m[1], m[0]]


def test_a_lock_that_is_here_before_its_message_counts() -> None:
    at = Shared()
    of_peer(at, "prepared", accepted=1)
    lock_there(at, (9, 1))
    m = at.from_peer(1, LOWER, at=9)
    assert states(at, m) == ["locked"]


def test_a_roll_back_by_force_is_about_messages_that_are_not_here_yet_too() -> None:
    """They come from a third instance; the one that has locked them is gone."""
    at = Shared()
    of_peer(at, "prepared", accepted=2)
    lock_there(at, (9, 2))
    assert decide(at, "rollback", force=True).mixed
    m = at.from_peer(2, LOWER, at=9)
    assert states(at, m) == ["elsewhere", "elsewhere"]
    at.consume()
    at.move([r.OriginSet(*LOWER, [9, 2])], takeover=True, seen=True, origin=HERE)
    assert at.got() == m


@pytest.mark.parametrize("state", ["committed", "rolled_back"])
def test_what_is_locked_here_alone_comes_back_with_the_decision(state: str) -> None:
    """Where it was decided it was not locked: another branch, which came first, had it."""
    at = Shared()
    m = at.from_peer(2, LOWER)
    of_peer(at, "prepared", accepted=2)
    lock_there(at, (1, 2))
    of_peer(at, state, accepted=0)
    assert states(at, m) == ["elsewhere", "elsewhere"]


def test_what_is_locked_stays_so_until_the_whole_unit_of_the_decision_was_read() -> None:
    """Else it might go to a consumer before it is read that it is gone."""
    at, _ = half_decided("committed")
    at.facts_of(r.OriginsGone([r.OriginSet(*LOWER, [1, 1])]), origin=LOWER)
    assert at.here() == []


@pytest.mark.parametrize("tables", [False, True])
def test_a_lock_that_is_read_after_the_roll_back_by_force_does_not_count(tables: bool) -> None:
    """Another instance has read it, and rolled back; its record is here first."""
    at = Shared()
    m = at.from_peer(1, LOWER)
    of_peer(at, "rolled_back", accepted=1, forced=True)
    if tables:
        at.restart(at.tables())
        at.logon()
    lock_there(at, (1, 1))
    assert states(at, m) == ["elsewhere"]
    lock_there(at, (1, 1), number=2)
    assert states(at, m) == ["locked"], "that is another branch"


@pytest.mark.parametrize("why", ["lease_ended", "cancelled", "rejected"])
def test_a_failure_at_another_instance_does_not_unlock(why: str) -> None:
    """It had the message before the one that has locked it did, and its record is here later."""
    at = Shared()
    m = at.from_peer(2, LOWER)
    of_peer(at, "prepared", accepted=2)
    lock_there(at, (1, 2))
    at.facts_of(failed(1, 2, why=why), origin=THIRD)
    assert states(at, m) == ["locked", "locked"]
    assert decide(at, "rollback", force=True).accepted == 2
    assert states(at, m) == ["elsewhere", "elsewhere"]
    assert at.one().queue.counting.deliveries(m[0]) == 2


@pytest.mark.parametrize("ask", ["prepare", "commit"])
def test_a_failure_at_another_instance_does_not_undo_what_is_on_its_way(ask: str) -> None:
    """It had the message before. Else another consumer could take it in a second transaction."""
    at = Shared()
    [m], epoch = holding(at, 1)
    at.holding = True
    if ask == "prepare":
        prepare(at, epoch, took(m))
    else:
        commit(at, epoch, 1, took(m))
    late = r.OriginsFailed([r.OriginSet(*HERE, [m, 1])], "lease_ended")
    at.facts_of(late, origin=THERE)
    assert at.state(m) == "going"
    at.land()
    assert at.here() == ([m] if ask == "prepare" else [])


def test_what_fails_here_while_another_instance_locks_it_comes_back_once() -> None:
    at = Shared()
    [m], _ = holding(at, 1)
    at.holding = True
    at.release(m)
    where = [r.OriginSet(*HERE, [m, 1])]
    of_peer(at, "prepared", accepted=1)
    at.facts_of(r.OriginsLocked(where, ("ann", token_of("bills", 5, 1))), origin=LOWER)
    at.land()
    queue = at.one().queue
    assert (at.state(m), len(queue.places.failing)) == ("locked", 0)
    of_peer(at, "rolled_back", accepted=1)
    at.facts_of(r.OriginsFailed(where), origin=LOWER)
    assert at.state(m) == "leased"
    queue.check()


def test_the_decision_of_one_branch_does_not_unlock_what_another_one_has() -> None:
    """Two instances rolled the first one back; then one of them locked the message again, and the
    other one's record is here after that."""
    at = Shared()
    [m] = at.from_peer(1, LOWER)
    of_peer(at, "prepared", accepted=1)
    lock_there(at, (1, 1))
    of_peer(at, "rolled_back", accepted=1)
    at.facts_of(failed(1, 1), origin=LOWER)
    of_peer(at, "prepared", accepted=1, number=2)
    lock_there(at, (1, 1), number=2)
    of_third(at, "rolled_back", accepted=1, forced=True)
    at.facts_of(failed(1, 1), origin=THIRD)
    assert at.state(m) == "locked"
    of_peer(at, "rolled_back", accepted=1, number=2)
    assert at.state(m) == "elsewhere"


@pytest.mark.parametrize("first", [1, 2])
def test_what_two_branches_have_comes_back_when_both_are_decided(first: int) -> None:
    at = Shared()
    [m] = at.from_peer(1, LOWER)
    for number, origin in ((1, LOWER), (2, THIRD)):
        at.arrives(KIND_BRANCH, record("prepared", accepted=1, number=number), origin)
        lock_there(at, (1, 1), number=number, origin=origin)
    of_peer(at, "rolled_back", number=first)
    assert at.state(m) == "locked"
    of_third(at, "rolled_back", number=3 - first)
    assert at.state(m) == "elsewhere"
    at.one().queue.check()


def test_a_roll_back_counts_where_the_tables_end_within_its_unit() -> None:
    at, m = half_decided("rolled_back")
    at.restart(at.tables())
    at.logon()
    at.facts_of(failed(1, 1), origin=LOWER)
    assert at.state(m) == "elsewhere"


def test_an_acknowledgement_of_another_instance_counts_and_is_said() -> None:
    at = Shared()
    m, epoch = holding(at, 2)
    prepare(at, epoch, took(*m))
    gone = r.OriginsGone([r.OriginSet(*HERE, [m[0], 1])])
    at.facts_of(gone, origin=THERE)
    answer = decide(at, "commit")
    assert (answer.accepted, answer.mixed) == (1, True)
    assert at.here() == []


def test_locks_of_a_replicated_queue_go_to_all_instances() -> None:
    at = Shared()
    m, epoch = holding(at, 1)
    at.holding = True
    prepare(at, epoch, took(*m))
    assert at.kinds() == [KIND_BRANCH, KIND_OUTCOMES]
    at.land()
    assert isinstance(at.last(), BranchPrepared)
    assert at.state(m[0]) == "locked"
