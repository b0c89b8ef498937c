"""Damage to the index's files costs a rebuild: nothing is raised, nothing wrong is answered."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from tests.bookmarks.checking import Checker, add_all
from tests.bookmarks.damage_child import standard_log
from tests.bookmarks.logs import INSTANCE, FakeLog
from zbroker.bookmarks import files, keys
from zbroker.bookmarks.index import Index, Stamp

CHILD_LIMIT_S = 60


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed index of `standard_log`."""
    path = tmp_path_factory.mktemp("pristine") / "index"
    log = standard_log()
    index = Index(path, INSTANCE)
    for half in (log.entries[:750], log.entries[750:]):
        for batch, serial in half:
            index.add(batch, serial)
        index.commit(index.take())
    assert index.stamp == Stamp(0, log.position)
    index.close()
    return path


@pytest.fixture
def path(pristine: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    shutil.copytree(pristine, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture(scope="session")
def log() -> FakeLog:
    return standard_log()


def spot_check(index: Index, log: FakeLog) -> None:
    checker = Checker(log, index)
    for at in range(0, len(log.entries), 37):
        batch = log.entries[at][0]
        checker.near(at, index.at_or_before(batch.position))
        checker.near(at, index.before_bookmark(batch.publisher, batch.sequence))


def change_value(path: Path, key: bytes, change: Callable[[bytes], bytes | None]) -> None:
    with lmdb.open(str(path)) as env, env.begin(write=True) as txn:
        value = change(bytes(txn.get(key)))
        if value is None:
            txn.delete(key)
        else:
            txn.put(key, value)


def flip(value: bytes) -> bytes:
    return bytes([*value[:-1], value[-1] ^ 1])


def truncate(size: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        whole = (path / "data.mdb").stat().st_size
        os.truncate(path / "data.mdb", size if size > 0 else whole + size)

    return damage


def overwrite(offset: int, data: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with (path / "data.mdb").open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return damage


def a_file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("this is no directory")


def set_stamp(change: Callable[[bytes], bytes | None]) -> Callable[[Path], None]:
    return lambda path: change_value(path, keys.STAMP, change)


SET_ASIDE = {
    "one byte": (truncate(1), "less than a header"),
    "half a header": (truncate(100), "less than a header"),
    "one header": (truncate(4_096), "no LMDB header"),
    "headers only": (truncate(8_192), "its header says"),
    "half": (truncate(60_000), "its header says"),
    "one page short": (truncate(-4_096), "its header says"),
    "one byte short": (truncate(-1), "its header says"),
    "random start": (overwrite(0, random.Random(1).randbytes(9_000)), "LMDB header"),
    "zeroed start": (overwrite(0, bytes(8_192)), "no LMDB header"),
    "second header zeroed": (overwrite(4_096, bytes(4_096)), "only one LMDB header"),
    "a page size of zero": (overwrite(40, bytes(4)), ""),
    "text": (lambda path: (path / "data.mdb").write_text("hello " * 5_000) and None, "LMDB"),
    "a file instead": (a_file_instead, "not a directory"),
    "no stamp": (set_stamp(lambda _: None), "no stamp"),
    "flipped stamp": (set_stamp(flip), "checksum"),
    "short stamp": (set_stamp(lambda value: value[:20]), "checksum"),
    "empty stamp": (set_stamp(lambda _: b""), "too short"),
    "an old version": (set_stamp(lambda v: v[:4] + bytes(4) + v[8:]), "has version 0, not 1"),
    "a newer version": (set_stamp(lambda v: v[:4] + b"\0\0\0\2" + v[8:]), "has version 2"),
    "foreign instance": (
        set_stamp(lambda _: keys.encode_stamp(Stamp(1, 9), 77)),
        "belongs to instance 000000000000004d",
    ),
}


@pytest.mark.parametrize("name", SET_ASIDE)
def test_what_cannot_be_used_is_set_aside(name: str, path: Path, log: FakeLog):
    damage, why = SET_ASIDE[name]
    damage(path)
    index = Index(path, INSTANCE)
    assert why in index.found
    assert index.found
    assert index.failed == ""
    assert index.stamp == Stamp(0, 0)
    assert index.at_or_before(10) is None
    assert path.with_name("index.bad-1").exists()
    add_all(index, log)
    index.commit(index.take())
    spot_check(index, log)
    assert index.stamp == Stamp(0, log.position)
    index.close()


DELETIONS = {
    "everything": shutil.rmtree,
    "data": lambda path: (path / "data.mdb").unlink(),
    "content": lambda path: os.truncate(path / "data.mdb", 0),
}


@pytest.mark.parametrize("name", DELETIONS)
def test_what_was_deleted_begins_empty(name: str, path: Path, log: FakeLog):
    DELETIONS[name](path)
    index = Index(path, INSTANCE)
    assert index.found == ""
    assert index.stamp == Stamp(0, 0)
    add_all(index, log)
    index.commit(index.take())
    spot_check(index, log)
    index.close()


def test_a_deleted_lock_file_costs_nothing(path: Path, log: FakeLog):
    (path / "lock.mdb").unlink()
    index = Index(path, INSTANCE)
    assert index.found == ""
    spot_check(index, log)
    index.close()


def test_files_deleted_while_it_is_open_cost_a_rebuild(path: Path, log: FakeLog):
    index = Index(path, INSTANCE)
    shutil.rmtree(path)
    spot_check(index, log)
    index.commit(index.take())
    index.close()
    again = Index(path, INSTANCE)
    assert again.stamp == Stamp(0, 0)
    again.close()


@pytest.mark.parametrize("key", [keys.position_key(1), keys.run_key(1, 1), keys.time_key(1_001)])
def test_a_flipped_bit_is_no_answer(key: bytes, path: Path):
    change_value(path, key, flip)
    index = Index(path, INSTANCE)
    assert not index.damaged
    lookups = (
        lambda: index.at_or_before(1),
        lambda: index.before_bookmark(1, 1),
        lambda: index.before_time(1_002),
    )
    assert None in [look() for look in lookups]
    assert index.damaged
    assert "checksum" in index.failed
    assert [look() for look in lookups] == [None, None, None]
    index.commit(index.take())
    assert index.failed
    index.close()
    again = Index(path, INSTANCE)
    assert again.found
    assert again.stamp == Stamp(0, 0)
    again.close()


def test_forgetting_in_a_damaged_index_begins_empty(path: Path):
    change_value(path, keys.position_key(1), flip)
    index = Index(path, INSTANCE)
    index.forget_after(100)
    assert "checksum" in index.found
    assert index.stamp == Stamp(0, 0)
    assert index.end == 0
    index.close()


def test_an_index_that_was_not_closed_is_read_first(path: Path, log: FakeLog):
    files.note_opened(path, 1)
    index = Index(path, INSTANCE)
    assert index.found == ""
    spot_check(index, log)
    index.close()
    assert files.crashes_of(path) == 0


def test_damage_in_an_index_that_was_not_closed_is_found_by_reading(path: Path):
    change_value(path, keys.run_key(3, 1), flip)
    files.note_opened(path, 1)
    index = Index(path, INSTANCE)
    assert index.found == "an entry has a wrong checksum"
    index.close()


def test_a_third_end_without_a_commit_is_enough(path: Path):
    files.note_opened(path, files.CRASHES_MAX)
    index = Index(path, INSTANCE)
    assert "3 times" in index.found
    index.close()


def test_a_commit_starts_the_count_again(path: Path):
    files.note_opened(path, 2)
    index = Index(path, INSTANCE)
    assert files.crashes_of(path) == 3
    index.commit(index.take())
    assert files.crashes_of(path) == 1
    index.close()


def test_two_set_aside_indexes_are_kept(path: Path):
    for _ in range(4):
        (path / "data.mdb").write_bytes(b"x")
        index = Index(path, INSTANCE)
        assert index.found
        index.close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["index", "index.bad-3", "index.bad-4"]


def scribble(path: Path, seed: int) -> None:
    """Random bytes over a few places, often where pages say what is in them."""
    rng = random.Random(seed)
    data = path / "data.mdb"
    size = data.stat().st_size
    with data.open("r+b") as file:
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(0 if rng.random() < 0.2 else 8_192, size)
            if rng.random() < 0.7:
                at = at // 4_096 * 4_096 + rng.randrange(60)
            file.seek(at)
            file.write(rng.randbytes(rng.choice([1, 2, 16, 400, 5_000])))
    os.truncate(data, size)


@pytest.mark.process
@pytest.mark.parametrize("seed", range(12))
def test_scribbled_pages_end_the_process_three_times_at_most(seed: int, path: Path):
    scribble(path, seed)
    ends = []
    while len(ends) <= files.CRASHES_MAX:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bookmarks.damage_child", str(path)],
            capture_output=True, timeout=CHILD_LIMIT_S, check=False,
        )  # fmt: skip
        assert b"AssertionError" not in done.stderr, done.stderr.decode()
        ends.append(done.returncode)
        if done.returncode == 0:
            break
        assert done.returncode < 0, done.stderr.decode()
    assert ends[-1] == 0
