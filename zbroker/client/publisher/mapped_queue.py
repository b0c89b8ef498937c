"""Messages that are queued and not packed yet, in mapped files: a kill does not touch them.

    put --(in the file, then in the inbox)--> packed: in a batch of the store --> forgotten

The messages of a store are counted from 1 on, in the order of the inbox; a file's name is the
number of its first one. It is a stream of msgpack arrays: [topic, payload, crc] or [topic, content,
crc, form], where the content is msgpack, too. The CRC-32C of payload or content is seeded with the
file's number and the topic. So bytes that were not written whole, or were in a file before it was
used again, are not taken for a message. (To touch new pages costs more than to write a message.)

The space of a file is reserved when it is made, because writing to a mapped file on a full disk
would end the process.

`sync` makes durable what was put so far: the files with something new in them, then their names.
A thread that waits for a sync which began after its put has none of its own to do.
"""

from __future__ import annotations

import mmap
import os
import time as clock
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgpack
import msgspec
from msgspec import Struct

from zbroker.checksums import crc32c
from zbroker.client.publisher import hot_path
from zbroker.client.publisher.packer import Extra
from zbroker.client.publisher.receipt import Receipt
from zbroker.durable_files import sync_directory
from zbroker.errors import StorageError
from zbroker.limits import MIB
from zbroker.log.disk import failed

FILE_BYTES: Final = 1 * MIB  # a few of these stay in the cache of a processor
SPARES_MAX: Final = 4
PREFIX: Final = "staged-"

PLAIN, WHOLE, MANY = range(3)  # forms of a record
RECORD_BYTES: Final = 512  # beside the content, at the most: a topic has 255

_encode: Final = msgspec.msgpack.Encoder().encode
_NO_EXTRA: Final = Extra()


class StagedMessage(Struct, gc=False):
    """A message that was found in a file."""

    topic: str
    value: bytes | int
    time: int | None = None
    extra: Extra | None = None


class Staging(hot_path.StagingArea):
    """The files of one store. `end`: the number that the next message gets."""

    _file: _QueueFile

    def __init__(self, directory: Path, end: int, kept: Iterable[Path] = ()) -> None:
        """kept: files of an earlier process, oldest first, whose messages are to be packed."""
        self._directory = directory
        self._end = end
        # the files have the order of the inbox; bound once: `with` costs a third of a put
        self._try_lock, self._unlock = (lock := Lock()).acquire, lock.release
        self._is_locked = lock.locked
        # full: the first message makes another
        self._file = _QueueFile(0, directory, mmap.mmap(-1, 1))
        self._files = deque(map(_kept, kept))  # oldest first
        self._spares: list[_QueueFile] = []
        self.each = False  # a put returns when its message is durable
        self._synced = end  # all below that number is durable
        self._dirty: list[_QueueFile] = []  # files that may have something that is not
        self._renamed = False  # a name may be not durable either
        self._failed: StorageError | None = None  # what a failed sync left is not known
        self._syncing = Lock()  # one after the other; no file is reused meanwhile

    def put(self, inbox: list[Receipt], receipt: Receipt) -> None:
        """Keeps one message, then queues it. Raises: StorageError disk_full, ...; nothing is."""
        topic, file = receipt.topic, self._file
        data: Any = receipt.value  # bytes: it has no number yet
        if receipt.time is None and receipt.extra is None:
            form, record = PLAIN, _encode((topic, data, crc32c(data, file.seeds[topic])))
        else:
            extra = receipt.extra or _NO_EXTRA
            data = _encode((data, receipt.time, extra.key, extra.headers, extra.expires_ns))
            form, record = WHOLE, file.record(topic, data, WHOLE)
        if not self._try_lock(False):
            self._lock()
        try:
            if file is self._file:
                try:
                    file.write(record)
                except ValueError:
                    self._keep(topic, data, form)
            else:
                self._keep(topic, data, form)
            self._end = end = self._end + 1
            inbox.append(receipt)
        finally:
            self._unlock()
        if self.each:
            self.sync(end)

    def put_many(self, inbox: list[Receipt], receipts: Sequence[Receipt]) -> None:
        """The same with messages of one topic that have neither key nor headers nor expiry."""
        values = [receipt.value for receipt in receipts]
        times = [receipt.time for receipt in receipts]
        timed = None if times.count(None) == len(times) else times
        content = _encode((values, timed))
        if not self._try_lock(False):
            self._lock()
        try:
            self._keep(receipts[0].topic, content, MANY)
            self._end = end = self._end + len(receipts)
            inbox.extend(receipts)
        finally:
            self._unlock()
        if self.each:
            self.sync(end)

    def sync(self, below: int | None = None) -> None:
        """Makes durable what has a number below that; None: all. Raises: StorageError disk_error.

        After an error the message was put all the same.
        """
        with self._syncing:
            if self._failed is not None:
                raise self._failed
            if self._synced >= (self._end if below is None else below):
                return
            if not self._try_lock(False):
                self._lock()
            end, dirty, renamed = self._end, self._dirty, self._renamed
            self._dirty, self._renamed = [self._file], False
            self._unlock()
            try:
                for file in dirty:
                    flush(file.map)
                if renamed:
                    sync_directory(self._directory)
            except OSError as error:
                self._failed = _not_durable(self._directory, error)
                raise self._failed from None
            self._synced = end

    def frees(self, below: int) -> bool:
        """True if `packed` would let a file go."""
        return len(self._files) > 1 and self._files[1].first <= below

    def packed(self, below: int) -> None:
        """All messages below that number are in batches of the store, durably if need be."""
        if not self.frees(below):
            return
        with self._syncing:
            while self.frees(below):
                self._let_go(self._files.popleft())

    def _let_go(self, file: _QueueFile) -> None:
        if file in self._dirty:
            self._dirty.remove(file)
        if len(self._spares) < SPARES_MAX and len(file.map) == FILE_BYTES:
            self._spares.append(file)
        else:
            file.close()
            file.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets go of the files; they stay."""
        for file in (*self._files, *self._spares):
            file.close()
        self._files.clear()

    def _lock(self) -> None:
        """Waits without sleeping on it: a thread that sleeps gets it long before it runs again."""
        while not self._try_lock(False):
            clock.sleep(0)

    def _keep(self, topic: str, content: bytes, form: int) -> None:
        """Writes one record, to another file if this one is full."""
        try:
            self._file.write(self._file.record(topic, content, form))
        except ValueError:
            self._next_file(len(content) + RECORD_BYTES)
            self._file.write(self._file.record(topic, content, form))

    def _next_file(self, size: int) -> None:
        """A file that begins here: a used one, whose pages are there, or a new one."""
        path = self._directory / f"{PREFIX}{self._end:020d}"
        if self._spares and size <= FILE_BYTES:
            spare = self._spares.pop()
            spare.path.rename(path)
            self._file = _QueueFile(self._end, path, spare.map)
        else:
            self._file = _QueueFile(self._end, path, _mapped(path, max(FILE_BYTES, size)))
        self._files.append(self._file)
        self._dirty.append(self._file)
        self._renamed = True


class _QueueFile(hot_path.MappedRecords):
    """first: the number of its first message. seeds: of its checksums, by topic.

    They depend on that number, so the earlier contents of a file count for nothing.
    """

    __slots__ = ("first", "path")

    def __init__(self, first: int, path: Path, mapped: mmap.mmap) -> None:
        super().__init__(mapped, _Seeds(first))
        self.first = first
        self.path = path

    def record(self, topic: str, content: bytes, form: int) -> bytes:
        """The record of a message, or of many."""
        crc = crc32c(content, self.seeds[topic])
        return _encode((topic, content, crc, form) if form else (topic, content, crc))

    def close(self) -> None:
        """Ends the mapping."""
        self.release()
        self.map.close()


class _Seeds(dict[str, int]):
    """Made when they are asked for."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first.to_bytes(8, "little")

    def __missing__(self, topic: str) -> int:
        seed = self[topic] = crc32c(self._first + topic.encode())
        return seed


def flush(mapped: mmap.mmap) -> None:
    """Waits until a file's contents are on the medium."""
    mapped.flush()


def _not_durable(directory: Path, error: OSError) -> StorageError:
    return StorageError(
        "disk_error",
        f"the publish store {directory} cannot be synced: {error.strerror or error}",
        "the message may be published all the same; look at the disk, then open the store again",
    )


def _mapped(path: Path, size: int) -> mmap.mmap:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            return mmap.mmap(fd, size)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)
    except OSError as error:
        raise failed("create", str(path), error) from None


# -- what an earlier process left --------------------------------------------------------------


def leftover(directory: Path, start: int) -> list[StagedMessage]:
    """The messages from number `start` on. Raises: StorageError store_damaged."""
    found: list[StagedMessage] = []
    expected = start
    for path in sorted(directory.glob(f"{PREFIX}*")):
        first = _first(path)
        messages = list(_read(path.read_bytes(), first))
        if first > expected and messages:
            raise StorageError(
                "store_damaged",
                f"messages {expected} to {first - 1} that were not sent cannot be read in "
                f"{directory}",
                "move the directory away to publish again; what it holds can be looked at there",
            )
        found += messages[max(0, expected - first) :]
        expected = max(expected, first + len(messages))
    return found


def forget(directory: Path, below: int, count: int) -> list[Path]:
    """Removes files whose messages are in batches of the store, all below that number.

    The others, which hold the `count` messages from there on, oldest first.
    """
    paths = sorted(directory.glob(f"{PREFIX}*"))
    firsts = [_first(path) for path in paths]
    ends = [*firsts, below + count][1:]
    kept = []
    for path, first, end in zip(paths, firsts, ends, strict=True):
        if end <= below or first >= below + count:
            path.unlink()
        else:
            kept.append(path)
    return kept


def _first(path: Path) -> int:
    """The number of a file's first message."""
    return int(path.name.removeprefix(PREFIX))


def _kept(path: Path) -> _QueueFile:
    """A file of an earlier process. Nothing more is written to it. Raises: StorageError."""
    try:
        with path.open("r+b") as file:
            return _QueueFile(_first(path), path, mmap.mmap(file.fileno(), 0))
    except OSError as error:
        raise failed("open", str(path), error) from None


def _read(data: bytes, first: int) -> Iterator[StagedMessage]:
    """The messages of a file, without one that was not written whole."""
    seeds = _Seeds(first)
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(data)
    while True:
        try:
            topic, content, crc, *form = next(unpacker)
            if crc32c(content, seeds[topic]) != crc:
                return
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException, StopIteration):
            return
        yield from _messages(topic, content, form[0] if form else PLAIN)


def _messages(topic: str, content: bytes, form: int) -> Iterator[StagedMessage]:
    if form == PLAIN:
        yield StagedMessage(topic, content)
    elif form == MANY:
        values, times = msgspec.msgpack.decode(content)
        yield from map(StagedMessage, repeat(topic), values, times or repeat(None))
    else:
        value, time, key, headers, expires_ns = msgspec.msgpack.decode(content)
        some = key is not None or headers is not None or expires_ns is not None
        yield StagedMessage(topic, value, time, Extra(key, headers, expires_ns) if some else None)
