"""LMDB tables of queues: their state when the log was folded up to some position. Only a cache.

    meta    stamp                          -> instance, generation, form of the tables
            upto                           -> position up to which all of them were folded
    queues  name NUL declaration           -> position, horizon
    state   name NUL declaration NUL row   -> CRC-32C of one part of the state, its bytes
    owned   name NUL declaration NUL first (u64) -> end, owner's instance, epoch (number, instance)

A save writes the queues that changed, as one transaction, so what is read is of one moment: those
that did not change are as they were, folded up to `upto` by now. In form 1 all were written each
time, and there was no `upto`. Without tables, or with those of another log, the state is folded
from the oldest segment: it takes time, nothing else.

A thread writes them, so that the turn does not wait for the disk.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import lmdb

from zbroker import known_log
from zbroker.checksums import crc32c
from zbroker.clock import Clock
from zbroker.engine.contract import Limit, Ready
from zbroker.errors import StorageError
from zbroker.ids import Origin
from zbroker.limits import GIB
from zbroker.log.generations import Generations
from zbroker.queues.effects import SaveTables, TablesSaved
from zbroker.queues.saved_queue import SavedQueue
from zbroker.queues.snapshots import Key, Snapshot, position_of

LOOK_MS: Final = 20  # how often the thread is looked at while it writes
VERSION: Final = 2
READABLE: Final = (1, 2)
MAP_BYTES: Final = 64 * GIB  # address space, not disk
_ADDRESSES: Final = (
    f"the process needs {MAP_BYTES // GIB} GiB of address space, not of memory: raise "
    "`ulimit -v`, or LimitAS= of the systemd unit; nothing is lost"
)
_STAMP: Final = struct.Struct("<IQI")
_QUEUE: Final = struct.Struct("<QQ")
_OWNED: Final = struct.Struct("<QQQQ")
_FIRST: Final = struct.Struct(">Q")
_CRC: Final = struct.Struct("<I")
_UPTO: Final = struct.Struct("<Q")


class Tables:
    """In `directory`, opened by this process alone."""

    def __init__(self, directory: Path) -> None:
        """Tables that cannot be opened are made again. Raises: StorageError, if these cannot be
        opened, either."""
        self._directory = directory
        try:
            self._open()
        except lmdb.MemoryError as error:  # nothing is wrong with the tables
            reason = f"the tables of the queues in {directory} cannot be mapped: {error}"
            raise StorageError("disk_error", reason, _ADDRESSES) from None
        except lmdb.Error:
            shutil.rmtree(directory, ignore_errors=True)
            self._open_new()

    def _open_new(self) -> None:
        try:
            self._open()
        except lmdb.Error as error:
            reason = f"the tables of the queues in {self._directory} cannot be made: {error}"
            raise StorageError("disk_error", reason) from None

    def _open(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._env = lmdb.open(str(self._directory), max_dbs=4, map_size=MAP_BYTES, writemap=False)
        with self._env.begin(write=True) as txn:  # all new ones with one sync
            self._meta, self._queues, self._state, self._owned = (
                self._env.open_db(name, txn) for name in (b"meta", b"queues", b"state", b"owned")
            )

    def load(self, here: Origin, persisted: int, history: Generations) -> dict[Key, SavedQueue]:
        """The saved queues of this log, up to `persisted` at most; none if it is damaged."""
        try:
            return self._load(here, persisted, history)
        except (lmdb.Error, struct.error, ValueError, UnicodeDecodeError):
            return {}

    def _load(self, here: Origin, persisted: int, history: Generations) -> dict[Key, SavedQueue]:
        found: dict[Key, SavedQueue] = {}
        with self._env.begin() as txn:
            stamp = txn.get(b"stamp", db=self._meta)
            form, instance, generation = _STAMP.unpack(stamp) if stamp is not None else (0, 0, 0)
            if form not in READABLE or instance != here.instance:
                return {}
            persisted = min(persisted, history.end(generation))
            upto = txn.get(b"upto", db=self._meta)
            common = 0 if upto is None else _UPTO.unpack(upto)[0]
            for key, value in txn.cursor(self._queues):
                saved, horizon = _QUEUE.unpack(value)
                position = position_of(saved, common, persisted)
                if position is not None:
                    found[_key(key)] = SavedQueue(position, horizon, {})
            for key, value in txn.cursor(self._state):
                queue, _, row = key.rpartition(b"\0")
                if _key(queue) in found:
                    found[_key(queue)].rows[row.decode()] = _checked(value)
        return found

    def save(self, here: Origin, taken: Snapshot) -> None:
        """Replaces what changed, or everything."""
        with self._env.begin(write=True) as txn:
            if taken.whole:
                for db in (self._queues, self._state, self._owned):
                    txn.drop(db, delete=False)
            txn.put(b"stamp", _STAMP.pack(VERSION, *here), db=self._meta)
            txn.put(b"upto", _UPTO.pack(taken.upto), db=self._meta)
            for key in () if taken.whole else (*taken.gone, *taken.many):
                self._remove(txn, _name(key))
            for key, one in taken.many.items():
                name = _name(key)
                txn.put(name, _QUEUE.pack(one.position, one.horizon), db=self._queues)
                for row, data in one.rows.items():
                    txn.put(
                        name + b"\0" + row.encode(), _CRC.pack(crc32c(data)) + data, db=self._state
                    )
                owned = name + b"\0" + _FIRST.pack(taken.firsts[key])
                value = _OWNED.pack(one.position, here.instance, 1, here.instance)
                txn.put(owned, value, db=self._owned)

    def _remove(self, txn: lmdb.Transaction, name: bytes) -> None:
        txn.delete(name, db=self._queues)
        for db in (self._state, self._owned):
            with txn.cursor(db) as cursor:
                found = cursor.set_range(name + b"\0")
                while found and bytes(cursor.key()).startswith(name + b"\0"):
                    found = cursor.delete()

    def close(self) -> None:
        """Closes the files."""
        self._env.close()


class TableWriter:
    """The tables of one process, as a source of its turn: when they were written."""

    drained = True

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory, self._clock = directory, clock
        self._tables = Tables(directory)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tables")
        self._writing: Future[None] | None = None

    def load(self, here: Origin, persisted: int, history: Generations) -> dict[Key, SavedQueue]:
        """What the tables hold of this log."""
        return self._tables.load(here, persisted, history)

    def save(self, effect: SaveTables) -> None:
        """Begins to write."""
        assert self._writing is None, "one at a time"
        self._writing = self._thread.submit(self._write, effect.here, effect.taken)

    def _write(self, here: Origin, taken: Snapshot) -> None:
        """The tables, and beside them how far the log was, for the journal's next start."""
        self._tables.save(here, taken)
        known = max([taken.upto, *(one.position for one in taken.many.values())])
        if known:
            with suppress(OSError):  # it only adds to what the journal knows by itself
                known_log.write(self._directory, here, known)

    def events(self, ready: Ready, limit: Limit) -> Iterable[TablesSaved]:
        """TablesSaved, once the thread has ended."""
        if self._writing is None or not self._writing.done():
            return ()
        writing, self._writing = self._writing, None
        try:
            writing.result()
        except lmdb.Error as error:
            return (TablesSaved(str(error)),)
        return (TablesSaved(),)

    def next_wake_ms(self) -> int | None:
        """Soon, as long as the thread writes."""
        return None if self._writing is None else self._clock.mono_ms() + LOOK_MS

    def close(self) -> None:
        """Waits for what is being written."""
        self._thread.shutdown(wait=True)
        self._tables.close()


def _checked(value: bytes) -> bytes:
    """A part without its checksum. Raises: ValueError: what reads it trusts its lengths."""
    if _CRC.pack(crc32c(value[_CRC.size :])) != value[: _CRC.size]:
        raise ValueError("a part of the tables is damaged")
    return value[_CRC.size :]


def _name(key: Key) -> bytes:
    return key[0].encode() + b"\0" + str(key[1]).encode()


def _key(name: bytes) -> Key:
    queue, _, declaration = name.rpartition(b"\0")
    return queue.decode(), int(declaration)
