"""The CPU that a thread runs on: where it is, and that it stays there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

ANY_CPU: Final = -1

_STAT: Final = Path("/proc/thread-self/stat")
_TASKS: Final = Path("/proc/self/task")
_ZEROMQ: Final = "ZMQbg/IO"  # begin of the names of its threads
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

    return lambda: _allow(0, allowed)


class CpuChoice:
    """The CPUs of the thread that calls this, and of those that ZeroMQ works with for it.

    Threads that are started meanwhile have the same: see `initializer`.
    """

    def __init__(self) -> None:
        self._others: dict[int, set[int]] = {}  # what each may use besides, while it stays on one

    def run_on(self, cpu: int) -> None:
        """Stays on `cpu`, as far as it may be used; ANY_CPU: leaves it again."""
        for thread, allowed in self._others.items():
            _allow(thread, allowed)
        self._others.clear()
        if cpu != ANY_CPU and cpu in os.sched_getaffinity(0):
            for thread in _threads():
                with suppress(OSError):
                    self._others[thread] = os.sched_getaffinity(thread)
                    _allow(thread, {cpu})


def _allow(thread: int, cpus: set[int]) -> None:
    with suppress(OSError):  # a container may forbid it, or have fewer CPUs by now
        os.sched_setaffinity(thread, cpus)


def _threads() -> list[int]:
    """This one, and those of ZeroMQ of the same process."""
    found = [threading.get_native_id()]
    with suppress(OSError):
        found += [
            int(task.name)
            for task in _TASKS.iterdir()
            if (task / "comm").read_text().startswith(_ZEROMQ)
        ]
    return found
