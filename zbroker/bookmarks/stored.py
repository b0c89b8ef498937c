"""The part of the index that is in LMDB: opening, reading, one synced transaction per commit.

No writemap. The map is large and sparse and grows before a transaction, never during one; readers
hold the same lock for the microseconds of a look-up. One handle per process, never across a fork.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Final

import lmdb

from zbroker.bookmarks import files, keys
from zbroker.bookmarks.keys import EMPTY, BadKey, Hint, Stamp
from zbroker.bookmarks.sweep import COST_BYTES, Sweep
from zbroker.bookmarks.tail import IndexTail
from zbroker.limits import GIB

MAP_BYTES: Final = GIB  # address space, not disk; doubled when it is 70 % full
_MAP_FULL_PERCENT: Final = 70
_ENTRY_COST_BYTES: Final = 256  # of map per new entry: itself, page headers, copied pages
_COMMIT_COST_BYTES: Final = 64 * 1024  # of map per commit: the path from the root, free lists


class StoredError(Exception):
    """LMDB failed, or holds what was not written."""


class DamagedError(StoredError):
    """An entry is not what was written; the transaction that met it was given up."""


class StoredEntries:
    """The entries in LMDB.

    Raises: StoredError, from every method.
    """

    def __init__(self, path: Path, instance: int, map_bytes: int = MAP_BYTES) -> None:
        self.stamp = EMPTY
        self._path = path
        self._instance = instance
        self._map_bytes = map_bytes
        self._exclusive = Lock()  # no thread reads while the map moves
        crashes = files.crashes_of(path)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.note_opened(path, crashes + 1)
            self._env = self._opened()
        except (lmdb.Error, OSError) as error:
            raise StoredError(str(error)) from error
        try:
            self._env.reader_check()
            self._load()
        except lmdb.Error as error:
            self._env.close()
            raise StoredError(str(error)) from error
        except StoredError:
            self._env.close()
            raise

    def _load(self) -> None:
        with self._env.begin() as txn:
            value = txn.get(keys.STAMP)
            entries = txn.stat()["entries"]
        if value is None and entries:
            raise StoredError("it has no stamp")
        if value is None:
            self.write((), EMPTY)
            return
        stamp = keys.decode_stamp(bytes(value), self._instance)
        if isinstance(stamp, BadKey):
            raise StoredError(stamp.why)
        self.stamp = stamp

    def _opened(self) -> lmdb.Environment:
        return lmdb.open(str(self._path), map_size=self._map_bytes, mode=0o600)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    # -- reading ------------------------------------------------------------------------------

    def newest(self, prefix: bytes, key: bytes) -> tuple[bytes, Hint] | None:
        """The entry with the highest key up to `key`, if it begins with `prefix`."""
        try:
            with self._exclusive, self._env.begin() as txn:
                found, value = _seek_back(txn.cursor(), key)
        except lmdb.Error as error:
            raise StoredError(str(error)) from error
        if not found.startswith(prefix):
            return None
        if found > key:
            raise StoredError("its entries are out of order")
        return found, _place(found, value)

    # -- writing ------------------------------------------------------------------------------

    def write(self, tails: Iterable[IndexTail], stamp: Stamp, sweep: Sweep | None = None) -> None:
        """Adds entries, sets the stamp and goes on with a sweep in one synced transaction."""
        tails = tuple(tails)
        cost = COST_BYTES if sweep is not None else 0
        reached = b""
        try:
            self._grow(sum(map(len, tails)) * _ENTRY_COST_BYTES + _COMMIT_COST_BYTES + cost)
            with self._env.begin(write=True) as txn:
                for tail in tails:
                    txn.cursor().putmulti(tail.encoded())
                txn.put(keys.STAMP, keys.encode_stamp(stamp, self._instance))
                if sweep is not None:
                    reached = _good(sweep.step(txn))
        except lmdb.Error as error:
            self._recover()
            raise StoredError(str(error)) from error
        self.stamp = stamp
        if sweep is not None:
            sweep.advance(reached)

    def _recover(self) -> None:
        """After a failed write LMDB may refuse everything, even reads, until it is reopened."""
        with self._exclusive, contextlib.suppress(lmdb.Error):
            self._env.close()
            self._env = self._opened()

    def _grow(self, more: int) -> None:
        info = self._env.info()
        used = (info["last_pgno"] + 1) * self._env.stat()["psize"] + more
        size = info["map_size"]
        while used * 100 > size * _MAP_FULL_PERCENT:
            size *= 2
        if size != info["map_size"]:
            with self._exclusive:
                self._env.set_mapsize(size)

    def forget_after(self, position: int, stamp: Stamp) -> None:
        """Drops the entries whose batch begins at or above `position` and sets the stamp.

        Reads all of them: it is rare, and the entries of late batches are not in log order.
        """
        try:
            with self._env.begin(write=True) as txn:
                for key in [k for k, v in txn.cursor() if _is_above(position, k, v)]:
                    txn.delete(key)
                txn.put(keys.STAMP, keys.encode_stamp(stamp, self._instance))
        except lmdb.Error as error:
            raise StoredError(str(error)) from error
        self.stamp = stamp


def _seek_back(cursor: lmdb.Cursor, key: bytes) -> tuple[bytes, bytes]:
    """The entry at or before `key`; empty when there is none."""
    if not cursor.set_range(key):
        cursor.last()
    elif cursor.key() != key:
        cursor.prev()
    return bytes(cursor.key()), bytes(cursor.value())


def _is_above(position: int, key: bytes, value: bytes) -> bool:
    return key != keys.STAMP and _place(key, value).position >= position


def _good(reached: bytes | BadKey) -> bytes:
    if isinstance(reached, BadKey):
        raise DamagedError(reached.why)
    return reached


def _place(key: bytes, value: bytes) -> Hint:
    place = keys.decode_place(key, value)
    if isinstance(place, BadKey):
        raise StoredError(place.why)
    return place
