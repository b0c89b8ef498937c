"""Notes in a file system that a kill does not touch and a reboot empties.

A note is a small mapped file, so writing it takes no system call; it takes memory as far as it is
used. One that is missing, belongs to another user or is not a plain file counts for nothing. Its
reader decides how far to trust it.
"""

from __future__ import annotations

import mmap
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")


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
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        try:
            os.ftruncate(self._descriptor, size)
            self.taken = 0
            self.take(taken)
            self.memory = mmap.mmap(self._descriptor, size)
        except OSError:
            os.close(self._descriptor)
            raise

    def take(self, end: int) -> None:
        """The bytes before `end` have memory from now on. Raises: OSError, if there is none."""
        os.posix_fallocate(self._descriptor, 0, end)
        self.taken = end

    def close(self) -> None:
        """The note stays."""
        self.memory.close()
        os.close(self._descriptor)


def remove(instance: int, directory: Path = SHARED_MEMORY) -> None:
    """All notes of this user's instance, as a reboot does. Those in use lose their names only."""
    with suppress(OSError):
        for path in directory.glob(place(directory, instance, "*").name):
            path.unlink(missing_ok=True)
