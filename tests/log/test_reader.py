"""The readers' view: batches in order, gaps where they must be, nothing else."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journal.build import (
    append,
    gaps,
    history,
    positions,
    publish,
    read_all,
    start,
    writer,
)
from tests.log.build import everything, log_of, move, sim, squeeze
from tests.sim.disk import SimDisk
from zbroker.ids import Bookmark
from zbroker.log.disk import RealDisk
from zbroker.log.format import HEADER_COPY_AT, Batch
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.log.segments import list_segments, packed_name, segment_name
from zbroker.log.writer import Writer
from zbroker.wire.messages import Columns


def test_an_empty_directory_is_an_empty_log(tmp_path: Path) -> None:
    log = Log(tmp_path)
    assert (log.instance, log.generation, log.first_position, log.end()) == (0, 0, 1, 1)
    assert log.read(log.seek(1), 1, 1_000) == ([], Cursor(0, 8192, 1))
    assert log.locate(Bookmark(1, 1)) is None
    log.close()


def test_every_batch_is_read_once_with_its_body() -> None:
    disk, to, made = history(40)
    expected = [(batch.position, batch.body) for group in made for batch in group]
    found = read_all(disk, to.position)
    assert [(item.position, item.body) for item in found if isinstance(item, Batch)] == expected
    assert to.serial > 2


def test_headers_are_read_segment_by_segment_with_the_place_of_what_follows() -> None:
    disk, to, made = history(40)
    log = Log(disk=disk)
    cursor, found = log.seek(1), list[Batch | Gap]()
    whole, _ = log.read(cursor, to.position, 1 << 20)
    while cursor.position < to.position:
        serial = max(1, cursor.serial)
        items, cursor = log.read_headers(cursor, to.position, 1_000)
        assert items
        assert cursor.serial == serial or cursor.serial == serial + 1
        found += items
    assert positions(found) == positions(whole) == [one.position for group in made for one in group]
    assert {one.body for one in found if isinstance(one, Batch)} == {b""}
    assert cursor.serial == to.serial > 2


def test_a_log_on_a_real_disk_is_read_from_its_directory(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    to = writer(disk, start(disk))
    for number in range(30):
        append(to, b"%d" % number * 200)
    log = Log(tmp_path)
    assert (log.instance, log.end()) == (0xABCD, to.position)
    items, cursor = log.read(log.seek(1), to.position, 1 << 20)
    assert positions(items) == list(range(1, 31))
    assert cursor.position == to.position
    log.close()
    disk.close()


class CountingDisk(SimDisk):
    """Counts how often it is asked whether a file exists."""

    asked = 0

    def exists(self, name: str) -> bool:
        """See Disk."""
        self.asked += 1
        return super().exists(name)


def test_a_reader_that_knows_the_open_segment_asks_no_directory() -> None:
    disk = CountingDisk(random.Random(1))
    to = writer(disk, start(disk))
    append(to, b"1")
    log = Log(disk=disk)
    cursor = log.seek(1)
    while to.serial < 3:
        append(to, b"x" * 2_000)
        disk.asked, before = 0, cursor
        items, cursor = log.read_wanted(cursor, to.position, 1 << 20, None, newest=to.serial)
        assert positions(items)[-1] == to.position - 1
        assert disk.asked == 0 or cursor.serial > before.serial
    log.read(cursor, to.position + 1, 1 << 20)
    assert disk.asked > 0


def test_nothing_at_or_above_the_limit_is_served() -> None:
    disk, to, _ = history(5)
    log = Log(disk=disk)
    items, cursor = log.read(log.seek(1), 5, 1 << 20)
    assert positions(items) == [1, 2, 3, 4]
    assert log.read(cursor, 5, 1 << 20) == ([], cursor)
    assert positions(log.read(cursor, to.position, 1 << 20)[0]) == [5, 6, 7, 8, 9, 10]


def test_max_bytes_bounds_a_read_but_one_batch_always_comes() -> None:
    disk, to, _ = history(5, size=600)
    log = Log(disk=disk)
    items, cursor = log.read(log.seek(1), to.position, 1)
    assert (positions(items), cursor.position) == ([1], 2)
    assert len(log.read(cursor, to.position, 1_500)[0]) in (2, 3)


def test_a_body_larger_than_any_block_is_read_whole() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk))
    body = random.Random(1).randbytes(3 << 20)
    append(to, b"before", body, b"behind")
    found = read_all(disk, to.position)
    assert [item.body for item in found if isinstance(item, Batch)] == [b"before", body, b"behind"]


def test_a_header_larger_than_a_block_is_read_whole() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk))
    batch = publish(1, b"body", count=20_000)
    batch.columns = Columns(index=bytes(40_000), time=bytes(160_000))
    to.write([batch], 1)
    found = read_all(disk, to.position)[0]
    assert isinstance(found, Batch)
    assert (found.columns, found.body) == (batch.columns, b"body")


def test_a_reader_follows_the_writer_into_new_segments() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk))
    log = Log(disk=disk)
    cursor, seen = log.seek(1), []
    for number in range(60):
        append(to, b"%d" % number * 150, sync=False)
        items, cursor = log.read(cursor, to.position, 1 << 20)
        seen += positions(items)
    assert seen == list(range(1, 61))
    assert to.serial > 1


def test_what_was_read_above_the_limit_is_not_remembered() -> None:
    disk, to, _ = history(1)
    log = Log(disk=disk)
    _, cursor = log.read(log.seek(1), to.position, 1 << 20)
    append(to, b"new one", sync=False)
    items, _ = log.read(cursor, to.position, 1 << 20)
    assert [item.body for item in items if isinstance(item, Batch)] == [b"new one"]


# -- seek and headers --


def test_seek_finds_every_position_without_a_hint() -> None:
    disk, to, made = history(40)
    log = Log(disk=disk)
    for group in made:
        for batch in group:
            items, _ = log.read(log.seek(batch.position), to.position, 1)
            assert [(i.position, i.offset) for i in items if isinstance(i, Batch)] == [
                (batch.position, batch.offset)
            ]
    assert log.seek(to.position).position == to.position


def test_seek_inside_a_batch_gives_that_batch() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk))
    to.write([publish(1, b"a", count=10), publish(11, b"b", count=10)], 1)
    assert [Log(disk=disk).seek(p).position for p in (1, 10, 11, 20, 21)] == [1, 1, 11, 11, 21]


def test_a_right_hint_is_used_and_a_wrong_one_does_no_harm() -> None:
    disk, _, made = history(40)
    log = Log(disk=disk)
    batch = made[20][1]
    plain = log.seek(batch.position)
    serial = plain.serial
    for hint in (
        (serial, batch.offset),
        (serial, 8192 + 64),
        (serial, 99),
        (1, 1 << 40),
        (77, 8256),
    ):
        assert log.seek(batch.position, *hint) == plain
    assert log.seek(1, serial, batch.offset) == log.seek(1)


def test_headers_come_with_cursors_that_point_at_them() -> None:
    disk, to, _ = history(40)
    log = Log(disk=disk)
    found = [item for item in log.headers(log.seek(1), to.position) if not isinstance(item, Gap)]
    assert [batch.position for batch, _ in found] == list(range(1, 81))
    for batch, cursor in found[::7]:
        assert batch.body == b""
        items, _ = log.read(cursor, to.position, 1)
        assert positions(items) == [batch.position]


def test_headers_step_over_large_bodies() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk))
    append(to, *[bytes(200_000) for _ in range(5)])
    log = Log(disk=disk)
    assert len(list(log.headers(log.seek(1), to.position))) == 5


# -- damage --


def test_a_damaged_body_is_a_gap_of_one_batch() -> None:
    disk, to, made = history(10)
    batch = made[4][0]
    disk.flip(segment_name(1), batch.offset + batch.header_length + 5)
    found = read_all(disk, to.position)
    assert gaps(found) == [(batch.position, batch.end_position)]
    assert len(positions(found)) == 19


@pytest.mark.parametrize("at", [0, 4, 8, 12, 40, 108])
def test_a_damaged_batch_header_is_a_gap_of_one_batch(at: int) -> None:
    disk, to, made = history(10)
    batch = made[4][0]
    disk.flip(segment_name(1), batch.offset + at, 3)
    found = read_all(disk, to.position)
    assert gaps(found) == [(batch.position, batch.end_position)]
    assert len(positions(found)) == 19


def test_a_damaged_group_header_loses_nothing() -> None:
    disk, to, made = history(10)
    disk.damage(segment_name(1), made[4][0].offset - 64, b"\xff" * 64)
    assert positions(read_all(disk, to.position)) == list(range(1, 21))


def test_a_zeroed_stretch_is_one_gap() -> None:
    disk, to, made = history(10)
    first, last = made[3][1], made[5][0]
    disk.damage(segment_name(1), first.offset, bytes(last.end_offset - first.offset))
    found = read_all(disk, to.position)
    assert gaps(found) == [(first.position, last.end_position)]
    assert len(positions(found)) == 20 - 4


def test_a_damaged_end_of_a_sealed_segment_is_a_gap_up_to_the_next() -> None:
    disk, to, made = history(40)
    log = Log(disk=disk)
    second = log.starts[1].position
    last = next(batch for group in made for batch in group if batch.end_position == second)
    disk.flip(segment_name(1), last.offset + 20)
    assert gaps(read_all(disk, to.position)) == [(last.position, second)]


def test_a_segment_without_a_header_is_a_gap() -> None:
    disk, to, _ = history(40)
    starts = [start.position for start in Log(disk=disk).starts]
    for at in (0, HEADER_COPY_AT):
        disk.damage(segment_name(2), at, bytes(96))
    found = read_all(disk, to.position)
    assert gaps(found) == [(starts[1], starts[2])]


def test_a_damaged_place_below_the_limit_in_the_open_segment_is_a_gap_up_to_it() -> None:
    disk, to, made = history(3)
    disk.damage(segment_name(1), made[2][0].offset, bytes(2_000))
    log = Log(disk=disk)
    items, cursor = log.read(log.seek(1), to.position, 1 << 20)
    assert (gaps(items), cursor.position) == ([(5, 7)], 7)
    append(to, b"behind it")
    items, _ = log.read(cursor, to.position, 1 << 20)
    assert positions(items) == [7]


def test_an_unreadable_sector_is_a_gap_of_what_is_there() -> None:
    disk, to, made = history(10, size=3_000, batches=1)
    batch = made[1][0]
    disk.unreadable = {(segment_name(1), (batch.offset + 2_000) // 512)}
    found = read_all(disk, to.position)
    lost = gaps(found)
    assert (batch.position, batch.end_position) in lost
    assert len(lost) <= 3  # the disk reads pages, so neighbours may be hit


def test_a_copy_of_a_batch_at_another_place_is_never_served() -> None:
    disk, to, made = history(10)
    source, target = made[2][0], made[6][0]
    content = disk.content(segment_name(1))
    disk.damage(segment_name(1), target.offset, content[source.offset : source.end_offset])
    found = read_all(disk, to.position)
    assert gaps(found) == [(target.position, target.end_position)]


def test_a_position_inside_a_gap_is_served_as_the_rest_of_the_gap() -> None:
    disk, to, made = history(10)
    disk.damage(segment_name(1), made[3][0].offset, bytes(1_000))
    log = Log(disk=disk)
    items, _ = log.read(log.seek(8), to.position, 1 << 20)
    assert isinstance(items[0], Gap)
    assert (items[0].first, items[0].end) == (8, 9)


# -- segments come and go --


def test_bytes_set_aside_by_recovery_are_never_served() -> None:
    disk, to, _ = history(3)
    (torn,) = append(to, b"torn", sync=False)
    append(to, b"valid behind it", sync=False)
    disk.flip(segment_name(1), torn.offset + torn.header_length)
    log = Log(disk=disk)
    recovered = start(disk)
    assert recovered.next_position == 7
    again = writer(disk, recovered, seed=5)
    append(again, b"the new seventh")
    items, _ = log.read(log.seek(1), again.position, 1 << 20)
    found = [(item.position, item.body) for item in items if isinstance(item, Batch)]
    assert found[-1] == (7, b"the new seventh")
    assert len(found) == 7


def test_a_removed_segment_is_a_gap_for_who_still_is_there() -> None:
    disk, to, _ = history(40)
    log = Log(disk=disk)
    cursor = log.seek(1)
    second = log.starts[1].position
    disk.remove(segment_name(1))
    log.refresh()
    items, _ = log.read(cursor, to.position, 1 << 20)
    assert gaps(items) == [(1, second)]
    assert positions(items) == list(range(second, to.position))
    assert log.first_position == second


def test_a_segment_removed_behind_the_readers_back_is_a_gap() -> None:
    disk, to, _ = history(40)
    log = Log(disk=disk)
    cursor = log.seek(1)
    second = log.starts[1].position
    disk.remove(segment_name(1))
    items, _ = log.read(cursor, to.position, 1 << 20)
    assert gaps(items) == [(1, second)]


# -- offline look-ups --


def test_the_end_is_after_the_last_valid_batch() -> None:
    disk, to, _ = history(25)
    append(to, b"never synced", sync=False)
    assert Log(disk=disk).end() == to.position


def test_damage_below_the_note_is_not_the_end() -> None:
    disk, to, made = history(10)
    disk.flip(segment_name(1), made[4][0].offset + 20)
    assert Log(disk=disk).end() == to.position


def test_a_torn_batch_above_the_note_is_the_end() -> None:
    disk, to, _ = history(4)
    (batch,) = append(to, b"x" * 300, sync=False)
    append(to, b"behind", sync=False)
    disk.flip(segment_name(1), batch.offset + batch.header_length)
    assert Log(disk=disk).end() == batch.position


def test_a_time_is_found_in_any_segment() -> None:
    disk, to, _ = history(40)
    log = Log(disk=disk)
    for position in (1, 2, 17, 40, 79, 80):
        assert log.locate_time(position * 1_000) == position
        assert log.locate_time(position * 1_000 - 1) == position
    assert log.locate_time(10**15) == to.position == 81


def test_a_time_inside_a_batch_is_found_by_its_column() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk))
    batch = publish(1, b"x", count=4)
    batch.skip = 1
    batch.columns = Columns(time=struct.pack("<4q", 5, 10, 20, 30))
    to.write([batch], 30)
    to.sync()
    log = Log(disk=disk)
    assert [log.locate_time(ns) for ns in (1, 10, 11, 20, 30, 31)] == [1, 1, 2, 2, 3, 4]


def test_a_bookmark_is_found_where_it_is() -> None:
    disk, _, _ = history(40)
    log = Log(disk=disk)
    assert [log.locate(Bookmark(77, sequence)) for sequence in (1, 33, 80, 81)] == [1, 33, 80, None]
    assert log.locate(Bookmark(78, 1)) is None


def test_small_segments_hold_many_groups() -> None:
    disk, to, _ = history(100, 1, 100)
    assert len(list_segments(disk)) < 10
    assert positions(read_all(disk, to.position)) == list(range(1, 101))


# -- segments that are archived, packed or missing --


def scattered() -> tuple[SegmentPlaces, Writer]:
    """A log whose first four segments are archived, packed or both."""
    places, to = log_of(80)
    assert to.serial >= 6
    move(places, 1)
    squeeze(places, 2)
    move(places, 2)
    squeeze(places, 3)
    move(places, 4)
    squeeze(places, 4)
    return places, to


def test_segments_of_all_kinds_are_one_log() -> None:
    places, to = scattered()
    kinds = [(place.archived, place.packed) for place in places.list()]
    assert kinds[:5] == [(True, False), (True, True), (False, True), (True, True), (False, False)]
    log = Log(places=places)
    assert log.first_position == 1
    assert positions(everything(places, to.position)) == list(range(1, to.position))
    heads = [item for item in log.headers(log.seek(1), to.position) if not isinstance(item, Gap)]
    assert [batch.position for batch, _ in heads] == list(range(1, to.position))
    for batch, cursor in heads[::7]:
        assert positions(log.read(cursor, to.position, 1)[0]) == [batch.position]


def test_every_point_is_found_in_segments_of_all_kinds() -> None:
    places, to = scattered()
    log = Log(places=places)
    for position in range(1, to.position, 5):
        assert log.seek(position).position == position
        assert log.locate(Bookmark(77, position)) == position
        assert log.locate_time(position * 1_000) == position
    assert log.end() == to.position


@pytest.mark.parametrize("at", ["before:read:segment", "after:read:segment"])
@pytest.mark.parametrize("change", [move, squeeze])
def test_a_segment_that_moves_while_it_is_read_is_read_on(
    at: str, change: Callable[[SegmentPlaces, int], None]
) -> None:
    places, to = log_of()
    journal, away = sim(places)
    log, seen = Log(places=SegmentPlaces(journal, away)), 0

    def hook(boundary: str) -> None:
        nonlocal seen
        seen += boundary == at
        if seen in (3, 9):
            journal.hook = lambda _: None
            change(places, 1 if seen == 3 else 2)
            seen += 1
            journal.hook = hook

    journal.hook = hook
    cursor, found = log.seek(1), []
    while cursor.position < to.position:
        items, cursor = log.read(cursor, to.position, 500)
        found += items
    assert positions(found) == list(range(1, to.position))
    assert seen > 9


def test_a_reader_follows_one_segment_through_all_its_places() -> None:
    places, to = log_of()
    log = Log(places=SegmentPlaces(*sim(places)))
    cursor, found = log.seek(1), []
    steps = [None, squeeze, None, move, None]
    for step in steps:
        if step is not None:
            step(places, 1)
        items, cursor = log.read(cursor, to.position, 600)
        found += items
    assert positions(found) == list(range(1, len(found) + 1))
    assert cursor.serial == 1


def test_a_damaged_frame_is_a_gap_of_what_is_in_it() -> None:
    disk = SimDisk(random.Random(1))
    places = SegmentPlaces(disk, SimDisk(random.Random(2)))
    to = writer(disk, start(disk, segment_bytes=2 << 20), segment_bytes=2 << 20)
    rng = random.Random(1)
    while to.serial == 1:
        append(to, *[rng.randbytes(9_000) for _ in range(8)])
    squeeze(places, 1)
    second = Log(places=places).segment(2)
    assert second is not None
    assert second.header is not None
    behind = second.header.first_position
    batches = [item for item in everything(places, to.position) if isinstance(item, Batch)]
    low, high = 8192 + 262_144, 8192 + 2 * 262_144  # the third frame
    size = dict(disk.list())[packed_name(1)]
    disk.damage(packed_name(1), int(low / (2 << 20) * size) + 100_000, b"\xff")
    found = everything(places, to.position)
    hit = [b for b in batches if b.position < behind and b.offset < high and low < b.end_offset]
    assert gaps(found)[0][0] == hit[0].position
    assert gaps(found)[-1][1] == hit[-1].end_position
    assert len(positions(found)) == len(batches) - len(hit)


def test_a_missing_segment_in_the_middle_is_a_gap_and_no_end() -> None:
    places, to = log_of(60)
    log = Log(places=places)
    second, third = (log.starts[index].position for index in (1, 2))
    sim(places)[0].remove(segment_name(2))
    for reader in (log, Log(places=places)):
        cursor, found = reader.seek(1), []
        while cursor.position < to.position:
            items, cursor = reader.read(cursor, to.position, 4096)
            assert items
            found += items
        assert [item for item in found if isinstance(item, Gap)] == [Gap(second, third, "missing")]
    assert Log(places=places).end() == to.position
    assert Log(places=places).locate_time(second * 1_000) == third


def test_without_its_archive_directory_a_log_says_what_is_missing() -> None:
    places, to = log_of()
    assert Log(places=places).missing == range(1, 1)
    for serial in (1, 2):
        move(places, serial)
    log = Log(disk=places.journal)
    assert list(log.missing) == [1, 2]
    assert not Log(places=places).missing
    items, _ = log.read(Cursor(1, 8192, 1), to.position, 1)
    assert items == [Gap(1, log.first_position, "missing")]


def test_what_was_removed_is_not_missing() -> None:
    places, to = log_of()
    cursor = Log(places=places).seek(1)
    to.keep_from(2)
    log = Log(places=places)
    assert not log.missing
    assert log.first_position > 1
    sim(places)[0].remove(segment_name(1))
    items, _ = log.read(cursor, to.position, 1)
    assert items == [Gap(1, log.first_position, "removed")]


def test_a_reader_closes_files_that_are_gone(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    to = writer(disk, start(disk))
    while to.serial < 3:
        append(to, b"x" * 3_000)
    log = Log(tmp_path)
    cursor = log.read(log.seek(1), to.position, 1)[1]
    disk.unlink(segment_name(1))
    assert positions(log.read(cursor, to.position, 1)[0]) == [2]
    assert any("(deleted)" in name for name in open_files())
    log.refresh()
    assert not any("(deleted)" in name for name in open_files() if str(tmp_path) in name)
    disk.close()
    log.close()


def open_files() -> list[str]:
    return [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
