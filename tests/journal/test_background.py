"""What the journal does beside its log."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.journal.build import INSTANCE, SEGMENT_BYTES, append, start, writer
from tests.sim.disk import SimDisk
from zbroker import known_log
from zbroker.config import Config
from zbroker.journal import effects as je
from zbroker.journal.background import COUNT_MS, INDEX_COMMIT_BYTES, Background
from zbroker.journal.conflicts import read_conflicts
from zbroker.journal.core import JournalCore, JournalSettings, LogEnd, RetentionSettings
from zbroker.journal.events import ConflictsKept
from zbroker.journal.fold import LogFold
from zbroker.journal.group_builder import Conflict
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.startup import OpenJournal
from zbroker.log.inventory import RecoveryFinding
from zbroker.log.reader import Log
from zbroker.log.segments import SPARE


class Index:
    """Counts its commits."""

    failed = ""
    pending_bytes = 0
    forgetting = False
    commits = 0

    def take(self) -> int:
        self.pending_bytes = 0
        return 0

    def commit(self, _: int) -> None:
        self.commits += 1
        self.forgetting = False

    def close(self) -> None:
        pass


class Bench:
    def __init__(self, path: Path) -> None:
        self.disk = SimDisk(random.Random(1))
        self.writer = writer(self.disk, start(self.disk))
        self.core = JournalCore(
            JournalSettings(INSTANCE, 7), RetentionSettings((), 0), LogFold(INSTANCE).sessions,
            LogEnd(1, 1, 0, 1, 1, 0),
        )  # fmt: skip
        self.index = Index()
        self.findings: list[RecoveryFinding] = []
        opened = OpenJournal(
            self.core, self.writer, Log(disk=self.disk), cast(Any, None), cast(Any, self.index),
            cast(Any, self.disk), cast(Any, None), self.findings,
        )  # fmt: skip
        self.now_ms = 0
        process = SimpleNamespace(
            clock=SimpleNamespace(mono_ms=lambda: self.now_ms),
            log=logging.getLogger("test"),
            config=Config(),
            stopping=False,
            paths=SimpleNamespace(
                data=path, journal=path, conflicts=path / "conflicts", index=path / "index"
            ),
        )
        self.woken = threading.Semaphore(0)
        self.helpers = Helpers("test", 4, self.woken.release)
        self.background = Background(cast(Any, process), opened, self.helpers, self.helpers)

    def work(self) -> list[Any]:
        """Until the helpers have done all that they were asked for: more than one job at a time."""
        assert self.helpers._jobs
        events = []
        while self.helpers._jobs:
            assert self.woken.acquire(timeout=10)
            events += self.helpers.finish()
        return events

    def beat(self) -> None:
        self.background.maintain(je.Maintain())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.helpers.close()


def conflict(number: int) -> Conflict:
    return Conflict(1_000, 5, "ann", 1, number, 2, 9, 17, ["t", "u"], "zstd", b"other")


def test_conflicts_are_kept_aside(bench: Bench, tmp_path: Path) -> None:
    bench.background.keep_conflicts(je.KeepConflicts([conflict(3), conflict(5)]))
    assert bench.work() == [ConflictsKept()]
    kept = read_conflicts(tmp_path / "conflicts")
    assert [(one.seq, one.name, one.original_position, one.body) for one in kept] == [
        (3, "ann", 17, b"other"),
        (5, "ann", 17, b"other"),
    ]
    assert (kept[0].codec, kept[0].topics, kept[0].time_ns) == ("zstd", ["t", "u"], 1_000)
    assert bench.background.stats(0)["conflicts_kept"] == 2


def test_the_index_is_committed_when_enough_came(bench: Bench) -> None:
    bench.index.pending_bytes = INDEX_COMMIT_BYTES - 1
    bench.beat()
    assert bench.index.commits == 0
    bench.index.pending_bytes += 1
    bench.beat()
    bench.work()
    assert bench.index.commits == 1


def test_the_index_is_committed_while_it_has_something_to_forget(bench: Bench) -> None:
    bench.index.forgetting = True
    bench.beat()
    bench.work()
    bench.beat()
    assert bench.index.commits == 1


def test_what_the_index_has_is_written_at_the_end(bench: Bench) -> None:
    bench.background.close()
    assert bench.index.commits == 1


def test_how_far_the_log_is_is_beside_it_from_the_first_beat_on(
    bench: Bench, tmp_path: Path
) -> None:
    bench.beat()
    bench.work()
    assert known_log.read(tmp_path, INSTANCE) == (1, 1)


def test_it_is_written_again_with_a_new_segment(bench: Bench, tmp_path: Path) -> None:
    bench.beat()
    bench.work()
    while bench.writer.serial == 1:
        append(bench.writer, b"x" * 2_000)
    bench.core.commit.written_to(bench.writer.position, bench.writer.serial)
    bench.core.commit.synced(bench.writer.synced)
    bench.beat()
    bench.work()
    assert known_log.read(tmp_path, INSTANCE) == (1, bench.writer.synced)


def test_it_is_written_at_the_end(bench: Bench, tmp_path: Path) -> None:
    append(bench.writer, b"x")
    bench.background.close()
    assert known_log.read(tmp_path, INSTANCE) == (1, 2)


def test_a_data_directory_that_cannot_be_written_stops_nothing(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{known_log.NAME}.new").mkdir()
    bench.beat()
    bench.work()
    assert "journal.not_noted" in caplog.text


def test_the_next_segment_is_filled_in_a_helper(bench: Bench) -> None:
    while bench.writer.end * 2 < SEGMENT_BYTES:
        append(bench.writer, b"x" * 800)
    bench.background.prepare()
    bench.work()
    assert (SPARE, SEGMENT_BYTES) in bench.disk.list()


def test_the_directories_are_counted_now_and_then(bench: Bench) -> None:
    assert bench.background.stats(0)["segments"] == 1
    bench.disk.plant("0000000002.journal", b"x" * 100)
    assert bench.background.stats(COUNT_MS - 1)["segments"] == 1
    stats = bench.background.stats(COUNT_MS)
    assert (stats["segments"], stats["oldest"], stats["bytes"]) == (2, 1, SEGMENT_BYTES + 100)


def test_findings_are_reported_within_bounds(bench: Bench) -> None:
    bench.findings += [
        RecoveryFinding("journal.damaged_range", "x" * 500, "y", n, n + 1) for n in range(50)
    ]
    bench.findings.append(RecoveryFinding("journal.torn_tail_cut", "z", "y"))
    stats = bench.background.stats(0)
    assert (stats["findings"], stats["damage"]) == (51, 50)
    assert len(str(stats["finding_texts"])) < 2_200
    assert "41 more" in str(stats["finding_texts"])
