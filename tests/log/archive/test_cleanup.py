"""What is thrown away at a start, and what never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journal.build import append, start, writer
from tests.log.archive.build import log_of, names, sim, squeeze
from zbroker.errors import StorageError
from zbroker.log import archive, owner
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlaces
from zbroker.log.segments import packed_name, segment_name


def test_unfinished_files_are_thrown_away() -> None:
    places, _ = log_of()
    journal, away = sim(places)
    before = names(journal)
    journal.plant(packed_name(1) + ".part", b"x")
    away.plant(segment_name(1) + ".part", b"x")
    away.plant("0000000001.idx.part", b"x")
    assert len(archive.tidy(places)) == 3
    assert (names(journal), names(away)) == (before, [])
    assert archive.tidy(places) == []


def test_summaries_of_removed_segments_are_thrown_away() -> None:
    places, to = log_of()
    journal, _ = sim(places)
    squeeze(places, 1)
    squeeze(places, 2)
    to.keep_from(2)
    journal.remove(packed_name(1))
    assert archive.tidy(places) == ["0000000001.idx"]
    assert "0000000002.idx" in names(journal)


def test_nothing_else_is_thrown_away() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    for name in ("mine.part", "notes.idx", segment_name(9) + ".damaged-1", "acked-through.part"):
        journal.plant(name, b"x")
    before = names(journal)
    assert archive.tidy(places) == []
    assert names(journal) == before


def test_without_an_archive_directory_there_is_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    disk = RealDisk(tmp_path / "journal")
    append(writer(disk, start(disk)), b"one")
    assert archive.tidy(SegmentPlaces(disk, RealDisk(tmp_path / "nowhere"))) == []
    disk.close()


def test_what_another_instance_left_unfinished_is_not_ours_to_throw_away() -> None:
    places, _ = log_of()
    journal, away = sim(places)
    owner.claim(SegmentPlaces(journal, away, instance=7))
    away.plant(segment_name(1) + ".part", b"x")
    with pytest.raises(StorageError, match="foreign_instance"):
        archive.tidy(places)
    assert away.exists(segment_name(1) + ".part")
