"""The simulator's disk: a cache and a medium, and everything that may happen between them.

A crash of the process loses nothing that was written. A power cut keeps a random subset of the
512-byte sectors that were not synced, and may leave garbage in some whose bytes were changing;
creations, renames and removals that were not synced with the directory survive or not, each by
itself. A failed sync marks its pages clean, as Linux does: the cache goes on showing bytes that
the medium never got.

A disk that lies is an option: syncs that do nothing (`lost_syncs`, a share of them), sectors that a
power cut takes back to what they held before they were last written (`stale_sectors`, so many).

Every operation has two boundaries, "before:<operation>:<role>" and "after:..."; `hook` is called
at each and may raise SimCrash. A crash before a write may leave a part of it.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from zbroker.errors import StorageError
from zbroker.log.disk import Buffer, failed, second_writer
from zbroker.log.segments import NOTE_FILE, PLAIN, SPARE

SECTOR = 512
_ENDINGS = {".journal": "segment", ".zst": "packed", ".idx": "summary", ".part": "part"}
_ROLES = {SPARE: "spare", PLAIN: "spare", NOTE_FILE: "note", "": "directory"}


class SimCrash(Exception):
    """The process ends here."""


class CrashAt:
    """A hook that ends the process at the boundary with this number, from 0 on."""

    def __init__(self, boundary: int) -> None:
        self._left = boundary

    def __call__(self, _boundary: str) -> None:
        self._left -= 1
        if self._left < 0:
            raise SimCrash

    @property
    def crashed(self) -> bool:
        return self._left < 0


def role(name: str) -> str:
    """What kind of file this is, for the names of boundaries."""
    if name.startswith(SPARE):
        return "spare"
    return _ROLES.get(name) or _ENDINGS.get(name[name.rfind(".") :], "other")


class _Inode:
    def __init__(self) -> None:
        self.cache = bytearray()
        self.medium = bytearray()
        self.dirty: set[int] = set()
        self.before: dict[int, bytes] = {}  # what a sector held before its last write

    def put(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        self.cache.extend(bytes(max(0, end - len(self.cache))))
        self.cache[offset:end] = data
        if data:
            self.dirty.update(range(offset // SECTOR, (end - 1) // SECTOR + 1))

    def flush(self, sectors: set[int]) -> None:
        """These sectors reach the medium."""
        for sector in sectors:
            start, end = sector * SECTOR, min((sector + 1) * SECTOR, len(self.cache))
            self.medium.extend(bytes(max(0, end - len(self.medium))))
            if self.medium[start:end] != self.cache[start:end]:
                self.before[sector] = bytes(self.medium[start:end])
            self.medium[start:end] = self.cache[start:end]


class SimDisk:
    """One directory; outlives the simulated processes. `visited` collects boundary names."""

    def __init__(self, rng: random.Random, capacity: int = 1 << 30) -> None:
        self.rng = rng
        self.capacity = capacity
        self.hook: Callable[[str], None] = lambda _boundary: None
        self.visited: set[str] = set()
        self.operations = 0
        self.fail_at = 0  # the number of the operation that fails; 0: none
        self.fail_errno = errno.EIO
        self.sticky = False  # all later ones fail, too
        self.count_reads = False  # reads count and fail, too
        self.unreadable: set[tuple[str, int]] = set()  # (name, sector)
        self.lost_syncs = 0.0  # the share of syncs that report success and do nothing
        self.stale_sectors = 0  # that go back to older bytes in a power cut
        self.went_stale: list[tuple[str, int]] = []  # (name, sector) of the last power cut
        self._names: dict[str, _Inode] = {}
        self._durable: dict[str, _Inode] = {}
        self._pending: list[tuple[str, str, _Inode | None]] = []
        self._locked = False

    # -- what may happen to it --

    def crash(self) -> None:
        """The process ended, however: nothing that was written is lost."""
        self._locked = False
        self.fail_at = 0

    def power_cut(self) -> None:
        """What was not synced survives in part."""
        self.crash()
        keep = self.rng.choice((0.0, 0.5, 0.9, 1.0))
        for operation in self._pending:
            if self.rng.random() < keep:
                _apply(self._durable, operation)
        self._pending = []
        inodes = {id(inode): inode for inode in self._durable.values()}.values()
        changing = [(inode, sector) for inode in inodes for sector in _changing(inode)]
        for inode in inodes:
            self._settle(inode, keep)
        garbage = self.rng.choice((0, 0, 0, 1, 1, 3)) if changing else 0
        for inode, sector in self.rng.choices(changing, k=garbage):
            start, end = sector * SECTOR, min((sector + 1) * SECTOR, len(inode.medium))
            inode.medium[start:end] = self.rng.randbytes(max(0, end - start))
        self._go_stale()
        for inode in inodes:
            inode.cache = bytearray(inode.medium)
            inode.before = {}
        self._names = dict(self._durable)

    def _go_stale(self) -> None:
        places = [
            (name, sector, inode)
            for name, inode in sorted(self._durable.items())
            for sector in sorted(inode.before)
            if (sector + 1) * SECTOR <= len(inode.medium)
        ]
        chosen = self.rng.sample(places, min(self.stale_sectors, len(places)))
        for _, sector, inode in chosen:
            old = inode.before[sector].ljust(SECTOR, b"\0")
            inode.medium[sector * SECTOR : (sector + 1) * SECTOR] = old
        self.went_stale = [(name, sector) for name, sector, _ in chosen]

    def _settle(self, inode: _Inode, keep: float) -> None:
        size = self.rng.choice((len(inode.medium), len(inode.cache)))
        inode.flush({sector for sector in sorted(inode.dirty) if self.rng.random() < keep})
        inode.medium = inode.medium[:size] + bytes(max(0, size - len(inode.medium)))
        inode.dirty = set()

    def settle(self) -> None:
        """Time passes: the kernel writes back what it has."""
        for inode in self._names.values():
            inode.flush(inode.dirty)
            inode.medium.extend(bytes(max(0, len(inode.cache) - len(inode.medium))))
            inode.dirty = set()
        self._durable = dict(self._names)
        self._pending = []

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        """One bit rots, on the medium and in the cache."""
        self.damage(name, offset, bytes([self._names[name].cache[offset] ^ 1 << bit]))

    def damage(self, name: str, offset: int, data: bytes) -> None:
        """Other bytes are there, on the medium and in the cache."""
        inode = self._names[name]
        inode.cache[offset : offset + len(data)] = data
        inode.medium[offset : offset + len(data)] = data

    def content(self, name: str) -> bytes:
        """What the cache shows of a file."""
        return bytes(self._names[name].cache)

    def plant(self, name: str, content: bytes) -> None:
        """Puts a whole, durable file there, or in place of one."""
        inode = _Inode()
        inode.cache, inode.medium = bytearray(content), bytearray(content)
        self._names[name] = self._durable[name] = inode

    def remove(self, name: str) -> None:
        """A file vanishes for good."""
        self._names.pop(name)
        self._durable.pop(name, None)

    # -- Disk --

    def list(self) -> list[tuple[str, int]]:
        return [(name, len(inode.cache)) for name, inode in self._names.items()]

    def exists(self, name: str) -> bool:
        return name == "." or name in self._names

    def file_id(self, name: str) -> tuple[int, int]:
        return (0, id(self)) if name == "." else (1, id(self._inode(name)))

    def create(self, name: str, size: int = 0) -> None:
        with self._operation("create", name):
            if name in self._names:
                raise _os_error(errno.EEXIST)
            inode = self._names[name] = _Inode()
            self._pending.append(("link", name, inode))
            self._need_space(size)
            inode.cache = bytearray(size)

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        try:
            with self._operation("write", name):
                inode = self._inode(name)
                self._need_space(offset + len(data) - len(inode.cache))
                inode.put(offset, data)
        except (SimCrash, StorageError):
            if name in self._names and self._names[name].cache[offset : offset + len(data)] != data:
                part = self.rng.randint(0, len(data))
                if offset + part <= len(self._names[name].cache):
                    self._names[name].put(offset, data[:part])
            raise

    def read(self, name: str, offset: int, size: int) -> bytes:
        with self._operation("read", name, counts=False):
            self._check_readable(name, offset, size)
            return bytes(self._inode(name).cache[offset : offset + size])

    def read_direct(self, name: str, offset: int, size: int) -> bytes:
        with self._operation("read_direct", name, counts=False):
            self._check_readable(name, offset, size)
            inode = self._inode(name)
            inode.flush(inode.dirty)  # the kernel writes dirty pages back before a direct read
            size = max(min(size, len(inode.cache) - offset), 0)
            found = bytes(inode.medium[offset : offset + size]).ljust(size, b"\0")
            inode.cache[offset : offset + size] = found
            return found

    def sync(self, name: str) -> None:
        try:
            with self._operation("sync", name):
                inode = self._inode(name)
                if self.lost_syncs and self.rng.random() < self.lost_syncs:
                    return
                inode.flush(inode.dirty)
                inode.medium.extend(bytes(max(0, len(inode.cache) - len(inode.medium))))
                inode.dirty = set()
        except StorageError:
            if name in self._names:  # the pages are marked clean: trying again would "succeed"
                inode = self._names[name]
                inode.flush({sector for sector in sorted(inode.dirty) if self.rng.random() < 0.5})
                inode.dirty = set()
            raise

    def sync_dir(self) -> None:
        with self._operation("sync_dir", ""):
            self._durable = dict(self._names)
            self._pending = []

    def rename(self, old: str, new: str) -> None:
        with self._operation("rename", old):
            inode = self._inode(old)
            if new in self._names:
                raise _os_error(errno.EEXIST)
            self._pending.append(("rename " + old, new, inode))
            self._names[new] = self._names.pop(old)

    def unlink(self, name: str) -> None:
        with self._operation("unlink", name):
            inode = self._inode(name)
            self._pending.append(("unlink", name, inode))
            del self._names[name]

    def free_bytes(self) -> int:
        return self.capacity - sum(len(inode.cache) for inode in self._names.values())

    def lock(self) -> None:
        if self._locked:
            raise second_writer("the simulated disk", None)
        self._locked = True

    def close(self) -> None:
        self._locked = False

    # -- helpers --

    @contextmanager
    def _operation(self, operation: str, name: str, *, counts: bool = True) -> Iterator[None]:
        boundary = f"{operation}:{role(name)}"
        self._boundary("before:" + boundary)
        try:
            if counts or self.count_reads:
                self.operations += 1
                if self._fails():
                    raise _os_error(self.fail_errno)
            yield
        except OSError as error:
            raise failed(operation, name, error) from None
        self._boundary("after:" + boundary)

    def _fails(self) -> bool:
        if not self.fail_at:
            return False
        return self.operations == self.fail_at or (self.sticky and self.operations > self.fail_at)

    def _boundary(self, name: str) -> None:
        self.visited.add(name)
        self.hook(name)

    def _inode(self, name: str) -> _Inode:
        if name not in self._names:
            raise _os_error(errno.ENOENT)
        return self._names[name]

    def _need_space(self, size: int) -> None:
        if size > 0 and size > self.free_bytes():
            raise _os_error(errno.ENOSPC)

    def _check_readable(self, name: str, offset: int, size: int) -> None:
        if self.unreadable:
            sectors = range(offset // SECTOR, -(-(offset + size) // SECTOR))
            if any((name, sector) in self.unreadable for sector in sectors):
                raise _os_error(errno.EIO)


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _changing(inode: _Inode) -> list[int]:
    """Dirty sectors whose bytes differ from the medium's."""
    spans = {
        sector: slice(sector * SECTOR, (sector + 1) * SECTOR) for sector in sorted(inode.dirty)
    }
    return [sector for sector, span in spans.items() if inode.cache[span] != inode.medium[span]]


def _apply(names: dict[str, _Inode], operation: tuple[str, str, _Inode | None]) -> None:
    what, name, inode = operation
    if what == "link" and inode is not None:
        names[name] = inode
    elif what == "unlink":
        if names.get(name) is inode:
            del names[name]
    elif names.get(what.removeprefix("rename ")) is inode and inode is not None:
        del names[what.removeprefix("rename ")]
        names[name] = inode
