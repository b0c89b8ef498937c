"""An index made again takes the place of the old one, and only a whole one does."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.bookmarks import damages
from tests.bookmarks.checking import KIB, Checker, add_all, entries_in, full_disk
from tests.bookmarks.logs import INSTANCE, FakeLog
from zbroker.bookmarks import files, rebuild
from zbroker.bookmarks.index import Index, Stamp
from zbroker.bookmarks.rebuild import Rebuild, RebuildProgress
from zbroker.errors import StorageError
from zbroker.log.format import Batch
from zbroker.log.reader import Log


class Source:
    """Gives a FakeLog's batches as `Log.sparse_lists` does, with something that is no batch."""

    def __init__(self, log: FakeLog, many: int = 7) -> None:
        self.log = log
        self.many = many
        self.asked: list[tuple[int, int]] = []

    def __call__(self, first: int, until: int) -> Iterable[tuple[list[object], int, int]]:
        self.asked.append((first, until))
        return self._lists(first, until)

    def _lists(self, first: int, until: int) -> Iterator[tuple[list[object], int, int]]:
        found: list[object] = ["a gap"]
        serial = 1
        for batch, where in self.log.entries:
            if not first <= batch.position < until:
                continue
            if where != serial or len(found) >= self.many:
                yield found, serial, _batches(found)
                found, serial = [], where
            found.append(batch)
        yield found, serial, _batches(found)


def _batches(found: list[object]) -> int:
    return sum(isinstance(one, Batch) for one in found)


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    for number in range(300):
        log.publish(1 + number % 5, count=3, size=20 * KIB)
        if number % 70 == 69:
            log.roll_over()
    return log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


def names(path: Path) -> list[str]:
    return sorted(found.name for found in path.parent.iterdir())


def old_index(path: Path, log: FakeLog, upto: int = 1_000) -> Index:
    """One that holds the beginning of the log, a part of it not yet committed."""
    index = Index(path, INSTANCE)
    for batch, serial in log.entries[:upto]:
        index.add(batch, serial)
        if index.pending_bytes > 1_000 * KIB:
            index.commit(index.take())
    return index


def test_it_holds_what_adding_one_by_one_would(path: Path, log: FakeLog):
    made = Rebuild(path, INSTANCE, 3, Source(log))
    index = made.finish(log.position)
    assert (index.stamp, index.end) == (Stamp(3, log.position), log.position)
    assert made.batches == len(log.entries)
    Checker(log, index).check()
    index.close()
    assert names(path) == ["index"]


def test_from_a_real_log_it_is_the_same_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The header walk leaves out what an index does not need, and nothing else."""
    monkeypatch.setattr(rebuild, "COMMIT_BYTES", 500 * KIB)
    source = damages.make(tmp_path / "data", seed=2)
    log = Log(source / "journal")
    plain = Index(tmp_path / "plain", INSTANCE)
    batches = 0
    for found, serial in log.header_lists(log.seek(1), log.end()):
        for batch in found:
            if isinstance(batch, Batch):
                plain.add(batch, serial)
                batches += 1
    plain.commit(plain.take())
    plain.close()
    made = Rebuild(tmp_path / "made", INSTANCE, log.generation, rebuild.batches_of(log))
    made.finish(log.end()).close()
    log.close()
    assert made.batches == batches
    assert entries_in(tmp_path / "made") == entries_in(tmp_path / "plain")


def test_the_old_index_serves_until_the_new_one_is_whole(path: Path, log: FakeLog):
    old = old_index(path, log)
    made = Rebuild(path, INSTANCE, 0, Source(log))
    middle = log.entries[150][0].position
    worker = threading.Thread(target=made.run, args=(middle,))
    worker.start()
    Checker(log, old).check()
    worker.join(60)
    assert not worker.is_alive()
    Checker(log, old).check()
    index = made.finish(log.position, old)
    Checker(log, index).check()
    assert names(path) == ["index", "index.old"]
    made.remove_old()
    assert names(path) == ["index"]
    log.publish(size=100)
    index.add(*log.entries[-1])
    index.commit(index.take())
    assert index.failed == ""
    Checker(log, index).check()
    index.close()


def test_it_reads_on_from_where_it_was(path: Path, log: FakeLog):
    source = Source(log)
    made = Rebuild(path, INSTANCE, 0, source)
    middle = log.entries[150][0].position
    assert made.run(middle)
    assert made.end == middle
    made.finish(log.position).close()
    assert source.asked == [(0, middle), (middle, log.position)]
    assert made.batches == len(log.entries)


def test_positions_that_cannot_be_read_count_as_held(path: Path, log: FakeLog):
    """Else the old index would seem to hold more than the log, for ever."""
    old = old_index(path, log)
    old.commit(old.take())
    source = Source(log)
    kept, log.entries = log.entries, log.entries[:-5]
    index = Rebuild(path, INSTANCE, 0, source).finish(old.end, old)
    assert index.stamp.position == kept[-1][0].end_position
    index.close()


def test_it_stops_when_it_is_asked_to(path: Path, log: FakeLog):
    made = Rebuild(path, INSTANCE, 0, Source(log))
    assert not made.run(log.position, stopping=lambda: True)
    assert 0 < made.batches < 10
    made.give_up()
    assert names(path) == []


def test_progress_is_reported_and_the_last_one_is_the_end(
    path: Path, log: FakeLog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rebuild, "TELL_S", 0.0)
    reported: list[RebuildProgress] = []
    Rebuild(path, INSTANCE, 0, Source(log), reported.append).run(log.position)
    assert [step.position for step in reported] == sorted(step.position for step in reported)
    assert len(reported) > 40
    assert reported[-1][:3] == (log.position, log.position, len(log.entries))
    assert reported[-1].batches_per_s > 0


def test_it_works_for_its_share_of_the_time(
    path: Path, log: FakeLog, monkeypatch: pytest.MonkeyPatch
):
    slept: list[float] = []
    monkeypatch.setattr(rebuild.time, "sleep", slept.append)
    made = Rebuild(path, INSTANCE, 0, Source(log), share=0.25)
    made.run(log.position)
    assert sum(slept) == pytest.approx(3 * made._teller._worked_s)


def test_a_crash_in_the_middle_leaves_nothing_at_the_next_start(path: Path, log: FakeLog):
    old = old_index(path, log)
    old.commit(old.take())
    made = Rebuild(path, INSTANCE, 0, Source(log))
    made.run(log.entries[150][0].position)
    assert names(path) == ["index", "index.new"]
    made._index.close()  # as the end of the process would
    old.close()
    again = Index(path, INSTANCE)
    assert names(path) == ["index"]
    Checker(log, again).check()
    again.close()


def test_a_new_rebuild_begins_again(path: Path, log: FakeLog):
    first = Rebuild(path, INSTANCE, 0, Source(log))
    first.run(log.entries[150][0].position)
    first._index.close()
    again = Rebuild(path, INSTANCE, 0, Source(log))
    assert again.end == 0
    again.give_up()


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_crash_while_they_change_places_costs_nothing(path: Path, log: FakeLog, renames: int):
    """After each rename an index is in its place, or goes back there at the next start."""
    old = old_index(path, log)
    old.commit(old.take())
    old.close()
    made = Rebuild(path, INSTANCE, 7, Source(log))
    made.run(log.position)
    made._index.close()
    if renames > 0:
        path.rename(files.old_path(path))
    if renames > 1:
        files.new_path(path).rename(path)
    index = Index(path, INSTANCE)
    assert index.found == ""
    assert index.stamp == Stamp(7 if renames == 2 else 0, log.position)
    assert names(path) == ["index"]
    Checker(log, index).check()
    index.close()


def test_an_index_that_is_ahead_of_the_log_is_never_replaced(path: Path, log: FakeLog):
    """It is the proof that messages are missing."""
    old = old_index(path, log)
    old.commit(old.take())
    lost = log.entries[-1][0]
    log.entries.pop()
    with pytest.raises(StorageError, match="proves positions") as raised:
        Rebuild(path, INSTANCE, 0, Source(log)).finish(lost.position, old)
    assert raised.value.code == "tail_damaged"
    assert old.stamp == Stamp(0, lost.end_position)
    Checker(log, old).near(0, old.at_or_before(1))
    old.close()
    assert names(path) == ["index"]


def test_an_index_of_a_later_generation_is_never_replaced(path: Path, log: FakeLog):
    old = old_index(path, log)
    old.set_generation(2)
    old.commit(old.take())
    with pytest.raises(StorageError, match="tail_damaged"):
        Rebuild(path, INSTANCE, 1, Source(log)).finish(log.position, old)
    old.close()


def test_an_index_of_an_earlier_generation_is_replaced(path: Path, log: FakeLog):
    old = old_index(path, log)
    old.commit(old.take())
    index = Rebuild(path, INSTANCE, 1, Source(log)).finish(log.position, old)
    assert index.stamp == Stamp(1, log.position)
    index.close()


def test_a_full_disk_leaves_the_old_index(path: Path, log: FakeLog):
    old = old_index(path, log)
    old.commit(old.take())
    made = Rebuild(path, INSTANCE, 0, Source(log))
    with (
        full_disk(files.new_path(path)),
        pytest.raises(StorageError, match="the old one stays") as raised,
    ):
        made.finish(log.position, old)
    assert raised.value.code == "index_failed"
    Checker(log, old).check()
    old.close()
    assert names(path) == ["index"]


def test_a_directory_that_cannot_be_made_leaves_the_old_index(
    path: Path, log: FakeLog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "new_path", lambda path: path / "data.mdb" / "new")
    old = old_index(path, log)
    with pytest.raises(StorageError, match="the old one stays"):
        Rebuild(path, INSTANCE, 0, Source(log))
    Checker(log, old).check()
    old.close()


def test_a_swap_that_fails_leaves_the_old_index(
    path: Path, log: FakeLog, monkeypatch: pytest.MonkeyPatch
):
    real, calls = Path.rename, []

    def rename(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "no")
        return real(self, target)

    old = old_index(path, log)
    made = Rebuild(path, INSTANCE, 0, Source(log))
    made.run(log.position)
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(StorageError, match="cannot be replaced"):
        made.finish(log.position, old)
    assert names(path) == ["index"]
    Checker(log, old).check()
    old.commit(old.take())
    assert old.failed == ""
    old.close()
    again = Index(path, INSTANCE)
    assert again.stamp.position == log.position
    again.close()


def test_a_damaged_index_is_replaced(path: Path, log: FakeLog):
    old = old_index(path, log)
    old.commit(old.take())
    old.damaged, old.failed = True, "a wrong checksum"
    index = Rebuild(path, INSTANCE, 0, Source(log)).finish(log.position, old)
    Checker(log, index).check()
    add_all(index, log)
    index.close()


def test_an_index_catches_up_with_the_log(path: Path, log: FakeLog):
    index = old_index(path, log, upto=100)
    reported: list[RebuildProgress] = []
    source = Source(log)
    rebuild.catch_up(index, source, log.position, reported.append)
    assert source.asked == [(log.entries[100][0].position, log.position)]
    assert index.stamp == Stamp(0, log.position)
    assert reported[0].until == log.position
    Checker(log, index).check()
    rebuild.catch_up(index, source, log.position, reported.append)
    assert len(source.asked) == 1
    index.close()


def test_catching_up_goes_on_in_memory_when_the_disk_is_full(path: Path, log: FakeLog):
    index = old_index(path, log, upto=100)
    with full_disk(path):
        rebuild.catch_up(index, Source(log), log.position, lambda _: None)
    assert index.failed
    assert index.end == log.position
    Checker(log, index).check()
    index.close()
