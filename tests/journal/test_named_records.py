"""What has a name in the log: the newest of each name, whatever was removed or started again."""

from __future__ import annotations

import pytest
from msgspec import Struct, msgpack

from tests.journal import build
from tests.journal.whole import (
    MINE,
    PROCESS,
    Whole,
    control,
    cut,
    deleted,
    fact,
    letters,
    point,
    wiring,
)
from zbroker.errors import Bug
from zbroker.journal import snapshot
from zbroker.journal.named_records import NamedRecords, name_of
from zbroker.journal.sessions import Sessions
from zbroker.limits import STATE_BODY_BYTES
from zbroker.log.format import KIND_DEFINITION, KIND_POINT, KIND_WIRING, Batch
from zbroker.log.queue_records import DEFINITION, QueueDeclaration, ReplicatedDefinition, Version
from zbroker.log.records import WIRING, DefinitionRecord, encode
from zbroker.wire import internal as m
from zbroker.wire.units import AskNamed, CommitUnits, NamedRow

THERE = 8


def record(position: int, kind: int, body: bytes) -> Batch:
    made = build.publish(position, body)
    made.kind = kind
    return made


def lives(rows: list[NamedRow]) -> list[tuple[str, int, bool]]:
    """Of each definition its name and life, and whether it still is one."""
    found = [WIRING.decode(row.body) for row in rows]
    assert [one.name for one in found] == [row.name for row in rows]
    return [(one.name, one.life, one.definition is not None) for one in found]


def test_the_newest_record_of_each_name_counts() -> None:
    named = NamedRecords()
    for position, (_, body) in enumerate((wiring("b"), wiring("a"), wiring("b", 2)), 1):
        named.fold(record(position, KIND_WIRING, body))
    assert [(row.name, row.position) for row in named.wiring.rows()] == [("a", 2), ("b", 3)]
    assert lives(list(named.wiring.rows())) == [("a", 1, True), ("b", 2, True)]


def test_definitions_and_points_have_names_of_their_own() -> None:
    named = NamedRecords()
    named.fold(record(1, KIND_WIRING, wiring("x")[1]))
    named.fold(record(2, KIND_POINT, point("x")[1]))
    assert [row.position for row in named.wiring.rows()] == [1]
    assert [row.position for row in named.points.rows()] == [2]


@pytest.mark.parametrize("body", [b"", b"junk", b"\x80", b"\x81\xa4name\xa0", b"\x81\xa4name\x07"])
def test_what_has_no_name_changes_nothing(body: bytes) -> None:
    named = NamedRecords()
    named.fold(record(1, KIND_WIRING, wiring()[1]))
    named.fold(record(2, KIND_WIRING, body))
    assert name_of(body) == ""
    assert [row.position for row in named.wiring.rows()] == [1]


def test_a_body_is_kept_as_it_was_written() -> None:
    named, body = NamedRecords(), bytearray(b"\x82\xa4name\xa1a\xa5later\x07")
    batch = record(1, KIND_POINT, bytes(body))
    batch.body = memoryview(body)
    named.fold(batch)
    body[7:] = b"z" * (len(body) - 7)
    assert [row.body for row in named.points.rows()] == [b"\x82\xa4name\xa1a\xa5later\x07"]


def test_a_name_that_comes_while_rows_are_reported_does_no_harm() -> None:
    named = NamedRecords()
    for position, name in enumerate("abc", 1):
        named.fold(record(position, KIND_POINT, point(name)[1]))
    rows = named.points.rows()
    first = next(rows)
    named.fold(record(9, KIND_POINT, point("bb")[1]))
    named.fold(record(10, KIND_POINT, point("c")[1]))
    assert [row.position for row in [first, *rows]] == [1, 2, 10], "each as of when it is asked for"


def test_a_removed_point_has_no_row() -> None:
    named = NamedRecords()
    named.fold(record(1, KIND_POINT, point("a")[1]))
    named.fold(record(2, KIND_POINT, point("a", removed=True)[1]))
    named.fold(record(3, KIND_POINT, point("never", removed=True)[1]))
    assert list(named.points.rows()) == []
    named.fold(record(4, KIND_POINT, point("a")[1]))
    assert [row.position for row in named.points.rows()] == [4]


def test_a_name_that_goes_while_rows_are_reported_does_no_harm() -> None:
    named = NamedRecords()
    for position, name in enumerate("abc", 1):
        named.fold(record(position, KIND_POINT, point(name)[1]))
    rows = named.points.rows()
    first = next(rows)
    named.fold(record(9, KIND_POINT, point("b", removed=True)[1]))
    assert [row.position for row in [first, *rows]] == [1, 3]


def test_a_deleted_definition_has_no_row_if_its_name_does_not_come_again() -> None:
    named = NamedRecords()
    made = DefinitionRecord("a", 1, definition={"name": "a"}, forgotten=True)
    named.fold(record(1, KIND_WIRING, encode(made)))
    assert [row.position for row in named.wiring.rows()] == [1], "it is not deleted"
    named.fold(record(2, KIND_WIRING, encode(DefinitionRecord("b", 1))))
    named.fold(record(3, KIND_WIRING, encode(DefinitionRecord("a", 1, forgotten=True))))
    assert [row.name for row in named.wiring.rows()] == ["b"]
    named.fold(record(4, KIND_WIRING, encode(DefinitionRecord("never", 1, forgotten=True))))
    assert [row.name for row in named.wiring.rows()] == ["b"]


@pytest.mark.parametrize("value", [b"\xa1\xff", b"\x81\x80\x01", b"\xc2", b"\x01", b"\xc3"])
def test_whatever_a_definition_says_can_be_read_past(value: bytes) -> None:
    named = NamedRecords()
    body = b"\x83\xa4name\xa1a\xa9forgotten" + value + b"\xaadefinition" + value
    named.fold(record(1, KIND_WIRING, body))
    assert [row.position for row in named.wiring.rows()] == [1]


def test_a_definition_is_never_taken_for_a_removed_point() -> None:
    named = NamedRecords()
    named.fold(record(1, KIND_WIRING, b"\x82\xa4name\xa1a\xa7removed\xc3"))
    assert [row.position for row in named.wiring.rows()] == [1]


def test_releases_that_know_no_removal_read_it_as_the_point_where_it_was() -> None:
    class Before(Struct):
        name: str
        vector: str

    _, body = point("a", "000000000000000a.1.5", removed=True)
    assert msgpack.decode(body, type=Before) == Before("a", "000000000000000a.1.5")


# -- in a journal ---------------------------------------------------------------------------------


def test_what_is_reported_is_as_of_its_position() -> None:
    whole = Whole()
    whole.units([wiring("a")], [point("noon")])
    unit = [wiring("a", 2)]
    whole.hear(PROCESS, AskNamed(7, MINE), [])
    whole.hear(
        PROCESS, CommitUnits(MINE, 9, 0, [[part for part, _ in unit]]), [body for _, body in unit]
    )
    assert whole.core.group(1_000) is not None
    [opened] = whole.core._in_flight[-1].opened
    answer = opened.message
    assert lives(answer.wiring) == [("a", 1, True)]  # type: ignore[attr-defined]
    assert [row.name for row in answer.points] == ["noon"]  # type: ignore[attr-defined]
    assert (answer.cid, answer.position) == (7, 3)  # type: ignore[attr-defined]


def test_names_are_reported_only_when_they_are_durable() -> None:
    whole = Whole()
    part, body = wiring("a")
    whole.hear(PROCESS, CommitUnits(MINE, 1, 0, [[part]]), [body])
    whole.hear(PROCESS, AskNamed(7, MINE), [])
    whole.process.port.held = True
    whole.process.turn()
    assert whole.process.taken() == []
    sends = whole.process.end_sync()
    assert [type(send.message).__name__ for send in sends] == ["NamedRows", "JournalReceipt"]


def test_an_empty_log_names_nothing() -> None:
    answer = Whole().named()
    assert (answer.position, answer.wiring, answer.points) == (1, [], [])


@pytest.mark.parametrize("name", ["ingest", "delivery", "replication", "admin"])
def test_only_queues_may_ask(name: str) -> None:
    whole = Whole()
    whole.hear(b"\0other", m.Hello(name, 1), [])
    with pytest.raises(Bug, match="only queues may"):
        whole.hear(b"\0other", AskNamed(1, MINE), [])


def test_names_outlive_a_start() -> None:
    whole = Whole()
    whole.units([wiring("a"), wiring("b")], [letters(b"x"), fact()], [deleted("a", 3), point()])
    before = whole.named()
    assert lives(before.wiring) == [("a", 3, False), ("b", 1, True)]
    whole.restart()
    assert whole.named() == before


@pytest.mark.parametrize("stated", [True, False])
def test_names_outlive_their_segments_in_a_snapshot(stated: bool) -> None:
    whole = Whole()
    whole.units([wiring("a"), wiring("b"), point()], [deleted("b", 2)])
    before = whole.named()
    whole.roll_over()
    if stated:
        whole.state()
    whole.log.refresh()
    whole.remove_oldest()
    whole.restart()
    assert whole.recovered.log_start > 4
    after = whole.named()
    if stated:
        assert (after.wiring, after.points) == (before.wiring, before.points)
    else:
        assert (after.wiring, after.points) == ([], [])
        [missing] = [f for f in whole.recovered.findings if f.code == "journal.state_missing"]
        assert "definitions" in missing.means


@pytest.mark.parametrize("stated", ["before", "after", "never"])
def test_a_removed_point_stays_removed(stated: str) -> None:
    """Whether a start learns of it from the log, or the snapshot is before or after it."""
    whole = Whole()
    whole.units([point("a"), point("b")])
    whole.roll_over()
    if stated == "before":
        whole.state()
    whole.units([point("a", removed=True)])
    if stated == "after":
        whole.state()
    whole.log.refresh()
    if stated != "never":
        whole.remove_oldest()
    whole.restart()
    assert [row.name for row in whole.named().points] == ["b"]


def test_a_definition_that_is_changed_after_the_snapshot_is_the_changed_one() -> None:
    whole = Whole()
    whole.units([wiring("a"), wiring("b")])
    whole.roll_over()
    whole.state()
    whole.units([wiring("a", 2)])
    whole.log.refresh()
    whole.remove_oldest()
    whole.restart()
    assert lives(whole.named().wiring) == [("a", 2, True), ("b", 1, True)]


def test_a_damaged_definition_is_left_out() -> None:
    whole = Whole()
    whole.units([wiring("a")], [wiring("a", 2)])
    newest = whole.batches()[-1]
    whole.roll_over()
    whole.damage(newest)
    whole.restart()
    assert lives(whole.named().wiring) == [("a", 1, True)]


def test_a_log_without_names_looks_as_before() -> None:
    """So that the release before, which does not know these folds, can start on it."""
    [data] = cut(Sessions(build.INSTANCE), 1, STATE_BODY_BYTES)
    body = snapshot.decode(data)
    assert body is not None
    assert {"wiring", "points"}.isdisjoint(body.folds)


def test_many_names_take_several_parts() -> None:
    sessions, again = Sessions(build.INSTANCE), Sessions(build.INSTANCE)
    for position in range(1, 301):
        made = (wiring if position % 3 else point)(f"name-{position}")
        kind = KIND_WIRING if position % 3 else KIND_POINT
        sessions.named.fold(record(position, kind, made[1]))
    parts = cut(sessions, 1, 2_000)
    assert len(parts) > 5
    for data in parts:
        body = snapshot.decode(data)
        assert body is not None
        snapshot.learn(body, snapshot.folds(again))
    assert list(again.named.wiring.rows()) == list(sessions.named.wiring.rows())
    assert list(again.named.points.rows()) == list(sessions.named.points.rows())


def test_a_record_of_a_definition_is_a_control_record() -> None:
    part, body = control(KIND_WIRING, wiring("a")[1])
    whole = Whole()
    whole.units([(part, body)])
    [batch] = whole.batches()
    assert (batch.kind, batch.taken, batch.topics, batch.publisher) == (KIND_WIRING, 1, [], 0)


HERE, OTHER = (9, 1), (8, 1)
LIFE = QueueDeclaration(1_000, *HERE)


def definition(
    number: int, by: tuple[int, int] = HERE, life: QueueDeclaration = LIFE, *, ends: bool = False
) -> bytes:
    made = None if ends else {"name": "q", "lease": number}
    return encode(ReplicatedDefinition("q", life, Version(number, *by), definition=made))


def kept(*bodies: bytes) -> list[tuple[int, bool]]:
    """Number of each life's definition, and whether it is one, after these records."""
    named = NamedRecords()
    for position, body in enumerate(bodies, 1):
        named.fold(record(position, KIND_DEFINITION, body))
    found = [DEFINITION.decode(row.body) for row in named.definitions.rows()]
    return [(one.version.number, one.definition is not None) for one in found]


def test_the_highest_version_of_a_definition_holds_in_any_order() -> None:
    one, two = definition(1), definition(2)
    assert kept(one, two) == kept(two, one) == [(2, True)]


def test_of_equal_numbers_the_higher_instance_holds() -> None:
    mine, theirs = definition(2, HERE), definition(2, OTHER)
    for order in ((mine, theirs), (theirs, mine)):
        named = NamedRecords()
        for position, body in enumerate(order, 1):
            named.fold(record(position, KIND_DEFINITION, body))
        [row] = named.definitions.rows()
        assert DEFINITION.decode(row.body).version.instance == HERE[0]


def test_the_end_of_a_life_is_final_whatever_the_numbers() -> None:
    end, later = definition(2, ends=True), definition(7)
    assert kept(end, later) == kept(later, end) == [(2, False)]


def test_lives_of_one_name_are_kept_side_by_side() -> None:
    assert kept(definition(1), definition(5, life=QueueDeclaration(2_000, *OTHER))) == [
        (1, True), (5, True),
    ]  # fmt: skip


def test_a_definition_that_cannot_be_read_changes_nothing() -> None:
    named = NamedRecords()
    named.fold(record(1, KIND_DEFINITION, b"\xc1"))
    assert (list(named.definitions.rows()), named.definitions.changes) == ([], 0)


def test_definitions_are_in_snapshots() -> None:
    sessions, again = Sessions(), Sessions()
    sessions.named.fold(record(3, KIND_DEFINITION, definition(4)))
    cutter = snapshot.Cutter(snapshot.folds(sessions), 9)
    body = snapshot.decode(cutter.cut())
    assert body is not None
    snapshot.learn(body, snapshot.folds(again))
    assert list(again.named.definitions.rows()) == list(sessions.named.definitions.rows())


def test_a_log_without_replicated_queues_has_the_snapshots_of_before() -> None:
    body = snapshot.decode(snapshot.Cutter(snapshot.folds(Sessions()), 9).cut())
    assert body is not None
    assert "definitions" not in body.folds


def test_watermarks_say_that_definitions_changed() -> None:
    whole = Whole()
    before = whole.core.watermarks().message.definitions
    whole.units([control(KIND_DEFINITION, definition(1))])
    assert whole.core.watermarks().message.definitions == before + 1
    assert [row.body for row in whole.named().definitions] == [definition(1)]
