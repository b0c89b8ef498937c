"""What waits until synchronous destinations have it: receipts, logons, commits of stages."""

from __future__ import annotations

from zbroker.ingest.replication_gate import Outstanding, ReplicationGate, Settled
from zbroker.wire.internal import Entry, ReceiptItem
from zbroker.wire.replicas import Replicated
from zbroker.wire.stages import StagesDone

JOURNAL = 7
ENTRY = Entry(1, 1, 1, 1, None, 0, None, ["t"])


def gate(through: int = 0) -> ReplicationGate:
    made = ReplicationGate(on=True)
    made.journal_begins(JOURNAL)
    made.moved(Replicated(JOURNAL, through, 1))
    return made


def settled(*positions: int) -> list[Settled]:
    return [
        (Outstanding(n, ENTRY, b"body"), ReceiptItem(n, position, position))
        for n, position in enumerate(positions, 1)
    ]


def positions(found: list[Settled]) -> list[int]:
    return [item.position for _, item in found]


def test_without_synchronous_destinations_everything_is_covered() -> None:
    assert ReplicationGate(on=False).covers(1 << 62)


def test_receipts_wait_for_the_mark_and_come_in_order() -> None:
    waits = gate(through=3)
    assert positions(waits.receipts(settled(1, 2, 3))) == [1, 2]
    assert waits.holds
    assert waits.moved(Replicated(JOURNAL, 4, 1))
    assert positions(waits.receipts([])) == [3]
    assert not waits.holds


def test_bodies_are_let_go() -> None:
    (one,) = gate(through=9).receipts(settled(1))
    assert one[0].body == b""


def test_a_refusal_waits_for_what_is_before_it_only() -> None:
    """Its client hears first that everything before it is durable."""
    waits = gate(through=2)
    assert positions(waits.receipts(settled(1, 2, 0))) == [1]
    waits.moved(Replicated(JOURNAL, 3, 1))
    assert positions(waits.receipts([])) == [2, 0]


def test_a_duplicate_waits_for_its_original() -> None:
    waits = gate(through=2)
    assert positions(waits.receipts(settled(5))) == []


def test_a_mark_of_another_journal_does_not_count() -> None:
    waits = gate(through=2)
    assert not waits.moved(Replicated(JOURNAL + 1, 9, 1))
    assert not waits.covers(2)


def test_another_journal_begins_with_nothing_replicated() -> None:
    waits = gate(through=9)
    waits.journal_begins(JOURNAL + 1)
    assert not waits.covers(1)


def test_a_mark_that_comes_before_the_welcome_of_its_journal_counts_from_then_on() -> None:
    waits = gate(through=2)
    waits.moved(Replicated(JOURNAL + 1, 5, 1))
    waits.journal_begins(JOURNAL + 1)
    assert waits.covers(4)
    assert not waits.covers(5)


def test_an_upgrade_holds_what_a_downgrade_let_through() -> None:
    waits = gate(through=9)
    assert waits.moved(Replicated(JOURNAL, 5, 2))
    assert waits.needed == 2
    assert positions(waits.receipts(settled(5))) == []


def test_a_commit_of_stages_waits_for_its_last_message() -> None:
    waits, done = gate(through=5), StagesDone(1, 4, 3)
    assert waits.commit(done, 6) == []
    waits.moved(Replicated(JOURNAL, 7, 1))
    assert waits.commits() == [done]
