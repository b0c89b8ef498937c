"""What a log knows of generations that have ended, and what vectors need not say of them."""

from __future__ import annotations

import pytest

from tests.journal.test_origins import HERE, THERE, batch
from zbroker.ids import Origin
from zbroker.journal import closed_generations as module
from zbroker.journal.closed_generations import ClosedGenerations, ClosedRow
from zbroker.journal.origins import Origins
from zbroker.log import records
from zbroker.log.format import KIND_CLOSED, Batch

OLD, LATER, NEWEST = Origin(THERE, 1), Origin(THERE, 2), Origin(THERE, 3)


def closing(position: int, at: int, end: int, by: int = 2, of: int = 1) -> Batch:
    made = batch(position, THERE, at, generation=by)
    made.kind, made.body = KIND_CLOSED, records.encode(records.ClosedRecord(of, end))
    return made


def folded(*batches: Batch) -> Origins:
    table = Origins(HERE)
    for one in batches:
        if one.kind == KIND_CLOSED:
            table.fold_closed(one)
        table.fold(one)
    return table


@pytest.fixture
def table() -> Origins:
    """Generation 1 ended at 7; generation 2 says so at 12, and has a message at 13."""
    return folded(
        batch(1, THERE, 6, 2), closing(3, 12, 7), batch(4, THERE, 13, generation=2)
    )  # fmt: skip


def test_a_closed_generation_has_no_row(table: Origins) -> None:
    assert list(table.open_rows) == [LATER]
    assert table.messages == {LATER: 13}
    assert table.all_messages == {OLD: 7, LATER: 13}
    assert table.all_stored == {OLD: 7, LATER: 13}
    assert table.vector == {OLD: 7, LATER: 13}
    assert table.foreign


def test_where_it_ended_is_known(table: Origins) -> None:
    assert table.high(OLD) == 7
    assert table.of(OLD).crc_at == 7
    table.of(OLD).position = 9
    assert table.high(OLD) == 7


def test_what_comes_of_it_later_gives_it_no_row(table: Origins) -> None:
    table.fold(batch(5, THERE, 7))
    table.meet([(1, 1)])
    assert OLD not in table.open_rows


def test_a_damaged_closing_record_leaves_the_row() -> None:
    damaged = closing(3, 12, 7)
    damaged.body = b"\xff"
    assert OLD in folded(batch(1, THERE, 6, 2), damaged).open_rows


def test_a_vector_that_has_passed_it_needs_no_entry(table: Origins) -> None:
    closed = table.closed
    assert closed.compact({OLD: 7, LATER: 12}) == {LATER: 12}
    assert closed.fill({LATER: 12}) == {OLD: 7, LATER: 12}


def test_a_vector_that_has_not_reached_its_end_keeps_its_entry(table: Origins) -> None:
    closed = table.closed
    for vector in ({OLD: 6, LATER: 13}, {OLD: 7}, {OLD: 7, LATER: 11}, {LATER: 11}):
        assert closed.compact(vector) == vector
        assert closed.fill(vector) == vector


def test_a_log_without_a_message_after_it_has_passed_it() -> None:
    table = folded(batch(1, THERE, 6, 2), closing(3, 12, 7))
    assert table.messages == {LATER: 12}
    assert table.closed.fill(table.messages) == {OLD: 7, LATER: 12}


def test_a_vector_of_the_newest_one_has_passed_all_before() -> None:
    table = folded(
        batch(1, THERE, 6, 2), closing(3, 12, 7), closing(4, 20, 12, by=3, of=2),
        batch(5, THERE, 21, generation=3),
    )  # fmt: skip
    assert table.closed.compact({OLD: 7, LATER: 12, NEWEST: 21}) == {NEWEST: 21}
    assert table.closed.fill({NEWEST: 21}) == {OLD: 7, LATER: 12, NEWEST: 21}
    assert table.closed.fill({LATER: 12}) == {OLD: 7, LATER: 12}


def test_how_a_segment_began_is_known_of_one_that_was_closed_in_it() -> None:
    table = folded(batch(1, THERE, 6))
    table.begin_segment(2)
    for one in (batch(2, THERE, 7), closing(3, 12, 7)):
        if one.kind == KIND_CLOSED:
            table.fold_closed(one)
        table.fold(one)
    [row] = table.closed
    assert (row.messages, row.begun, row.stored_begun) == (7, 6, 6)
    table.begin_segment(3)
    assert (row.begun, row.stored_begun) == (7, 7)


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSED_MAX", 2)
    closed = ClosedGenerations()
    for generation in (1, 2, 3):
        closed.add(ClosedRow(THERE, generation, 5, generation + 1, 9, 5, 5, 5, 5, 5))
    closed.add(ClosedRow(HERE, 1, 5, 2, 9, 5, 5, 5, 5, 5))
    assert closed.generations_of(THERE) == [2, 3]
    assert (closed.newest_forgotten(THERE), closed.newest_forgotten(HERE)) == (2, 0)
    assert len(closed) == 3


OWN, NEXT, THIRD = Origin(HERE, 1), Origin(HERE, 2), Origin(HERE, 3)


@pytest.fixture
def own() -> ClosedGenerations:
    """Record 12 of generation 2 closed the first one, at 7; record 20 of the third one the second,
    at 12. There are peers; nothing is known of them."""
    closed = ClosedGenerations()
    closed.copied(HERE, {})
    closed.add(ClosedRow(HERE, 1, 7, 2, 12, 7, 7, 0, 7, 0))
    closed.add(ClosedRow(HERE, 2, 12, 3, 20, 12, 11, 0, 11, 0))
    return closed


ALL_NAMED = {OWN: 7, NEXT: 12, THIRD: 21}


@pytest.mark.parametrize(
    ("generations", "left"),
    [
        ({}, ALL_NAMED),
        ({1: 7}, ALL_NAMED),
        ({1: 7, 2: 11, 3: 19}, ALL_NAMED),
        ({1: 7, 2: 12, 3: 19}, {NEXT: 12, THIRD: 21}),
        ({1: 7, 2: 12, 3: 20}, {THIRD: 21}),
        ({3: 20}, {THIRD: 21}),
        (None, {THIRD: 21}),
    ],
)
def test_an_entry_stays_until_the_record_that_closed_it_is_on_another_host(
    own: ClosedGenerations, generations: dict[int, int] | None, left: dict[Origin, int]
) -> None:
    """Peers name their newest generations; a closing record comes after all that it closes."""
    own.copied(HERE, generations)
    assert own.compact(ALL_NAMED) == left
    assert own.fill(left) == ALL_NAMED
    messages = {OWN: 7, NEXT: 11}
    assert own.still_named == {one: at for one, at in messages.items() if one in left}


def test_one_without_messages_needs_no_entry(own: ClosedGenerations) -> None:
    """As on a host that takes copies only: peers never hold anything of it."""
    own.add(ClosedRow(HERE, 3, 20, 4, 30, 20, 20, 0, 0, 0))
    assert own.compact({THIRD: 20, Origin(HERE, 4): 31}) == {Origin(HERE, 4): 31}
    assert THIRD not in own.still_named
    assert own.compact({NEXT: 12, THIRD: 20}) == {NEXT: 12, THIRD: 20}, "it proves nothing of older"


def test_records_of_others_are_on_two_hosts(own: ClosedGenerations) -> None:
    own.add(ClosedRow(THERE, 1, 7, 2, 12, 7, 7, 0, 7, 0))
    assert own.compact({OLD: 7, LATER: 12}) == {LATER: 12}


def test_what_was_taken_again_is_named_until_the_record_of_it_is_copied(
    own: ClosedGenerations,
) -> None:
    [row, *_] = own
    own.copied(HERE, {2: 12, 3: 20})
    row.beyond = row.messages = 9
    row.again_generation, row.again_position = 3, 25
    own.changed(row)
    assert own.compact({OWN: 9, THIRD: 25}) == {OWN: 9, THIRD: 25}
    assert own.still_named == {OWN: 9}
    own.copied(HERE, {2: 12, 3: 25})
    assert own.compact({OWN: 9, THIRD: 25}) == {THIRD: 25}
    assert own.still_named == {}


def test_what_is_forgotten_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSED_MAX", 1)
    closed = ClosedGenerations()
    closed.copied(HERE, {})
    for generation in (1, 2):
        closed.add(ClosedRow(HERE, generation, 5, generation + 1, 9, 5, 5, 5, 5, 5))
    assert closed.still_named == {NEXT: 5}
    closed.copied(HERE, {3: 9})
    assert closed.still_named == {}
