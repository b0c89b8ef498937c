"""Steps of a commit on a disk that may be slow."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.journal.build import publish, start, writer
from tests.sim.disk import SimDisk
from zbroker.config import Config
from zbroker.engine.effects import Sync
from zbroker.engine.events import Synced
from zbroker.journal import effects as je
from zbroker.journal.events import Reserved, SpaceFound, Written
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.log_port import LATE_TELL_MS, SLOW_SYNC_S, TimedLogPort


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
    assert bench.do(je.Reserve(1_000)) == Reserved(True, True, bench.writer.room)
    bench.disk.capacity -= bench.disk.free_bytes()
    assert bench.do(je.Reserve(1 << 20)) == Reserved(False, False, bench.writer.room)
    assert bench.do(je.LookForSpace()) == SpaceFound(False, False)
    bench.disk.capacity = 1 << 30
    assert bench.do(je.LookForSpace()) == SpaceFound(True, True)


def test_given_up_segments_are_noted(bench: Bench) -> None:
    while bench.writer.serial < 2:
        batch = publish(bench.writer.position, b"x" * 4_000)
        bench.do(je.WriteGroup([batch], 1, batch.end_position))
    bench.do(je.KeepFrom(2))
    assert bench.writer.oldest == 2


def test_late_flushes_are_counted_and_told_once_in_a_while(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for bench.now_ms in (0, 1, LATE_TELL_MS - 1, LATE_TELL_MS):
        bench.port.late(1.5)
    assert bench.port.stats()["flush_late"] == 4
    told = [record.message for record in caplog.records if "journal.flush_late" in record.message]
    assert len(told) == 2
    assert "1500 ms" in told[0]
