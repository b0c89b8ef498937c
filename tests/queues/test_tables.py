"""zbroker/queues/tables.py: what was saved of this log, whole, or nothing."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from zbroker.errors import StorageError
from zbroker.ids import Origin
from zbroker.log.generations import Generations
from zbroker.queues.saved_queue import SavedQueue
from zbroker.queues.snapshots import Key, Snapshot
from zbroker.queues.tables import Tables

ROOT = Path(__file__).parents[2]
HISTORY = Generations([(2, 1)])
HERE = Origin(0xABC, 2)
MANY: dict[Key, SavedQueue] = {
    ("a", 1): SavedQueue(100, 90, {"here": b"\0one", "ages": b""}),
    ("b/c", 12): SavedQueue(7, 0, {"here": bytes(100_000)}),
}
FIRSTS = {("a", 1): 50, ("b/c", 12): 7}
WHOLE = Snapshot(True, 0, MANY, FIRSTS, [])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "queues"


@pytest.fixture
def tables(directory: Path) -> Iterator[Tables]:
    made = Tables(directory)
    yield made
    made.close()


def _change(directory: Path, table: bytes, key: bytes, value: bytes) -> None:
    """As if the disk had done it."""
    with lmdb.open(str(directory), max_dbs=4) as env, env.begin(write=True) as txn:
        txn.put(key, value, db=env.open_db(table, txn))


def _loaded(directory: Path, here: Origin = HERE, persisted: int = 1_000) -> dict[Key, SavedQueue]:
    tables = Tables(directory)
    try:
        return tables.load(here, persisted, HISTORY)
    finally:
        tables.close()


def test_new_tables_hold_nothing(tables: Tables) -> None:
    assert tables.load(HERE, 1_000, HISTORY) == {}


def test_what_was_saved_is_loaded(tables: Tables) -> None:
    tables.save(HERE, WHOLE)
    assert tables.load(HERE, 1_000, HISTORY) == MANY


def test_what_was_saved_is_there_after_a_restart(tables: Tables, directory: Path) -> None:
    tables.save(HERE, WHOLE)
    tables.close()
    assert _loaded(directory) == MANY


def test_a_save_replaces_everything(tables: Tables) -> None:
    tables.save(HERE, WHOLE)
    other: dict[Key, SavedQueue] = {("a", 2): SavedQueue(200, 0, {"dead": b"x"})}
    tables.save(HERE, Snapshot(True, 0, other, {("a", 2): 1}, []))
    assert tables.load(HERE, 1_000, HISTORY) == other


def test_a_save_of_what_changed_leaves_the_rest(tables: Tables, directory: Path) -> None:
    tables.save(HERE, WHOLE)
    new: dict[Key, SavedQueue] = {("a", 2): SavedQueue(200, 0, {"dead": b"x"})}
    tables.save(HERE, Snapshot(False, 150, new, {("a", 2): 9}, [("a", 1)]))
    rest = MANY["b/c", 12]
    assert tables.load(HERE, 1_000, HISTORY) == {**new, ("b/c", 12): rest._replace(position=150)}
    again: dict[Key, SavedQueue] = {("a", 2): SavedQueue(300, 1, {"here": b"y"})}
    tables.save(HERE, Snapshot(False, 250, again, {("a", 2): 9}, []))
    tables.close()
    assert _loaded(directory) == {**again, ("b/c", 12): rest._replace(position=250)}


def test_of_a_log_that_lost_its_end_only_what_was_saved_before_it_counts(tables: Tables) -> None:
    """A queue is where it was saved, if how far it was read later is not in the log."""
    tables.save(HERE, Snapshot(True, 150, MANY, FIRSTS, []))
    found = tables.load(HERE, 149, HISTORY)
    assert {key: one.position for key, one in found.items()} == {("a", 1): 100, ("b/c", 12): 7}
    assert list(tables.load(HERE, 99, HISTORY)) == [("b/c", 12)]


def test_tables_of_the_form_before_are_read(tables: Tables, directory: Path) -> None:
    """It had no `upto`."""
    tables.save(HERE, WHOLE)
    tables.close()
    with lmdb.open(str(directory), max_dbs=4) as env, env.begin(write=True) as txn:
        meta = env.open_db(b"meta", txn)
        txn.delete(b"upto", db=meta)
        txn.put(b"stamp", struct.pack("<IQI", 1, *HERE), db=meta)
    assert _loaded(directory) == MANY


def test_tables_of_another_instance_are_ignored(tables: Tables) -> None:
    tables.save(HERE, WHOLE)
    assert tables.load(Origin(0xDEF, 2), 1_000, HISTORY) == {}


def test_tables_of_a_generation_that_began_on_another_copy_are_ignored(tables: Tables) -> None:
    tables.save(HERE, WHOLE)
    history = Generations([(1, 1), (3, 90)])
    assert tables.load(HERE._replace(generation=3), 1_000, history) == {}


def test_tables_of_an_older_generation_are_good_up_to_where_it_ended(tables: Tables) -> None:
    """A generation begins at every start while a peer is away: to fold all of the log again each
    time took minutes."""
    tables.save(HERE, WHOLE)
    here = HERE._replace(generation=3)
    assert tables.load(here, 1_000, Generations([(2, 1), (3, 100)])) == MANY
    assert list(tables.load(here, 1_000, Generations([(2, 1), (3, 99)]))) == [("b/c", 12)]


def test_what_is_ahead_of_the_log_is_ignored(tables: Tables) -> None:
    tables.save(HERE, WHOLE)
    assert tables.load(HERE, 100, HISTORY) == MANY
    assert list(tables.load(HERE, 99, HISTORY)) == [("b/c", 12)]
    assert tables.load(HERE, 6, HISTORY) == {}


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        (b"meta", b"stamp", b""),
        (b"meta", b"stamp", b"short"),
        (b"meta", b"stamp", bytes(16)),
        (b"queues", b"a\0" + b"1", b"short"),
        (b"queues", b"a\0" + b"x", bytes(16)),
        (b"queues", b"nothing", bytes(16)),
        (b"queues", b"\xff\0" + b"1", bytes(16)),
        (b"state", b"a\0" + b"1\0here", b"other bytes"),
        (b"state", b"a\0" + b"1\0here", b""),
        (b"state", b"a\0" + b"x\0here", b""),
        (b"state", b"a\0" + b"1\0\xff", b"\0\0\0\0"),
    ],
)
def test_damaged_tables_are_ignored(
    tables: Tables, directory: Path, table: bytes, key: bytes, value: bytes
) -> None:
    tables.save(HERE, WHOLE)
    tables.close()
    _change(directory, table, key, value)
    assert _loaded(directory) == {}
    again = Tables(directory)
    again.save(HERE, WHOLE)
    assert again.load(HERE, 1_000, HISTORY) == MANY
    again.close()


@pytest.mark.parametrize("data", [b"", b"no tables" * 1_000, bytes(100_000)])
def test_files_that_are_no_tables_are_made_again(directory: Path, data: bytes) -> None:
    directory.mkdir(parents=True)
    (directory / "data.mdb").write_bytes(data)
    made = Tables(directory)
    assert made.load(HERE, 1_000, HISTORY) == {}
    made.save(HERE, WHOLE)
    assert made.load(HERE, 1_000, HISTORY) == MANY
    made.close()


def test_rows_of_a_queue_that_is_not_there_are_passed_over(tables: Tables, directory: Path) -> None:
    tables.save(HERE, WHOLE)
    tables.close()
    _change(directory, b"state", b"gone\0" + b"1\0here", b"x")
    assert _loaded(directory) == MANY


def test_who_owns_what_is_written_too(tables: Tables, directory: Path) -> None:
    tables.save(HERE, WHOLE)
    tables.close()
    with lmdb.open(str(directory), max_dbs=4) as env, env.begin() as txn:
        rows = dict(txn.cursor(env.open_db(b"owned", txn, create=False)))
    assert [int.from_bytes(key[-8:], "big") for key in rows] == [50, 7]
    assert [int.from_bytes(value[:8], "little") for value in rows.values()] == [100, 7]


def test_a_process_that_is_killed_while_it_saves_leaves_what_was_saved_before(
    tables: Tables, directory: Path
) -> None:
    tables.save(HERE, WHOLE)
    tables.close()
    program = (
        "import os, signal, sys, pathlib\n"
        "from zbroker.queues import tables as t\n"
        "from zbroker.queues.saved_queue import SavedQueue\n"
        "from zbroker.ids import Origin\n"
        "from zbroker.queues.snapshots import Snapshot\n"
        "class Rows(dict):\n"
        "    def items(self):\n"
        "        yield 'here', b'new'\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "one = t.Tables(pathlib.Path(sys.argv[1]))\n"
        "many = {('a', 1): SavedQueue(300, 0, Rows())}\n"
        "one.save(Origin(0xABC, 2), Snapshot(False, 0, many, {('a', 1): 1}, []))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(directory)],
        timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL
    assert _loaded(directory) == MANY


def test_too_little_address_space_is_an_error_that_says_what_to_do(
    directory: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `ulimit -v`; nothing is wrong with the tables, so they stay."""
    tables.save(HERE, WHOLE)

    def refuse(*given: object, **more: object) -> lmdb.Environment:
        raise lmdb.MemoryError("Cannot allocate memory")

    monkeypatch.setattr("zbroker.queues.tables.lmdb.open", refuse)
    with pytest.raises(StorageError) as caught:
        Tables(directory)
    assert caught.value.code == "disk_error"
    assert "64 GiB of address space" in caught.value.hint
    assert "ulimit -v" in caught.value.hint
    assert (directory / "data.mdb").exists()


def test_tables_that_cannot_be_made_are_an_error_of_the_disk(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **more: object) -> lmdb.Environment:
        raise lmdb.Error("no")

    monkeypatch.setattr("zbroker.queues.tables.lmdb.open", refuse)
    with pytest.raises(StorageError, match="cannot be made: no"):
        Tables(directory)
