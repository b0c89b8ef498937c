"""What is unlinked, and what never is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.journal.build import INSTANCE, SEGMENT_BYTES, append, positions, read_all, start, writer
from tests.sim.disk import CrashAt, SimCrash, SimDisk
from zbroker.errors import ClientError, StorageError
from zbroker.journal.segment_removal import remove_through, retire
from zbroker.log import owner
from zbroker.log.disk import RealDisk
from zbroker.log.format import HEADER_COPY_AT
from zbroker.log.places import SegmentPlaces
from zbroker.log.recovery import recover
from zbroker.log.segments import list_segments, segment_name
from zbroker.log.writer import Writer
from zbroker.wire.internal import Retire


def log(segments: int = 4) -> tuple[SimDisk, Writer]:
    """A log of so many segments, the last one open."""
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk))
    while to.serial < segments:
        append(to, b"x" * 2_000)
    return disk, to


def archived(disk: SimDisk, *serials: int) -> SimDisk:
    """An archive directory with copies of these segments."""
    archive = SimDisk(random.Random(2))
    for serial in serials:
        archive.plant(segment_name(serial), disk.content(segment_name(serial)))
    return archive


def names(disk: SimDisk) -> set[str]:
    return {name for name, _ in disk.list()}


def ask(serial: int, *, archived: bool = False, packed: bool = False) -> Retire:
    return Retire(1, 1, serial, archived, packed)


# -- removal ----------------------------------------------------------------------------------


def test_every_copy_of_the_removed_segments_goes() -> None:
    disk, _ = log()
    archive = archived(disk, 1, 2, 3)
    assert remove_through(SegmentPlaces(disk, archive), 2) == 4 * SEGMENT_BYTES
    assert [serial for serial, _ in list_segments(disk)] == [3, 4]
    assert names(archive) == {segment_name(3)}


def test_side_files_go_with_their_segments() -> None:
    disk, _ = log()
    archive = archived(disk)
    for serial in (1, 2, 3):
        disk.plant(f"{serial:010d}.idx", b"x")
        archive.plant(f"{serial:010d}.idx", b"x")
    archive.plant("0000000001.idx.part", b"x")  # not ours: whoever makes it throws it away
    remove_through(SegmentPlaces(disk, archive), 2)
    assert {name for name in names(disk) if name.endswith(".idx")} == {"0000000003.idx"}
    assert names(archive) == {"0000000003.idx", "0000000001.idx.part"}


def test_nothing_else_goes() -> None:
    disk, _ = log()
    other = {"acked-through", "0000000001.journal.damaged-1", "notes.txt"}
    for name in other - names(disk):
        disk.plant(name, b"x")
    remove_through(SegmentPlaces(disk), 3)
    assert names(disk) == other | {segment_name(4)}


def test_a_missing_archive_directory_is_an_empty_one() -> None:
    class Nowhere(SimDisk):
        def list(self) -> list[tuple[str, int]]:
            raise StorageError("file_missing", "no such directory")

        def sync_dir(self) -> None:
            raise StorageError("file_missing", "no such directory")

    disk, _ = log()
    remove_through(SegmentPlaces(disk, Nowhere(random.Random(1))), 2)
    assert [serial for serial, _ in list_segments(disk)] == [3, 4]


def test_the_oldest_goes_first() -> None:
    disk, _ = log()
    seen: list[list[int]] = []
    disk.hook = lambda boundary: (
        seen.append([serial for serial, _ in list_segments(disk)])
        if boundary.startswith("after:unlink")
        else None
    )
    remove_through(SegmentPlaces(disk), 3)
    assert seen == [[2, 3, 4], [3, 4], [4]]


def test_a_power_cut_at_any_moment_of_a_removal_leaves_a_log_that_starts() -> None:
    for boundary in range(30):
        for seed in range(4):
            disk, to = log()
            end, cut = to.position, CrashAt(boundary)
            disk.hook, disk.rng = cut, random.Random(seed)
            try:
                to.keep_from(3)
                remove_through(SegmentPlaces(disk), 2)
            except SimCrash:
                pass
            disk.hook = lambda _: None
            disk.power_cut()
            recovered = start(disk)
            assert recovered.oldest in (0, 3)
            assert not recovered.findings
            if not cut.crashed:
                assert recovered.oldest == 3
                assert not recovered.leftovers
            if recovered.oldest:
                remove_through(SegmentPlaces(disk), recovered.oldest - 1)
                assert [serial for serial, _ in list_segments(disk)] == [3, 4]
            assert recovered.next_position == end
            found = positions(read_all(disk, end))
            assert found == list(range(recovered.log_start, end))
            assert recovered.log_start == (1 if not recovered.oldest else found[0])


# -- one copy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("in_archive", [True, False])
def test_a_copy_goes_when_another_one_is_whole(in_archive: bool) -> None:
    disk, _ = log()
    archive = archived(disk, 2)
    retire(SegmentPlaces(disk, archive), ask(2, archived=in_archive), 4)
    assert (segment_name(2) in names(disk)) is in_archive
    assert (segment_name(2) in names(archive)) is not in_archive


@pytest.mark.parametrize("in_archive", [True, False])
def test_one_file_under_two_names_is_one_copy(in_archive: bool, tmp_path: Path) -> None:
    """As where the archive directory is a bind mount of the journal directory."""
    disk = RealDisk(tmp_path)
    to = writer(disk, start(disk))
    while to.serial < 3:
        append(to, b"x" * 2_000)
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / segment_name(1)).hardlink_to(tmp_path / segment_name(1))
    with pytest.raises(ClientError, match="segment_held"):
        retire(SegmentPlaces(disk, RealDisk(tmp_path / "away")), ask(1, archived=in_archive), 3)
    assert (tmp_path / segment_name(1)).exists()
    assert (tmp_path / "away" / segment_name(1)).exists()


def test_a_directory_seen_under_two_names_has_one_copy_of_each_segment() -> None:
    disk, _ = log()
    for wanted in (ask(2), ask(2, archived=True)):
        with pytest.raises(ClientError, match="segment_held"):
            retire(SegmentPlaces(disk, disk), wanted, 4)
    assert segment_name(2) in names(disk)


def foreign_log() -> SimDisk:
    """A log of another instance, with four segments."""
    disk = SimDisk(random.Random(1))
    to = writer(disk, recover(disk, INSTANCE + 1, segment_bytes=SEGMENT_BYTES))
    while to.serial < 4:
        append(to, b"x" * 2_000)
    return disk


def test_segments_of_another_instance_in_the_archive_directory_are_not_removed() -> None:
    disk, _ = log()
    archive = archived(foreign_log(), 1, 2, 3)
    before = names(archive)
    with pytest.raises(StorageError, match="foreign_instance"):
        remove_through(SegmentPlaces(disk, archive), 3)
    assert names(archive) == before


def test_a_segment_of_another_instance_is_not_unlinked_where_the_directory_is_ours() -> None:
    """One that was put there after the directory was looked at."""
    disk, _ = log()
    archive = archived(disk, 1)
    places = SegmentPlaces(disk, archive)
    owner.claim(places)
    archive.plant(segment_name(2), foreign_log().content(segment_name(2)))
    [strange] = [place for place in places.copies() if place.archived and place.serial == 2]
    with pytest.raises(StorageError, match="foreign_instance"):
        places.unlink(strange)
    with pytest.raises(ClientError, match="segment_held"):
        retire(places, ask(2), 4)
    assert segment_name(2) in names(archive)
    assert segment_name(2) in names(disk)


def test_the_only_copy_stays() -> None:
    disk, _ = log()
    with pytest.raises(ClientError, match="segment_held"):
        retire(SegmentPlaces(disk, archived(disk, 1)), ask(2), 4)
    assert segment_name(2) in names(disk)


def test_the_open_segment_stays() -> None:
    disk, _ = log()
    with pytest.raises(ClientError, match="the open one"):
        retire(SegmentPlaces(disk, archived(disk, 4)), ask(4), 4)
    assert segment_name(4) in names(disk)


@pytest.mark.parametrize("offset", [0, 40, HEADER_COPY_AT, HEADER_COPY_AT + 40])
def test_a_copy_whose_header_is_damaged_is_not_whole(offset: int) -> None:
    disk, _ = log()
    archive = archived(disk, 2)
    archive.flip(segment_name(2), offset)
    for wanted in (ask(2), ask(2, archived=True)):
        with pytest.raises(ClientError, match="segment_held"):
            retire(SegmentPlaces(disk, archive), wanted, 4)
    assert segment_name(2) in names(disk)
    assert segment_name(2) in names(archive)


def test_copies_that_are_damaged_alike_both_stay() -> None:
    disk, _ = log()
    disk.flip(segment_name(2), HEADER_COPY_AT)
    with pytest.raises(ClientError, match="segment_held"):
        retire(SegmentPlaces(disk, archived(disk, 2)), ask(2), 4)


def test_a_copy_of_another_size_is_not_whole() -> None:
    disk, _ = log()
    archive = archived(disk)
    archive.plant(segment_name(2), disk.content(segment_name(2))[:-1])
    with pytest.raises(ClientError, match="segment_held"):
        retire(SegmentPlaces(disk, archive), ask(2), 4)


def test_another_segment_of_that_name_is_no_copy() -> None:
    disk, _ = log()
    other = SimDisk(random.Random(1))
    to = writer(other, start(other), seed=9)  # other salts
    while to.serial < 4:
        append(to, b"y" * 2_000)
    with pytest.raises(ClientError, match="segment_held"):
        retire(SegmentPlaces(disk, archived(other, 2)), ask(2), 4)


def test_what_is_gone_already_is_no_error_while_there_is_a_copy() -> None:
    disk, _ = log()
    archive = archived(disk, 2)
    places = SegmentPlaces(disk, archive)
    retire(places, ask(2), 4)
    retire(places, ask(2), 4)
    assert segment_name(2) in names(archive)


def test_a_segment_of_which_there_is_nothing_is_reported() -> None:
    disk, _ = log()
    with pytest.raises(ClientError, match="segments_missing"):
        retire(SegmentPlaces(disk), ask(9), 10)


def test_a_power_cut_after_a_copy_went_leaves_the_other_one() -> None:
    for seed in range(20):
        disk, _ = log()
        archive = archived(disk, 2)
        retire(SegmentPlaces(disk, archive), ask(2), 4)
        for one in (disk, archive):
            one.rng = random.Random(seed)
            one.power_cut()
        assert segment_name(2) not in names(disk)
        assert segment_name(2) in names(archive)
