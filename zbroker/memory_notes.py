"""Notes in a file system that a kill does not touch and a reboot empties.

A note is a small mapped file, so writing it takes no system call; it takes memory as far as it is
used. One that is missing, belongs to another user or is not a plain file counts for nothing. Its
reader decides how far to trust it.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")
_OPENED: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def place(directory: Path, instance: int, what: str) -> Path:
    """Where the note of this user's instance about this is."""
    return directory / f"zbroker-{os.getuid()}-{instance:016x}-{what}"


def read(path: Path, size: int) -> bytes:
    """At most `size` bytes of a note; b"" if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
            status = os.fstat(descriptor)
            ours = status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode)
            return file.read(size) if ours else b""
    except OSError:
        return b""


class MemoryNote:
    """A new one: `size` zeros, the first `taken` of which have memory. Nothing may be written
    past these: a page that is not there is a SIGBUS."""

    def __init__(self, path: Path, size: int, taken: int) -> None:
        """Raises: OSError; FileExistsError: there is one."""
        self._path, self.taken = path, taken
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | _OPENED, 0o600)
        try:
            os.ftruncate(descriptor, size)
            os.posix_fallocate(descriptor, 0, taken)
            self._file = _identity(descriptor)
            self.memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def take(self, end: int) -> None:
        """The bytes before `end` have memory from now on. Raises: OSError, if there is none, or if
        somebody has removed the note."""
        descriptor = os.open(self._path, _OPENED)  # not kept: each connection needs one
        try:
            if _identity(descriptor) != self._file:
                raise FileNotFoundError(errno.ENOENT, "another file has its place", str(self._path))
            os.posix_fallocate(descriptor, 0, end)
            self.taken = end
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """The note stays."""
        self.memory.close()


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def remove(instance: int, directory: Path = SHARED_MEMORY) -> None:
    """All notes of this user's instance, as a reboot does. Those in use lose their names only."""
    with suppress(OSError):
        for path in directory.glob(place(directory, instance, "*").name):
            path.unlink(missing_ok=True)
