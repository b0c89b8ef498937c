"""The state of a log, as it is sent to an instance that has nothing."""

from __future__ import annotations

from msgspec import convert, msgpack

from tests.journal.whole import Whole, control
from zbroker.ids import Origin, publisher_id
from zbroker.journal import snapshot
from zbroker.journal.origins import OriginRow
from zbroker.journal.sessions import PublisherRow
from zbroker.log.format import KIND_SHARED_POINT
from zbroker.log.point_records import SharedPointRecord
from zbroker.log.reader import Log
from zbroker.replication.effects import ReadState, StateBlock
from zbroker.replication.state_reader import TRAVELS, StateReader

READ = ReadState("b", 1)


def reader(at: Whole) -> StateReader:
    return StateReader(lambda: Log(disk=at.disk), lambda: at.core.persisted, at.instance)


def read(at: StateReader, ask: ReadState = READ) -> StateBlock:
    """The next block that is more than a slice of the way."""
    while True:
        block = at.read(ask)
        assert isinstance(block, StateBlock)
        if block.body or block.problem:
            return block


def whole(at: Whole) -> dict[str, list[list[object]]]:
    """The folds of a state that has one part."""
    block = read(reader(at))
    assert (block.problem, block.last) == ("", True)
    body = snapshot.decode(block.body)
    assert body is not None
    return {name: msgpack.decode(rows) for name, rows in body.folds.items()}


def origins(at: Whole) -> dict[Origin, int]:
    rows = (convert(row, OriginRow) for row in whole(at)["origins"])
    return {Origin(row.instance, row.generation): row.messages for row in rows}


def publishers(at: Whole) -> dict[int, int]:
    rows = (convert(row, PublisherRow) for row in whole(at)["publishers"])
    return {row.id: row.high for row in rows}


def test_it_is_the_state_at_the_end_of_the_first_snapshot() -> None:
    at = Whole()
    at.publish("p", 1, 3)
    here = Origin(at.instance, at.core.generation)
    high = at.core.sessions.origins.messages[here]
    at.state()
    at.publish("p", 4, 2)
    at.publish("q", 1)
    at.state()
    assert origins(at) == {here: high}
    assert publishers(at) == {publisher_id("p"): 3}


def test_only_what_means_the_same_elsewhere_is_sent() -> None:
    at = Whole()
    at.publish("p", 1)
    at.state()
    assert set(whole(at)) <= set(TRAVELS)


def test_points_of_all_instances_are_sent() -> None:
    at = Whole()
    point = SharedPointRecord("eod", 7, "00000000000000a1.1.5")
    [item] = at.units([control(KIND_SHARED_POINT, msgpack.encode(point))])
    at.state()
    [row] = whole(at)["shared_points"]
    assert row[2:] == [item.position, "eod", 7, point.covers, item.position]


def test_a_log_without_a_snapshot_says_that_it_has_none() -> None:
    at = Whole()
    at.publish("p", 1)
    block = read(reader(at))
    assert block.body == b""
    assert "no place of the log has a complete state" in block.problem


def test_where_a_stage_is_open_it_goes_on_to_its_end() -> None:
    """Its parts are before that place, and would never get there."""
    at = Whole()
    at.stage("token", b"one")
    at.state()
    at.publish("p", 1)
    assert read(reader(at)).problem
    at.abort_stages("token")
    at.publish("p", 2)
    assert publishers(at)[publisher_id("p")] == 1, "the first place without one"


def test_another_session_of_a_link_begins_again() -> None:
    at = Whole()
    for n in range(3):
        at.publish(f"p{n}", 1)
    at.state()
    states = reader(at)
    first = read(states)
    assert first.last
    again = read(states, ReadState("b", 2))
    assert (again.body, again.last) == (first.body, True)


def test_each_link_reads_for_itself() -> None:
    at = Whole()
    at.publish("p", 1)
    at.state()
    states = reader(at)
    assert read(states).body == read(states, ReadState("c", 1)).body


def test_what_is_not_durable_is_not_in_it() -> None:
    at = Whole()
    at.publish("p", 1)
    before = at.core.persisted
    at.state()
    states = StateReader(lambda: Log(disk=at.disk), lambda: before, at.instance)
    assert read(states).problem
