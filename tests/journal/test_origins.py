"""Per origin how far its records are here; ties."""

from __future__ import annotations

from tests.journal.build import publish
from zbroker.ids import Origin
from zbroker.journal import origins as module
from zbroker.journal.origin_rows import travelling
from zbroker.journal.origins import OriginRow, Origins, Tie, tie_of
from zbroker.journal.sessions import Sessions
from zbroker.log.format import KIND_STATE, KIND_TIE, Batch
from zbroker.log.records import OriginRecord

HERE, THERE = 9, 8


def batch(position: int, instance: int, at: int, count: int = 1, generation: int = 1) -> Batch:
    made = publish(position, b"x", count)
    made.origin_instance, made.origin_generation, made.origin_position = instance, generation, at
    return made


def control(position: int) -> Batch:
    made = batch(position, HERE, position)
    made.kind = KIND_STATE
    return made


def tie(position: int, first: int, last: int, at: int) -> Batch:
    """A tie record: of its messages only the last one takes a position."""
    count = last - first + 1
    made = batch(position, THERE, at + count - 1, count)
    made.kind, made.sequence, made.skip = KIND_TIE, last, count - 1
    return made


def test_highs_are_those_of_the_last_messages() -> None:
    table = Origins(HERE)
    for one in (batch(1, HERE, 1, 3), batch(4, THERE, 70, 2), batch(6, HERE, 6), control(7)):
        table.fold(one)
    assert table.vector == {Origin(HERE, 1): 7, Origin(THERE, 1): 71}
    assert table.messages == {Origin(HERE, 1): 6, Origin(THERE, 1): 71}
    assert table.high(Origin(THERE, 1)) == 71
    assert table.high(Origin(THERE, 2)) == 0


def test_only_another_instance_is_foreign() -> None:
    table = Origins(HERE)
    table.fold(batch(1, HERE, 1))
    assert not table.foreign
    table.fold(batch(2, THERE, 1))
    assert table.foreign


def test_a_batch_without_an_origin_tells_nothing() -> None:
    table = Origins(HERE)
    table.fold(publish(1, b"x"))
    assert table.vector == {}


def test_a_group_is_known_by_its_last_own_batches() -> None:
    table = Origins(HERE)
    table.note_own([batch(1, HERE, 1), batch(2, HERE, 2, 2), control(4), batch(5, THERE, 9)], 1)
    assert table.vector == {Origin(HERE, 1): 4}
    assert table.messages == {Origin(HERE, 1): 3}


def test_a_tie_record_says_which_messages_and_where_they_are_there() -> None:
    found = tie_of(tie(5, first=7, last=9, at=70))
    assert found == Tie(77, 7, 9, THERE, 1, 70, 5)


def test_a_tie_counts_for_its_origin_and_is_noted_once() -> None:
    table = Origins(HERE)
    for _ in range(2):
        table.fold(tie(5, first=7, last=9, at=70))
    assert [known.at for known in table.ties] == [5]
    assert table.messages == {Origin(THERE, 1): 72}
    assert table.stored == {}, "its messages are here with another one"


def test_too_many_ties_give_up_the_oldest() -> None:
    table = Origins(HERE)
    table.fold(tie(5, 7, 9, 70))
    real, module.TIES_MAX = module.TIES_MAX, 1  # type: ignore[misc]
    try:
        table.fold(tie(9, 17, 19, 80))
    finally:
        module.TIES_MAX = real  # type: ignore[misc]
    assert [known.at for known in table.ties] == [9]
    assert table.forgotten == 1


def test_rows_bring_back_what_they_tell_in_any_order() -> None:
    table, again = Origins(HERE), Origins(HERE)
    for one in (batch(1, HERE, 1), tie(5, 7, 9, 70), tie(6, 10, 10, 90)):
        table.fold(one)
    for row in reversed(table.ties):
        again.tie(row)
    for origin in table.rows():
        again.fold_row(origin)
    assert (again.vector, again.messages, again.ties) == (table.vector, table.messages, table.ties)
    assert again.stored == table.stored == {Origin(HERE, 1): 1}


def test_an_older_row_changes_nothing() -> None:
    table = Origins(HERE)
    table.fold(batch(1, HERE, 9))
    table.fold_row(OriginRow(HERE, 1, 4, 3))
    assert table.vector == {Origin(HERE, 1): 9}
    assert table.stored == {Origin(HERE, 1): 9}


def test_a_row_of_before_has_all_its_messages_stored() -> None:
    table = Origins(HERE)
    table.fold_row(OriginRow(THERE, 1, 4, 3))
    assert table.stored == {Origin(THERE, 1): 3}


# -- own generations --------------------------------------------------------------------------


def in_generation_2() -> Origins:
    """This log gave positions 1 to 4 in generation 1, and has gone on in generation 2."""
    table = Origins(HERE)
    table.meet([(1, 1), (2, 5)])
    table.fold(batch(1, HERE, 1, 4))
    table.fold(batch(5, HERE, 5, generation=2))
    return table


def test_an_older_generation_that_ended_here_is_not_foreign() -> None:
    assert not in_generation_2().foreign


def test_what_comes_back_of_an_older_generation_is_foreign() -> None:
    """Its positions are not those of this log: readers that resumed by them missed messages."""
    table = in_generation_2()
    back = batch(6, HERE, 5)
    table.fold(back)
    assert table.foreign
    assert not table.is_own(back)


def test_a_record_that_comes_back_to_its_old_position_is_foreign_all_the_same() -> None:
    table = in_generation_2()
    back = batch(6, HERE, 6)
    assert back.origin_position == back.position
    assert not table.is_own(back)
    assert table.is_own(batch(6, HERE, 6, generation=2))
    assert table.is_own(batch(2, HERE, 2))


def test_what_a_generation_gave_on_another_copy_is_foreign() -> None:
    table = Origins(HERE)
    table.meet([(1, 1), (9, 5)])
    table.fold(batch(6, HERE, 3, generation=4))
    assert table.foreign


def test_the_content_crc_is_that_of_the_newest_record_that_travels() -> None:
    table = Origins(HERE)
    made = batch(1, THERE, 5)
    made.body_crc = 7
    table.fold(made)
    later = control(2)
    later.origin_instance, later.origin_position = THERE, 6
    table.fold(later)
    row = table.get(Origin(THERE, 1))
    assert (row.position, row.crc, row.crc_at) == (6, 7, 5)
    table.declare(OriginRecord(THERE, 1, 0, 9, 8, 3))
    assert (row.position, row.since, row.crc, row.crc_at) == (8, 9, 3, 8)
    table.declare(OriginRecord(THERE, 1, 1, 9, 8))
    assert (row.position, row.digest, row.crc, row.crc_at) == (8, 1, -1, 0)


def test_a_range_that_was_given_up_counts_in_what_peers_are_told() -> None:
    """The CRC of the record before it is known: that was told as the end, so the source went on
    asking for a person."""
    sessions = Sessions(HERE)
    made = batch(1, THERE, 2)
    made.body_crc = 7
    sessions.origins.fold(made)
    sessions.origins.declare(OriginRecord(THERE, 1, 0, 29, 28, skipped=3))
    [row] = travelling(sessions)[0]
    assert (row.position, row.begins) == (28, 29)
    seen = sessions.origins.get(Origin(THERE, 1))
    assert (seen.crc, seen.crc_at) == (-1, 28), "no record that ends there is here"


def test_a_row_that_is_only_looked_at_is_not_there() -> None:
    table = Origins(HERE)
    assert table.get(Origin(THERE, 1)).position == 0
    assert (table.vector, table.foreign) == ({}, False)
