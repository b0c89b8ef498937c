"""Small files that are replaced as a whole or only grow, and the names in a directory, durable."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Readers see the old file or the new one, also after a power cut; only this user may.

    Raises: OSError.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.touch(0o600)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def replace(path: Path, data: bytes) -> None:
    """The same without a sync: a power cut may lose the new file or its content.

    Raises: OSError.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    temporary.touch(0o600)
    temporary.write_bytes(data)
    temporary.replace(path)


def append(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Adds bytes at the end of a file, durably unless not `sync`; after an error none of them.

    The file is made if there is none, for this user only. Raises: OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)  # a part of our own write, a moment old
            raise
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Files that were created, renamed or removed in it stay so after a power cut.

    Raises: OSError.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
