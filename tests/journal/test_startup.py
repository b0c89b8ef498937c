"""A start around recovery: the owner of the archive, what is known beside the log, the index."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from tests.journal.build import INSTANCE, append, history, start, writer
from tests.sim.disk import SimDisk
from zbroker import known_log
from zbroker.bookmarks.index import Index, Stamp
from zbroker.errors import StorageError
from zbroker.ids import Origin
from zbroker.journal import startup
from zbroker.journal.fold import LogFold
from zbroker.log import owner
from zbroker.log.disk import RealDisk
from zbroker.log.generations import CopyMark, write_mark
from zbroker.log.places import SegmentPlaces
from zbroker.log.recovery import Recovered, recover
from zbroker.paths import Paths

LOG = logging.getLogger("test")


# -- the archive directory --------------------------------------------------------------------


def test_a_start_claims_the_archive_directory() -> None:
    disk, _, _ = history(5)
    away = SimDisk(random.Random(2))
    startup._claim(SegmentPlaces(disk, away), LOG)
    assert away.exists(owner.OWNER)


def test_a_full_archive_disk_is_no_reason_not_to_start(caplog: pytest.LogCaptureFixture) -> None:
    disk, _, _ = history(5)
    away = SimDisk(random.Random(2), capacity=0)
    startup._claim(SegmentPlaces(disk, away), LOG)
    assert "journal.archive_not_claimed" in caplog.text


def test_an_archive_directory_of_another_instance_is_one() -> None:
    disk, _, _ = history(5)
    away = SimDisk(random.Random(2))
    owner.claim(SegmentPlaces(disk, away, instance=INSTANCE + 1))
    with pytest.raises(StorageError, match="foreign_instance"):
        startup._claim(SegmentPlaces(disk, away), LOG)


def test_without_an_archive_directory_there_is_nothing_to_claim(tmp_path: Path) -> None:
    disk, _, _ = history(5)
    startup._claim(SegmentPlaces(disk), LOG)
    startup._claim(SegmentPlaces(disk, RealDisk(tmp_path / "nowhere")), LOG)
    assert not (tmp_path / "nowhere").exists()


# -- what is known beside the log -------------------------------------------------------------


def test_both_files_are_evidence(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path / "journal", tmp_path / "archive", INSTANCE)
    assert startup._known(paths) == []
    paths.queues.mkdir()
    known_log.write(tmp_path, Origin(INSTANCE, 1), 100)
    known_log.write(paths.queues, Origin(INSTANCE, 2), 200)
    assert startup._known(paths) == [(1, 100), (2, 200)]


# -- the index --------------------------------------------------------------------------------


def started(disk: SimDisk, index: Index) -> Recovered:
    """A start with an index, as the journal process has it."""
    index.forget_later_generations(lambda _: None)
    fold = LogFold(INSTANCE)
    return recover(
        disk, INSTANCE, evidence=[index.stamp], on_batch=fold, segment_bytes=24 * 1024,
        begin=startup.beginning(index, fold, lambda _: None),
    )  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> tuple[SimDisk, Index]:
    """A log that is marked as a copy, and an index of it in generation 1."""
    disk, to, _ = history(20)
    index = Index(tmp_path / "index", INSTANCE)
    started(disk, index)
    index.commit(index.take())
    assert index.stamp == Stamp(1, to.position)
    write_mark(disk, CopyMark(INSTANCE, 1))
    return disk, index


def test_an_index_of_the_log_that_was_copied_is_kept(copy: tuple[SimDisk, Index]) -> None:
    disk, index = copy
    recovered = started(disk, index)
    assert recovered.generation > 1
    assert index.stamp.position == index.end == recovered.next_position


def test_an_index_of_another_copy_is_made_again(
    copy: tuple[SimDisk, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its generation began on a copy that was put back before this one."""
    disk, index = copy
    index.set_generation(7)
    append(writer(disk, start(disk)), b"in the history of this copy")
    index.commit(index.take())
    assert index.stamp.generation == 7
    forgotten = list[int]()
    real = index.forget_after
    monkeypatch.setattr(index, "forget_after", lambda at: (forgotten.append(at), real(at)))
    recovered = started(disk, index)
    assert forgotten[0] == 0
    assert index.end == recovered.next_position
    index.close()
