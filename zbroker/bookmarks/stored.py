"""The entries of the index: those in memory since the last commit, and those in LMDB.

`TailEntries` are one kind of key in order; an `IndexTail` has these for positions, for log times
and for each publisher. It grows by at most three entries per batch and is dropped when LMDB has it:
one synced transaction per commit.

No writemap. The map is large and sparse and grows before a transaction, never during one; readers
hold the same lock for the microseconds of a look-up. One handle per process, never across a fork.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Final

import lmdb

from zbroker.bookmarks import files, keys
from zbroker.bookmarks.keys import (
    EMPTY,
    BadKey,
    Hint,
    Stamp,
    encode_place,
    position_key,
    run_key,
    time_key,
)
from zbroker.limits import GIB

MAP_BYTES: Final = GIB  # address space, not disk; doubled when it is 70 % full
_MAP_FULL_PERCENT: Final = 70
_ENTRY_COST_BYTES: Final = 256  # of map per new entry: itself, page headers, copied pages
_COMMIT_COST_BYTES: Final = 64 * 1024  # of map per commit: the path from the root, free lists

STEPS: Final = 4_000  # entries deleted and lines begun in one transaction: some 20 ms of it
COST_BYTES: Final = STEPS * 4 * 4_096  # of map: in the worst case each touches a path of its own


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
            with _lmdb_fails():
                self._env.reader_check()
                self._load()
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
        with _lmdb_fails(), self._exclusive, self._env.begin() as txn:
            found, value = _seek_back(txn.cursor(), key)
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
        with _lmdb_fails(), self._env.begin(write=True) as txn:
            for key in [k for k, v in txn.cursor() if _is_above(position, k, v)]:
                txn.delete(key)
            txn.put(keys.STAMP, keys.encode_stamp(stamp, self._instance))
        self.stamp = stamp


@contextlib.contextmanager
def _lmdb_fails() -> Iterator[None]:
    """Errors of LMDB are a StoredError."""
    try:
        yield
    except lmdb.Error as error:
        raise StoredError(str(error)) from error


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


class Sweep:
    """Takes entries of removed segments out of LMDB, a bounded number at a time.

    That is everything whose batch begins below `log_start`; `done` when nothing is left to look at.
    In each line (positions, times, the runs of one publisher) entries rise with the log, but for
    those of late batches; so only the beginning of each line is looked at. After an early late
    entry a few may stay until that one is removed: they cost space, and no look-up gives a place
    below the log start.

        p, r of the 1st publisher, r of the 2nd, ..., t    each: delete while below, then the next
    """

    def __init__(self, log_start: int) -> None:
        self.log_start = log_start
        self._next = keys.POSITION

    @property
    def done(self) -> bool:
        """All lines were looked at."""
        return not self._next

    def step(self, txn: lmdb.Transaction, steps: int = STEPS) -> bytes | BadKey:
        """Goes on for some steps; where to go on, for `advance` once the transaction is safe."""
        cursor = txn.cursor()
        found = cursor.set_range(self._next)
        while found:
            key = bytes(cursor.key())
            if steps <= 0:
                return key
            steps -= 1
            if key == keys.STAMP:
                found = cursor.next()
                continue
            place = keys.decode_place(key, bytes(cursor.value()))
            if isinstance(place, BadKey):
                return place
            if place.position < self.log_start:
                found = cursor.delete() and bool(cursor.key())
            else:
                line = keys.next_line(key)
                found = bool(line) and cursor.set_range(line)
        return b""

    def advance(self, key: bytes) -> None:
        """What `step` did is committed; it goes on at `key`, nowhere if that is empty."""
        self._next = key


class TailEntries:
    """Numbers in rising order, each with the place of a batch."""

    __slots__ = ("_hints", "_keys")

    def __init__(self) -> None:
        self._keys: list[int] = []
        self._hints: list[Hint] = []

    def __len__(self) -> int:
        return len(self._keys)

    def items(self) -> Iterator[tuple[int, Hint]]:
        """All of them, in order."""
        return zip(self._keys, self._hints, strict=True)

    @property
    def last(self) -> int | None:
        """The highest key."""
        return self._keys[-1] if self._keys else None

    def put(self, key: int, hint: Hint) -> None:
        """Adds one; a key that is there gets the new place."""
        keys = self._keys
        if not keys or key > keys[-1]:
            keys.append(key)
            self._hints.append(hint)
            return
        at = bisect_left(keys, key)
        if keys[at] == key:
            self._hints[at] = hint
        else:
            keys.insert(at, key)
            self._hints.insert(at, hint)

    def at_or_before(self, key: int) -> tuple[int, Hint] | None:
        """The entry with the highest key that is not above `key`."""
        at = bisect_right(self._keys, key)
        return (self._keys[at - 1], self._hints[at - 1]) if at else None

    def forget_after(self, position: int) -> None:
        """Drops the entries whose batch begins at or above `position`."""
        kept = [(key, hint) for key, hint in self.items() if hint.position < position]
        self._keys = [key for key, _ in kept]
        self._hints = [hint for _, hint in kept]


class IndexTail:
    """Entries that are not in LMDB."""

    __slots__ = ("positions", "runs", "times")

    def __init__(self) -> None:
        self.positions = TailEntries()
        self.times = TailEntries()
        self.runs: dict[int, TailEntries] = {}

    def __len__(self) -> int:
        return len(self.positions) + len(self.times) + sum(map(len, self.runs.values()))

    def forget_after(self, position: int) -> None:
        """Drops the entries whose batch begins at or above `position`."""
        for line in (self.positions, self.times, *self.runs.values()):
            line.forget_after(position)

    def encoded(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values as they go to LMDB, in LMDB's order."""
        for position, hint in self.positions.items():
            yield (key := position_key(position)), encode_place(key, hint)
        for publisher in sorted(self.runs):
            for sequence, hint in self.runs[publisher].items():
                yield (key := run_key(publisher, sequence)), encode_place(key, hint)
        for log_time, hint in self.times.items():
            yield (key := time_key(log_time)), encode_place(key, hint)
