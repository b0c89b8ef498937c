"""Where a link begins to read, and what of each origin is not in the log from there on."""

from __future__ import annotations

from tests.journal.whole import Whole
from zbroker.ids import Origin
from zbroker.log.reader import Log
from zbroker.replication.effects import FindStart, LinkBlock, ReadLink, StartFound
from zbroker.replication.log_port import LinkLog


def port(at: Whole) -> LinkLog:
    return LinkLog(lambda: Log(disk=at.disk), lambda: at.core.persisted)


def found(log: LinkLog, held: dict[Origin, int]) -> StartFound:
    start = log.find(FindStart("b", 3, held))
    assert isinstance(start, StartFound)
    assert (start.link, start.session) == ("b", 3)
    return start


def origin(at: Whole) -> Origin:
    return Origin(at.instance, at.core.generation)


def removed() -> Whole:
    """A log of several segments, each with a snapshot; its first one was removed."""
    at = Whole()
    at.publish("p", 1, 3)
    at.state()
    for _ in range(2):
        at.roll_over()
        at.state()
    at.log.refresh()
    at.remove_oldest()
    return at


def test_a_destination_that_has_nothing_gets_a_whole_log_from_its_beginning() -> None:
    at = Whole()
    at.publish("p", 1, 3)
    at.state()
    start = found(port(at), {})
    assert (start.cursor.position, start.crcs, start.below, start.removed) == (1, {}, {}, {})


def test_reading_begins_at_the_newest_snapshot_that_the_destination_covers() -> None:
    at = Whole()
    at.publish("p", 1, 3)
    at.state()
    at.roll_over()
    at.state()
    high = at.core.sessions.origins.messages[origin(at)]
    start = found(port(at), {origin(at): high})
    assert start.cursor.position > 1
    assert start.crcs[origin(at)][0] <= high
    assert found(port(at), {origin(at): 1}).cursor.position == 1, "it lacks a part of the first"


def test_what_was_removed_at_the_beginning_is_said_for_each_origin() -> None:
    at = removed()
    first = at.log.first_position
    messages = [b for b in at.gone if b.publisher and b.body_length]
    last = max(batch.origin_position + batch.taken - 1 for batch in messages)
    start = found(port(at), {})
    assert start.cursor.position == first
    assert start.below == {origin(at): last}
    assert start.removed[origin(at)] >= last
    kept = min(b.origin_position for b in at.batches() if b.kind == 1)
    assert kept > last, "the first message that is left comes after it"


def test_it_is_looked_up_once_for_a_log_start() -> None:
    at = removed()
    log = port(at)
    below = found(log, {}).below
    assert found(log, {}).below is below
    at.remove_oldest()
    assert found(log, {}).below[origin(at)] > below[origin(at)]


def test_a_block_ends_where_the_next_read_begins() -> None:
    at = Whole()
    at.publish("p", 1, 3)
    at.publish("p", 4, 2)
    log = port(at)
    cursor = found(log, {}).cursor
    block = log.read(ReadLink("b", 3, cursor, at.core.persisted, 1 << 20))
    assert isinstance(block, LinkBlock)
    assert block.after.position == at.core.persisted
    assert [item.position for item in block.items if item.publisher] != []  # type: ignore[union-attr]
