"""Packing: beside the raw file, readable before that one goes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.journal.build import positions
from tests.log.archive.build import everything, log_of, names, retire, sim, squeeze
from tests.log.archive.test_archiver import real_log
from tests.sim.disk import SimDisk
from zbroker.errors import StorageError, ZBrokerError
from zbroker.log import archive
from zbroker.log.packed import frames_at
from zbroker.log.places import SegmentPlaces
from zbroker.log.segments import packed_name, segment_name


@pytest.mark.seed("004-91")
def test_a_segment_is_packed_where_it_stands() -> None:
    places, to = log_of()
    journal, away = sim(places)
    made = archive.finish(archive.pack(places, 1))
    assert (made.new, made.place.archived, made.place.packed) == (True, False, True)
    assert made.place.file_bytes == len(journal.content(packed_name(1))) < 10_000
    archive.finish(archive.copy(places, 2))
    retire(places, 2, archived=False, packed=False)
    assert archive.finish(archive.pack(places, 2)).place.archived
    assert packed_name(2) in names(away)
    for place in (place for place in places.copies() if not place.packed and place.serial < 3):
        places.unlink(place)
    assert positions(everything(places, to.position)) == list(range(1, to.position))


def test_what_stands_behind_the_end_is_kept() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    journal.damage(segment_name(1), 24_576 - 9, b"set aside")
    content = journal.content(segment_name(1))
    squeeze(places, 1)
    place = places.find(1)
    assert place is not None
    assert places.read(place, 0, 1 << 20) == content


def test_a_packed_file_that_is_there_is_verified_again() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    archive.finish(archive.pack(places, 1))
    assert not archive.finish(archive.pack(places, 1)).new
    journal.flip(packed_name(1), frames_at(24_576) + 20)
    with pytest.raises(StorageError) as caught:
        archive.finish(archive.pack(places, 1))
    assert caught.value.code == "copy_differs"
    assert segment_name(1) in names(journal)


class Forgetful(SimDisk):
    """Writes the list at the end of a packed file wrongly."""

    def write(self, name: str, offset: int, buffers: list[bytes]) -> None:  # type: ignore[override]
        super().write(name, offset, buffers)
        if name.endswith(".part") and offset == 0:
            self.flip(name, len(self.content(name)) - 12)


def test_a_packed_file_has_both_lists_or_no_name() -> None:
    disk = Forgetful(random.Random(1))
    disk.__dict__.update(sim(log_of()[0])[0].__dict__)
    with pytest.raises(StorageError, match="two lists") as caught:
        archive.finish(archive.pack(SegmentPlaces(disk), 1))
    assert caught.value.code == "copy_differs"
    assert packed_name(1) not in names(disk)
    assert packed_name(1) + ".part" not in names(disk)


def test_the_open_segment_is_not_packed() -> None:
    places, to = log_of()
    with pytest.raises(ZBrokerError) as caught:
        archive.finish(archive.pack(places, to.serial))
    assert caught.value.code == "segment_open"


def test_space_for_the_journal_is_kept() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    journal.capacity = journal.capacity - journal.free_bytes() + 50_000
    with pytest.raises(StorageError, match="pack a segment") as caught:
        archive.finish(archive.pack(places, 1, keep_free_bytes=40_000))
    assert caught.value.code == "disk_full"
    archive.finish(archive.pack(places, 1, keep_free_bytes=20_000))


def test_giving_up_at_any_step_leaves_nothing_behind() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    before = names(journal)
    for count in range(1, 5):
        steps = archive.pack(places, 1)
        for _ in range(count):
            next(steps, None)
        steps.close()
        after = names(journal)
        if packed_name(1) in after:
            break
        assert after == before
    else:
        pytest.fail("it never came to its end")


def test_a_segment_of_the_real_size_of_files_is_packed(tmp_path: Path) -> None:
    places, end = real_log(tmp_path)
    made = archive.finish(archive.pack(places, 1))
    assert made.place.file_bytes < 4 << 20
    retire(places, 1, archived=False, packed=False)
    archive.finish(archive.copy(places, 1))
    retire(places, 1, archived=False, packed=True)
    assert positions(everything(places, end)) == [1, 2]
    places.close()
