"""What an instance said that it holds: which statement counts."""

from __future__ import annotations

from tests.replication.build import HERE, THIRD, statement
from zbroker.ids import Origin
from zbroker.replication.holdings import Holdings
from zbroker.wire import replication as w
from zbroker.wire.replication import OriginPosition


def test_a_change_raises_the_rows_that_it_names() -> None:
    held = Holdings()
    held.take(statement(1, {HERE: 3, THIRD: 4}), whole=True)
    assert held.take(statement(2, {HERE: 5}), whole=False)
    assert (held.position(HERE, 0), held.position(THIRD, 0)) == (5, 4)


def test_an_older_change_is_dropped() -> None:
    held = Holdings()
    held.take(statement(3, {HERE: 5}), whole=True)
    assert not held.take(statement(2, {HERE: 9}), whole=False)
    assert held.position(HERE, 0) == 5


def test_a_whole_statement_takes_the_place_of_rows_that_it_lacks() -> None:
    """The disk of that instance may be another one."""
    held = Holdings()
    held.take(statement(9, {HERE: 5, THIRD: 4}), whole=True)
    held.take(statement(1, {HERE: 2}), whole=True)
    assert (held.position(HERE, 0), held.position(THIRD, 0)) == (2, 0)


def test_a_change_of_a_journal_that_has_not_said_everything_is_dropped() -> None:
    held = Holdings()
    held.take(statement(1, {HERE: 5}), whole=True)
    later = statement(2, {HERE: 9})
    later.started_ns += 1
    assert not held.take(later, whole=False)


def test_a_row_of_another_filter_counts_for_nothing() -> None:
    held = Holdings()
    said = statement(1, {})
    said.rows.append(OriginPosition(*HERE, 7, digest=11))
    held.take(said, whole=True)
    assert held.position(HERE, 0) == 0
    assert held.position(HERE, 11) == 7


def test_a_receipt_raises_a_row_and_never_lowers_it() -> None:
    held = Holdings()
    held.received(HERE, 5, 0)
    held.received(HERE, 3, 0)
    assert held.position(HERE, 0) == 5


def closed(*generations: int) -> list[w.ClosedGeneration]:
    return [w.ClosedGeneration(HERE.instance, one, 10 * one) for one in generations]


def test_a_closed_generation_is_held_up_to_its_end() -> None:
    held = Holdings()
    said = statement(1, {HERE: 5})
    said.closed = closed(4, HERE.generation)
    held.take(said, whole=True)
    assert held.position(HERE, 0) == 50  # also where the row is older
    assert held.position(Origin(HERE.instance, 4), 7) == 40
    assert sorted(held.generations_of(HERE.instance)) == [(4, 40), (5, 50)]
    held.take(statement(2, {THIRD: 1}), whole=False)
    assert held.position(HERE, 0) == 50
    held.take(statement(3, {}), whole=True)
    assert held.position(HERE, 0) == 0


def test_one_older_than_all_that_a_statement_can_name_is_there() -> None:
    held = Holdings()
    said = statement(1, {})
    said.closed = closed(*range(10, 10 + w.CLOSED_SAID_MAX))
    held.take(said, whole=True)
    assert held.has_all_of(Origin(HERE.instance, 9))
    assert not held.has_all_of(Origin(HERE.instance, 80))
    assert not held.has_all_of(Origin(THIRD.instance, 9))
