"""The rest of the newest segment, after its last group: zeros, or not."""

from __future__ import annotations

import random

import pytest

from tests.sim.disk import SimDisk
from zbroker.limits import MIB
from zbroker.log.format import DATA_AT, SegmentHeader
from zbroker.log.scan import WINDOW_BYTES, BadStretch, SegmentScan
from zbroker.log.segments import make_filled, publish, segment_name

SIZE = 2 * WINDOW_BYTES + MIB
HEADER = SegmentHeader(1, 1, 1, 1, 0, 0, 7, 0, SIZE)
NAME = segment_name(HEADER.serial)


class Counting(SimDisk):
    """Counts the bytes that are read past the page cache."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.direct_bytes = 0

    def read_direct(self, name: str, offset: int, size: int) -> bytes:
        found = super().read_direct(name, offset, size)
        self.direct_bytes += len(found)
        return found


@pytest.fixture
def disk() -> Counting:
    """With one segment, in which nothing was written yet."""
    made = Counting()
    make_filled(made, "spare", SIZE)
    publish(made, "spare", HEADER)
    return made


def stretches(disk: SimDisk) -> list[object]:
    return list(SegmentScan(disk, HEADER, SIZE).items())


def test_a_segment_without_groups_is_blank(disk: Counting) -> None:
    assert stretches(disk) == [BadStretch(DATA_AT, SIZE, blank=True)]


def test_what_is_blank_is_read_once(disk: Counting) -> None:
    stretches(disk)
    assert disk.direct_bytes == SIZE - DATA_AT


@pytest.mark.parametrize(
    "at", [DATA_AT, DATA_AT + WINDOW_BYTES - 1, DATA_AT + WINDOW_BYTES, SIZE - 1]
)
def test_one_byte_anywhere_is_not_blank(disk: Counting, at: int) -> None:
    disk.write(NAME, at, [b"\x01"])
    assert stretches(disk) == [BadStretch(DATA_AT, SIZE, blank=False)]


@pytest.mark.parametrize("at", [DATA_AT, DATA_AT + WINDOW_BYTES, SIZE - 1])
def test_a_byte_that_only_the_page_cache_has_is_seen(disk: Counting, at: int) -> None:
    scan = SegmentScan(disk, HEADER, SIZE)
    assert scan.cache_is_blank(DATA_AT)
    disk.write(NAME, at, [b"\x01"])
    assert not scan.cache_is_blank(DATA_AT)
