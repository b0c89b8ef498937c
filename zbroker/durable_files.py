"""Small files that are replaced as a whole, and the names in a directory, durable on return."""

from __future__ import annotations

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


def sync_directory(directory: Path) -> None:
    """Files that were created, renamed or removed in it stay so after a power cut.

    Raises: OSError.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
