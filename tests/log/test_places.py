"""Where segments are: four files at most, the best one first, and reading them is one thing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.journal.build import INSTANCE, append, start, writer
from tests.log.build import everything, finish, log_of, move, names, sim, squeeze
from tests.sim.disk import SimDisk
from zbroker.errors import StorageError
from zbroker.log import archive
from zbroker.log.disk import RealDisk
from zbroker.log.format import HEADER_COPY_AT, Batch, ParseStop, SegmentHeader
from zbroker.log.places import SegmentPlace, SegmentPlaces, open_places
from zbroker.log.segments import packed_name, segment_name


def test_the_best_copy_comes_first() -> None:
    places, _ = log_of()
    finish(archive.copy(places, 1))
    finish(archive.pack(places, 1))
    archived = places.by_serial()[1]
    assert [(place.archived, place.packed) for place in archived] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert places.list()[0] == places.find(1) == archived[0]
    assert len(places.copies()) == len(places.list()) + 2


def test_all_kinds_of_copies_hold_the_same_bytes() -> None:
    places, _ = log_of()
    expected = places.read(places.by_serial()[1][0], 0, 1 << 20)
    finish(archive.copy(places, 1))
    finish(archive.pack(places, 1))
    for place in places.by_serial()[1]:
        assert (places.read(place, 0, 1 << 20), places.size(place)) == (expected, len(expected))
        assert places.read(place, 8_200, 77) == expected[8_200:8_277]
        header = places.header(place)
        assert isinstance(header, SegmentHeader)
        assert (header.serial, header.instance) == (1, INSTANCE)


def test_other_files_are_no_segments() -> None:
    places, _ = log_of(3)
    journal, away = sim(places)
    for name in ("7.journal", "0000000007.journal.part", "0000000007.idx", "0000000007.journal.gz"):
        journal.plant(name, b"x")
        away.plant(name, b"x")
    assert [place.serial for place in places.list()] == [1]


def test_a_segment_exists_wherever_it_is() -> None:
    places, to = log_of()
    assert [places.exists(serial) for serial in (1, to.serial, to.serial + 1)] == [
        True,
        True,
        False,
    ]
    squeeze(places, 1)
    assert places.exists(1)
    move(places, 1)
    assert places.exists(1)
    assert max(places.by_serial()) == to.serial


def test_without_an_archive_directory_there_is_the_journal_only(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "journal")
    disk.directory.mkdir()
    append(writer(disk, start(disk)), b"one")
    for places in (
        open_places(disk.directory),
        open_places(disk.directory, tmp_path / "nowhere"),
    ):
        assert [place.serial for place in places.list()] == [1]
        assert not places.exists(2)
        places.close()
    disk.close()


def test_a_listing_opens_no_file() -> None:
    places, _ = log_of()
    squeeze(places, 1)
    journal, _ = sim(places)
    opened = list[str]()
    journal.hook = opened.append
    fresh = SegmentPlaces(journal, places.archive)
    fresh.list()
    fresh.copies()
    assert opened == []


def test_the_header_of_a_packed_segment_costs_two_short_reads() -> None:
    places, _ = log_of()
    squeeze(places, 1)
    journal, _ = sim(places)
    fresh = SegmentPlaces(journal, places.archive)
    place = fresh.find(1)
    assert place is not None
    read = list[str]()
    journal.hook = read.append
    assert isinstance(fresh.header(place), SegmentHeader)
    assert read.count("before:read:packed") == 2


class Moving(SimDisk):
    """A segment is packed while the directory is listed: the listing shows neither file."""

    missed = 1

    def list(self) -> list[tuple[str, int]]:
        found = super().list()
        if self.missed:
            self.missed -= 1
            found = [(name, size) for name, size in found if not name.startswith("0000000002")]
        return found


def test_a_listing_that_misses_a_moving_segment_is_repeated() -> None:
    places, to = log_of()
    disk = Moving(random.Random(1))
    disk.__dict__.update({**sim(places)[0].__dict__, "missed": 1})
    found = SegmentPlaces(disk, places.archive).list()
    assert [place.serial for place in found] == list(range(1, to.serial + 1))


def test_a_foreign_packed_file_has_no_header() -> None:
    places, to = log_of()
    journal, _ = sim(places)
    journal.plant(packed_name(to.serial + 5), b"not a packed segment" * 100)
    place = places.find(to.serial + 5)
    assert place is not None
    header = places.header(place)
    assert isinstance(header, ParseStop)
    assert header.why == "short"


def test_a_file_that_is_gone_is_reported() -> None:
    places, _ = log_of()
    for place in (SegmentPlace(1, True, False, 100), SegmentPlace(1, False, True, 100)):
        with pytest.raises(StorageError) as caught:
            places.read(place, 0, 10)
        assert caught.value.code == "file_missing"


def test_an_unlinked_copy_is_gone() -> None:
    places, _ = log_of()
    made = finish(archive.pack(places, 1)).place
    assert places.read(made, 0, 8) == b"zbrksegm"
    places.unlink(made)
    assert [place.packed for place in places.by_serial()[1]] == [False]
    assert packed_name(1) not in names(sim(places)[0])


def test_a_bad_copy_does_not_hide_a_good_one() -> None:
    places, to = log_of()
    finish(archive.copy(places, 2))
    journal, _ = sim(places)
    for at in (0, HEADER_COPY_AT):
        journal.damage(segment_name(2), at, bytes(96))
    found = everything(places, to.position)
    assert [item.position for item in found if isinstance(item, Batch)] == list(
        range(1, to.position)
    )
