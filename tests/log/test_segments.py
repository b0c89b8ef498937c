"""Segment files and the acked-through note."""

from __future__ import annotations

import random

import pytest

from tests.sim.disk import SimCrash, SimDisk
from zbroker.log.format import HEADER_COPY_AT, AckedNote, ParseStop, SegmentHeader
from zbroker.log.segments import (
    FILL_BYTES,
    NOTE_FILE,
    SPARE,
    fill_step,
    list_segments,
    make_filled,
    publish,
    read_header,
    read_note,
    segment_name,
    write_note,
)

HEADER = SegmentHeader(1, 1, 7, 100, 99, 9_000, 42, 0, 16_384)


def made() -> SimDisk:
    disk = SimDisk(random.Random(1))
    make_filled(disk, SPARE, HEADER.size)
    publish(disk, SPARE, HEADER)
    return disk


def test_segments_are_listed_by_serial() -> None:
    disk = SimDisk(random.Random(1))
    for name in (
        "0000000010.journal",
        "0000000002.journal",
        "lock",
        "0000000002.journal.damaged-1",
    ):
        disk.create(name)
    assert [serial for serial, _ in list_segments(disk)] == [2, 10]


def test_a_published_segment_has_its_header_twice() -> None:
    disk = made()
    content = disk.content(segment_name(7))
    assert content[:96] == HEADER.encode() == content[HEADER_COPY_AT : HEADER_COPY_AT + 96]
    assert len(content) == HEADER.size


@pytest.mark.parametrize("at", [0, HEADER_COPY_AT])
def test_either_copy_of_the_header_is_enough(at: int) -> None:
    disk = made()
    disk.damage(segment_name(7), at, bytes(96))
    assert read_header(disk, 7) == HEADER


def test_two_bad_copies_are_no_header() -> None:
    disk = made()
    disk.flip(segment_name(7), 20)
    disk.flip(segment_name(7), HEADER_COPY_AT + 20)
    assert isinstance(read_header(disk, 7), ParseStop)


def test_two_copies_of_another_version_say_so() -> None:
    disk = made()
    for at in (0, HEADER_COPY_AT):
        disk.damage(segment_name(7), at + 8, b"\x63\0\0\0")
    assert read_header(disk, 7) == ParseStop(0, "version")


def test_a_segment_that_can_be_seen_is_whole_after_a_power_cut_anywhere() -> None:
    for boundary in range(1, 30):
        for seed in range(10):
            disk = SimDisk(random.Random(seed))
            _crash_at(disk, boundary)
            try:
                make_filled(disk, SPARE, HEADER.size)
                publish(disk, SPARE, HEADER)
            except SimCrash:
                pass
            disk.hook = lambda _name: None
            disk.power_cut()
            if list_segments(disk):
                assert read_header(disk, 7) == HEADER
                assert disk.content(segment_name(7))[96:HEADER_COPY_AT] == bytes(
                    HEADER_COPY_AT - 96
                )


def _crash_at(disk: SimDisk, boundary: int) -> None:
    left = [boundary]

    def hook(_name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise SimCrash

    disk.hook = hook


def test_a_spare_left_over_is_replaced() -> None:
    disk = SimDisk(random.Random(1))
    disk.plant(SPARE, b"junk" * 10_000)
    make_filled(disk, SPARE, 16_384)
    assert disk.content(SPARE) == bytes(16_384)


def test_filling_ends_at_the_wanted_size() -> None:
    disk = SimDisk(random.Random(1))
    disk.create(SPARE)
    filled = fill_step(disk, SPARE, 0, FILL_BYTES + 10)
    assert filled == FILL_BYTES
    assert fill_step(disk, SPARE, filled, FILL_BYTES + 10) == FILL_BYTES + 10
    assert disk.content(SPARE) == bytes(FILL_BYTES + 10)


def test_the_newest_note_counts() -> None:
    disk = SimDisk(random.Random(1))
    disk.create(NOTE_FILE)
    for counter in (1, 2, 3):
        write_note(disk, AckedNote(counter, 1, 1, counter * 10, 1))
    assert read_note(disk) == AckedNote(3, 1, 1, 30, 1)


def test_a_damaged_note_leaves_the_one_before() -> None:
    disk = SimDisk(random.Random(1))
    disk.create(NOTE_FILE)
    for counter in (1, 2):
        write_note(disk, AckedNote(counter, 1, 1, counter * 10, 1))
    disk.flip(NOTE_FILE, 30)
    assert read_note(disk) == AckedNote(1, 1, 1, 10, 1)


def test_without_a_note_there_is_none() -> None:
    disk = SimDisk(random.Random(1))
    assert read_note(disk) is None
    disk.create(NOTE_FILE)
    assert read_note(disk) is None
