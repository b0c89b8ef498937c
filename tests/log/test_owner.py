"""One archive directory for each instance, and never the journal directory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.journal.build import INSTANCE, append, start, writer
from tests.sim.disk import CrashAt, SimCrash, SimDisk
from zbroker.errors import ConfigError, StorageError
from zbroker.log import owner
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlaces
from zbroker.log.recovery import recover
from zbroker.log.segments import segment_name

OTHER = INSTANCE + 1


def journal(instance: int = INSTANCE) -> SimDisk:
    """A journal directory with one segment of this instance."""
    disk = SimDisk(random.Random(1))
    recover(disk, instance, segment_bytes=24 * 1024)
    return disk


def archive(**files: SimDisk) -> SimDisk:
    """An archive directory with the first segment of these logs."""
    disk = SimDisk(random.Random(2))
    for name, log in files.items():
        disk.plant(f"{name[1:]}.journal", log.content(segment_name(1)))
    return disk


# -- whose it is ------------------------------------------------------------------------------


def test_the_first_instance_that_archives_there_owns_the_directory() -> None:
    disk, away = journal(), archive()
    owner.claim(SegmentPlaces(disk, away))
    owner.check(SegmentPlaces(disk, away))
    with pytest.raises(StorageError, match=f"belongs to instance {INSTANCE:016x}") as caught:
        owner.claim(SegmentPlaces(journal(OTHER), away))
    assert caught.value.code == "foreign_instance"


def test_a_directory_of_an_earlier_release_is_adopted_with_its_segments() -> None:
    disk = journal()
    away = archive(_0000000001=disk)
    owner.claim(SegmentPlaces(disk, away))
    assert away.exists(owner.OWNER)


def test_a_directory_with_one_segment_of_another_instance_is_not_adopted() -> None:
    disk = journal()
    away = archive(_0000000001=disk, _0000000002=journal(OTHER))
    for action in (owner.check, owner.claim):
        with pytest.raises(StorageError, match="belongs to instance") as caught:
            action(SegmentPlaces(disk, away))
        assert caught.value.code == "foreign_instance"
    assert not away.exists(owner.OWNER)


def test_an_empty_journal_directory_needs_the_id_that_the_start_knows() -> None:
    away = archive()
    owner.claim(SegmentPlaces(journal(), away))
    with pytest.raises(StorageError, match="foreign_instance"):
        owner.check(SegmentPlaces(SimDisk(random.Random(3)), away, OTHER))
    owner.check(SegmentPlaces(SimDisk(random.Random(3)), away, INSTANCE))


def test_a_power_cut_while_claiming_leaves_a_directory_that_can_be_claimed() -> None:
    for boundary in range(14):
        disk, away = journal(), archive()
        cut = CrashAt(boundary)
        away.hook, away.rng = cut, random.Random(boundary)
        try:
            owner.claim(SegmentPlaces(disk, away))
        except SimCrash:
            away.power_cut()
        away.hook = lambda _: None
        owner.claim(SegmentPlaces(disk, away))


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 1, "instance": 7}', b"\xff"])
def test_an_owner_file_that_cannot_be_read_is_an_error(content: bytes) -> None:
    away = archive()
    away.plant(owner.OWNER, content)
    with pytest.raises(StorageError, match="damaged"):
        owner.check(SegmentPlaces(journal(), away))


def test_an_owner_file_of_a_newer_release_is_an_error() -> None:
    away = archive()
    away.plant(owner.OWNER, b'{"version": 2, "instance": "000000000000abcd"}')
    with pytest.raises(StorageError, match="unknown_version"):
        owner.check(SegmentPlaces(journal(), away))


# -- two names of one directory ---------------------------------------------------------------


def test_a_symbolic_link_to_the_journal_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "archive").symlink_to("journal")
    for name in ("journal", "archive", "../" + tmp_path.name + "/journal"):
        both = SegmentPlaces(RealDisk(tmp_path / "journal"), RealDisk(tmp_path / name))
        with pytest.raises(ConfigError, match="is the journal directory itself"):
            owner.check_apart(both)


def test_directories_that_are_apart_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "journal" / "archive").mkdir(parents=True)
    disk = RealDisk(tmp_path / "journal")
    owner.check_apart(SegmentPlaces(disk))
    owner.check_apart(SegmentPlaces(disk, RealDisk(tmp_path / "nowhere")))
    owner.check_apart(SegmentPlaces(disk, RealDisk(tmp_path / "journal" / "archive")))


def test_a_bind_mount_is_one_file_by_device_and_inode(tmp_path: Path) -> None:
    """A hard link has what a bind mount shows: another path, the same device and inode."""
    disk = RealDisk(tmp_path)
    append(writer(disk, start(disk)), b"x")
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / segment_name(1)).hardlink_to(tmp_path / segment_name(1))
    both = SegmentPlaces(disk, RealDisk(tmp_path / "away"))
    one, other = both.by_serial()[1]
    assert both.same_file(one, other)
    assert not owner.check(both)
