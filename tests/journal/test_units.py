"""Units: side by side in one group or not at all; what is refused, and what they publish as."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal import build
from tests.journal.whole import (
    LINK,
    LISTENER,
    MINE,
    PROCESS,
    Sent,
    Whole,
    control,
    deleted,
    fact,
    letters,
    point,
    table,
    wiring,
)
from tests.sim.disk import SimDisk
from zbroker.checksums import crc32c
from zbroker.errors import Bug
from zbroker.exchanges import BoundQueue
from zbroker.exchanges.route_column import encode
from zbroker.exchanges.router import numbered
from zbroker.ids import Bookmark, Origin, check_client_name, publisher_id
from zbroker.journal import group_builder, stages
from zbroker.journal.fold import LogFold
from zbroker.journal.group_builder import JournalSettings, LogEnd
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.own_publishers import broker_name, staged_name
from zbroker.journal.sessions import Sessions
from zbroker.journal.stages import AppRow, StageRow, Stages
from zbroker.journal.units import units_of
from zbroker.limits import GROUP_MAX_BYTES, MIB
from zbroker.log import headers, records
from zbroker.log.format import (
    COLUMN_ROUTES,
    FLAG_UNIT,
    KIND_NOOP,
    KIND_POINT,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    KIND_PURGE,
    KIND_QUEUE,
    KIND_STAGED,
    KIND_STATE,
    KIND_TIE,
    KIND_WIRING,
    STEP_OVER,
    Batch,
    encode_batch_header,
)
from zbroker.log.headers import Gap, Skipped
from zbroker.log.queue_records import QueueDeclaration
from zbroker.log.references import Reference
from zbroker.wire import codec
from zbroker.wire import internal as m
from zbroker.wire.internal import Record
from zbroker.wire.messages import Columns
from zbroker.wire.stages import CommitStages, StagedBy, StagesDone
from zbroker.wire.units import BROKER_NAME, UNIT_PARTS_MAX, CommitUnits, UnitPart

NAME = broker_name(Origin(build.INSTANCE, 1))
PUBLISHER = publisher_id(NAME)
PURGE = control(KIND_PURGE, records.encode(records.PurgeRecord("work", "")))


def kinds(batches: list[Batch]) -> list[int]:
    return [batch.kind for batch in batches]


def codes(items: list[m.ReceiptItem]) -> list[str]:
    return [item.code for item in items]


def commit(
    core: GroupCommit, ordinal: int, *units: list[Sent], rid: bytes = PROCESS, confirmed: int = 0
) -> None:
    """What is in line."""
    sent = [[part for part, _ in unit] for unit in units]
    parts = [body for unit in units for _, body in unit]
    core.receive(rid, CommitUnits(MINE, ordinal, confirmed, sent), parts)


def payloads(batches: list[Batch]) -> list[bytes]:
    return [
        payload
        for batch in batches
        if batch.kind == KIND_PUBLISH
        for payload in msgspec.msgpack.decode(batch.body)
    ]


# -- what lands -----------------------------------------------------------------------------------


def test_a_unit_is_side_by_side_in_the_order_of_its_parts() -> None:
    whole = Whole()
    items = whole.units([fact(), letters(b"a", b"b"), wiring(), point(), PURGE, fact()])
    assert items == [m.ReceiptItem(1, 8, 2)], "the name is not part of it"
    assert kinds(whole.batches()) == [
        KIND_PUBLISHER, KIND_QUEUE, KIND_PUBLISH, KIND_WIRING, KIND_POINT, KIND_PURGE, KIND_QUEUE,
    ]  # fmt: skip


def test_each_unit_has_one_item_with_its_first_and_last_position() -> None:
    whole = Whole()
    items = whole.units([fact(), fact()], [fact()], [wiring(), fact(), fact()])
    assert items == [m.ReceiptItem(1, 2, 1), m.ReceiptItem(2, 3, 3), m.ReceiptItem(3, 6, 4)]


def test_all_parts_but_the_last_say_that_the_next_batch_is_of_their_unit() -> None:
    """Also where a name and a part of a state snapshot come into the same group."""
    whole = Whole()
    whole.units([letters(b"first")], [fact()])
    whole.process.want_state()
    whole.units([fact(), letters(b"a"), wiring()], [letters(b"b"), fact()], [fact()])
    flagged = [(batch.kind, bool(batch.flags & FLAG_UNIT)) for batch in whole.batches()]
    assert flagged == [
        (KIND_PUBLISHER, False), (KIND_PUBLISH, False), (KIND_QUEUE, False), (KIND_STATE, False),
        (KIND_QUEUE, True), (KIND_PUBLISH, True), (KIND_WIRING, False),
        (KIND_PUBLISH, True), (KIND_QUEUE, False), (KIND_QUEUE, False),
    ]  # fmt: skip
    units = [len(unit) for unit in headers.units(whole.batches())]
    assert units == [1, 1, 1, 1, 3, 2, 1]


def test_receipt_and_marks_leave_after_the_sync_only() -> None:
    whole = Whole()
    process, persisted = whole.process, whole.core.persisted
    process.port.held = True
    commit(whole.core, 1, [fact()])
    process.published.clear()
    process.turn()
    assert (process.taken(), process.published) == ([], [])
    assert [type(answer.message) for answer in process.end_sync()] == [m.JournalReceipt]
    assert [each.persisted for each in process.published] == [persisted + 1], (
        "its sender reads its own facts: it must not wait for the beat"
    )


def test_a_receipt_is_repeated_until_it_is_confirmed() -> None:
    whole = Whole()
    whole.units([fact()], [fact()])
    items = [s.message.items for s in whole.core.beat() if isinstance(s.message, m.JournalReceipt)]
    assert [[item.ordinal for item in found] for found in items] == [[1, 2]]
    whole.hear(PROCESS, m.Confirm(MINE, 2), [])
    assert all(not isinstance(send.message, m.JournalReceipt) for send in whole.core.beat())


def test_a_unit_is_after_what_came_before_it() -> None:
    whole = Whole()
    whole.publish("p", 1)
    known = whole.core.sessions.get(publisher_id("p"))
    assert known is not None
    body = b"\x91\xc4\x01x"
    entry = m.Entry(known.id, known.session, 2, 1, None, crc32c(body), None, ["t"])
    end = whole.core.next_position
    whole.hear(b"\0door", m.Append(MINE, whole.ordinal, 0, [entry]), [body])
    commit(whole.core, 7, [fact()])
    whole.commit()
    assert kinds([b for b in whole.batches() if b.position >= end]) == [KIND_PUBLISH, KIND_QUEUE]


@pytest.mark.parametrize("name", ["ingest", "delivery", "replication", "admin", "queues-2"])
def test_only_queues_may_commit(name: str) -> None:
    whole = Whole()
    whole.hear(b"\0other", m.Hello(name, 1), [])
    with pytest.raises(Bug, match="only queues may"):
        commit(whole.core, 1, [fact()], rid=b"\0other")


def test_what_was_sent_to_another_journal_is_dropped() -> None:
    whole = Whole()
    part, body = fact()
    whole.hear(PROCESS, CommitUnits(MINE + 1, 1, 0, [[part]]), [body])
    assert (whole.commit(), whole.core.next_position) == ([], 1)


def test_what_an_older_queues_process_had_in_line_is_dropped_as_a_whole() -> None:
    whole = Whole()
    commit(whole.core, 1, [fact(), fact()])
    whole.hear(b"\0new", m.Hello("queues", 2), [])
    assert whole.core.next_group_bytes() < 2_000
    whole.commit()
    assert whole.core.next_position == 1


def test_bodies_must_be_as_many_as_parts() -> None:
    part, body = fact()
    for sent in ([], [body] * 3):
        with pytest.raises(Bug, match="2 parts came with"):
            list(units_of(CommitUnits(MINE, 1, 0, [[part], [part]]), sent))


def test_the_codec_knows_both_ways() -> None:
    whole = Whole()
    part, _ = letters(b"x")
    for message in (CommitUnits(MINE, 1, 0, [[part], [UnitPart(KIND_QUEUE, 7)]]), whole.named()):
        decoder = codec.TO_JOURNAL if isinstance(message, CommitUnits) else codec.FROM_JOURNAL
        assert decoder.decode(codec.encode(message)) == message


# -- what is refused ------------------------------------------------------------------------------

GOOD, BODY = letters(b"a", b"b")
ONE, ONE_BODY = fact()
REPLACED = msgspec.structs.replace
NOWHERE: frozenset[BoundQueue] = frozenset()
ROUTES = encode(numbered([NOWHERE, frozenset([BoundQueue("q", QueueDeclaration(1, 2, 3))])]))


@pytest.mark.parametrize(
    "wrong",
    [
        *((UnitPart(kind, crc32c(b"")), b"") for kind in (KIND_PUBLISHER, KIND_STATE, KIND_NOOP)),
        *((UnitPart(kind, crc32c(b"")), b"") for kind in (0, 99, KIND_TIE, STEP_OVER | 99)),
        (REPLACED(ONE, crc=ONE.crc + 1), ONE_BODY),
        (REPLACED(ONE, count=2), ONE_BODY),
        (REPLACED(ONE, topics=["t"]), ONE_BODY),
        (REPLACED(ONE, columns=Columns()), ONE_BODY),
        (REPLACED(ONE, routes=ROUTES), ONE_BODY),
        (REPLACED(GOOD, routes=ROUTES[:-1]), BODY),
        (REPLACED(GOOD, crc=GOOD.crc + 1), BODY),
        (REPLACED(GOOD, count=0), BODY),
        (REPLACED(GOOD, count=-1), BODY),
        (REPLACED(GOOD, count=65_536), BODY),
        (REPLACED(GOOD, topics=[]), BODY),
        (REPLACED(GOOD, topics=["a", "b"]), BODY),
        (REPLACED(GOOD, columns=Columns(time=bytes(8))), BODY),
        (REPLACED(GOOD, topics=["a", "b"], columns=Columns(index=bytes([0, 0, 2, 0]))), BODY),
        control(KIND_WIRING, b"junk"),
        control(KIND_WIRING, b"\x81\xa4name\xa0"),
        control(KIND_POINT, b"\x80"),
    ],
)
def test_what_cannot_be_a_part_refuses_the_whole_unit(wrong: Sent) -> None:
    whole = Whole()
    items = whole.units([fact(), wrong, fact()], [fact()])
    assert codes(items) == ["bad_field", ""]
    assert (items[0].position, items[0].high) == (0, 0)
    assert kinds(whole.batches()) == [KIND_QUEUE]
    assert whole.core.refused == 1


def test_a_body_with_another_number_of_messages_is_refused() -> None:
    assert codes(Whole().units([(REPLACED(GOOD, count=1), BODY)])) == ["bad_frame"]


def test_a_unit_without_parts_is_refused() -> None:
    assert codes(Whole().units([], [fact()])) == ["bad_field", ""]


def test_a_unit_has_so_many_parts_and_no_more() -> None:
    whole = Whole()
    items = whole.units([fact()] * UNIT_PARTS_MAX, [fact()] * (UNIT_PARTS_MAX + 1))
    assert codes(items) == ["", "too_large"]
    assert whole.core.next_position == UNIT_PARTS_MAX + 1


BIG = letters(b"x" * (GROUP_MAX_BYTES // 2))
HUGE = letters(b"x" * (GROUP_MAX_BYTES + 1))


def test_a_unit_that_is_larger_than_a_group_is_refused() -> None:
    assert codes(Whole().units([BIG, BIG, BIG])) == ["too_large"]


def test_one_large_message_does_not_make_a_unit_too_large() -> None:
    """A dead letter and the fact that it left the queue cannot be apart."""
    assert codes(Whole().units([HUGE, fact()], [fact(), BIG, fact()])) == ["", ""]


def test_nothing_of_a_refused_unit_is_published() -> None:
    whole = Whole()
    items = whole.units([letters(b"a"), control(99, b"")], [letters(b"b")])
    assert codes(items) == ["bad_field", ""]
    assert payloads(whole.batches()) == [b"b"]
    [batch] = [b for b in whole.batches() if b.kind == KIND_PUBLISH]
    assert (batch.sequence, batch.prev) == (1, 0)


def test_a_fenced_journal_refuses_units_for_now() -> None:
    whole = Whole()
    whole.core.fenced = True
    assert codes(whole.units([letters(b"a")])) == ["not_ready"]
    assert len(whole.core.sessions) == 0, "no name is taken yet"
    whole.core.fenced = False
    assert codes(whole.units([letters(b"a")])) == [""]


def test_a_name_with_the_same_publisher_id_is_reported() -> None:
    whole = Whole()
    known = whole.core.sessions.meet(PUBLISHER)
    known.name = "somebody else"
    assert codes(whole.units([letters(b"a"), fact()], [fact()])) == ["publisher_collision", ""]
    assert kinds(whole.batches()) == [KIND_QUEUE]


# -- groups ---------------------------------------------------------------------------------------


def groups(core: GroupCommit) -> list[list[Batch]]:
    found = []
    while core.backlog:
        group = core.group(1_000)
        assert group is not None
        core.written_to(group.end, core.serial)
        core.synced(core.written)
        core.check()
        found.append(group.batches)
    return found


def bare() -> GroupCommit:
    core = GroupCommit(JournalSettings(build.INSTANCE, MINE), Sessions(), LogEnd(1, 1, 0))
    core.receive(PROCESS, m.Hello("queues", 1), [])
    return core


def test_a_unit_is_never_split_over_groups() -> None:
    core, rng = bare(), random.Random(1)
    made = [[fact(unit=n)] * rng.choice((1, 2, 70, 199)) for n in range(60)]
    for ordinal, unit in enumerate(made, 1):
        commit(core, ordinal, unit)
    found = groups(core)
    assert len(found) > 5
    assert max(map(len, found)) <= 250 + UNIT_PARTS_MAX, "a group has so many buffers"
    sizes, at = [], 0
    for batches in found:
        taken = 0
        while taken < len(batches):
            taken += len(made[at])
            at += 1
        sizes.append(taken - len(batches))
    assert sizes == [0] * len(found), "each group ends with a unit"
    assert at == len(made)


def test_a_unit_that_would_make_a_group_too_large_begins_the_next_one() -> None:
    core = bare()
    for ordinal in (1, 2, 3):
        commit(core, ordinal, [letters(b"x" * MIB), letters(b"y" * MIB), fact()])
    commit(core, 4, [HUGE, fact()])
    commit(core, 5, [fact()])
    said = core.next_group_bytes()
    found = groups(core)
    assert [len(batches) for batches in found] == [4, 3, 3, 2, 1]
    assert sum(batch.body_length for batch in found[0]) < GROUP_MAX_BYTES < said
    assert core.next_group_bytes() < 2_000, "nothing is left in the account"


def test_a_unit_waits_for_no_snapshot() -> None:
    """A part of one may make a group that a large unit has no room in: it is taken all the same."""
    core = bare()
    core.want_state()
    commit(core, 1, [HUGE, fact()])
    [batches] = groups(core)
    assert kinds(batches) == [KIND_STATE, KIND_PUBLISHER, KIND_PUBLISH, KIND_QUEUE]


@pytest.mark.parametrize("seed", range(20))
def test_no_group_with_units_is_larger_than_was_foreseen(seed: int) -> None:
    core, rng = bare(), random.Random(seed)
    for ordinal in range(1, 30):
        many = [rng.randbytes(rng.choice((0, 7, 3_000))) for _ in range(rng.randint(1, 5))]
        part, body = letters(*many, topic="é" * 127)
        part.topics = [f"{n}" * 200 for n in range(rng.randint(1, 3))]
        part.columns = Columns(bytes(2 * len(many)), time=bytes(8 * len(many)))
        commit(core, ordinal, [(part, body), fact("q" * rng.randint(1, 200))][: rng.randint(1, 2)])
        if rng.random() < 0.2:
            core.want_state()
        while core.backlog and rng.random() < 0.6:
            said = core.next_group_bytes()
            group = core.group(1_000)
            assert group is not None
            took = sum(len(encode_batch_header(b, 0, 0)) + b.body_length + 8 for b in group.batches)
            assert took + 64 + 512 <= said
            core.written_to(group.end, core.serial)
            core.synced(core.written)


# -- a full disk ----------------------------------------------------------------------------------


def test_units_are_taken_while_publishers_are_refused() -> None:
    whole = Whole()
    whole.space(accepting=False)
    assert codes(whole.units([letters(b"a"), fact()])) == [""]


def test_a_unit_without_messages_is_taken_where_letters_have_no_space() -> None:
    """An acknowledgement or a purge may be what frees space."""
    whole = Whole()
    whole.space(accepting=False, left_bytes=6_000)
    items = whole.units([letters(b"x" * 6_000), fact()], [fact()], [PURGE])
    assert codes(items) == ["disk_full", "", ""]
    assert codes(whole.units([letters(b"y" * 6_000)])) == ["disk_full"]
    whole.space(accepting=True)
    assert codes(whole.units([letters(b"y" * 6_000)])) == [""]


@pytest.mark.parametrize("part", [fact, lambda: letters(b"x")])
def test_what_was_sent_after_a_refused_unit_waits_for_it(part: Callable[[], Sent]) -> None:
    whole = Whole()
    core = whole.core
    whole.space(accepting=False, left_bytes=0)
    assert codes(whole.units([part()], [part()])) == ["disk_full", "not_ready"]
    whole.space(accepting=True)
    for ordinal, confirmed, expected in ((3, 0, "not_ready"), (4, 2, "not_ready"), (5, 4, "")):
        commit(core, ordinal, [part()], confirmed=confirmed)
        [receipt] = [s.message for s in whole.commit() if isinstance(s.message, m.JournalReceipt)]
        assert receipt.items[-1].code == expected, f"unit {ordinal}, {confirmed} confirmed"


def test_a_refused_unit_holds_nothing_of_the_next_connection() -> None:
    whole = Whole()
    whole.space(accepting=False, left_bytes=0)
    assert codes(whole.units([fact()])) == ["disk_full"]
    whole.space(accepting=True)
    whole.hear(PROCESS, m.Hello("queues", 2), [])
    commit(whole.core, 1, [fact()])
    [receipt] = [s.message for s in whole.commit() if isinstance(s.message, m.JournalReceipt)]
    assert codes(receipt.items) == [""]


def test_units_of_one_group_have_process_together() -> None:
    whole = Whole()
    whole.space(accepting=False, left_bytes=6_000)
    items = whole.units(*[[letters(b"x" * 2_000)]] * 4)
    assert codes(items) == ["", "disk_full", "not_ready", "not_ready"]


def test_units_leave_space_for_the_snapshot_that_is_needed_to_remove_segments() -> None:
    whole = Whole()
    core = whole.core
    whole.space(accepting=False, left_bytes=700_000)
    whole.process.want_state()
    core._snapshots._last_bytes = 1 << 30  # it is not due yet
    assert codes(whole.units([letters(b"x" * 150_000)])) == ["disk_full"]
    whole.space(accepting=False, state_fits=False, left_bytes=700_000)  # nothing is to be saved
    assert codes(whole.units([letters(b"x" * 150_000)])) == [""]


@pytest.mark.parametrize("free", range(0, 60_000, 1_777))
def test_no_unit_breaks_the_writer_of_a_full_disk(free: int) -> None:
    """Whatever is free: each unit is written, or refused and written when there is space again."""
    rng = random.Random(free)
    disk = SimDisk(rng)
    to = build.writer(disk, build.start(disk))
    disk.capacity = disk.capacity - disk.free_bytes() + free
    core = bare()
    core.serial, core.accepting = to.serial, False
    refused = taken = 0
    for ordinal in range(1, 200):
        size = rng.choice((10, 300, 2_000, 9_000))
        unit = [letters(rng.randbytes(size)), fact()][rng.randint(0, 1) :]
        commit(core, ordinal, unit, confirmed=ordinal - 1)
        if rng.random() < 0.1:
            core.want_state()
        if rng.random() < 0.2:
            to.prepare_step()
        core.left_bytes, core.state_fits = to.left_bytes, False
        group = core.group(1_000)
        if group is not None:
            to.write(group.batches, group.log_time)
            core.serial = to.serial
            core.written_to(group.end, core.serial)
        for send in core.synced(to.sync()):
            if isinstance(send.message, m.JournalReceipt):
                refused += sum(item.code == "disk_full" for item in send.message.items)
                taken += sum(item.code == "" for item in send.message.items)
    assert refused > 0, "the disk was never full"
    assert taken > 0
    assert refused + taken == 199
    disk.capacity = 1 << 30
    assert to.secure(20_000), "space is back"
    core.accepting = True
    commit(core, 200, [letters(b"x" * 9_000), fact()], confirmed=199)
    group = core.group(1_000)
    assert group is not None
    to.write(group.batches, group.log_time)


# -- the publisher --------------------------------------------------------------------------------


def test_messages_are_published_by_the_broker_with_sequences_that_follow_on() -> None:
    whole = Whole()
    whole.units([letters(b"a", b"b"), fact()], [letters(b"c"), letters(b"d")])
    found = [batch for batch in whole.batches() if batch.kind == KIND_PUBLISH]
    assert [(b.publisher, b.sequence, b.prev, b.count) for b in found] == [
        (PUBLISHER, 1, 0, 2), (PUBLISHER, 3, 2, 1), (PUBLISHER, 4, 3, 1),
    ]  # fmt: skip
    assert [b.topics for b in found] == [["dead"]] * 3
    assert len({b.session for b in found}) == 1
    assert all(b.origin_position == b.position for b in found)
    assert payloads(found) == [b"a", b"b", b"c", b"d"]
    assert whole.core.messages == 4


def test_its_name_is_reserved_and_is_in_the_log_once() -> None:
    assert NAME.startswith(BROKER_NAME + ".")
    with pytest.raises(Exception, match="reserved_name"):
        check_client_name(NAME)
    whole = Whole()
    whole.units([letters(b"a")], [letters(b"b")])
    whole.restart()
    whole.units([letters(b"c")])
    names = [batch for batch in whole.batches() if batch.kind == KIND_PUBLISHER]
    assert [records.PUBLISHER.decode(batch.body).name for batch in names] == [NAME]


def test_after_a_start_its_sequences_go_on_in_a_new_session() -> None:
    whole = Whole()
    whole.units([letters(b"a", b"b")])
    whole.restart()
    whole.units([letters(b"c")])
    first, second = [batch for batch in whole.batches() if batch.kind == KIND_PUBLISH]
    assert (second.sequence, second.prev) == (3, 2)
    assert second.session > first.session
    known = whole.core.sessions.get(PUBLISHER)
    assert known is not None
    assert (known.high, known.holes) == (3, [])


def test_its_sequences_go_on_when_its_segments_are_gone() -> None:
    whole = Whole()
    whole.units([letters(b"a", b"b")])
    whole.roll_over()
    whole.state()
    whole.log.refresh()
    whole.remove_oldest()
    whole.restart()
    whole.units([letters(b"c")])
    [batch] = [b for b in whole.batches() if b.publisher == PUBLISHER]
    assert (batch.kind, batch.sequence) == (KIND_PUBLISH, 3), "the name is known, too"


def test_its_messages_are_found_by_their_bookmarks() -> None:
    whole = Whole()
    whole.units([fact(), letters(b"a", b"b"), fact()])
    whole.log.refresh()
    assert whole.log.locate(Bookmark(PUBLISHER, 2)) == 4
    assert whole.log.locate(Bookmark(PUBLISHER, 3)) is None


def test_routes_of_its_messages_are_in_their_batch() -> None:
    whole = Whole()
    part, body = letters(b"a", b"b")
    whole.units([(REPLACED(part, routes=ROUTES), body)])
    [batch] = [b for b in whole.batches() if b.kind == KIND_PUBLISH]
    assert (COLUMN_ROUTES, ROUTES) in batch.extra


def test_columns_of_its_messages_are_kept() -> None:
    whole = Whole()
    part, body = letters(b"a", b"b")
    keys = msgspec.msgpack.encode([b"k", None])
    part.topics = ["dead", "deader"]
    part.columns = Columns(array("H", [1, 0]).tobytes(), keys=keys)
    whole.units([(part, body)])
    [batch] = [b for b in whole.batches() if b.kind == KIND_PUBLISH]
    assert (batch.topics, batch.columns) == (part.topics, part.columns)


def test_a_new_generation_publishes_under_a_new_name() -> None:
    """What was in the end that was lost may be on other instances: no bookmark comes twice."""
    whole = Whole()
    whole.units([letters(b"a")])
    whole.core.generation = 2
    whole.units([letters(b"b")])
    found = [batch for batch in whole.batches() if batch.kind == KIND_PUBLISH]
    again = publisher_id(broker_name(Origin(build.INSTANCE, 2)))
    assert [(b.publisher, b.sequence) for b in found] == [(PUBLISHER, 1), (again, 1)]


def test_what_two_instances_publish_is_kept_side_by_side() -> None:
    """Each gives its own sequences: under one name the second arrival would be taken for a copy."""
    here, there = Whole(), Whole()
    there.core.settings = there.core.settings._replace(instance=8)
    here.units([letters(b"here")])
    there.units([letters(b"there")])
    name = broker_name(Origin(8, 1))
    body = records.encode(records.PublisherRecord(name))
    here.give(Record(KIND_PUBLISHER, 8, 1, 0, 0, 0, publisher_id(name)), body)
    unit = [batch for batch in there.batches() if batch.kind != KIND_PUBLISHER]
    given = [build.sent(batch, n and unit[n - 1].position)[0] for n, batch in enumerate(unit)]
    message = m.Replicate(MINE, here.ordinal, 0, given, 1)
    here.hear(LINK, message, [bytes(batch.body) for batch in unit])
    here.commit()
    assert payloads(here.batches()) == [b"here", b"there"]


def test_a_start_comes_to_the_same_table() -> None:
    whole = Whole()
    whole.units([letters(b"a"), wiring()], [fact(), point()], [deleted(), letters(b"b")])
    before = whole.core.sessions.get(PUBLISHER)
    assert before is not None
    fold = LogFold(build.INSTANCE)
    for batch in whole.batches():
        fold(batch, 1)
    after = fold.sessions.get(PUBLISHER)
    assert after is not None
    for field in ("name", "high", "high_position", "session", "newest", "wrote", "named", "holes"):
        assert getattr(after, field) == getattr(before, field), field
    assert after.acked == before.acked == 2


def test_a_link_of_another_process_is_not_disturbed() -> None:
    whole = Whole()
    whole.units([fact()])
    assert whole.core.process_of(LINK) == "replication"
    assert whole.core.process_of(PROCESS) == "queues"


DAY_MS = stages.STAGED_MS
STAGED_APP = staged_name("app", Origin(build.INSTANCE, 1))
ONE = stages.StageKey(Origin(build.INSTANCE, 1), "alice", "one")


def shown(at: Whole, max_bytes: int = 1 << 20) -> list[tuple[int, int, str, bytes]]:
    """Position, sequence, topic and payload of every message that readers see."""
    cursor, end, found = at.log.seek(1), at.core.persisted, []
    at.log.refresh()
    while cursor.position < end:
        items, cursor = at.log.read(cursor, end, max_bytes)
        for item in items:
            assert isinstance(item, Batch)
            if item.kind == KIND_PUBLISH:
                payloads = msgspec.msgpack.decode(bytes(item.body))
                found += [
                    (item.position + n, item.sequence + n, item.topics[0], payload)
                    for n, payload in enumerate(payloads)
                ]
    return found


def test_what_is_staged_is_shown_to_no_one() -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    assert shown(at) == []
    assert [batch.kind for batch in at.batches()].count(KIND_STAGED) == 1


def test_a_commit_shows_it_in_the_order_of_its_tokens() -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    at.stage("two", b"c", topic="u")
    at.stage("one", b"d")
    done = at.commit_stages("app", 7, two=1, one=3)
    assert (done.count, done.already, done.code) == (4, False, "")
    assert shown(at) == [
        (done.position, 1, "u", b"c"),
        (done.position + 1, 2, "t", b"a"),
        (done.position + 2, 3, "t", b"b"),
        (done.position + 3, 4, "t", b"d"),
    ]


def test_it_is_published_under_a_name_of_its_own() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.commit_stages("app", 1, one=1)
    at.stage("two", b"b")
    at.commit_stages("app", 2, two=1)
    assert [sequence for _, sequence, _, _ in shown(at)] == [1, 2]
    known = at.core.sessions.get(publisher_id(STAGED_APP))
    assert known is not None
    assert (known.name, known.high, known.acked) == (STAGED_APP, 2, 2)


@pytest.mark.parametrize("again", ["the same journal", "the next one"])
def test_a_commit_is_idempotent(again: str) -> None:
    at = Whole()
    at.stage("one", b"a")
    first = at.commit_stages("app", 7, one=1)
    if again == "the next one":
        at.restart()
    assert at.commit_stages("app", 7, one=1) == StagesDone(1, first.position, 1, already=True)
    assert at.commit_stages("app", 6, one=1) == StagesDone(1, already=True), "older than the newest"
    assert len(shown(at)) == 1


@pytest.mark.parametrize("messages", [1, 3])
def test_a_commit_of_other_messages_than_are_here_is_refused(messages: int) -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    assert at.commit_stages("app", 1, one=messages).code == "stage_unknown"
    assert at.commit_stages("app", 1, other=1).code == "stage_unknown"
    assert shown(at) == []
    assert at.commit_stages("app", 1, one=2).count == 2, "nothing is lost by it"


def test_a_commit_of_nothing_is_done() -> None:
    at = Whole()
    assert at.commit_stages("app", 1) == StagesDone(1)


def test_what_is_aborted_cannot_be_committed() -> None:
    at = Whole()
    at.stage("one", b"a")
    assert at.abort_stages("one", "never") == StagesDone(5)
    assert at.core.sessions.stages.bytes == 0
    assert at.commit_stages("app", 1, one=1).code == "stage_unknown"


def test_a_nearly_full_disk_takes_no_commit() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.space(accepting=False)
    assert at.commit_stages("app", 1, one=1).code == "disk_full"
    at.space(accepting=True)
    assert at.commit_stages("app", 1, one=1).count == 1


def test_more_than_the_quota_is_refused_until_there_is_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_builder, "STAGED_MAX_BYTES", 100)
    at = Whole()
    at.stage("one", b"x" * 60)
    at.stage("two", b"x" * 60)
    assert at.core.sessions.stages.own("alice", "two") == []
    assert at.core.refused == 1
    at.commit_stages("app", 1, one=1)
    at.stage("two", b"x" * 60)
    assert at.core.sessions.stages.own("alice", "two")


def test_a_staged_batch_that_comes_again_is_there_once() -> None:
    at = Whole()
    at.stage("one", b"a")
    known = at.core.sessions.get(publisher_id("task"))
    assert known is not None
    body = msgspec.msgpack.encode([b"a"])
    entry = m.Entry(
        known.id, known.session, 1, 1, 0, group_builder.crc32c(body), None, ["t"], stage="one"
    )
    at.hear(LISTENER, m.Append(MINE, at.ordinal, 0, [entry]), [body])
    at.commit()
    assert at.commit_stages("app", 1, one=1).count == 1


def test_after_a_restart_everything_is_as_it_was() -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    at.stage("two", b"c")
    at.commit_stages("app", 3, two=1)
    at.roll_over()
    at.stage("one", b"d")
    before = table(at.core.sessions)
    at.restart()
    assert table(at.core.sessions) == before
    assert at.commit_stages("app", 4, one=3).count == 3
    assert [payload for *_, topic, payload in shown(at) if topic != "filler"][-3:] == [
        b"a",
        b"b",
        b"d",
    ]


def test_a_snapshot_tells_what_is_staged_and_committed() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.stage("two", b"c")
    at.roll_over()
    at.commit_stages("app", 3, two=1)
    at.state()
    before = table(at.core.sessions)
    at.restart()
    assert at.fold.state_serial
    assert table(at.core.sessions) == before
    assert at.commit_stages("app", 3, two=1).already


def test_what_is_shown_rots_and_is_a_gap_of_that_part() -> None:
    at = Whole()
    for token in ("one", "two", "tri"):
        at.stage(token, token.encode())
    done = at.commit_stages("app", 1, one=1, two=1, tri=1)
    [_, two, _] = [batch for batch in at.batches() if batch.kind == KIND_STAGED]
    at.damage(two)
    items, cursor = at.log.read(at.log.seek(done.position), at.core.persisted, 1 << 20)
    assert [
        item[:2] if isinstance(item, Gap) else (item.position, item.end_position)
        for item in items
        if not isinstance(item, Skipped)
    ] == [(done.position + n, done.position + n + 1) for n in range(3)]
    assert [type(item) for item in items] == [Batch, Gap, Batch]
    assert cursor.position == done.position + 3


PARTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.sampled_from(["t", "u", "v"])),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    parts=PARTS, wants=st.sets(st.sampled_from(["t", "u", "v"])),
    sizes=st.lists(st.sampled_from([1, 40, 400, 100_000]), min_size=1, max_size=5),
    seeks=st.lists(st.floats(0, 0.999), max_size=4),
)  # fmt: skip
def test_readers_get_what_they_would_get_of_a_publish(
    parts: list[tuple[str, int, str]], wants: set[str], sizes: list[int], seeks: list[float]
) -> None:
    at, expected, counts = Whole(), list[tuple[str, bytes]](), dict[str, int]()
    for number, (token, count, topic) in enumerate(parts):
        at.stage(token, *[b"%d.%d" % (number, n) for n in range(count)], topic=topic)
        counts[token] = counts.get(token, 0) + count
    for token in sorted(counts):
        for number, (of, count, topic) in enumerate(parts):
            expected += [(topic, b"%d.%d" % (number, n)) for n in range(count) if of == token]
    done = at.commit_stages("app", 1, **dict(sorted(counts.items())))
    first, end = done.position, done.position + done.count
    starts = [first, *(first + int(share * done.count) for share in seeks)]
    for start in starts:
        at.log.refresh()
        cursor, turn, seen = at.log.seek(start), 0, dict[int, tuple[str, bytes]]()
        assert cursor.position <= start
        position = cursor.position
        while cursor.position < end:
            size, turn = sizes[turn % len(sizes)], turn + 1
            items, cursor = at.log.read_wanted(cursor, end, size, wants.__contains__)
            for item in items:
                assert not isinstance(item, Gap)
                low = item.first if isinstance(item, Skipped) else item.position
                assert low == position
                position = item.end if isinstance(item, Skipped) else item.end_position
                if isinstance(item, Batch):
                    assert item.sequence - item.position == 1 - first
                    for n, payload in enumerate(msgspec.msgpack.decode(bytes(item.body))):
                        seen[item.position + n] = (item.topics[0], payload)
        assert seen == {
            first + n: one
            for n, one in enumerate(expected)
            if one[0] in wants and first + n >= min(seen, default=end)
        }
        assert not any(
            one[0] in wants for one in expected[start - first : min(seen, default=end) - first]
        )


# -- the table ------------------------------------------------------------------------------------


def _segment_of(at: Whole, batch: Batch) -> int:
    return max(start.serial for start in at.log.starts if start.position <= batch.position)


def test_a_segment_with_parts_stays_as_long_as_their_commit_does() -> None:
    at = Whole()
    at.stage("one", b"a")
    low = at.writer.serial
    table = at.core.sessions.stages
    assert table.removable(100) == low - 1, "it waits for its commit"
    at.roll_over()
    at.commit_stages("app", 1, one=1)
    high = at.writer.serial
    assert high > low
    assert table.removable(low) == low - 1
    assert table.removable(high - 1) == low - 1
    assert table.removable(high) == high
    table.removed(high)
    assert table.removable(low) == low


def test_a_stage_that_no_one_adds_to_for_a_day_of_this_process_is_overdue() -> None:
    """Whatever its messages, their log time, or any wall clock say."""
    at = Whole()
    at.stage("one", b"a")
    assert at.core.sessions.stages.overdue(10 * DAY_MS) == [], "seen for the first time"
    assert at.core.sessions.stages.overdue(11 * DAY_MS - 1) == []
    at.stage("one", b"b")
    assert at.core.sessions.stages.overdue(11 * DAY_MS) == [], "something was added"
    assert at.core.sessions.stages.overdue(12 * DAY_MS) == [ONE]
    at.restart()
    assert at.core.sessions.stages.overdue(7) == [], "who starts knows no earlier age"
    assert at.core.sessions.stages.overdue(7 + DAY_MS) == [ONE]


def test_an_abort_of_nothing_is_no_record() -> None:
    at = Whole()
    before = len(at.batches())
    at.abort_stages("never")
    assert len(at.batches()) == before


def test_an_abort_ends_what_is_before_it_in_its_group() -> None:
    at = Whole()
    at.stage("one", b"a")
    known = at.core.sessions.get(publisher_id("task"))
    assert known is not None
    for _ in range(2):
        body = msgspec.msgpack.encode([b"x"])
        entry = m.Entry(
            known.id, known.session, known.high + 1, 1, known.high, group_builder.crc32c(body),
            None, ["t"], stage="one",
        )  # fmt: skip
        at.hear(LISTENER, m.Append(MINE, at.ordinal, 0, [entry]), [body])
        at.ordinal += 1
        at.abort_stages("one")
        assert (len(at.core.sessions.stages), at.core.sessions.stages.bytes) == (0, 0)
        at.restart()
        assert len(at.core.sessions.stages) == 0
        at.hear(LISTENER, m.Open(1, MINE, "task", "alice"), [])
        at.commit()
        known = at.core.sessions.get(publisher_id("task"))
        assert known is not None


def test_a_nearly_full_disk_takes_small_aborts() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.space(accepting=False)
    assert at.abort_stages("one").code == ""
    assert len(at.core.sessions.stages) == 0


def test_stages_and_apps_belong_to_their_principal() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.stage("one", b"e", name="task-of-eve", owner="eve")
    at.stage("mine", b"f", name="task-of-eve", owner="eve")
    assert at.commit_of("eve", "z", 1, one=2).code == "stage_unknown"
    at.abort_stages("one", owner="eve")
    assert at.commit_of("eve", "jobs/nightly", 2**62, mine=1).count == 1
    at.restart()
    assert at.commit_of("eve", "other", 1, one=1).code == "stage_unknown"
    done = at.commit_stages("jobs/nightly", 1, one=1)
    assert (done.already, done.count) == (False, 1), "eve's app of that name is another one"
    assert [payload for *_, payload in shown(at)] == [b"f", b"a"]
    at.roll_over()
    at.state()
    at.restart()
    assert at.commit_stages("jobs/nightly", 1).position == done.position
    assert at.commit_of("bob", "jobs/nightly", 1) == StagesDone(1), "bob learns nothing of them"


def test_who_may_not_commit_everything_learns_the_topics_first() -> None:
    at = Whole()
    at.stage("one", b"a", topic="t")
    at.stage("two", b"b", topic="u")
    wanted = [StagedBy("one", 1), StagedBy("two", 1)]
    ask = CommitStages(MINE, 1, "app", 1, wanted, "alice", asks_topics=True)
    at.hear(LISTENER, ask, [])
    [answer] = [s.message for s in at.commit() if isinstance(s.message, StagesDone)]
    assert answer == StagesDone(1, topics=["t", "u"])
    assert shown(at) == []


def test_what_an_earlier_release_committed_is_done_for_every_principal() -> None:
    at = Whole()
    at.core.sessions.stages.learn_app(AppRow("jobs/a", 1, 40, 3))
    assert at.commit_stages("jobs/a", 1, any=3) == StagesDone(1, 40, 3, already=True)


def test_what_an_earlier_release_staged_can_be_committed_and_aborted() -> None:
    at = Whole()
    for token in ("one", "two"):
        at.core.sessions.stages.learn(StageRow(token, 5, 10, ["t"], [Reference(1, 1, 4096, 1)]))
    assert at.abort_stages("two").code == ""
    assert at.commit_stages("app", 1, one=1).count == 1
    assert len(at.core.sessions.stages) == 0


def test_with_security_off_everybody_may_mean_all_of_them() -> None:
    at = Whole()
    at.stage("one", b"a")
    at.stage("two", b"b")
    assert at.abort_stages("two", owner="").code == ""
    assert at.commit_of("", "app", 1, one=1).count == 1
    assert at.commit_of("", "app", 1).already


def test_one_principal_may_stage_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Whole()
    at.core.settings = at.core.settings._replace(staged_max_bytes=100)
    at.stage("one", b"x" * 60)
    at.stage("two", b"x" * 60)
    assert at.core.sessions.stages.own("alice", "two") == [], "it was refused for now"
    at.stage("eve", b"x" * 60, name="task-of-eve", owner="eve")
    assert at.core.sessions.stages.own("eve", "eve")


def test_apps_of_one_principal_push_out_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "APPS_MAX", 2)
    at = Whole()
    at.stage("one", b"a")
    at.commit_stages("mine", 1, one=1)
    for number in range(5):
        at.stage(f"s{number}", b"x", name="task-of-eve", owner="eve")
        at.commit_of("eve", f"app{number}", 1, **{f"s{number}": 1})
    assert at.commit_stages("mine", 1, any=1).already
    assert [row.app for row in at.core.sessions.stages.app_rows()] == ["mine", "app3", "app4"]


def test_names_of_apps_are_names_of_who_commits() -> None:
    at = Whole()
    at.core.settings = at.core.settings._replace(names_max=2)
    codes = []
    for number in range(3):
        at.stage(f"s{number}", b"x")
        codes.append(at.commit_stages(f"app{number}", 1, **{f"s{number}": 1}).code)
    assert codes == ["", "too_many", "too_many"], "the publisher of the parts is one of them"


def test_of_many_apps_the_longest_unused_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "APPS_MAX", 2)
    at = Whole()
    for number, app in enumerate(("a", "b", "a", "c")):
        at.stage(f"s{number}", b"x")
        at.commit_stages(app, number, **{f"s{number}": 1})
    assert at.core.sessions.stages.last("alice", "b") is None
    assert [row.app for row in at.core.sessions.stages.app_rows()] == ["a", "c"]
    assert isinstance(at.core.sessions.stages, Stages)


def test_all_runs_of_a_name_are_one_publisher_and_each_is_done_once() -> None:
    at = Whole()
    for run in ("jobs/a", "jobs/b"):
        at.stage(run, b"x")
        at.commit_stages(run, 1, **{run: 1})
    assert at.commit_stages("jobs/a", 1, any=1).already
    assert [sequence for _, sequence, _, _ in shown(at)] == [1, 2]
    known = at.core.sessions.get(publisher_id(staged_name("jobs", Origin(build.INSTANCE, 1))))
    assert known is not None
    assert known.high == 2


def test_runs_are_forgotten_before_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "APPS_MAX", 2)
    at = Whole()
    for number, app in enumerate(("query", "jobs/a", "jobs/b")):
        at.stage(f"s{number}", b"x")
        at.commit_stages(app, 1, **{f"s{number}": 1})
    assert [row.app for row in at.core.sessions.stages.app_rows()] == ["query", "jobs/b"]
