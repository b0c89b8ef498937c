"""The writer: groups, syncs, roll-overs, and what it does when the disk fails."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from tests.journal.build import (
    SEGMENT_BYTES,
    append,
    history,
    positions,
    publish,
    read_all,
    start,
    writer,
)
from tests.sim.disk import SimCrash, SimDisk
from zbroker.errors import StorageError
from zbroker.log.format import (
    DATA_AT,
    GROUP_ALIGN,
    GROUP_LENGTH,
    NOTE,
    NOTE_KEPT_AT,
    NOTE_SLOTS,
    AckedNote,
    Batch,
    GroupHeader,
    SegmentHeader,
    decode_batch_header,
    decode_group_header,
    decode_note,
    encode_batch_header,
)
from zbroker.log.reader import Log
from zbroker.log.segments import (
    PLAIN,
    SPARE,
    list_segments,
    read_header,
    read_note,
    segment_name,
    spare_names,
)
from zbroker.log.writer import RESERVE_SHARE, SHORT_BYTES, Writer


def fresh() -> tuple[SimDisk, Writer]:
    disk = SimDisk(random.Random(1))
    return disk, writer(disk, start(disk))


def fill(to: Writer) -> None:
    """Writes until the next group would not fit."""
    while to.end + 1_200 < SEGMENT_BYTES:
        append(to, b"x" * 800)


def test_a_group_is_at_its_place_with_its_batches_after_it() -> None:
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


@pytest.mark.seed("004-25")
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


def test_an_fsync_of_a_segment_precedes_the_next_one() -> None:
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
    assert to.prepare_step(), "the one after it is begun again"


def test_without_a_prepared_segment_the_roll_over_is_counted() -> None:
    _, to = fresh()
    fill(to)
    append(to, b"x" * 2_000)
    assert (to.serial, to.unprepared) == (2, 1)


@pytest.mark.seed("004-25")
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


def test_after_a_failed_fsync_nothing_is_done_any_more() -> None:
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


def small() -> tuple[SimDisk, Writer]:
    """A writer whose reserve is 3 KiB, on a disk that is full after its open segment."""
    disk, to = fresh()
    disk.capacity = disk.capacity - disk.free_bytes()
    return disk, to


def test_without_space_for_a_successor_publishers_may_fill_down_to_the_reserve_only() -> None:
    disk, to = small()
    written = 0
    while to.secure(1_000):
        append(to, b"x" * 800)
        written += 1
    left = SEGMENT_BYTES - to.end
    assert SEGMENT_BYTES // RESERVE_SHARE - 512 <= left <= SEGMENT_BYTES // RESERVE_SHARE + 1_536
    assert written == (SEGMENT_BYTES - DATA_AT - SEGMENT_BYTES // RESERVE_SHARE) // 1_024
    assert {name for name, _ in disk.list()} == {segment_name(1), "acked-through"}


def test_the_reserve_is_there_for_what_must_go_on() -> None:
    _, to = small()
    while to.secure(1_000):
        append(to, b"x" * 800)
    append(to, b"a state snapshot" * 100)
    assert to.serial == 1


def test_with_a_successor_on_the_disk_publishers_may_fill_all_of_the_segment() -> None:
    disk, to = fresh()
    while to.end + 1_100 < SEGMENT_BYTES:
        assert to.secure(1_000)
        append(to, b"x" * 800)
    assert (PLAIN, SEGMENT_BYTES) in disk.list()
    assert to.serial == 1


@pytest.mark.parametrize("filled", [True, False])
def test_a_roll_over_finds_its_secured_successor_on_a_disk_that_is_full_by_then(
    filled: bool,
) -> None:
    disk, to = fresh()
    fill(to)
    if filled:
        to.prepare_step()
    assert to.secure(5_000)
    disk.capacity = disk.capacity - disk.free_bytes()
    append(to, b"x" * 4_000)
    assert (to.serial, to.unprepared) == (2, 0 if filled else 1)


def whole_of(to: Writer) -> bytes:
    """A body with which a group takes all the room."""
    header = len(encode_batch_header(publish(to.position, b""), 0, 0)) + GROUP_LENGTH
    return b"x" * (to.left_bytes - header)


def test_a_group_as_large_as_the_process_needs_no_new_space() -> None:
    _, to = small()
    fill(to)
    append(to, whole_of(to))
    assert (to.serial, to.end, to.left_bytes) == (1, SEGMENT_BYTES, 0)
    with pytest.raises(StorageError, match="disk_full"):
        append(to, b"x")


def test_the_space_is_that_of_the_next_segment_if_there_is_one() -> None:
    disk, to = fresh()
    fill(to)
    assert to.secure(5_000)
    disk.capacity = disk.capacity - disk.free_bytes()
    assert to.left_bytes == SEGMENT_BYTES - DATA_AT
    append(to, whole_of(to))
    assert (to.serial, to.end) == (2, SEGMENT_BYTES)


def test_what_is_secured_is_large_enough_for_the_group_and_the_reserve() -> None:
    disk, to = fresh()
    assert not to.has_space(3 * SEGMENT_BYTES)
    assert to.secure(3 * SEGMENT_BYTES)
    assert to.has_space(3 * SEGMENT_BYTES)
    append(to, b"x" * (3 * SEGMENT_BYTES - 1_000))
    assert to.has_space(SEGMENT_BYTES // RESERVE_SHARE - 2_000)
    assert len(disk.list()) == 3


def test_a_group_must_leave_the_reserve_in_the_next_segment_too() -> None:
    disk, to = fresh()
    fill(to)
    assert to.secure(2_000)
    disk.capacity = disk.capacity - disk.free_bytes()
    most = SEGMENT_BYTES - DATA_AT - SEGMENT_BYTES // RESERVE_SHARE
    assert to.has_space(most)
    assert not to.has_space(most + 1)


def test_space_that_comes_back_is_found_by_the_next_attempt() -> None:
    disk, to = small()
    while to.secure(1_000):
        append(to, b"x" * 800)
    disk.capacity += SEGMENT_BYTES - 1
    assert not to.secure(1_000)
    disk.capacity += 1
    assert to.secure(1_000)


def test_a_disk_that_fails_is_no_full_disk() -> None:
    disk, to = fresh()
    fill(to)
    disk.fail_at = disk.operations + 1
    with pytest.raises(StorageError) as caught:
        to.secure(5_000)
    assert caught.value.code == "disk_error"


def test_what_was_filled_before_the_disk_was_full_is_the_successor() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk), segment_bytes=2 * SHORT_BYTES)
    while not disk.exists(SPARE) or len(disk.content(SPARE)) <= SHORT_BYTES:
        to.prepare_step()
    disk.capacity = disk.capacity - disk.free_bytes()
    assert not to.prepare_step()
    fill(to)
    assert to.has_space(100_000)
    append(to, b"x" * 90_000)
    assert (to.serial, to.unprepared) == (2, 0)
    header = read_header(disk, 2)
    assert isinstance(header, SegmentHeader)
    assert header.size == SHORT_BYTES, "what was written last was not synced"


def test_without_preallocation_nothing_is_filled_and_no_roll_over_is_late() -> None:
    disk = SimDisk(random.Random(1))
    to = Writer(disk, start(disk).tail, segment_bytes=SEGMENT_BYTES, files=0)
    for _ in range(40):
        assert to.secure(1_000)
        append(to, b"x" * 800)
        assert not to.prepare_step()
    assert (to.serial, to.unprepared) == (3, 0)
    assert all(name != SPARE for name, _ in disk.list())


def ahead(files: int) -> tuple[SimDisk, Writer]:
    """A log whose next segments were prepared before anything was written."""
    disk = SimDisk(random.Random(1))
    to = Writer(disk, start(disk).tail, segment_bytes=SEGMENT_BYTES, files=files)
    while to.prepare_step():
        pass
    return disk, to


@pytest.mark.seed("004-24")
@pytest.mark.parametrize(("files", "prepared"), [(0, 0), (1, 0), (2, 1), (4, 3)])
def test_so_many_files_are_there_ahead_with_the_open_one(files: int, prepared: int) -> None:
    disk, to = ahead(files)
    assert not to.wants_preparing
    names = {name: size for name, size in disk.list() if name.startswith(SPARE)}
    assert names == dict.fromkeys(spare_names(prepared) if prepared else [], SEGMENT_BYTES)


def test_each_roll_over_takes_the_next_prepared_file_and_one_more_is_prepared() -> None:
    disk, to = ahead(3)
    for serial in (2, 3):
        while to.serial < serial:
            append(to, b"x" * 2_000)
        assert read_header(disk, serial) is not None
    assert to.unprepared == 0
    assert not [name for name, _ in disk.list() if name.startswith(SPARE)], "both were taken"
    while to.prepare_step():
        pass
    assert {n for n, _ in disk.list() if n.startswith(SPARE)} == set(spare_names(2))
    found = positions(read_all(disk, to.position))
    assert found == list(range(1, to.position))


def test_a_disk_that_is_full_gives_up_what_it_cannot_prepare_and_keeps_the_rest() -> None:
    disk = SimDisk(random.Random(1))
    to = Writer(disk, start(disk).tail, segment_bytes=SEGMENT_BYTES, files=4)
    disk.capacity = disk.capacity - disk.free_bytes() + SEGMENT_BYTES
    for _ in range(20):
        to.prepare_step()
    assert not to.wants_preparing
    assert disk.content(SPARE) == bytes(SEGMENT_BYTES)
    assert {n for n, _ in disk.list() if n.startswith(SPARE)} == {SPARE}
    disk.capacity = 1 << 30
    while to.serial < 2:
        append(to, b"x" * 2_000)
    assert to.unprepared == 0
    assert to.wants_preparing, "with the next segment it is tried again"


def test_files_that_an_earlier_run_prepared_give_their_space_back() -> None:
    disk, _, _ = history(1)
    disk.plant(SPARE, bytes(SEGMENT_BYTES))
    disk.plant(f"{SPARE}-3", bytes(SEGMENT_BYTES))
    disk.plant(PLAIN, bytes(SEGMENT_BYTES))
    writer(disk, start(disk))
    assert {name for name, _ in disk.list()} == {segment_name(1), "acked-through"}


def test_what_is_given_up_is_everywhere_in_the_note() -> None:
    disk, to = fresh()
    fill(to)
    append(to, b"x" * 2_000)
    to.keep_from(2)
    for slot in (*NOTE_SLOTS, NOTE_KEPT_AT):
        note = decode_note(disk.content("acked-through")[slot : slot + NOTE.size])
        assert isinstance(note, AckedNote)
        assert (note.oldest, note.position, note.serial) == (2, to.synced, 2)
    append(to, b"later")
    assert [note.oldest for note in [read_note(disk)] if note] == [2]


@pytest.mark.parametrize("boundaries", range(2, 15))
def test_what_is_given_up_is_durable_in_a_power_cut_at_any_moment(boundaries: int) -> None:
    for seed in range(20):
        disk, to = fresh()
        fill(to)
        append(to, b"x" * 2_000)
        left = boundaries

        def cut(boundary: str) -> None:
            nonlocal left
            left -= boundary.endswith(":note")
            if left < 0:
                raise SimCrash

        disk.hook, disk.rng = cut, random.Random(seed)
        with suppress(SimCrash):
            to.keep_from(2)
        disk.hook = lambda _: None
        disk.power_cut()
        note = read_note(disk)
        assert note is not None, "one slot is always whole"
        assert note.oldest in ((2,) if boundaries >= 10 else (0, 2))
        assert note.position == to.synced


def test_segments_can_be_given_up_on_a_full_disk() -> None:
    disk, to = fresh()
    fill(to)
    append(to, b"x" * 2_000)
    disk.capacity = disk.capacity - disk.free_bytes()
    to.keep_from(2)
    assert [note.oldest for note in [read_note(disk)] if note] == [2]


# -- a generation that begins while it writes -------------------------------------------------


def test_a_generation_begins_in_a_segment_of_its_own_and_outlives_a_power_cut() -> None:
    disk, to = fresh()
    append(to, b"before")
    to.begin_generation(7)
    disk.power_cut()
    recovered = start(disk)
    assert (recovered.generation, recovered.next_position) == (7, 2)
    again = writer(disk, recovered)
    append(again, b"after")
    assert Log(disk=disk).history.begins == [(1, 1), (7, 2)]
    assert positions(read_all(disk, 3)) == [1, 2]


def test_a_full_disk_begins_no_generation_and_keeps_the_one_there_is() -> None:
    disk, to = fresh()
    append(to, b"before")
    disk.capacity = disk.capacity - disk.free_bytes()
    with pytest.raises(StorageError, match="disk_full"):
        to.begin_generation(7)
    append(to, b"after")
    assert to.header.generation == 1
    assert positions(read_all(disk, 3)) == [1, 2]
