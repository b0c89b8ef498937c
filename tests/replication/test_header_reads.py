"""Reads of a link that need no bodies: of records that are not sent from here."""

from __future__ import annotations

from msgspec.structs import replace

from tests.journal.whole import Whole
from tests.replication.build import (
    HERE,
    NAMES,
    THERE,
    THIRD,
    Link,
    batch,
    records,
    statement,
    units,
)
from tests.replication.test_log_port import found, origin, port
from zbroker.link_topics import LinkTopics
from zbroker.log.format import KIND_ORIGIN, KIND_PUBLISH, KIND_STATE, Batch
from zbroker.log.reader import Cursor, Gap
from zbroker.replication.effects import FindStart, LinkBlock, ReadLink, is_unsent
from zbroker.replication.log_port import LinkLog
from zbroker.wire.replication import LinkWelcome, SendUnits

FAR = 1 << 40


def reading(link: Link) -> ReadLink:
    read = link.end.next_read(FAR)
    assert isinstance(read, ReadLink)
    return read


def only_headers(link: Link, *items: Batch) -> list[SendUnits]:
    """What is sent after a read of these, which come next; no names are known."""
    read = reading(link)
    assert all(is_unsent(item, read.unsent) for item in items)
    bare = [replace(item, body=b"") for item in items]
    after = Cursor(1, 0, items[-1].end_position)
    effects, wanted = link.end.read(LinkBlock(read, bare, after, only_headers=True), {})
    assert not wanted
    return units(link._kept(effects))


def test_records_of_the_destination_itself_need_no_bodies() -> None:
    link = Link()
    link.connect({THERE: 3})
    assert reading(link).unsent == {}, "it is not known what comes"
    assert link.reads(batch(1, THERE, 3)) == []
    assert only_headers(link, batch(2, THERE, 4), batch(3, THERE, 5)) == []
    assert reading(link).cursor.position == 4
    link.beats({THERE: 5})
    assert link.marks[-1] == 4


def test_what_it_gets_from_another_instance_needs_none_either() -> None:
    link = Link()
    link.connect({THIRD: 7}, sources=[THIRD.instance])
    assert link.reads(batch(1, THIRD, 8)) == []
    assert only_headers(link, batch(2, THIRD, 9)) == []


def test_what_it_holds_already_needs_none_up_to_there() -> None:
    link = Link()
    link.connect({THIRD: 8})
    assert link.reads(batch(1, THIRD, 7)) == []
    unsent = reading(link).unsent
    assert is_unsent(batch(2, THIRD, 8), unsent)
    assert not is_unsent(batch(2, THIRD, 9), unsent)
    assert not is_unsent(batch(2, THIRD, 8, count=2), unsent)


def test_a_read_is_whole_again_after_something_that_is_sent() -> None:
    link = Link()
    link.connect({THERE: 3})
    link.reads(batch(1, THERE, 3))
    assert reading(link).unsent
    assert records(link.reads(batch(2))) == [(1, 2, 0)]
    assert reading(link).unsent == {}


def test_what_has_to_be_sent_after_all_is_read_whole() -> None:
    """The destination began a generation while it was read: it lost the end of the one before."""
    link = Link()
    link.connect({THERE: 3})
    link.reads(batch(1, THERE, 3))
    read = reading(link)
    link.end.peer.generation = THERE.generation + 1
    bare = replace(batch(2, THERE, 4), body=b"")
    block = LinkBlock(read, [bare], Cursor(1, 0, 3), only_headers=True)
    assert link.end.read(block, NAMES) == ([], set())
    assert (reading(link).cursor, reading(link).unsent) == (read.cursor, {})
    assert records(link.reads(batch(2, THERE, 4))) == [(2, 4, 3)]


def test_records_that_say_something_of_this_log_are_read_whole() -> None:
    unsent = {HERE: FAR}
    assert is_unsent(batch(1), unsent)
    for kind in (KIND_STATE, KIND_ORIGIN):
        assert not is_unsent(batch(1, kind=kind), unsent)
    assert not is_unsent(Gap(1, 2, "crc"), unsent)


def test_a_link_of_some_topics_reads_everything() -> None:
    link = Link(LinkTopics(["t"]))
    link.tick()
    said = statement(1, {THERE: 3})
    welcome = LinkWelcome(link.end.session, 2, "there", "g", said, 1 << 20)
    (find,) = (one for one in link.hears(welcome) if isinstance(one, FindStart))
    link.begins(find)
    link.reads(batch(1, THERE, 3))
    assert reading(link).unsent == {}


# -- the log --------------------------------------------------------------------------------------


def log_of(*counts: int) -> tuple[Whole, LinkLog, Cursor]:
    """A log with so many messages in each batch, and where its messages begin."""
    at, first = Whole(), 1
    for count in counts:
        at.publish("p", first, count)
        first += count
    return at, port(at), found(port(at), {}).cursor


def read_of(log: LinkLog, at: Whole, cursor: Cursor, through: int) -> LinkBlock:
    unsent = {origin(at): through}
    block = log.read(ReadLink("b", 3, cursor, at.core.persisted, 1 << 20, unsent=unsent))
    assert isinstance(block, LinkBlock)
    return block


def published(block: LinkBlock) -> list[Batch]:
    return [one for one in block.items if isinstance(one, Batch) and one.kind == KIND_PUBLISH]


def test_headers_are_read_up_to_what_may_be_sent() -> None:
    at, log, cursor = log_of(3, 2, 4)
    whole = published(read_of(log, at, cursor, -1))
    assert [len(one.body) > 0 for one in whole] == [True] * 3
    first = read_of(log, at, Cursor(cursor.serial, whole[0].offset, whole[0].position), FAR)
    assert first.only_headers
    assert [(one.position, one.body) for one in published(first)] == [
        (one.position, b"") for one in whole
    ]
    part = read_of(log, at, Cursor(cursor.serial, whole[0].offset, whole[0].position), 0)
    assert not part.only_headers, "the first one may be sent"
    through = whole[1].origin_position + whole[1].taken - 1
    two = read_of(log, at, Cursor(cursor.serial, whole[0].offset, whole[0].position), through)
    assert (two.only_headers, len(two.items)) == (True, 2)
    assert two.after.position == whole[2].position
    rest = read_of(log, at, two.after, through)
    assert not rest.only_headers
    assert published(rest)[0].body == whole[2].body


def test_a_snapshot_ends_a_read_of_headers() -> None:
    at, _, cursor = log_of(3)
    at.state()
    at.publish("p", 4, 1)
    log = port(at)
    seen, kinds = [], []
    while cursor.position < at.core.persisted:
        block = read_of(log, at, cursor, FAR)
        cursor = block.after
        kinds += [one.kind for one in block.items if isinstance(one, Batch)]
        seen += [one.kind for one in block.items if isinstance(one, Batch) and one.body]
    assert KIND_STATE in seen
    assert kinds.count(KIND_PUBLISH) == 2
