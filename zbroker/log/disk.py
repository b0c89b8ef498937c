"""The disk as the journal sees it: one flat directory, and operations with their failure rules.

`Disk` is the seam where the simulator's disk takes the place of the real one; both pass the same
contract tests. Every OSError becomes a StorageError: "disk_full" where space is missing,
"file_missing" where the file is, else "disk_error". A failed write or sync is not tried again on
that file: Linux marks pages whose write failed as clean, so a second sync would succeed without
the data.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from zbroker.errors import StorageError
from zbroker.limits import GROUP_BUFFERS_MAX

DIRECT_ALIGN: Final = 4096  # O_DIRECT wants offset, size and memory aligned to the device's block
OPEN_FILES_MAX: Final = 64  # of one Disk; a reader of a long log opens one segment after the other
_LOCKS: Final = Path("/proc/locks")
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

Buffer = bytes | bytearray | memoryview


class Disk(Protocol):
    """One flat directory. Names are plain file names; offsets and sizes are bytes."""

    def list(self) -> list[tuple[str, int]]:
        """(name, size) of every file."""

    def exists(self, name: str) -> bool:
        """True if there is a file of this name; cheap."""

    def file_id(self, name: str) -> tuple[int, int]:
        """(device, inode) of a file, or of the directory for ".": one file may have two names."""

    def create(self, name: str, size: int = 0) -> None:
        """A new file of `size` zeros whose space is reserved. Raises StorageError if it exists."""

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        """All of `buffers` at `offset`, one after the other; a short write is continued."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`, fewer only at the end of the file."""

    def read_direct(self, name: str, offset: int, size: int) -> bytes:
        """Like `read`, but what the medium holds, and from now on `read` shows the same.

        Past the page cache where the file system can do that; the cache drops its copy.
        """

    def sync(self, name: str) -> None:
        """Written bytes of the file survive a power cut from now on."""

    def sync_dir(self) -> None:
        """Creations, renames and removals survive a power cut from now on."""

    def rename(self, old: str, new: str) -> None:
        """Gives a file another name. Raises StorageError if `new` exists."""

    def unlink(self, name: str) -> None:
        """Removes a file."""

    def free_bytes(self) -> int:
        """Space that can still be written."""

    def lock(self) -> None:
        """Makes this process the only writer. Raises StorageError second_writer."""

    def close(self) -> None:
        """Closes all files and gives up the lock."""


class _OpenFile:
    """An open file, closed with its last user: so dropping it is safe in threads."""

    __slots__ = ("fd", "inode")

    def __init__(self, path: Path, flags: int) -> None:
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self.inode = os.fstat(self.fd).st_ino

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def _stats(entries: Iterator[os.DirEntry[str]]) -> Iterator[tuple[str, os.stat_result]]:
    """Stats of each file; one that is renamed or removed meanwhile is left out."""
    for entry in entries:
        with suppress(FileNotFoundError):
            if entry.is_file():
                yield entry.name, entry.stat()


class RealDisk:
    """A directory of the file system."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self.directory = directory
        self._prefix = f"{directory}/"
        self._flags = os.O_RDONLY if read_only else os.O_RDWR
        self._files: dict[str, _OpenFile] = {}
        self._lock: _OpenFile | None = None

    def list(self) -> list[tuple[str, int]]:
        with self._reported("list"), os.scandir(self.directory) as entries:
            found = dict(_stats(entries))
        if self._flags == os.O_RDONLY:
            self._drop_removed(found)
        return [(name, stat.st_size) for name, stat in found.items()]

    def _drop_removed(self, found: dict[str, os.stat_result]) -> None:
        """A file that is removed keeps its space for as long as somebody has it open."""
        for name, file in list(self._files.items()):
            if name not in found or found[name].st_ino != file.inode:
                self._files.pop(name, None)

    def exists(self, name: str) -> bool:
        return os.access(f"{self._prefix}{name}", os.F_OK)  # per read: a Path costs ten times that

    def file_id(self, name: str) -> tuple[int, int]:
        with self._reported("stat", name):
            stat = (self.directory / name).stat()
        return stat.st_dev, stat.st_ino

    def create(self, name: str, size: int = 0) -> None:
        with self._reported("create", name):
            file = _OpenFile(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            self._files[name] = file
            if size:
                os.posix_fallocate(file.fd, 0, size)

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        try:  # each commit: without the microseconds of _reported
            fd = self._file(name).fd
            for start in range(0, len(buffers), GROUP_BUFFERS_MAX):
                offset = self._write_all(fd, offset, buffers[start : start + GROUP_BUFFERS_MAX])
        except OSError as error:
            raise failed("write", str(self.directory / name), error) from None

    def _write_all(self, fd: int, offset: int, buffers: Sequence[Buffer]) -> int:
        while True:
            wanted = sum(map(len, buffers))
            done = self._write_some(fd, offset, buffers)
            offset += done
            if done == wanted:
                return offset
            if not done:
                raise OSError(errno.EIO, "the write made no progress")
            buffers = _without(buffers, done)

    def _write_some(self, fd: int, offset: int, buffers: Sequence[Buffer]) -> int:
        return os.pwritev(fd, buffers, offset)

    def read(self, name: str, offset: int, size: int) -> bytes:
        try:  # often: without the microsecond of _reported
            return os.pread(self._file(name).fd, size, offset)
        except OSError as error:
            raise failed("read", str(self.directory / name), error) from None

    def read_direct(self, name: str, offset: int, size: int) -> bytes:
        with self._reported("read_direct", name):
            fd = self._file(name).fd
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)
            try:
                return self._read_direct(name, offset, size)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            return os.pread(fd, size, offset)  # this file system knows no O_DIRECT

    def _read_direct(self, name: str, offset: int, size: int) -> bytes:
        start = offset // DIRECT_ALIGN * DIRECT_ALIGN
        length = -(-(offset + size - start) // DIRECT_ALIGN) * DIRECT_ALIGN
        file = _OpenFile(self.directory / name, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, max(length, DIRECT_ALIGN)) as pages:  # anonymous memory is page-aligned
            got = 0
            while got < length and got % DIRECT_ALIGN == 0:
                with memoryview(pages) as view, view[got:] as rest:
                    done = os.preadv(file.fd, [rest], start + got)
                if not done:
                    break
                got += done
            return pages[offset - start : min(got, offset - start + size)]

    def sync(self, name: str) -> None:
        try:  # as in `write`
            os.fdatasync(self._file(name).fd)
        except OSError as error:
            raise failed("sync", str(self.directory / name), error) from None

    def sync_dir(self) -> None:
        with self._reported("sync_dir"):
            directory = _OpenFile(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(directory.fd)

    def rename(self, old: str, new: str) -> None:
        with self._reported("rename", new):
            if self.exists(new):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
            (self.directory / old).rename(self.directory / new)
        if file := self._files.pop(old, None):
            self._files[new] = file

    def unlink(self, name: str) -> None:
        self._files.pop(name, None)
        with self._reported("unlink", name):
            (self.directory / name).unlink()

    def free_bytes(self) -> int:
        with self._reported("free_bytes"):
            state = os.statvfs(self.directory)
        return state.f_bavail * state.f_frsize

    def lock(self) -> None:
        file = _OpenFile(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise second_writer(str(self.directory), lock_holder(self.directory)) from None
        self._lock = file

    def close(self) -> None:
        self._files.clear()
        self._lock = None

    def _file(self, name: str) -> _OpenFile:
        file = self._files.get(name)
        if file is None:
            file = _OpenFile(self.directory / name, self._flags)
            while len(self._files) >= OPEN_FILES_MAX:
                self._files.pop(next(iter(self._files)), None)
            self._files[name] = file
        return file

    @contextmanager
    def _reported(self, operation: str, name: str = "") -> Iterator[None]:
        """Its errors are StorageErrors that name the operation and the file."""
        try:
            yield
        except OSError as error:
            raise failed(operation, str(self.directory / name), error) from None


def failed(operation: str, path: str, error: OSError) -> StorageError:
    """What a failed operation is called; the simulator's disk says the same."""
    if error.errno in _NO_SPACE:
        return StorageError("disk_full", f"{operation} {path}: {error.strerror}")
    if error.errno == errno.ENOENT:
        return StorageError("file_missing", f"{operation} {path}: {error.strerror}")
    hint = "nothing more is acknowledged; check the disk, then start again: recovery decides"
    return StorageError("disk_error", f"{operation} {path}: {error.strerror}", hint)


def second_writer(directory: str, pid: int | None) -> StorageError:
    """The refusal of a second writer; `pid` is the first one's, if it is known."""
    who = f"process {pid}" if pid else "another process"
    return StorageError("second_writer", f"{directory} is written by {who}", "stop that one first")


def lock_holder(path: Path) -> int | None:
    """The process that has the flock of a file or directory; 0 if the system does not say which.

    None: it is free, or that is not known. The lock is not tried: that could keep others out.
    """
    try:
        return holder_in(_LOCKS.read_text(), path.stat().st_ino)
    except OSError:
        return None


def holder_in(text: str, inode: int) -> int | None:
    """The same from the kernel's table of locks; the number of the file system is not compared."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 6 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            return max(0, int(words[4]))
    return None


def _without(buffers: Sequence[Buffer], done: int) -> list[Buffer]:
    rest = list(buffers)
    while rest and done >= len(rest[0]):
        done -= len(rest.pop(0))
    if done:
        rest[0] = memoryview(rest[0])[done:]
    return rest
