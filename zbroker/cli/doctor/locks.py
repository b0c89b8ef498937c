"""Finds the holder of a lock without taking it: taking it could keep others from starting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")


def holder(path: Path) -> int | None:
    """The process that has the flock of a file or directory; 0 if the system does not say which.

    None: it is free.
    """
    try:
        inode = path.stat().st_ino
        text = _LOCKS.read_text()
    except OSError:
        return None
    return holder_in(text, inode)


def holder_in(text: str, inode: int) -> int | None:
    """The same from the lines of /proc/locks; the number of the file system is not compared."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 6 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            return max(0, int(words[4]))
    return None


def name_of(pid: int) -> str:
    """A process for people: its number and command."""
    if not pid:
        return "another process"
    try:
        command = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({command}{', this one' if pid == os.getpid() else ''})"
