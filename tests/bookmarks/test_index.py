"""Claims about the index, one by one; test_index_histories.py tries them in any order."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from tests.bookmarks.checking import KIB, Checker, add_all, full_disk, place
from tests.bookmarks.logs import INSTANCE, FakeLog
from zbroker.bookmarks.index import Index, Stamp
from zbroker.bookmarks.keys import BLOCK_BYTES
from zbroker.errors import Bug


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


def test_one_entry_per_block_and_publisher(path: Path):
    log = FakeLog()
    for number in range(1_000):
        log.publish(publisher=number % 4, size=5 * KIB)
    index = Index(path, INSTANCE)
    add_all(index, log)
    blocks = log.offset // BLOCK_BYTES + 1
    pending = index.take()
    assert len(pending.tails[0]) <= blocks * (1 + 1 + 4)
    index.commit(pending)
    index.close()


def test_a_late_batch_does_not_hide_what_is_before_it(path: Path):
    log = FakeLog()
    log.publish(count=10)
    before = log.publish(count=10, hole=10)  # 21 to 30
    log.publish_late(5)  # 11 to 20
    after = log.publish(count=10)  # 31 to 40
    index = Index(path, INSTANCE)
    add_all(index, log)
    late = log.entries[2]
    assert index.before_bookmark(5, 15) == place(late)
    for wanted in (before, after):
        hint = index.before_bookmark(5, wanted.sequence)
        assert hint is not None
        assert hint.position <= wanted.position
    index.close()


def test_a_late_batch_finds_its_predecessors_in_lmdb(path: Path):
    log = FakeLog()
    log.publish(count=10)
    log.publish(count=10, hole=10)
    index = Index(path, INSTANCE)
    add_all(index, log)
    index.commit(index.take())
    log.publish_late(5)
    index.add(*log.entries[-1])
    index.commit(index.take())
    Checker(log, index).check()
    index.close()


@pytest.mark.parametrize("committed", [True, False])
def test_a_late_batch_does_not_make_other_lookups_far(path: Path, committed: bool):
    log = FakeLog()
    log.publish(count=10)
    log.publish(count=10, hole=10)
    for _ in range(50):
        log.publish(count=10, size=60 * KIB)
    index = Index(path, INSTANCE)
    add_all(index, log)
    pending = index.take()
    if committed:
        index.commit(pending)
    log.publish_late(5)
    index.add(*log.entries[-1])
    checker = Checker(log, index)
    for at in range(3, 52):
        checker.near(at, index.before_bookmark(5, log.entries[at][0].sequence))
    index.commit(pending)
    index.close()


def test_times_are_indexed_again_after_forgetting(path: Path):
    log, index = FakeLog(), Index(path, INSTANCE)
    for _ in range(10):
        log.publish(size=70 * KIB, later=1_000)
    add_all(index, log)
    index.commit(index.take())
    index.forget_after(log.cut(5))
    for _ in range(10):
        log.publish(size=70 * KIB)
        index.add(*log.entries[-1])
    assert index.before_time(log.time) == place(log.entries[-2])
    index.close()


def test_lookups_work_after_lmdb_refused_everything(path: Path):
    log, index = FakeLog(), Index(path, INSTANCE)
    log.publish()
    add_all(index, log)
    index.commit(index.take())
    assert index._stored is not None
    index._stored.close()  # as after MDB_PANIC: nothing goes until it is opened again
    log.publish(size=100 * KIB)
    index.add(*log.entries[-1])
    index.commit(index.take())
    assert index.failed
    Checker(log, index).check()
    index.commit(index.take())
    assert index.failed == ""
    Checker(log, index).check()
    index.close()


def test_equal_times_begin_at_the_first_of_them(path: Path):
    log = FakeLog()
    for _ in range(10):
        log.publish(size=100 * KIB, later=0)
    index = Index(path, INSTANCE)
    add_all(index, log)
    assert index.before_time(log.time) is None  # the log is read from its beginning
    assert index.before_time(log.time + 1) == place(log.entries[0])
    index.close()


def test_what_was_added_before_is_stepped_over(path: Path):
    log = FakeLog()
    for _ in range(5):
        log.publish(size=70 * KIB)
    index = Index(path, INSTANCE)
    add_all(index, log)
    index.commit(index.take())
    add_all(index, log)
    assert index.pending_bytes == 0
    pending = index.take()
    assert len(pending.tails[0]) == 0
    index.commit(pending)
    index.close()


def test_pending_bytes_count_from_the_last_take(path: Path):
    index, log = Index(path, INSTANCE), FakeLog()
    log.publish(size=1_000)
    add_all(index, log)
    assert index.pending_bytes == 1_120
    pending = index.take()
    assert index.pending_bytes == 0
    index.commit(pending)
    index.close()


def test_the_generation_is_stamped_by_the_next_commit(path: Path):
    index, log = Index(path, INSTANCE), FakeLog()
    index.set_generation(3)
    assert index.stamp == Stamp(0, 0)
    log.publish(count=4)
    add_all(index, log)
    index.commit(index.take())
    assert index.stamp == Stamp(3, 5)
    index.close()
    again = Index(path, INSTANCE)
    assert again.stamp == Stamp(3, 5)
    again.commit(again.take())
    assert again.stamp == Stamp(3, 5)
    again.close()


def test_lookups_go_on_while_a_commit_runs(path: Path):
    log, index = FakeLog(), Index(path, INSTANCE, map_bytes=1 << 20)
    for round_number in range(20):
        for number in range(200):
            log.publish(publisher=1 + number % 7, size=40 * KIB)
            index.add(*log.entries[-1])
        thread = Thread(target=index.commit, args=(index.take(),))
        thread.start()
        checker = Checker(log, index)
        recent = len(log.entries) - 200
        for at in range(recent, len(log.entries)):
            batch = log.entries[at][0]
            checker.near(at, index.at_or_before(batch.position))
            checker.near(at, index.before_bookmark(batch.publisher, batch.sequence))
            checker.time(batch.log_time)
        thread.join(30)
        assert not thread.is_alive(), round_number
    assert index.failed == ""
    Checker(log, index).check()
    index.close()


def test_the_map_grows_before_it_is_full(path: Path):
    log, index = FakeLog(), Index(path, INSTANCE, map_bytes=256 * KIB)
    for _ in range(5):
        for number in range(2_000):
            log.publish(publisher=number, size=100 * KIB)
            index.add(*log.entries[-1])
        index.commit(index.take())
        assert index.failed == ""
    assert (path / "data.mdb").stat().st_size > 256 * KIB
    index.close()
    again = Index(path, INSTANCE, map_bytes=256 * KIB)
    assert again.found == ""
    assert again.stamp == Stamp(0, log.position)
    again.close()


def test_a_failed_commit_is_made_good_by_the_next_one(path: Path):
    log, index = FakeLog(), Index(path, INSTANCE)
    for number in range(500):
        log.publish(publisher=number, size=100 * KIB)
    add_all(index, log)
    with full_disk(path):
        index.commit(index.take())
    assert "large" in index.failed
    assert index.stamp == Stamp(0, 0)
    Checker(log, index).check()
    log.publish()
    index.add(*log.entries[-1])
    index.commit(index.take())
    assert index.failed == ""
    assert index.stamp == Stamp(0, log.position)
    Checker(log, index).check()
    index.close()
    again = Index(path, INSTANCE)
    Checker(log, again).check()
    again.close()


def test_without_a_directory_everything_stays_in_memory(tmp_path: Path):
    (tmp_path / "file").write_text("not a directory")
    log, index = FakeLog(), Index(tmp_path / "file" / "index", INSTANCE)
    for _ in range(50):
        log.publish(size=50 * KIB)
    add_all(index, log)
    assert index.failed
    index.commit(index.take())
    log.publish()
    index.add(*log.entries[-1])
    Checker(log, index).check()
    index.forget_after(1)
    assert index.at_or_before(100) is None
    index.close()


def test_one_commit_at_a_time(path: Path):
    index = Index(path, INSTANCE)
    pending = index.take()
    for forbidden in (index.take, index.close, lambda: index.forget_after(1)):
        with pytest.raises(Bug):
            forbidden()
    index.commit(pending)
    index.close()
