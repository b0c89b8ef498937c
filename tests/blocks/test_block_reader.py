"""What is read once for all who want it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journal.build import append, positions, start, writer
from zbroker.blocks.block_reader import BlockReader, _weight
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


def short_blocks(reading: BlockReader, disk: RealDisk, count: int) -> tuple[Read, int]:
    """As they are read at the end of the log. Returns: a read of the first of them, and the end."""
    to = writer(disk, start(disk))
    cursor = reading._seek(Read(1, Cursor(0, 0, to.position), True, to.position, 1 << 20))
    first = Read(1, cursor, seek=False, limit=0, max_bytes=1 << 20)
    for _ in range(count):
        append(to, b"y")
        block = reading.read(Read(1, cursor, False, to.position, 1 << 20, live=True))
        assert len(block.items) == 1
        cursor = block.next
    return first._replace(limit=to.position), to.position


def test_who_catches_up_steps_through_no_short_blocks(disk: RealDisk, tmp_path: Path) -> None:
    reading = BlockReader(tmp_path)
    read, end = short_blocks(reading, disk, 5)
    long = reading.read(read)
    assert (len(long.items), long.next.position) == (5, end)
    assert reading.read(read) is long
    assert reading.read(read._replace(live=True)) is long, "for who has caught up as well"


def test_who_has_caught_up_shares_short_blocks(disk: RealDisk, tmp_path: Path) -> None:
    reading = BlockReader(tmp_path)
    read, _ = short_blocks(reading, disk, 5)
    misses = reading.misses
    assert len(reading.read(read._replace(live=True)).items) == 1
    assert reading.misses == misses


def test_a_block_that_ends_for_another_reason_is_read_once(disk: RealDisk, tmp_path: Path) -> None:
    """It is as long as it may be; the log goes on since."""
    end, reading = start(disk).next_position, BlockReader(tmp_path)
    read = Read(1, Cursor(1, DATA_AT, 1), seek=False, limit=end, max_bytes=1)
    block = reading.read(read)
    assert block.next.position < end
    append(writer(disk, start(disk)), b"y")
    assert reading.read(read._replace(limit=end + 1)) is block


def test_what_was_passed_over_is_passed_over_once(disk: RealDisk, tmp_path: Path) -> None:
    """However much that was; the log goes on since."""
    end, reading = start(disk).next_position, BlockReader(tmp_path)
    first = Cursor(1, DATA_AT, 1)
    read = Read(1, first, False, end, 1 << 20, wants=lambda _topic: False, wants_key="none")
    block = reading.read(read)
    assert block.next.position > 1
    append(writer(disk, start(disk)), b"y")
    assert reading.read(read._replace(limit=end + 1)) is block


def test_what_is_kept_of_short_blocks_is_weighed(disk: RealDisk, tmp_path: Path) -> None:
    reading = BlockReader(tmp_path)
    read, _ = short_blocks(reading, disk, 5)
    reading.read(read)
    reading._weigh()
    assert reading._bytes == sum(map(_weight, reading._blocks.values()))
    assert reading._short <= reading._blocks.keys()


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
