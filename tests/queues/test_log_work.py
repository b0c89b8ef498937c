"""zbroker/queues/log_work.py: how much of the log is read in a turn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.journal import build
from tests.queues.bench import ANN, HERE, STEP_NS, WALL_NS, Bench, bench, perform_on, replayable
from zbroker.blocks.block_reader import BlockReader
from zbroker.blocks.frame_builder import Block, FrameBuilder
from zbroker.blocks.read_request import Read
from zbroker.checksums import crc32c
from zbroker.filters import compile_filter
from zbroker.log.disk import RealDisk
from zbroker.log.format import KIND_NOOP, KIND_PUBLISH, Batch
from zbroker.log.segments import segment_name
from zbroker.queues import log_work
from zbroker.queues.context import RemoteConsumer
from zbroker.queues.effects import Examine, Examined, Give, Search, Searched
from zbroker.queues.log_work import Finder, FoundMessages, Slice, render
from zbroker.wire import bodies, codec
from zbroker.wire.queue_messages import Job


class Log:
    """Batches of one message each, all in one block or each in a block of its own."""

    def __init__(self, bytes_of_one: int, *, apart: int = 0) -> None:
        """apart: bytes of the log that a block has."""
        at = bench(replayable())
        for number in range(100):
            at.publish((b'{"n": %d}' % number).ljust(bytes_of_one))
        batches = at.log[-100:]
        self.positions = BitMap64([one.position for one in batches])
        whole = at._found(self.positions)
        one_block = Block(whole[0].block.start, batches, whole[-1].block.next)
        self.many = [
            FoundMessages(one_block, number, found.batch, found.positions)
            for number, found in enumerate(whole)
        ]
        if apart:
            self.many = whole
            for found in whole:
                found.block.size = apart
        self.read = 0

    def examine(self, text: str) -> tuple[list[int], int]:
        """What the core hears."""
        done = self._perform(Examine(1, self.positions, compile_filter(text)))
        assert isinstance(done, Examined)
        return list(done.matching), done.end

    def _perform(self, effect: Any) -> Any:
        return perform_on(self._found(), effect, lambda _topic: "auto")

    def _found(self) -> Iterator[FoundMessages]:
        for one in self.many:
            self.read += 1
            yield one

    def search(self, text: str) -> tuple[int | None, int]:
        """What the core hears."""
        done = self._perform(Search(1, self.positions, compile_filter(text)))
        assert isinstance(done, Searched)
        return done.hit, done.end


def test_a_search_ends_with_the_first_that_matches() -> None:
    log = Log(20)
    at = log.positions[7]
    assert log.search("/n = 7 OR /n = 9") == (at, at + 1)
    assert log.read == 8


def test_small_messages_are_read_to_the_end_of_the_slice() -> None:
    log = Log(20)
    assert log.search("/n = 'none'") == (None, log.positions.max() + 1)
    assert log.read == 100


@pytest.mark.seed("003-33")
def test_a_slice_is_bounded_by_the_bytes_that_were_decoded() -> None:
    log = Log(log_work.SLICE_BYTES // 4)
    assert log.search("/n = 'none'") == (None, log.positions[3] + 1)
    assert log.read == 4


@pytest.mark.seed("003-33")
def test_a_slice_is_bounded_by_the_bytes_of_the_log_that_were_read() -> None:
    """Small messages that are far apart: what is between them has to be read, too."""
    log = Log(20, apart=log_work.SLICE_BYTES // 2)
    assert log.search("/n = 'none'") == (None, log.positions[1] + 1)
    assert log.read == 2


def test_all_that_a_filter_is_true_for_is_reported() -> None:
    log = Log(20)
    at = log.positions
    assert log.examine("/n = 7 OR /n = 9") == ([at[7], at[9]], at.max() + 1)


@pytest.mark.seed("003-33")
@pytest.mark.parametrize(
    ("bytes_of_one", "apart", "read"),
    [(log_work.SLICE_BYTES // 4, 0, 4), (20, log_work.SLICE_BYTES // 2, 2)],
)
def test_what_filters_look_at_is_bounded_in_bytes(bytes_of_one: int, apart: int, read: int) -> None:
    """Of those that were decoded, and of those that were read for it."""
    log = Log(bytes_of_one, apart=apart)
    at = log.positions
    assert log.examine("/n >= 1") == ([*at[1:read]], at[read - 1] + 1)
    assert log.read == read


def test_what_cannot_be_read_at_the_end_was_looked_for() -> None:
    log = Log(20)
    del log.many[-2:]
    part = Slice(log.many, log.positions, log_work.SLICE_BYTES)
    assert part.end == log.positions.min()
    assert len(list(part)) == 98
    assert part.end == log.positions.max() + 1


class RealLog:
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
def log(tmp_path: Path) -> Iterator[RealLog]:
    made = RealLog(tmp_path)
    yield made
    made.close()


def test_the_log_of_these_tests_has_many_segments(log: RealLog) -> None:
    assert log.writer.serial > 3
    assert len(log.messages) < log.end - 1, "some positions are of records"


@pytest.mark.parametrize("size", [1, 3_000, log_work.BLOCK_BYTES])
def test_every_message_is_found(log: RealLog, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_work, "BLOCK_BYTES", size)
    assert log.find(BitMap64(range(1, log.end))) == log.messages


def test_each_message_is_found_alone(log: RealLog) -> None:
    for position in random.Random(2).sample(sorted(log.messages), 60):
        assert log.find(BitMap64([position])) == log.wanted(BitMap64([position]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_messages_are_found_in_any_order(log: RealLog, data: st.DataObject) -> None:
    positions = BitMap64(data.draw(st.sets(st.integers(1, log.end - 1), min_size=1, max_size=40)))
    if data.draw(st.booleans()):
        log.finder.forget()
    assert log.find(positions) == log.wanted(positions)


def test_what_is_asked_for_of_one_batch_comes_together(log: RealLog) -> None:
    parts = list(log.finder.find(BitMap64(log.messages), log.end))
    assert [one.batch.position for one in parts] == sorted({one.batch.position for one in parts})
    whole = [one for one in parts if isinstance(one.picks, range)]
    assert len(whole) == len(parts)


def test_neighbours_are_a_range_of_picks_and_others_a_list(log: RealLog) -> None:
    batch = next(one for one in log.finder.find(BitMap64(log.messages), log.end)
                 if len(one.positions) == 7 and one.batch.skip)  # fmt: skip
    first, all_of = batch.batch.position, batch.positions
    assert batch.picks == range(1, 8)
    some = FoundMessages(batch.block, batch.at, batch.batch, BitMap64([first, first + 2]))
    assert some.picks == [1, 3]
    assert list(all_of) == list(range(first, first + 7))


def test_nothing_is_found_at_or_after_the_limit(log: RealLog) -> None:
    limit = log.end // 2
    found = log.find(BitMap64(log.messages), limit)
    assert set(found) >= {at for at in log.messages if at < limit - 7}
    assert all(at < limit + 7 for at in found)
    assert log.find(BitMap64([log.end + 5])) == {}


def test_what_was_removed_is_not_found_and_the_rest_is(log: RealLog) -> None:
    (log.directory / segment_name(1)).unlink()
    log.reading.reset()
    found = log.find(BitMap64(log.messages))
    assert found
    assert found == {at: data for at, data in log.messages.items() if at >= min(found)}
    assert min(found) > 1


def test_what_is_no_message_is_not_found(log: RealLog) -> None:
    records = BitMap64(range(1, log.end)) - BitMap64(log.messages)
    assert log.find(records) == {}


def test_blocks_that_were_read_are_found_without_a_search(
    log: RealLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_work, "BLOCK_BYTES", 1)
    log.find(BitMap64(log.messages))
    reads: list[Read] = []
    read = log.reading.read
    monkeypatch.setattr(log.reading, "read", lambda one: (reads.append(one), read(one))[1])
    for position in sorted(log.messages)[::9]:
        log.find(BitMap64([position]))
    assert reads
    assert not any(one.seek for one in reads)


def test_what_is_far_after_the_last_known_place_is_searched_for(
    log: RealLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_work, "BLOCK_BYTES", 1)
    log.find(BitMap64([1]))
    reads: list[Read] = []
    read = log.reading.read
    monkeypatch.setattr(log.reading, "read", lambda one: (reads.append(one), read(one))[1])
    last = max(log.messages)
    assert log.find(BitMap64([last])) == log.wanted(BitMap64([last]))
    assert len(reads) <= log_work.STEPS_MAX + 1


def test_places_that_are_remembered_are_bounded(
    log: RealLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_work, "HINTS_MAX", 4)
    monkeypatch.setattr(log_work, "BLOCK_BYTES", 1)
    for position in sorted(log.messages)[::3]:
        assert log.find(BitMap64([position])) == log.wanted(BitMap64([position]))
    assert len(log.finder._positions) <= 4
    assert len(log.finder._cursors) == len(log.finder._positions)


TO = RemoteConsumer(1, ANN, "s", "ann", "q", 0, sid_packed=codec.encode("s"))
BUILDER = FrameBuilder(HERE, Job)


def _found(at: Bench, positions: list[int]) -> FoundMessages:
    [found] = at._found(BitMap64(positions))
    return found


def _jobs(
    give: Give, found: FoundMessages, *, sees_all: bool = True
) -> list[tuple[Job, list[bytes]]]:
    """What a consumer gets: header, and the messages that count."""
    jobs = []
    for send, _size in render(BUILDER, give, found, sees_all=sees_all):
        assert send.rid == ANN
        job = codec.decode(codec.QUEUES_ANSWERS, send.header)
        assert isinstance(job, Job)
        assert job.sid == "s"
        assert send.body is not None
        data = bodies.unpack(send.body, job.codec, job.count, 1 << 30)
        last = job.count if job.take is None else job.skip + job.take
        jobs.append((job, data[job.skip : last]))
    return jobs


def _counts(job: Job) -> list[int] | None:
    return None if job.deliveries is None else list(memoryview(job.deliveries).cast("H"))


def test_a_whole_batch_goes_as_it_came() -> None:
    at = Bench()
    positions = at.publish(b"a", b"b", b"c")
    found = _found(at, positions)
    [(job, data)] = _jobs(Give(TO, found.positions), found)
    assert (job.position, job.count, job.topic, job.skip, job.take) == (1, 3, "t", 0, None)
    assert data == [b"a", b"b", b"c"]
    assert (job.deliveries, job.barrier, job.acked) == (None, False, None)
    [(send, _size)] = render(BUILDER, Give(TO, found.positions), found, sees_all=True)
    assert send.body is at.log[0].body


def test_most_of_a_batch_goes_as_it_came_and_the_rest_packed_again() -> None:
    at = Bench()
    positions = at.publish(*[b"%d" % n for n in range(10)])
    most = _found(at, positions[2:9])
    [(job, data)] = _jobs(Give(TO, most.positions), most)
    assert (job.count, job.skip, job.take, job.position) == (10, 2, 7, positions[2])
    assert data == [b"%d" % n for n in range(2, 9)]
    few = _found(at, [positions[1], positions[8]])
    [(job, data)] = _jobs(Give(TO, few.positions), few)
    assert (job.count, job.position, data) == (2, positions[1], [b"1", b"8"])
    assert job.columns is not None
    assert list(bodies.offsets(job.columns.offset)) == [0, 7]


def test_who_may_not_see_everything_gets_only_what_counts() -> None:
    at = Bench()
    positions = at.publish(*[b"%d" % n for n in range(10)])
    most = _found(at, positions[2:9])
    [(job, data)] = _jobs(Give(TO, most.positions), most, sees_all=False)
    assert (job.count, job.skip) == (7, 0)
    assert data == [b"%d" % n for n in range(2, 9)]


def test_deliveries_are_reported_unless_each_is_the_first() -> None:
    at = Bench()
    positions = at.publish(b"a", b"b", b"c")
    found = _found(at, positions)
    for counts, reported in (([1, 3, 70_000], [1, 3, 65_535]), ([1, 1, 1], None), (None, None)):
        [(job, _)] = _jobs(Give(TO, found.positions, counts), found)
        assert _counts(job) == reported


def test_deliveries_are_those_of_the_messages_in_a_batch() -> None:
    at = Bench()
    positions = at.publish(b"a", b"b") + at.publish(b"c", b"d")
    give = Give(TO, BitMap64(positions), [1, 2, 3, 4])
    reported = [
        (_counts(job), data) for found in at._found(give.positions)
        for job, data in _jobs(give, found)
    ]  # fmt: skip
    assert reported == [([1, 2], [b"a", b"b"]), ([3, 4], [b"c", b"d"])]


def test_deliveries_go_with_their_messages_where_a_header_is_split() -> None:
    at = Bench()
    keys = [b"%d" % n + bytes(16_000) for n in range(8)]
    positions = at.publish(*[b"%d" % n for n in range(8)], keys=keys)
    found = _found(at, positions)
    jobs = _jobs(Give(TO, found.positions, list(range(1, 9))), found)
    assert len(jobs) > 1
    assert [count for job, _ in jobs for count in _counts(job) or [1]] == list(range(1, 9))


def test_a_barrier_says_so() -> None:
    at = Bench()
    positions = at.publish(b"a", b"b")
    found = _found(at, positions[1:])
    [(job, data)] = _jobs(Give(TO, found.positions, barrier=True), found)
    assert job.barrier
    assert data == [b"b"]


@pytest.mark.parametrize(
    ("acked", "reported"), [([], None), ([0, 2], b"\1\0\1")]
)  # fmt: skip
def test_what_was_acknowledged_is_reported(acked: list[int], reported: bytes | None) -> None:
    at = Bench()
    positions = at.publish(b"a", b"b", b"c")
    found = _found(at, positions)
    marks = BitMap64([positions[i] for i in acked])
    [(job, _)] = _jobs(Give(TO, found.positions, acked=marks), found)
    assert job.acked == reported


# -- filters ----------------------------------------------------------------------------------


def _matching(at: Bench, positions: list[int], text: str, type_: str = "json") -> list[int]:
    found, hits = at._found(BitMap64(positions)), BitMap64()
    for one in found:
        hits |= one.matching(compile_filter(text), lambda _: type_)
    return list(hits)


def test_a_filter_is_compared_with_what_is_asked_for() -> None:
    at = Bench()
    positions = at.publish(*[b'{"n": %d}' % n for n in range(5)])
    assert _matching(at, positions, "/n > 2") == positions[3:]
    assert _matching(at, [positions[0], positions[3]], "/n > 2") == positions[3:4]


def test_each_topic_is_read_as_its_type() -> None:
    at = Bench()
    positions = at.publish(b'{"n": 1}', b"\x81\xa1n\x01", b'{"n": 2}', topics=["j", "m", "j"])
    [found] = at._found(BitMap64(positions))
    types = {"j": "json", "m": "msgpack"}
    hits = found.matching(compile_filter("/n = 1"), types.__getitem__)
    assert list(hits) == positions[:2]


def test_a_filter_may_ask_for_what_is_not_in_the_payload() -> None:
    at = Bench()
    positions = at.publish(b"{}", b"{}", topics=["a", "b"])
    [found] = at._found(BitMap64(positions))
    about = found.block.about(found.at)
    assert [about.topic(i) for i in range(2)] == ["a", "b"]
    assert about.time_ns(1) == WALL_NS + STEP_NS
    assert [about.bookmark(i) for i in range(2)] == [at.bookmark(one) for one in positions]


def test_a_filter_may_ask_for_headers() -> None:
    at = Bench()
    positions = at.publish(b"{}", b"{}", headers=[{"n": 1}, None])
    [found] = at._found(BitMap64(positions))
    about = found.block.about(found.at)
    assert about.header(0, "n") == 1


# -- one by one -------------------------------------------------------------------------------


def test_messages_are_looked_at_as_they_were_published() -> None:
    at = Bench()
    more: dict[str, Any] = {"keys": [b"k", None, None], "headers": [None, {"a": 1}, None]}
    positions = at.publish(b"a", b"b", b"c", **more)
    rows = _found(at, positions[:2]).rows()
    assert [(row.position, row.topic, row.data, row.key, row.headers) for row in rows] == [
        (positions[0], "t", b"a", b"k", None),
        (positions[1], "t", b"b", None, {"a": 1}),
    ]
    assert [f"{row.publisher}|{row.sequence}|" for row in rows] == [
        at.bookmark(one) for one in positions[:2]
    ]
    assert {row.time_ns for row in rows} == {WALL_NS + STEP_NS}


def test_messages_without_columns_have_neither_keys_nor_headers() -> None:
    at = Bench()
    [row] = _found(at, at.publish(b"a")).rows()
    assert (row.key, row.headers) == (None, None)
    [row] = _found(at, at.publish(b"a", headers=[{"a": 1}])).rows()
    assert row.key is None
