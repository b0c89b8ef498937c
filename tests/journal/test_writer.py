"""The writer: groups, syncs, roll-overs, and what it does when the disk fails."""

from __future__ import annotations

import random

import pytest

from tests.journal.build import SEGMENT_BYTES, append, history, publish, read_all, start, writer
from tests.sim.disk import SimDisk
from zbroker.errors import StorageError
from zbroker.journal.format import (
    DATA_AT,
    GROUP_ALIGN,
    Batch,
    GroupHeader,
    SegmentHeader,
    decode_batch_header,
    decode_group_header,
)
from zbroker.journal.segments import (
    PLAIN,
    SPARE,
    list_segments,
    read_header,
    read_note,
    segment_name,
)
from zbroker.journal.writer import SHORT_BYTES, Writer


def fresh() -> tuple[SimDisk, Writer]:
    disk = SimDisk(random.Random(1))
    return disk, writer(disk, start(disk))


def fill(to: Writer) -> None:
    """Writes until the next group would not fit."""
    while to.end + 1_200 < SEGMENT_BYTES:
        append(to, b"x" * 800)


def test_a_group_stands_at_its_place_with_its_batches_behind_it() -> None:
    disk, to = fresh()
    batches = append(to, b"first", b"second message")
    content = disk.content(segment_name(1))
    group = decode_group_header(content, DATA_AT, DATA_AT)
    assert isinstance(group, GroupHeader)
    assert (group.batches, group.first_position, group.positions, group.synced_through) == (
        2,
        1,
        2,
        1,
    )
    header = read_header(disk, 1)
    assert isinstance(header, SegmentHeader)
    for batch in batches:
        found = decode_batch_header(content, batch.offset, batch.offset, header.seed)
        assert isinstance(found, Batch)
        body = batch.offset + batch.header_length
        assert (found.position, content[body : body + found.body_length]) == (
            batch.position,
            batch.body,
        )
    assert to.end == batches[-1].end_offset == DATA_AT + group.length


def test_groups_begin_on_their_own_sectors() -> None:
    _, to = fresh()
    offsets = [append(to, b"x" * size)[0].offset - 64 for size in (1, 500, 513, 1_000)]
    assert all(offset % GROUP_ALIGN == 0 for offset in offsets)
    assert len(set(offsets)) == 4


def test_groups_are_chained_and_say_what_was_durable() -> None:
    disk, to = fresh()
    first, second = append(to, b"a")[0], append(to, b"b", sync=False)[0]
    third = append(to, b"c")[0]
    content = disk.content(segment_name(1))
    groups = [
        decode_group_header(content, b.offset - 64, b.offset - 64) for b in (first, second, third)
    ]
    assert [g.synced_through for g in groups if isinstance(g, GroupHeader)] == [1, 2, 2]
    crcs = [g.crc for g in groups if isinstance(g, GroupHeader)]
    assert [g.previous_crc for g in groups if isinstance(g, GroupHeader)] == [0, *crcs[:2]]


def test_a_sync_moves_the_mark_and_the_note() -> None:
    disk, to = fresh()
    append(to, b"a", b"b", sync=False)
    assert (to.position, to.synced) == (3, 1)
    assert to.sync() == 3 == to.synced
    note = read_note(disk)
    assert note is not None
    assert (note.position, note.serial) == (3, 1)


def test_bodies_are_not_copied() -> None:
    disk, to = fresh()
    body = memoryview(b"x" * 1_000)
    batch = publish(1, bytes(body))
    batch.body = body  # type: ignore[assignment]
    to.write([batch], 1)
    found = read_all(disk, 2)[0]
    assert isinstance(found, Batch)
    assert found.body == body


def test_a_group_is_never_split_over_segments() -> None:
    disk, to = fresh()
    fill(to)
    end, position = to.end, to.position
    batches = append(to, b"y" * 900, b"z" * 900)
    header = read_header(disk, 2)
    assert isinstance(header, SegmentHeader)
    assert (to.serial, batches[0].offset) == (2, DATA_AT + 64)
    assert (header.first_position, header.previous_last_position, header.previous_end) == (
        position,
        position - 1,
        end,
    )


def test_a_segment_is_synced_before_the_next_one_begins() -> None:
    disk, to = fresh()
    fill(to)
    append(to, b"not synced", sync=False)
    position = to.position
    while to.serial == 1:
        append(to, b"x" * 800, sync=False)
    assert to.synced >= position
    assert disk.read_direct(segment_name(1), 0, SEGMENT_BYTES) == disk.content(segment_name(1))


def test_the_next_segment_is_filled_once_half_of_this_one_is_used() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk, segment_bytes=64 * 1024))
    assert not to.prepare_step()
    assert all(name != SPARE for name, _ in disk.list())
    append(to, b"x" * 30_000)
    assert not to.prepare_step()  # one step fills so small a segment
    assert (SPARE, SEGMENT_BYTES) in disk.list()


def test_a_prepared_segment_is_used() -> None:
    disk, to = fresh()
    fill(to)
    to.prepare_step()
    append(to, b"x" * 2_000)
    assert (to.serial, to.unprepared) == (2, 0)
    assert {name for name, _ in disk.list()}.isdisjoint({SPARE, PLAIN})


def test_what_is_filled_is_taken_when_the_writer_is_faster() -> None:
    disk = SimDisk(random.Random(1))
    size = 2 * SHORT_BYTES
    to = writer(disk, start(disk), segment_bytes=size)
    while not disk.exists(SPARE) or len(disk.content(SPARE)) < SHORT_BYTES:
        to.prepare_step()
    filled = len(disk.content(SPARE))
    fill(to)
    append(to, b"x" * 2_000)
    assert (to.serial, to.unprepared) == (2, 0)
    assert SHORT_BYTES <= filled == dict(list_segments(disk))[2] < size
    assert to.prepare_step(), "the one behind it is begun anew"


def test_without_a_prepared_segment_the_roll_over_is_counted() -> None:
    _, to = fresh()
    fill(to)
    append(to, b"x" * 2_000)
    assert (to.serial, to.unprepared) == (2, 1)


def test_a_group_larger_than_a_segment_gets_one_of_its_size() -> None:
    disk, to = fresh()
    append(to, b"a")
    append(to, b"x" * 3 * SEGMENT_BYTES)
    append(to, b"x" * 5_000)
    assert [size for _, size in list_segments(disk)] == [SEGMENT_BYTES, 86_016, SEGMENT_BYTES]
    assert [len(item.body) for item in read_all(disk, 4) if isinstance(item, Batch)] == [
        1,
        3 * SEGMENT_BYTES,
        5_000,
    ]


def test_after_a_failed_sync_nothing_is_done_any_more() -> None:
    disk, to = fresh()
    append(to, b"a", sync=False)
    disk.fail_at = disk.operations + 1
    with pytest.raises(StorageError):
        to.sync()
    operations = disk.operations
    for action in (to.sync, lambda: append(to, b"b")):
        with pytest.raises(StorageError, match="failed before"):
            action()
    assert (disk.operations, to.synced) == (operations, 1)


def test_after_a_failed_write_nothing_is_done_any_more() -> None:
    disk, to = fresh()
    disk.fail_at = disk.operations + 1
    with pytest.raises(StorageError):
        append(to, b"a")
    with pytest.raises(StorageError, match="failed before"):
        to.sync()


def test_no_space_for_the_next_segment_is_refused_without_harm() -> None:
    disk, to = fresh()
    fill(to)
    position = to.position
    disk.capacity = disk.capacity - disk.free_bytes()
    with pytest.raises(StorageError) as caught:
        append(to, b"x" * 2_000)
    assert (caught.value.code, to.position, to.serial) == ("disk_full", position, 1)
    append(to, b"y")  # a small one still fits
    disk.capacity = 1 << 30
    append(to, b"x" * 2_000)
    assert (to.serial, to.position) == (2, position + 2)


def test_no_space_for_preparing_is_tried_again_with_the_next_segment_only() -> None:
    disk, to = fresh()
    fill(to)
    disk.capacity = disk.capacity - disk.free_bytes() + 100
    assert not to.prepare_step()
    operations = disk.operations
    assert not to.prepare_step()
    assert disk.operations == operations
    assert all(name != SPARE for name, _ in disk.list())


def test_a_spare_of_an_earlier_run_is_not_trusted() -> None:
    disk, to, _ = history(12, 1, 800)
    disk.plant(SPARE, b"\xff" * SEGMENT_BYTES)
    again = writer(disk, start(disk))
    while again.serial == to.serial:
        again.prepare_step()
        append(again, b"x" * 800)
    assert again.unprepared == 0
    assert b"\xff" * 64 not in disk.content(segment_name(again.serial))
