"""Recovery by the table in docs/reference/journal.md: (history, damage, expected)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.journal.build import (
    DRAWN,
    INSTANCE,
    SEGMENT_BYTES,
    Clock,
    append,
    gaps,
    history,
    positions,
    publish,
    read_all,
    start,
    writer,
)
from tests.log.build import everything, finish, log_of, move, sim, squeeze
from tests.sim.disk import SimDisk
from zbroker.errors import StorageError
from zbroker.log import archive
from zbroker.log.format import DATA_AT, FLAG_UNIT, HEADER_COPY_AT, Batch, SegmentHeader
from zbroker.log.inventory import Inventory
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.recovery import Recovered, recover
from zbroker.log.segments import NOTE_FILE, SPARE, list_segments, read_header, segment_name
from zbroker.log.writer import Writer


class Case(NamedTuple):
    """A log of ten groups of two messages of about 300 bytes, all acknowledged."""

    disk: SimDisk
    to: Writer
    made: list[list[Batch]]


def case(groups: int = 10) -> Case:
    return Case(*history(groups))


def codes(recovered: Recovered) -> list[str]:
    return [finding.code for finding in recovered.findings]


def forget_note(disk: SimDisk) -> None:
    disk.damage(NOTE_FILE, 0, bytes(576))


# -- the end --


def test_an_empty_directory_becomes_a_log() -> None:
    disk = SimDisk(random.Random(1))
    recovered = start(disk)
    assert (recovered.generation, recovered.log_start, recovered.next_position) == (1, 1, 1)
    assert recovered.findings == []
    assert read_header(disk, 1) == recovered.tail.header


def test_a_clean_end_goes_on_in_the_same_segment() -> None:
    disk, to, made = case()
    recovered = start(disk)
    assert (recovered.next_position, recovered.tail.end) == (21, made[-1][1].end_offset)
    assert (recovered.tail.header.serial, recovered.findings) == (to.serial, [])
    again = writer(disk, recovered)
    append(again, b"goes on")
    assert positions(read_all(disk, 22)) == list(range(1, 22))


def test_the_last_log_time_is_found() -> None:
    disk, _, _ = case()
    assert start(disk).last_log_time == 20_000


def test_every_batch_is_shown_once_with_its_segment() -> None:
    disk, to, _ = case(40)
    seen: list[tuple[int, int]] = []
    start(disk, on_batch=lambda batch, serial: seen.append((batch.position, serial)))
    assert [position for position, _ in seen] == list(range(1, 81))
    assert seen[0][1] == 1
    assert seen[-1][1] == to.serial


def test_progress_is_reported_per_segment() -> None:
    disk, to, _ = case(40)
    reported: list[str] = []
    start(disk, progress=reported.append)
    assert reported[0] == f"verifying {segment_name(to.serial)}"
    assert len(reported) == 1 + to.serial


def test_what_was_written_before_a_kill_is_kept() -> None:
    disk, to, _ = case()
    append(to, b"not synced, not acknowledged", sync=False)
    recovered = start(disk)
    assert (recovered.next_position, recovered.findings) == (22, [])
    disk.power_cut()
    assert start(disk).next_position == 22


def test_recovery_of_a_recovered_log_changes_nothing() -> None:
    disk, _, _ = case()
    first = start(disk)
    files = {name: disk.content(name) for name, _ in disk.list() if name != NOTE_FILE}
    second = start(disk)
    assert (first.next_position, first.tail.end) == (second.next_position, second.tail.end)
    assert {name: disk.content(name) for name, _ in disk.list() if name != NOTE_FILE} == files


def test_a_full_segment_ends_cleanly() -> None:
    disk, to, _ = case(1)
    left = SEGMENT_BYTES - (to.end + 511) // 512 * 512
    append(to, b"x" * (left - 64 - 120))
    assert to.serial == 1
    recovered = start(disk)
    assert (recovered.next_position, recovered.findings) == (to.position, [])
    append(writer(disk, recovered), b"next segment")
    assert len(list_segments(disk)) == 2


# -- torn tails --


def torn(damage: Callable[[SimDisk, Batch], None]) -> tuple[SimDisk, Recovered, Batch]:
    disk, to, _ = case()
    (batch,) = append(to, b"torn" * 300, sync=False)
    append(to, b"valid behind it", sync=False)
    damage(disk, batch)
    return disk, start(disk), batch


@pytest.mark.parametrize("at", [-64, -40, -8, 0, 40, 110, 130, 900])
def test_a_torn_group_is_cut_off(at: int) -> None:
    _, recovered, batch = torn(lambda disk, batch: disk.flip(segment_name(1), batch.offset + at))
    assert recovered.next_position == batch.position == 21
    assert codes(recovered) == ["journal.torn_tail_cut"]
    assert (recovered.generation, recovered.lost) == (1, None)


def test_a_torn_tail_is_sealed_and_a_new_segment_begun() -> None:
    disk, recovered, batch = torn(lambda disk, batch: disk.flip(segment_name(1), batch.offset))
    header = recovered.tail.header
    assert (header.serial, recovered.tail.end) == (2, DATA_AT)
    assert (header.first_position, header.previous_last_position) == (21, 20)
    last = [item for item in read_all(disk, 21) if isinstance(item, Batch)][-1]
    assert header.previous_end == last.end_offset < batch.offset


def test_torn_bytes_are_neither_removed_nor_changed() -> None:
    disk, to, _ = case()
    (batch,) = append(to, b"torn" * 300, sync=False)
    disk.flip(segment_name(1), batch.offset)
    before = disk.content(segment_name(1))
    append(writer(disk, start(disk)), b"goes on")
    assert disk.content(segment_name(1)) == before


def test_zeros_where_a_group_began_are_a_torn_tail() -> None:
    _, recovered, _ = torn(
        lambda disk, batch: disk.damage(segment_name(1), batch.offset - 64, bytes(512))
    )
    assert codes(recovered) == ["journal.torn_tail_cut"]


def test_garbage_after_the_end_is_set_aside() -> None:
    disk, to, _ = case()
    disk.damage(segment_name(1), 24_000, b"\x01")
    recovered = start(disk)
    assert (codes(recovered), recovered.next_position) == (["journal.torn_tail_cut"], 21)
    assert recovered.tail.header.serial == to.serial + 1


class CachingDisk(SimDisk):
    """Its page cache keeps what it has: the advice to drop it is only an advice."""

    def read_direct(self, name: str, offset: int, size: int) -> bytes:
        cache = bytes(self._names[name].cache)
        found = super().read_direct(name, offset, size)
        self._names[name].cache[:] = cache
        return found


def test_bytes_that_only_the_page_cache_shows_are_set_aside() -> None:
    disk = CachingDisk(random.Random(1))
    to = writer(disk, start(disk))
    append(to, b"acknowledged")
    append(to, b"never on the medium", sync=False)
    inode = disk._names[segment_name(1)]
    inode.dirty = set()  # a failed sync marked them clean
    recovered = start(disk)
    assert (recovered.next_position, codes(recovered)) == (2, ["journal.torn_tail_cut"])


def test_a_spare_left_over_by_a_crash_is_no_segment() -> None:
    disk, _, _ = case()
    disk.plant(SPARE, b"\x77" * 5_000)
    assert (start(disk).findings, start(disk).next_position) == ([], 21)


# -- damage below the evidence --


def fields() -> list[tuple[str, int, bool]]:
    """(what, offset from the batch, is the batch lost) of the first batch of a group."""
    group = {
        "magic": -64, "version": -60, "own offset": -56, "length": -48, "batches": -44,
        "first position": -40, "log time": -32, "synced_through": -24, "positions": -16,
        "previous crc": -12, "crc": -8,
    }  # fmt: skip
    batch = {
        "magic": 0, "version": 4, "kind": 6, "header length": 8, "body length": 12, "flags": 16,
        "count": 20, "skip": 24, "topics": 28, "position": 32, "publisher": 40, "session": 48,
        "sequence": 56, "prev": 64, "log time": 72, "origin": 80, "origin position": 88,
        "origin generation": 96, "body crc": 100, "header crc": 108, "topic": 115, "body": 140,
    }  # fmt: skip
    return [(f"group {what}", at, False) for what, at in group.items()] + [
        (f"batch {what}", at, True) for what, at in batch.items()
    ]


@pytest.mark.parametrize(("what", "at", "lost"), fields())
def test_a_corrupt_field_costs_at_most_its_batch(what: str, at: int, lost: bool) -> None:
    disk, _, made = case()
    batch = made[4][0]
    disk.flip(segment_name(1), batch.offset + at, 2)
    recovered = start(disk)
    assert (recovered.next_position, recovered.generation, recovered.lost) == (21, 1, None)
    expected = [(batch.position, batch.end_position)] if lost else []
    assert gaps(read_all(disk, 21)) == expected
    assert [(f.first, f.end) for f in recovered.findings if f.end] == expected


@pytest.mark.parametrize(("what", "at", "lost"), fields())
def test_a_flip_in_the_last_acknowledged_group_is_never_taken_for_a_torn_tail(
    what: str, at: int, lost: bool
) -> None:
    disk, _, made = case()
    batch = made[-1][0]
    disk.flip(segment_name(1), batch.offset + at, 2)
    recovered = start(disk)
    expected = [(batch.position, batch.end_position)] if lost else []
    assert (recovered.next_position, gaps(read_all(disk, 21))) == (21, expected)


def test_a_zeroed_stretch_below_the_evidence_is_quarantined() -> None:
    disk, _, made = case()
    first, last = made[3][0], made[5][1]
    disk.damage(segment_name(1), first.offset - 64, bytes(last.end_offset - first.offset + 64))
    recovered = start(disk)
    assert [(f.code, f.first, f.end) for f in recovered.findings] == [
        ("journal.damaged_range", 7, 13)
    ]
    assert gaps(read_all(disk, 21)) == [(7, 13)]


def test_the_log_goes_on_in_a_new_segment_after_damage() -> None:
    disk, to, made = case()
    disk.flip(segment_name(1), made[4][0].offset)
    recovered = start(disk)
    assert recovered.tail.header.serial == to.serial + 1
    append(writer(disk, recovered), b"goes on")
    assert gaps(read_all(disk, 22)) == [(9, 10)]


def test_synced_through_of_a_later_group_is_evidence_without_the_note() -> None:
    disk, _, made = case()
    disk.damage(segment_name(1), made[4][0].offset - 64, bytes(800))
    forget_note(disk)
    recovered = start(disk)
    assert (codes(recovered), recovered.next_position) == (["journal.damaged_range"], 21)


def test_without_any_evidence_the_last_group_may_be_torn() -> None:
    disk, _, made = case()
    disk.flip(segment_name(1), made[-1][0].offset)
    forget_note(disk)
    assert start(disk).next_position == 19


def test_the_stamp_of_the_index_is_evidence() -> None:
    disk, _, made = case()
    disk.damage(segment_name(1), made[-1][0].offset - 64, bytes(1_000))
    forget_note(disk)
    with pytest.raises(StorageError) as caught:
        start(disk, evidence=[(1, 21)])
    assert caught.value.code == "tail_damaged"


def test_a_stamp_of_an_older_generation_is_no_evidence() -> None:
    disk, _, _ = case()
    assert start(disk, evidence=[(0, 500)]).next_position == 21


def test_damage_in_front_of_a_torn_tail_is_not_taken_for_it() -> None:
    disk, to, made = case()
    (batch,) = append(to, b"torn" * 100, sync=False)
    disk.flip(segment_name(1), made[6][1].offset)
    disk.flip(segment_name(1), batch.offset)
    recovered = start(disk)
    assert recovered.next_position == 21
    assert sorted(codes(recovered)) == ["journal.damaged_range", "journal.torn_tail_cut"]
    assert gaps(read_all(disk, 21)) == [(14, 15)]


def test_a_corrupt_sealed_segment_is_a_gap() -> None:
    disk, _, made = case(40)
    disk.flip(segment_name(1), made[2][1].offset + 8)
    recovered = start(disk)
    assert [(f.code, f.first, f.end) for f in recovered.findings] == [
        ("journal.damaged_range", 6, 7)
    ]
    assert gaps(read_all(disk, 81)) == [(6, 7)]


# -- a damaged acknowledged tail --


def lose_tail(disk: SimDisk, made: list[list[Batch]]) -> None:
    at = made[8][0].offset - 64
    disk.damage(segment_name(1), at, bytes(made[9][1].end_offset - at))


def test_a_damaged_acknowledged_tail_stops_the_start() -> None:
    disk, _, made = case()
    lose_tail(disk, made)
    before = {name: disk.content(name) for name, _ in disk.list()}
    with pytest.raises(StorageError, match="--accept-tail-loss") as caught:
        start(disk)
    assert caught.value.code == "tail_damaged"
    assert "positions 17 to 20" in caught.value.reason
    assert {name: disk.content(name) for name, _ in disk.list()} == before


def test_an_accepted_loss_raises_the_generation() -> None:
    disk, _, made = case()
    lose_tail(disk, made)
    seen: list[int] = []
    recovered = start(
        disk, accept_loss=True, on_batch=lambda batch, _serial: seen.append(batch.position)
    )
    assert (recovered.lost, recovered.generation, recovered.next_position) == ((17, 21), DRAWN, 17)
    assert codes(recovered) == ["journal.tail_given_up"]
    assert seen == list(range(1, 17))


def test_after_an_accepted_loss_the_next_start_is_a_plain_one() -> None:
    disk, _, made = case()
    lose_tail(disk, made)
    append(writer(disk, start(disk, accept_loss=True)), b"seventeen again")
    recovered = start(disk, evidence=[(1, 21)])
    assert (recovered.generation, recovered.next_position, recovered.findings) == (DRAWN, 18, [])
    last = read_all(disk, 18)[-1]
    assert isinstance(last, Batch)
    assert (last.position, last.body) == (17, b"seventeen again")


def test_what_is_intact_in_a_damaged_tail_is_kept() -> None:
    disk, _, made = case()
    disk.damage(segment_name(1), made[9][1].offset, bytes(300))
    assert start(disk, accept_loss=True).next_position == made[9][1].position == 20


@pytest.mark.parametrize(
    ("flag", "damaged", "end"), [(0, 2, 3), (FLAG_UNIT, 2, 1), (FLAG_UNIT, 1, 4)]
)
def test_an_accepted_loss_never_ends_inside_a_unit(flag: int, damaged: int, end: int) -> None:
    disk = SimDisk(random.Random(1))
    disk.lock()
    to = writer(disk, start(disk))
    batches = [publish(position, b"%d" % position * 100) for position in (1, 2, 3)]
    for batch in batches[:-1]:
        batch.flags = flag
    to.write(batches, 3_000)
    to.sync()
    disk.damage(segment_name(1), DATA_AT, bytes(4))  # the group's header
    disk.damage(segment_name(1), batches[damaged].offset, bytes(4))
    disk.crash()
    assert start(disk, accept_loss=True).next_position == end


# -- segments --


def test_a_missing_newest_segment_stops_the_start() -> None:
    disk, to, _ = case(40)
    disk.remove(segment_name(to.serial))
    with pytest.raises(StorageError) as caught:
        start(disk)
    assert caught.value.code == "tail_damaged"
    recovered = start(disk, accept_loss=True)
    assert recovered.generation == DRAWN
    assert positions(read_all(disk, recovered.next_position)) == list(
        range(1, recovered.next_position)
    )


def test_a_missing_newest_segment_without_messages_is_noticed() -> None:
    disk, to, _ = case()
    (batch,) = append(to, b"torn", sync=False)
    disk.flip(segment_name(1), batch.offset)
    start(disk)
    disk.remove(segment_name(2))
    with pytest.raises(StorageError, match="the segment after"):
        start(disk)


def test_all_segments_missing_stops_the_start() -> None:
    disk, _, _ = case()
    disk.remove(segment_name(1))
    with pytest.raises(StorageError) as caught:
        start(disk)
    assert caught.value.code == "tail_damaged"
    recovered = start(disk, accept_loss=True)
    assert (recovered.next_position, recovered.generation, recovered.lost) == (21, DRAWN, (1, 21))
    append(writer(disk, recovered), b"goes on")
    assert positions(read_all(disk, 22)) == [21]
    assert start(disk).next_position == 22


@pytest.mark.seed("004-96")
def test_a_missing_segment_in_the_middle_is_refused() -> None:
    disk, _, _ = case(40)
    disk.remove(segment_name(2))
    with pytest.raises(StorageError, match=segment_name(2)) as caught:
        start(disk, accept_loss=True)
    assert caught.value.code == "serial_gap"


def remove_up_to(disk: SimDisk, to: Writer, oldest: int, unlinked: int) -> int:
    """As the journal does it: notes it, then unlinks; a crash may leave some of them."""
    to.keep_from(oldest)
    for serial in range(1, unlinked + 1):
        disk.unlink(segment_name(serial))
    header = read_header(disk, oldest)
    assert isinstance(header, SegmentHeader)
    return header.first_position


def test_removed_oldest_segments_raise_the_log_start() -> None:
    disk, to, _ = case(40)
    first = remove_up_to(disk, to, 2, 1)
    recovered = start(disk)
    assert (recovered.log_start, recovered.findings, recovered.oldest) == (first, [], 2)
    assert recovered.tail.oldest == 2
    assert start(disk).log_start == first


def test_what_an_interrupted_removal_left_does_not_count() -> None:
    disk, to, _ = case(60)
    first = remove_up_to(disk, to, 4, 1)
    recovered = start(disk)
    assert [place.serial for place in recovered.leftovers] == [2, 3]
    assert (recovered.log_start, recovered.findings) == (first, [])
    assert positions(read_all(disk, recovered.next_position))[0] == first


def test_a_segment_that_no_one_removed_is_missed() -> None:
    disk, _, _ = case(40)
    disk.remove(segment_name(1))
    with pytest.raises(StorageError, match=r"0000000001\.journal: missing") as caught:
        start(disk)
    assert caught.value.code == "segments_missing"
    assert "archive directory" in caught.value.hint


@pytest.mark.parametrize("serial", [1, 2])
def test_that_segments_are_missing_is_accepted_once(serial: int) -> None:
    disk, to, _ = case(40)
    content = disk.content(segment_name(serial))
    disk.remove(segment_name(serial))
    assert codes(start(disk, accept_missing=True))[0] == "journal.segments_missing"
    recovered = start(disk)
    assert codes(recovered)[0] == "journal.segments_missing"
    assert recovered.next_position == to.position
    assert read_all(disk, to.position)[-1] is not None
    disk.plant(segment_name(serial), content)
    assert start(disk).findings == []
    assert positions(read_all(disk, to.position)) == list(range(1, to.position))


def test_accepting_one_missing_segment_accepts_no_other() -> None:
    disk, _, _ = case(60)
    disk.remove(segment_name(1))
    start(disk, accept_missing=True)
    disk.remove(segment_name(2))
    with pytest.raises(StorageError) as caught:
        start(disk)
    assert caught.value.code == "segments_missing"


def test_swapped_segments_are_refused() -> None:
    disk, _, _ = case(40)
    one, two = disk.content(segment_name(1)), disk.content(segment_name(2))
    disk.plant(segment_name(1), two)
    disk.plant(segment_name(2), one)
    with pytest.raises(StorageError, match="says that it is segment") as caught:
        start(disk)
    assert caught.value.code == "serial_gap"


def test_an_old_copy_of_the_newest_segment_stops_the_start() -> None:
    disk, to, _ = case(4)
    old = disk.content(segment_name(1))
    append(to, b"newer")
    disk.plant(segment_name(1), old)
    with pytest.raises(StorageError, match=r"positions 9 to 9") as caught:
        start(disk)
    assert caught.value.code == "tail_damaged"


def test_an_old_copy_of_a_sealed_segment_is_a_gap() -> None:
    disk, to, _ = case(4)
    old = disk.content(segment_name(1))
    while to.serial == 1:
        append(to, b"newer" * 100)
    first = read_header(disk, 2)
    assert isinstance(first, SegmentHeader)
    disk.plant(segment_name(1), old)
    recovered = start(disk)
    assert [(f.first, f.end) for f in recovered.findings] == [(9, first.first_position)]


def test_a_segment_older_than_the_one_before_it_is_refused() -> None:
    disk, _, _ = case(40)
    header = read_header(disk, 2)
    assert isinstance(header, SegmentHeader)
    stale = header._replace(generation=0).encode()
    for at in (0, HEADER_COPY_AT):
        disk.damage(segment_name(2), at, stale)
    with pytest.raises(StorageError, match="older") as caught:
        start(disk)
    assert caught.value.code == "serial_gap"


def test_a_foreign_segment_is_refused() -> None:
    disk, _, _ = case()
    with pytest.raises(StorageError, match="belongs to instance 000000000000abcd") as caught:
        recover(disk, INSTANCE + 1, segment_bytes=SEGMENT_BYTES)
    assert caught.value.code == "foreign_instance"


def test_a_foreign_note_is_refused() -> None:
    disk, _, _ = case()
    disk.remove(segment_name(1))
    with pytest.raises(StorageError) as caught:
        recover(disk, INSTANCE + 1, segment_bytes=SEGMENT_BYTES)
    assert caught.value.code == "foreign_instance"


def test_an_unknown_version_is_refused() -> None:
    disk, _, _ = case()
    for at in (0, HEADER_COPY_AT):
        disk.damage(segment_name(1), at + 8, b"\x02\0\0\0")
    with pytest.raises(StorageError) as caught:
        start(disk, accept_loss=True)
    assert caught.value.code == "unknown_version"


@pytest.mark.parametrize("at", [0, HEADER_COPY_AT])
def test_one_bad_copy_of_a_header_costs_nothing(at: int) -> None:
    disk, _, _ = case()
    disk.flip(segment_name(1), at + 40)
    recovered = start(disk)
    assert (codes(recovered), recovered.next_position) == (["journal.header_copy_bad"], 21)


def break_header(disk: SimDisk, serial: int) -> None:
    for at in (0, HEADER_COPY_AT):
        disk.flip(segment_name(serial), at + 40)


def test_a_sealed_segment_without_a_header_is_a_gap() -> None:
    disk, _, _ = case(40)
    starts = [start.position for start in Log(disk=disk).starts]
    break_header(disk, 2)
    recovered = start(disk)
    found = [(f.code, f.first, f.end) for f in recovered.findings]
    assert found == [
        ("journal.segment_unreadable", 0, 0),
        ("journal.damaged_range", starts[1], starts[2]),
    ]
    assert recovered.next_position == 81


def test_a_newest_segment_without_a_header_stops_the_start() -> None:
    disk, to, _ = case(40)
    break_header(disk, to.serial)
    with pytest.raises(StorageError, match="both copies") as caught:
        start(disk)
    assert caught.value.code == "tail_damaged"


def test_a_newest_segment_without_a_header_is_set_aside_when_its_loss_is_accepted() -> None:
    disk, to, _ = case(40)
    name = segment_name(to.serial)
    first = read_header(disk, to.serial)
    assert isinstance(first, SegmentHeader)
    break_header(disk, to.serial)
    content = disk.content(name)
    recovered = start(disk, accept_loss=True)
    assert (recovered.generation, recovered.lost) == (DRAWN, (first.first_position, 81))
    assert disk.content(name + ".damaged-1") == content
    assert recovered.tail.header.serial == to.serial


def test_an_unreadable_sector_below_the_evidence_is_a_gap() -> None:
    disk, _, made = case()
    disk.unreadable = {(segment_name(1), made[4][0].offset // 512)}
    recovered = start(disk)
    assert recovered.next_position == 21
    assert all(f.code.startswith("journal.damaged") for f in recovered.findings)
    assert {1, 2, 19, 20} <= set(positions(read_all(disk, 21)))


@pytest.mark.parametrize("operation", [1, 2, 3, 4, 5])
def test_a_failing_disk_stops_the_start(operation: int) -> None:
    disk, _, _ = case()
    disk.fail_at, disk.sticky = disk.operations + operation, True
    with pytest.raises(StorageError) as caught:
        start(disk)
    assert caught.value.code == "disk_error"
    disk.crash()
    assert start(disk).next_position == 21


# -- archived and packed segments --


def spread() -> tuple[SegmentPlaces, Writer]:
    """The first three segments are archived, packed, and both."""
    places, to = log_of(60)
    move(places, 1)
    squeeze(places, 2)
    squeeze(places, 3)
    move(places, 3)
    return places, to


def restarted(places: SegmentPlaces, **options: object) -> Recovered:
    return start(places.journal, archive=places.archive, **options)


def test_archived_and_packed_segments_are_part_of_the_log() -> None:
    places, to = spread()
    seen: list[tuple[int, int]] = []
    recovered = restarted(places, on_batch=lambda b, serial: seen.append((b.position, serial)))
    assert (recovered.next_position, recovered.log_start, recovered.findings) == (
        to.position,
        1,
        [],
    )
    assert [position for position, _ in seen] == list(range(1, to.position))
    assert {serial for _, serial in seen} == set(range(1, to.serial + 1))


def test_without_the_archive_directory_the_start_is_refused() -> None:
    places, to = spread()
    with pytest.raises(StorageError, match=r"0000000001\.journal, 0000000003\.journal") as caught:
        start(places.journal)
    assert caught.value.code == "segments_missing"
    recovered = start(places.journal, accept_missing=True)
    assert recovered.next_position == to.position
    assert codes(recovered)[0] == "journal.segments_missing"
    assert restarted(places).findings == []


def test_a_foreign_archive_directory_is_refused() -> None:
    places, _ = spread()
    journal, away = sim(places)
    with pytest.raises(StorageError) as caught:
        recover(SimDisk(random.Random(3)), INSTANCE + 1, archive=away)
    assert caught.value.code == "foreign_instance"
    assert start(journal, archive=away).findings == []


def test_a_second_copy_of_another_instance_is_refused() -> None:
    places, _ = spread()
    journal, away = sim(places)
    header = read_header(journal, 4)
    assert isinstance(header, SegmentHeader)
    away.plant(segment_name(4), header._replace(instance=INSTANCE + 1).encode().ljust(9_000, b"\0"))
    with pytest.raises(StorageError) as caught:
        restarted(places)
    assert caught.value.code == "foreign_instance"


def test_two_copies_of_a_segment_are_no_finding() -> None:
    places, to = log_of(60)
    finish(archive.copy(places, 1))
    finish(archive.pack(places, 1))
    recovered = restarted(places)
    assert (recovered.findings, recovered.next_position) == ([], to.position)


def test_an_unreadable_copy_beside_a_good_one_is_reported() -> None:
    places, to = log_of(60)
    finish(archive.copy(places, 2))
    break_header(sim(places)[0], 2)
    recovered = restarted(places)
    assert codes(recovered) == ["journal.copy_unreadable"]
    assert recovered.next_position == to.position


@pytest.mark.parametrize("change", [move, squeeze])
def test_a_sealed_segment_proves_that_one_after_it_is_missing(
    change: Callable[[SegmentPlaces, int], None],
) -> None:
    places, to = log_of(60)
    journal, _ = sim(places)
    last = to.serial
    first = read_header(journal, last)
    assert isinstance(first, SegmentHeader)
    change(places, last - 1)
    journal.remove(segment_name(last))
    forget_note(journal)
    with pytest.raises(StorageError, match=r"after .* is missing") as caught:
        restarted(places)
    assert caught.value.code == "tail_damaged"
    recovered = restarted(places, accept_loss=True)
    assert (recovered.next_position, recovered.generation) == (first.first_position, DRAWN)
    assert recovered.tail.header.serial == last
    append(writer(journal, recovered), b"goes on")
    assert positions(everything(places, first.first_position + 1))[-1] == first.first_position


def test_leftovers_are_found_in_both_directories() -> None:
    places, to = spread()
    to.keep_from(4)
    recovered = restarted(places)
    assert [(place.serial, place.archived, place.packed) for place in recovered.leftovers] == [
        (1, True, False),
        (2, False, True),
        (3, True, True),
    ]
    assert (recovered.oldest, recovered.findings) == (4, [])
    assert recovered.log_start == Log(places=places).first_position > 1


def test_only_headers_of_packed_segments_are_looked_at() -> None:
    places, to = spread()
    journal, away = sim(places)
    fresh = SegmentPlaces(journal, away)
    found = Inventory(fresh, INSTANCE, SEGMENT_BYTES, Clock(), lambda: 1)
    found.look(0, accept_missing=False)
    assert fresh.frames.decompressed == 2
    assert found.sizes == dict.fromkeys(range(1, to.serial + 1), SEGMENT_BYTES)
