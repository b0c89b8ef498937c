"""The bookmark store in a file: LMDB in a directory of its own.

    discarded --a commit--> in the file, synced

A thread commits what changed, at most once per `commit` seconds; with `sync` every discard is
committed before it returns. Each commit is synced: what it holds survives a kill and a power cut,
and the file is whole at any moment. A lock on the directory keeps a second writer out.

LMDB maps its file and may end the process on one that was cut or overwritten. So before it opens
the file the size is compared with both headers, and another process reads all of it (check.py);
then every record is checked.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import struct
import subprocess
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import Final

import lmdb

from zbroker.client.bookmark_stores import check
from zbroker.client.bookmark_stores import format as records
from zbroker.client.bookmark_stores.format import HEADER_KEY, BadRecord, Key
from zbroker.client.bookmark_stores.memory import MemoryBookmarkStore, Tracking
from zbroker.client.bookmark_stores.progress import State
from zbroker.client.subscriber.options import Duration, seconds
from zbroker.durable_files import sync_directory
from zbroker.errors import StorageError
from zbroker.limits import MIB

COMMIT_S: Final = 0.1
CHECK_S: Final = 30  # to read 256 MiB and to start Python on a busy machine
MAP_BYTES: Final = 256 * MIB  # a state has 20 KB at the most, mostly 100 bytes

_DATA: Final = "data.mdb"
_LOCK: Final = "writer.lock"

# mdb.c of LMDB 0.9, 64 bits: a page header of 16 bytes; then magic, version, address, map size;
# two tables of 48 bytes, of which the first begins with the page size; last page, transaction
_META: Final = struct.Struct("<16xIIQQI92xQQ")
_LMDB_MAGIC: Final = 0xBEEFC0DE
assert _META.size == 152, "so it is in mdb.c"

_log: Final = logging.getLogger("zbroker.client")


class FileBookmarkStore(MemoryBookmarkStore):
    """What named subscriptions have processed, in a directory; one process at a time has it open.

    After a kill the last `commit` seconds may be missing: messages that were processed then come
    again.
    """

    def __init__(
        self, path: str | Path, *, commit: Duration = COMMIT_S, sync: bool = False
    ) -> None:
        """Opens the directory `path`, which is made if it is missing.

        commit: the longest time until what was discarded is in the file. sync: each discard (a
        message, with `batches()` a batch) is in the file, synced, before the reader goes on.
        Raises: StorageError store_in_use, store_damaged, store_failed.
        """
        super().__init__()
        self._path = Path(path)
        self._sync = sync
        self._commit_s = seconds("commit", commit)
        self._lock_fd = _locked(self._path)
        try:
            self._env = _opened(self._path)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._failed: StorageError | None = None
        self._writing = threading.Lock()  # a state is taken and written before the next one is
        self._marking = threading.Lock()
        self._dirty: set[Tracking] = set()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        atexit.register(self.close)

    def close(self) -> None:
        """Commits what changed. Raises: StorageError store_failed."""
        with self._guard:
            if self._closed:
                return
            self._stop.set()
            self._wake.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if self._failed is not None:
                raise self._failed
            self._commit()
        finally:
            self._closed = True
            atexit.unregister(self.close)
            with self._writing:
                self._env.close()
                os.close(self._lock_fd)

    def __repr__(self) -> str:
        return f"FileBookmarkStore({str(self._path)!r})"

    # -- for subscriptions --------------------------------------------------------------------

    def _changed(self, tracking: Tracking) -> None:
        if self._failed is not None:
            raise self._failed
        if (not self._sync and tracking in self._dirty) or not self._keeps(tracking):
            return
        with self._marking:
            self._dirty.add(tracking)
        if self._sync:
            self._commit()
        elif not self._wake.is_set():
            self._start()

    def _start(self) -> None:
        """Has the thread commit soon."""
        with self._guard:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="zbroker bookmarks", daemon=True
                )
                self._thread.start()
            self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._stop.wait(self._commit_s)
            self._wake.clear()
            try:
                self._commit()
            except StorageError:
                _log.exception(
                    "client.bookmarks_failed: processed messages are not stored any more; the next "
                    "discard raises the error"
                )
                return

    # -- the file -----------------------------------------------------------------------------

    def _commit(self) -> None:
        """Writes the states that changed; they are on disk when this returns."""
        with self._writing:
            if self._closed:
                return
            with self._marking:
                changed, self._dirty = self._dirty, set()
            states = {t.key: state for t in changed if self._keeps(t) and (state := t.state())}
            if states:
                self._write(states)

    def _write(self, states: dict[Key, State]) -> None:
        try:
            with self._env.begin(write=True) as txn:
                for key, state in states.items():
                    txn.put(records.encode_key(key), records.encode_state(key, state))
        except lmdb.Error as error:
            self._failed = _failure(self._path, error)
            raise self._failed from error

    def _load(self, key: Key) -> State:
        encoded = records.encode_key(key)
        try:
            with self._env.begin() as txn:
                value = txn.get(encoded)
        except lmdb.Error as error:
            raise _failure(self._path, error) from error
        if value is None:
            return {}
        found = records.decode_state(encoded, value)
        if isinstance(found, BadRecord):
            raise _damage(self._path, found.why)
        return found[1]

    def _remove(self, key: Key) -> None:
        try:
            with self._writing, self._env.begin(write=True) as txn:
                txn.delete(records.encode_key(key))
        except lmdb.Error as error:
            raise _failure(self._path, error) from error


def _locked(path: Path) -> int:
    """The lock of the directory, which is made. Raises: StorageError store_in_use, store_failed."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock_fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _failure(path, error) from error
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock_fd)
        raise StorageError(
            "store_in_use", f"{path} is open already, here or in another process",
            "one store per process and directory; clients may share it",
        ) from None  # fmt: skip
    return lock_fd


def _opened(path: Path) -> lmdb.Environment:
    """The environment, each of whose records is good. Raises: StorageError."""
    try:
        if why := _short(path / _DATA) or _unreadable(path):
            raise _damage(path, why)
        env = lmdb.open(str(path), map_size=MAP_BYTES, mode=0o600)
        try:
            _check(path, env)
            for folder in (path, path.parent):
                sync_directory(folder)
        except BaseException:
            env.close()
            raise
    except lmdb.InvalidError as error:
        raise _damage(path, str(error)) from error
    except (lmdb.Error, OSError, subprocess.SubprocessError) as error:
        raise _failure(path, error) from error
    return env


def _short(data: Path) -> str:
    """Why LMDB must not open this file; "" when it may."""
    if not data.exists() or not (size := data.stat().st_size):
        return ""
    with data.open("rb") as file:
        first = file.read(_META.size)
        page_size = _META.unpack(first)[4] if len(first) == _META.size else 0
        file.seek(page_size if 512 <= page_size <= 65_536 else size)
        second = file.read(_META.size)
    if len(second) < _META.size:
        return f"its file has {size} bytes and no two headers"
    metas = [_META.unpack(meta) for meta in (first, second)]
    if any(meta[0] != _LMDB_MAGIC for meta in metas):
        return "its file has no LMDB headers"
    wanted = (max(metas, key=lambda meta: meta[6])[5] + 1) * page_size
    return f"its file has {size} bytes, its header says {wanted}" if size < wanted else ""


def _unreadable(path: Path) -> str:
    """What a process that reads all of it ends with; "" if all is well."""
    if not (path / _DATA).exists():
        return ""
    command = [sys.executable, "-P", str(Path(check.__file__)), str(path), str(MAP_BYTES)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=CHECK_S, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    if not done.returncode:
        return ""
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return f"reading it failed: {said[-1] if said else f'signal {-done.returncode}'}"


def _check(path: Path, env: lmdb.Environment) -> None:
    with env.begin(write=True) as txn:
        if not txn.stat()["entries"]:
            txn.put(HEADER_KEY, records.header())
        states = (records.decode_state(*item) for item in txn.cursor() if item[0] != HEADER_KEY)
        for found in chain([records.check_header(txn.get(HEADER_KEY))], states):
            if isinstance(found, BadRecord):
                raise _damage(path, found.why)


def _damage(path: Path, why: str) -> StorageError:
    return StorageError(
        "store_damaged",
        f"the bookmark store {path} cannot be used: {why}",
        "move the directory away and subscribe once with a `since` of your choice instead of "
        '"recent"; the log has everything',
    )


def _failure(path: Path, error: Exception) -> StorageError:
    return StorageError(
        "store_failed",
        f"the bookmark store {path} cannot be read or written: {error}",
        "all that was committed before stays; free space or mend the disk, then open it again",
    )
