"""Steps of a commit on a disk that may be slow."""

from __future__ import annotations

import logging
import os
import random
import threading
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.journal.build import INSTANCE, SEGMENT_BYTES, append, publish, start, writer
from tests.sim.disk import SimDisk
from zbroker.checksums import crc32c
from zbroker.config import Config
from zbroker.engine.effects import Sync
from zbroker.engine.events import Synced
from zbroker.ids import publisher_id
from zbroker.journal import effects as je
from zbroker.journal.end_note import GroupEnd
from zbroker.journal.events import Reserved, SpaceFound, Written
from zbroker.journal.fold import LogFold
from zbroker.journal.group_builder import JournalSettings, LogEnd
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.log_port import LATE_TELL_MS, SLOW_SYNC_S, TELL_MS, Space, TimedLogPort
from zbroker.journal.snapshot import STATE_PART_BYTES
from zbroker.limits import BEAT_MS, MIB
from zbroker.log.writer import Writer
from zbroker.wire import bodies
from zbroker.wire import internal as m
from zbroker.wire.messages import Columns


class Bench:
    """A port over a simulated disk, with one helper thread."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(1))
        self.writer = writer(self.disk, start(self.disk))
        self.now_ms = 0
        process = SimpleNamespace(
            clock=SimpleNamespace(mono_ms=lambda: self.now_ms), log=logging.getLogger("test"),
            config=Config(), paths=SimpleNamespace(journal=Path("/")),
        )  # fmt: skip
        self.woken = threading.Semaphore(0)
        self.helpers = Helpers("test", 1, self.woken.release)
        self.port = TimedLogPort(cast(Any, process), self.writer, self.helpers)

    def do(self, effect: Any) -> Any:
        return self.port.performers[type(effect)](effect)

    def write(self) -> int:
        """One group; where it ends."""
        batch = publish(self.writer.position, b"x")
        assert self.do(je.WriteGroup([batch], 1, batch.end_position)) == Written(1)
        return batch.end_position


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.helpers.close()


def test_a_group_is_durable_when_synced_is_heard(bench: Bench) -> None:
    end = bench.write()
    assert bench.writer.synced == 1
    assert bench.do(Sync(end)) == Synced(end)
    assert bench.writer.synced == end


def test_the_end_is_noted_before_anybody_hears_of_what_was_written(bench: Bench) -> None:
    """Another instance may have it while it is not durable here: a journal that is killed and finds
    less has to know that there was more."""
    noted: list[GroupEnd] = []
    bench.port.note = cast(Any, SimpleNamespace(write=noted.append))
    end = bench.write()
    assert noted == [GroupEnd(end, bench.writer.group_crc)]
    assert bench.writer.synced == 1
    bench.do(Sync(end))
    assert len(noted) == 1


def test_after_a_slow_sync_a_helper_thread_does_the_next_one(bench: Bench) -> None:
    bench.port.sync_s = 2 * SLOW_SYNC_S
    end = bench.write()
    assert bench.do(Sync(end)) is None
    assert bench.woken.acquire(timeout=10)
    assert bench.helpers.finish() == [Synced(end)]
    bench.port.sync_s = 0.0  # it was fast
    end = bench.write()
    assert bench.do(Sync(end)) == Synced(end)


def test_space_is_said_with_each_answer(bench: Bench) -> None:
    assert bench.do(je.Reserve(1_000)) == Reserved(True, True, bench.writer.left_bytes)
    bench.disk.capacity -= bench.disk.free_bytes()
    assert bench.do(je.Reserve(1 << 20)) == Reserved(False, False, bench.writer.left_bytes)
    assert bench.do(je.LookForSpace()) == SpaceFound(False, False)
    bench.disk.capacity = 1 << 30
    assert bench.do(je.LookForSpace()) == SpaceFound(True, True)


def test_given_up_segments_are_noted(bench: Bench) -> None:
    while bench.writer.serial < 2:
        batch = publish(bench.writer.position, b"x" * 4_000)
        bench.do(je.WriteGroup([batch], 1, batch.end_position))
    bench.do(je.KeepFrom(2))
    assert bench.writer.oldest == 2


def test_late_flushes_are_counted_and_reported_once_in_a_while(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for bench.now_ms in (0, 1, LATE_TELL_MS - 1, LATE_TELL_MS):
        bench.port.late(1.5)
    assert bench.port.stats()["flush_late"] == 4
    reported = [
        record.message for record in caplog.records if "journal.flush_late" in record.message
    ]
    assert len(reported) == 2
    assert "1500 ms" in reported[0]


LOG = logging.getLogger("test")
Statvfs = namedtuple("Statvfs", "f_bavail f_bfree f_blocks f_frsize")


def full() -> tuple[SimDisk, Writer, Space]:
    """A space on a disk that is full after its open segment."""
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk))
    disk.capacity = disk.capacity - disk.free_bytes()
    return disk, to, Space(to, Path("/"), LOG)


def fill(to: Writer, space: Space, now_ms: int = 0) -> None:
    while space.admit(1_000, now_ms):
        append(to, b"x" * 800)


def test_a_group_without_space_is_refused() -> None:
    _, to, space = full()
    assert space.accepting
    fill(to, space)
    assert not space.accepting


def test_space_is_looked_for_once_per_beat_only() -> None:
    disk, to, space = full()
    fill(to, space)
    disk.capacity += 2 * SEGMENT_BYTES
    operations = disk.operations
    assert not space.admit(1_000, BEAT_MS - 1)
    assert disk.operations == operations
    assert space.admit(1_000, BEAT_MS)


def test_publishing_resumes_on_the_beat_after_space_came_back() -> None:
    disk, to, space = full()
    fill(to, space)
    space.beat(BEAT_MS)
    assert not space.accepting
    disk.capacity += SEGMENT_BYTES
    space.beat(2 * BEAT_MS)
    assert space.admit(1_000, 2 * BEAT_MS)
    assert bool(space.accepting)


def test_a_smaller_group_that_finds_process_does_not_end_the_alarm() -> None:
    _, _, space = full()
    assert not space.admit(14_000, 0)
    assert space.admit(1_000, 0)
    assert not space.accepting
    space.beat(BEAT_MS)
    assert not space.accepting


def test_a_huge_batch_that_went_away_does_not_keep_the_alarm() -> None:
    disk, to, space = full()
    assert not space.admit(10 * MIB, 0)
    assert not space.admit(9 * MIB, 1)
    disk.capacity += 2 * SEGMENT_BYTES
    space.beat(BEAT_MS)
    assert not space.accepting, "that one would still find no room"
    fill(to, space, 2 * BEAT_MS)
    disk.capacity += 2 * SEGMENT_BYTES
    space.beat(4 * BEAT_MS)
    assert space.accepting


def test_a_part_of_a_snapshot_may_use_the_reserve_and_needs_no_more() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk, segment_bytes=2 * MIB), segment_bytes=2 * MIB)
    disk.capacity = disk.capacity - disk.free_bytes()
    space = Space(to, Path("/"), LOG)
    assert not space.admit(1_900_000, 0)
    assert space.state_fits
    while to.left_bytes >= STATE_PART_BYTES:
        append(to, b"x" * 100_000)
    assert not space.state_fits


def test_the_warning_is_reported_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    disk, to, space = full()
    caplog.set_level(logging.INFO)
    fill(to, space)
    for now_ms in range(BEAT_MS, TELL_MS, BEAT_MS):
        assert not space.admit(5_000, now_ms)
        space.beat(now_ms)
    assert [r.message.split(":")[0] for r in caplog.records if r.name == "test"][:1] == [
        "journal.disk_full"
    ]
    assert sum("journal.disk_full" in record.message for record in caplog.records) == 1
    disk.capacity += SEGMENT_BYTES
    space.beat(TELL_MS)
    assert "journal.space_back" in caplog.records[-1].message


def test_each_crossing_of_80_percent_warns_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimDisk(random.Random(1))
    space = Space(writer(disk, start(disk)), Path("/"), LOG)
    used = 0
    monkeypatch.setattr(os, "statvfs", lambda _: Statvfs(100 - used, 200 - used, 200, 4096))
    warnings = []
    for used in (10, 79, 80, 95, 79, 81, 77, 80):  # noqa: B007 - the lambda reads it
        caplog.clear()
        space.beat(0)
        warnings.append(sum("journal.disk_80" in record.message for record in caplog.records))
    assert warnings == [0, 0, 1, 0, 0, 0, 0, 1]
    assert "nothing is refused yet" in caplog.text
    used = 1
    space.beat(0)
    space.accepting, used = False, 99
    space.beat(0)
    assert "publishers are refused; free space" in caplog.text
    used = 80
    space.beat(0)
    assert (space.free_bytes, space.disk_bytes, space.used_percent) == (20 * 4096, 100 * 4096, 80)


@pytest.mark.parametrize("seed", range(30))
def test_no_group_is_larger_than_was_foreseen(seed: int) -> None:
    """Else a roll-over might fail with data of publishers in hand."""
    rng = random.Random(seed)
    disk = SimDisk(rng)
    recovered = start(disk, segment_bytes=MIB)
    to = writer(disk, recovered, segment_bytes=MIB)
    core = GroupCommit(
        JournalSettings(INSTANCE, 7, publisher_time=rng.random() < 0.5),
        LogFold(INSTANCE).sessions,
        LogEnd(1, 1, 0),
    )
    core.serial = to.serial
    core.receive(b"r", m.Hello("ingest", 1), [])
    names = [f"p{n}" * rng.randint(1, 100) for n in range(4)]
    for cid, name in enumerate(names):
        core.receive(b"r", m.Open(cid, 7, name, "x" * rng.randint(0, 200)), [])
    sequences = dict.fromkeys(names, 0)
    ordinal = 1
    for _ in range(20):
        foreseen = core.next_group_bytes()
        before = to.end, to.serial
        group = core.group(5)
        if group is not None:
            to.write(group.batches, group.log_time)
            core.written_to(group.end, to.serial)
            core.synced(to.sync())
            begin = before[0] if before[1] == to.serial else 8_192
            assert to.end - begin <= foreseen + 512
        if rng.random() < 0.3:
            core.want_state()
        for _ in range(rng.randint(0, 12)):
            name = rng.choice(names)
            entry, body = _entry(rng, core, name, sequences[name] + 1)
            sequences[name] += entry.count
            core.receive(b"r", m.Append(7, ordinal, 0, [entry]), [body])
            ordinal += 1


def _entry(rng: random.Random, core: GroupCommit, name: str, seq: int) -> tuple[m.Entry, bytes]:
    known = core.sessions.get(publisher_id(name))
    session = known.session if known is not None else 1
    topics = [f"{n}é" * rng.randint(1, 80) for n in range(rng.randint(1, 5))]
    count = rng.randint(len(topics), 20)
    body = bodies.pack([rng.randbytes(rng.choice((0, 10, 300)))] * count)
    columns = Columns(bytes(2 * count)) if len(topics) > 1 else None
    if rng.random() < 0.3:
        columns = Columns(columns.index if columns else None, bytes(8 * count))
    entry = m.Entry(
        publisher_id(name), session, seq, count, seq - 1, crc32c(body), None, topics, None, columns
    )  # fmt: skip
    return entry, body
