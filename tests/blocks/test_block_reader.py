"""What is read once for all who want it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journal.build import append, positions, start, writer
from zbroker.blocks.block_reader import BlockReader
from zbroker.blocks.read_request import Read
from zbroker.log.disk import RealDisk
from zbroker.log.format import DATA_AT, Batch
from zbroker.log.reader import Cursor, Gap
from zbroker.log.segments import segment_name


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    """A log of three segments, of which the last one is open."""
    made = RealDisk(tmp_path)
    to = writer(made, start(made))
    while to.serial < 3:
        append(to, b"x" * 2_000)
    return made


def everything(reading: BlockReader, end: int) -> list[object]:
    cursor, found = Cursor(1, DATA_AT, 1), list[object]()
    while cursor.position < end:
        block = reading.read(Read(1, cursor, seek=False, limit=end, max_bytes=1 << 20))
        found += block.items
        cursor = block.next
    return found


def test_a_segment_that_is_put_back_is_served_again(disk: RealDisk, tmp_path: Path) -> None:
    end = start(disk).next_position
    path = tmp_path / segment_name(2)
    path.rename(tmp_path / "away")
    reading = BlockReader(tmp_path)
    assert [item for item in everything(reading, end) if isinstance(item, Gap)]
    (tmp_path / "away").rename(path)
    assert positions(everything(reading, end)) == list(range(1, end))


def test_blocks_of_headers_are_not_kept(disk: RealDisk, tmp_path: Path) -> None:
    """Who wants the bodies does not get a block without them."""
    end, reading = start(disk).next_position, BlockReader(tmp_path)
    read = Read(1, Cursor(1, DATA_AT, 1), seek=False, limit=end, max_bytes=1 << 20)
    headers, whole = reading.read(read._replace(headers=True)), reading.read(read)
    assert {len(item.body) for item in headers.items if isinstance(item, Batch)} == {0}
    assert {len(item.body) for item in whole.items if isinstance(item, Batch)} == {2_000}
    assert positions(headers.items) == positions(whole.items)[: len(headers.items)]
    assert reading.read(read) is whole


def test_a_damaged_place_is_looked_for_once(disk: RealDisk, tmp_path: Path) -> None:
    """It stays damaged, and to search what is behind it takes long."""
    end = start(disk).next_position
    with (tmp_path / segment_name(1)).open("r+b") as file:
        file.seek(10_000)
        file.write(bytes(100))
    reading = BlockReader(tmp_path)
    assert [item for item in everything(reading, end) if isinstance(item, Gap)]
    misses = reading.misses
    everything(reading, end)
    assert reading.misses == misses


def test_an_announcement_that_is_older_than_the_limit_hides_no_recovery(tmp_path: Path) -> None:
    """After the end at which a recovery sealed the segment there may be batches that look good."""
    disk = RealDisk(tmp_path)
    to = writer(disk, start(disk))
    append(to, b"first")
    announced = to.serial, to.position
    (torn,) = append(to, b"torn", sync=False)
    append(to, b"good, but behind it", sync=False)
    with (tmp_path / segment_name(1)).open("r+b") as file:
        file.seek(torn.offset + torn.header_length)
        file.write(b"T")
    reading = BlockReader(tmp_path, None, lambda: announced)
    everything(reading, announced[1])
    again = writer(disk, start(disk), seed=5)
    append(again, b"the new second")
    found = everything(reading, again.position)
    assert [item.body for item in found if isinstance(item, Batch)] == [b"first", b"the new second"]
