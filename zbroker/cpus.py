"""The CPU that a thread runs on: where it is, and that it stays there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

ANY_CPU: Final = -1

_STAT: Final = Path("/proc/thread-self/stat")
_CPU_FIELD: Final = 36  # of those after the command's name, see proc(5): `processor`


def current() -> int:
    """The CPU on which this thread runs just now; ANY_CPU where the system does not tell."""
    try:
        return int(_STAT.read_text().rpartition(")")[2].split()[_CPU_FIELD])
    except (OSError, ValueError, IndexError):
        return ANY_CPU


def initializer() -> Callable[[], None]:
    """For threads that are started later: they may use what this one may use now."""
    allowed = os.sched_getaffinity(0)

    def use() -> None:
        with suppress(OSError):
            os.sched_setaffinity(0, allowed)

    return use


class CpuChoice:
    """The CPUs of one thread, which calls this. Threads that it starts have them: `initializer`."""

    def __init__(self) -> None:
        self._others: set[int] = set()  # what it may use, while it runs on one of these alone

    def run_on(self, cpu: int) -> None:
        """Stays on `cpu` if it may use that; ANY_CPU: leaves it again."""
        with suppress(OSError):  # a container may forbid it, or have fewer CPUs by now
            if self._others:
                os.sched_setaffinity(0, self._others)
                self._others = set()
            allowed = os.sched_getaffinity(0)
            if cpu in allowed:
                os.sched_setaffinity(0, {cpu})
                self._others = allowed
