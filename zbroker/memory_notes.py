"""Notes in a file system that a kill does not touch and a reboot empties.

A note is a small mapped file, so writing it takes no system call. One that is missing, belongs to
another user or is not a plain file counts for nothing. Its reader decides how far to trust it.
"""

from __future__ import annotations

import mmap
import os
import stat
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


def make(path: Path, size: int) -> mmap.mmap:
    """A new note of zeros, where none is. Raises: OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)  # a page that is missing later is a SIGBUS
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
