"""Copies in the archive directory: the same bytes, verified, with holes where zeros are."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.journal.build import append, positions, start, writer
from tests.log.build import everything, finish, log_of, names, retire, sim, squeeze
from tests.sim.disk import SimDisk
from zbroker.errors import ConfigError, StorageError, ZBrokerError
from zbroker.log import archive, owner
from zbroker.log.disk import RealDisk
from zbroker.log.format import Batch
from zbroker.log.packed import frames_at
from zbroker.log.places import SegmentPlaces
from zbroker.log.segments import packed_name, segment_name


def test_a_copy_has_the_same_bytes() -> None:
    places, to = log_of()
    journal, away = sim(places)
    journal.damage(segment_name(1), 24_576 - 9, b"set aside")
    made = finish(archive.copy(places, 1))
    assert (made.new, made.place.archived, made.place.packed) == (True, True, False)
    assert away.content(segment_name(1)) == journal.content(segment_name(1))
    assert (made.summary.first, made.summary.missing) == (1, 0)
    retire(places, 1, archived=False, packed=False)
    assert positions(everything(places, to.position)) == list(range(1, to.position))


def test_a_packed_segment_is_copied_as_it_is() -> None:
    places, _ = log_of()
    finish(archive.pack(places, 1))
    journal, away = sim(places)
    made = finish(archive.copy(places, 1))
    assert made.place.packed
    assert away.content(packed_name(1)) == journal.content(packed_name(1))


def test_a_copy_is_durable_before_it_has_its_name() -> None:
    for seed in range(30):
        places, _ = log_of()
        journal, away = sim(places)
        expected = journal.content(segment_name(1))
        away.rng = random.Random(seed)
        finish(archive.copy(places, 1))
        away.power_cut()
        assert away.content(segment_name(1)) == expected


def test_that_a_segment_is_sealed_is_durable_before_its_copy_has_a_name() -> None:
    """Else a power cut could take the segment after it, and the copy would prove that it was."""
    places, _ = log_of()
    owner.claim(places)
    seen = list[str]()
    journal, away = sim(places)
    journal.hook = lambda name: seen.append(f"journal {name}")
    away.hook = seen.append
    finish(archive.copy(places, 1))
    assert seen.index("journal after:sync_dir:directory") < seen.index("before:rename:part")


def test_a_copy_that_is_there_is_verified_again() -> None:
    places, _ = log_of()
    _, away = sim(places)
    finish(archive.copy(places, 1))
    before = away.operations
    assert not finish(archive.copy(places, 1)).new
    assert away.operations == before + 1  # the sync of its name
    away.flip(segment_name(1), 9_000)
    with pytest.raises(StorageError, match="not the same") as caught:
        finish(archive.copy(places, 1))
    assert caught.value.code == "copy_differs"
    assert segment_name(1) in names(sim(places)[0])


class Forgetful(SimDisk):
    """What it writes to a part is not always what was meant."""

    def write(self, name: str, offset: int, buffers: list[bytes]) -> None:  # type: ignore[override]
        super().write(name, offset, buffers)
        if name.endswith(".part") and offset < 9_000 < offset + sum(map(len, buffers)):
            self.flip(name, 9_000)


@pytest.mark.seed("004-90")
def test_a_copy_that_differs_never_gets_its_name() -> None:
    journal = log_of()[0].journal
    away = Forgetful(random.Random(1))
    with pytest.raises(StorageError, match="between offset 0 and") as caught:
        finish(archive.copy(SegmentPlaces(journal, away), 1))
    assert caught.value.code == "copy_differs"
    assert names(away) == []


def test_what_only_the_page_cache_shows_is_not_believed() -> None:
    class Lying(SimDisk):
        def sync(self, name: str) -> None:
            super().sync(name)
            if name.endswith(".part"):
                self._names[name].medium[9_000] ^= 1

    away = Lying(random.Random(1))
    with pytest.raises(StorageError) as caught:
        finish(archive.copy(SegmentPlaces(log_of()[0].journal, away), 1))
    assert caught.value.code == "copy_differs"


def test_the_open_segment_stays() -> None:
    places, to = log_of()
    with pytest.raises(ZBrokerError, match="write head") as caught:
        finish(archive.copy(places, to.serial))
    assert caught.value.code == "segment_open"


def test_an_unknown_segment_is_not_found() -> None:
    with pytest.raises(ZBrokerError) as caught:
        finish(archive.copy(log_of()[0], 77))
    assert caught.value.code == "not_found"


def test_space_that_is_to_be_kept_is_kept() -> None:
    places, _ = log_of()
    _, away = sim(places)
    away.capacity = 100_000
    with pytest.raises(StorageError, match="archive a segment") as caught:
        finish(archive.copy(places, 1, keep_free_bytes=90_000))
    assert caught.value.code == "disk_full"
    finish(archive.copy(places, 1, keep_free_bytes=50_000))


def test_a_full_disk_leaves_nothing_behind() -> None:
    places, _ = log_of()
    _, away = sim(places)
    away.fail_at, away.fail_errno = away.operations + 2, 28
    with pytest.raises(StorageError) as caught:
        finish(archive.copy(places, 1))
    assert caught.value.code == "disk_full"
    assert names(away) == []


def test_giving_up_leaves_nothing_behind() -> None:
    places, _ = log_of()
    _, away = sim(places)
    steps = archive.copy(places, 1)
    assert 0 < next(steps) < 24_576
    assert names(away) == [segment_name(1) + ".part"]
    steps.close()
    assert names(away) == []


def test_steps_tell_how_far_it_is() -> None:
    places, _ = log_of()
    for steps in (archive.copy(places, 1), archive.pack(places, 2), archive.copy(places, 1)):
        done = list(steps)
        assert done == sorted(done)
        assert 20_000 < done[-1] <= 24_576


def test_what_is_damaged_in_the_original_is_reported() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    batch = next(item for item in everything(places, 9) if isinstance(item, Batch))
    journal.flip(segment_name(1), batch.offset + batch.header_length)
    assert finish(archive.copy(places, 1)).summary.missing == 1
    assert finish(archive.pack(places, 1)).summary.missing == 1


def test_what_cannot_be_read_is_not_copied() -> None:
    places, _ = log_of()
    journal, away = sim(places)
    journal.unreadable = {(segment_name(1), 20)}
    for steps in (archive.copy(places, 1), archive.pack(places, 1)):
        with pytest.raises(StorageError) as caught:
            finish(steps)
        assert caught.value.code == "disk_error"
    assert names(away) == []
    assert packed_name(1) not in names(journal)


# -- on a real disk --


def real_log(path: Path) -> tuple[SegmentPlaces, int]:
    (path / "journal").mkdir()
    disk = RealDisk(path / "journal")
    to = writer(disk, start(disk, segment_bytes=4 << 20), segment_bytes=4 << 20)
    append(to, bytes(300_000) + b"middle" + bytes(2_000_000))
    append(to, random.Random(1).randbytes(3_000_000))
    assert to.serial == 2
    return SegmentPlaces(disk, RealDisk(path / "far" / "archive")), to.position


@pytest.mark.seed("004-23")
def test_the_archive_directory_is_made_with_the_first_copy(tmp_path: Path) -> None:
    places, end = real_log(tmp_path)
    finish(archive.copy(places, 1))
    assert (tmp_path / "far" / "archive").stat().st_mode & 0o777 == 0o700
    retire(places, 1, archived=False, packed=False)
    assert positions(everything(places, end)) == [1, 2]
    places.close()


def test_zeros_become_holes(tmp_path: Path) -> None:
    places, _ = real_log(tmp_path)
    made = finish(archive.copy(places, 1)).place
    copy = tmp_path / "far" / "archive" / segment_name(1)
    assert copy.read_bytes() == (tmp_path / "journal" / segment_name(1)).read_bytes()
    assert (made.file_bytes, copy.stat().st_size) == (4 << 20, 4 << 20)
    assert copy.stat().st_blocks * 512 < 400_000
    places.close()


def test_nothing_is_copied_into_the_archive_directory_of_another_instance() -> None:
    places, _ = log_of()
    journal, away = sim(places)
    owner.claim(SegmentPlaces(journal, away, instance=7))
    with pytest.raises(StorageError, match="foreign_instance"):
        finish(archive.copy(places, 1))
    assert names(away) == []


def test_the_first_copy_claims_the_archive_directory() -> None:
    places, _ = log_of()
    _, away = sim(places)
    finish(archive.copy(places, 1))
    assert away.exists(owner.OWNER)


def test_nothing_is_archived_into_the_journal_directory_itself() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    before = journal.list()
    with pytest.raises(ConfigError, match="the journal directory itself"):
        finish(archive.copy(SegmentPlaces(journal, journal), 1))
    assert journal.list() == before


@pytest.mark.seed("004-91")
def test_a_segment_is_packed_where_it_is() -> None:
    places, to = log_of()
    journal, away = sim(places)
    made = finish(archive.pack(places, 1))
    assert (made.new, made.place.archived, made.place.packed) == (True, False, True)
    assert made.place.file_bytes == len(journal.content(packed_name(1))) < 10_000
    finish(archive.copy(places, 2))
    retire(places, 2, archived=False, packed=False)
    assert finish(archive.pack(places, 2)).place.archived
    assert packed_name(2) in names(away)
    for place in (place for place in places.copies() if not place.packed and place.serial < 3):
        places.unlink(place)
    assert positions(everything(places, to.position)) == list(range(1, to.position))


def test_what_is_after_the_end_is_kept() -> None:
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
    finish(archive.pack(places, 1))
    assert not finish(archive.pack(places, 1)).new
    journal.flip(packed_name(1), frames_at(24_576) + 20)
    with pytest.raises(StorageError) as caught:
        finish(archive.pack(places, 1))
    assert caught.value.code == "copy_differs"
    assert segment_name(1) in names(journal)


class ForgetfulPacking(SimDisk):
    """Writes the list at the end of a packed file wrongly."""

    def write(self, name: str, offset: int, buffers: list[bytes]) -> None:  # type: ignore[override]
        super().write(name, offset, buffers)
        if name.endswith(".part") and offset == 0:
            self.flip(name, len(self.content(name)) - 12)


def test_a_packed_file_has_both_lists_or_no_name() -> None:
    disk = ForgetfulPacking(random.Random(1))
    disk.__dict__.update(sim(log_of()[0])[0].__dict__)
    with pytest.raises(StorageError, match="two lists") as caught:
        finish(archive.pack(SegmentPlaces(disk), 1))
    assert caught.value.code == "copy_differs"
    assert packed_name(1) not in names(disk)
    assert packed_name(1) + ".part" not in names(disk)


def test_the_open_segment_is_not_packed() -> None:
    places, to = log_of()
    with pytest.raises(ZBrokerError) as caught:
        finish(archive.pack(places, to.serial))
    assert caught.value.code == "segment_open"


def test_space_for_the_journal_is_kept() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    journal.capacity = journal.capacity - journal.free_bytes() + 50_000
    with pytest.raises(StorageError, match="pack a segment") as caught:
        finish(archive.pack(places, 1, keep_free_bytes=40_000))
    assert caught.value.code == "disk_full"
    finish(archive.pack(places, 1, keep_free_bytes=20_000))


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
    made = finish(archive.pack(places, 1))
    assert made.place.file_bytes < 4 << 20
    retire(places, 1, archived=False, packed=False)
    finish(archive.copy(places, 1))
    retire(places, 1, archived=False, packed=True)
    assert positions(everything(places, end)) == [1, 2]
    places.close()


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
