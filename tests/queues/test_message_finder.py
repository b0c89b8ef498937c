"""zbroker/queues/message_finder.py: messages of a real log by their positions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from google_crc32c import value as crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.journal import build
from zbroker.blocks.block_reader import BlockReader
from zbroker.blocks.read_request import Read
from zbroker.log.disk import RealDisk
from zbroker.log.format import KIND_NOOP, KIND_PUBLISH, Batch
from zbroker.log.segments import segment_name
from zbroker.queues import message_finder
from zbroker.queues.message_finder import Finder, FoundMessages
from zbroker.wire import bodies


class Log:
    """A log with batches of all sizes, and some records in between."""

    def __init__(self, directory: Path, batches: int = 120) -> None:
        self.directory = directory
        self.disk = RealDisk(directory)
        self.writer = build.writer(self.disk, build.start(self.disk))
        self.messages: dict[int, bytes] = {}  # by position
        rng = random.Random(1)
        for _ in range(batches):
            self.batch(rng.choice([1, 1, 2, 7]), skip=rng.choice([0, 0, 1]))
            if rng.random() < 0.2:
                self.noop()
        self.end = self.writer.position
        self.reading = BlockReader(directory)
        self.finder = Finder(self.reading)

    def batch(self, count: int, skip: int = 0) -> None:
        first = self.writer.position
        data = [b"%d." % (first + i - skip) * 100 for i in range(count + skip)]
        self.messages.update(zip(range(first, first + count), data[skip:], strict=True))
        body = bodies.pack(data)
        self._write(Batch(
            KIND_PUBLISH, first, 77, 5, first, first - 1, count + skip, first * 1_000, ["t"], body,
            crc32c(body), len(body), skip,
        ))  # fmt: skip

    def noop(self) -> None:
        first = self.writer.position
        self._write(Batch(KIND_NOOP, first, 0, 0, 0, 0, 1, first * 1_000, [], b"", crc32c(b""), 0))

    def _write(self, batch: Batch) -> None:
        self.writer.write([batch], batch.log_time)
        self.writer.sync()

    def find(self, positions: BitMap64, limit: int = 0) -> dict[int, bytes]:
        """What is found, by position."""
        found: dict[int, bytes] = {}
        for one in self.finder.find(positions, limit or self.end):
            data = one.block.unpacked(one.at)
            assert len(one.picks) == len(one.positions)
            found.update(zip(one.positions, (data[pick] for pick in one.picks), strict=True))
        return found

    def wanted(self, positions: BitMap64) -> dict[int, bytes]:
        return {at: self.messages[at] for at in positions if at in self.messages}

    def close(self) -> None:
        self.reading.let_go()
        self.disk.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path)
    yield made
    made.close()


def test_the_log_of_these_tests_has_many_segments(log: Log) -> None:
    assert log.writer.serial > 3
    assert len(log.messages) < log.end - 1, "some positions are of records"


@pytest.mark.parametrize("size", [1, 3_000, message_finder.BLOCK_BYTES])
def test_every_message_is_found(log: Log, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_finder, "BLOCK_BYTES", size)
    assert log.find(BitMap64(range(1, log.end))) == log.messages


def test_each_message_is_found_alone(log: Log) -> None:
    for position in random.Random(2).sample(sorted(log.messages), 60):
        assert log.find(BitMap64([position])) == log.wanted(BitMap64([position]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_messages_are_found_in_any_order(log: Log, data: st.DataObject) -> None:
    positions = BitMap64(data.draw(st.sets(st.integers(1, log.end - 1), min_size=1, max_size=40)))
    if data.draw(st.booleans()):
        log.finder.forget()
    assert log.find(positions) == log.wanted(positions)


def test_what_is_asked_for_of_one_batch_comes_together(log: Log) -> None:
    parts = list(log.finder.find(BitMap64(log.messages), log.end))
    assert [one.batch.position for one in parts] == sorted({one.batch.position for one in parts})
    whole = [one for one in parts if isinstance(one.picks, range)]
    assert len(whole) == len(parts)


def test_neighbours_are_a_range_of_picks_and_others_a_list(log: Log) -> None:
    batch = next(one for one in log.finder.find(BitMap64(log.messages), log.end)
                 if len(one.positions) == 7 and one.batch.skip)  # fmt: skip
    first, all_of = batch.batch.position, batch.positions
    assert batch.picks == range(1, 8)
    some = FoundMessages(batch.block, batch.at, batch.batch, BitMap64([first, first + 2]))
    assert some.picks == [1, 3]
    assert list(all_of) == list(range(first, first + 7))


def test_nothing_is_found_at_or_behind_the_limit(log: Log) -> None:
    limit = log.end // 2
    found = log.find(BitMap64(log.messages), limit)
    assert set(found) >= {at for at in log.messages if at < limit - 7}
    assert all(at < limit + 7 for at in found)
    assert log.find(BitMap64([log.end + 5])) == {}


def test_what_was_removed_is_not_found_and_the_rest_is(log: Log) -> None:
    (log.directory / segment_name(1)).unlink()
    log.reading.reset()
    found = log.find(BitMap64(log.messages))
    assert found
    assert found == {at: data for at, data in log.messages.items() if at >= min(found)}
    assert min(found) > 1


def test_what_is_no_message_is_not_found(log: Log) -> None:
    records = BitMap64(range(1, log.end)) - BitMap64(log.messages)
    assert log.find(records) == {}


def test_blocks_that_were_read_are_found_without_a_search(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_finder, "BLOCK_BYTES", 1)
    log.find(BitMap64(log.messages))
    reads: list[Read] = []
    read = log.reading.read
    monkeypatch.setattr(log.reading, "read", lambda one: (reads.append(one), read(one))[1])
    for position in sorted(log.messages)[::9]:
        log.find(BitMap64([position]))
    assert reads
    assert not any(one.seek for one in reads)


def test_what_stands_far_behind_the_last_known_place_is_searched_for(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_finder, "BLOCK_BYTES", 1)
    log.find(BitMap64([1]))
    reads: list[Read] = []
    read = log.reading.read
    monkeypatch.setattr(log.reading, "read", lambda one: (reads.append(one), read(one))[1])
    last = max(log.messages)
    assert log.find(BitMap64([last])) == log.wanted(BitMap64([last]))
    assert len(reads) <= message_finder.STEPS_MAX + 1


def test_places_that_are_remembered_are_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_finder, "HINTS_MAX", 4)
    monkeypatch.setattr(message_finder, "BLOCK_BYTES", 1)
    for position in sorted(log.messages)[::3]:
        assert log.find(BitMap64([position])) == log.wanted(BitMap64([position]))
    assert len(log.finder._positions) <= 4
    assert len(log.finder._cursors) == len(log.finder._positions)
