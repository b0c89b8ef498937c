"""The heap of a process: what it keeps of the memory that it freed, and when it gives that back.

While messages come freed memory is used again at once. Large amounts go back to the system once
connections have ended, all the rest once the process has had nothing to do for a while.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

from zbroker.limits import MIB

#: Memory of large messages is kept and used again: giving it back costs page faults on every batch
#: (68 instead of 21 ns for encoding a message of 100 bytes). Variable and number of glibc, bytes.
MALLOC: Final = (
    ("MALLOC_TRIM_THRESHOLD_", -1, 256 * MIB),
    ("MALLOC_TOP_PAD_", -2, 16 * MIB),
    ("MALLOC_MMAP_THRESHOLD_", -3, 64 * MIB),
)
FREE_MAX_BYTES: Final = 64 * MIB  # kept for what comes next, after connections ended
IDLE_FREE_MAX_BYTES: Final = 4 * MIB  # less is not worth it
HEAP_LOOKS: Final = 3  # libzmq frees in a thread of its own, some time after a connection ended
HEAP_LOOK_MS: Final = 1_000
IDLE_MS: Final = 5_000  # without news
TRIM_MS: Final = 10_000  # trimming 300 MiB takes 70 ms
_NAMES: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
    "keepcost",
)  # fmt: skip


def keep_freed_memory() -> None:
    """From now on, in this process. A user's own settings count."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # another libc has none
    for variable, number, value in MALLOC:
        if mallopt is not None and variable not in os.environ:
            mallopt(number, value)


class _MallInfo(ctypes.Structure):
    """mallinfo2(3). fordblks: bytes that are free and were not given back."""

    _fields_ = [(name, ctypes.c_size_t) for name in _NAMES]


class Allocator:
    """That of this process. With another libc than glibc nothing is ever free."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._info = getattr(libc, "mallinfo2", None)
        self._trim = getattr(libc, "malloc_trim", None)
        if self._info is not None:
            self._info.restype = _MallInfo

    def free_bytes(self) -> int:
        """How much is kept, though nothing is in it; may have been trimmed already."""
        return 0 if self._info is None else int(self._info().fordblks)

    def trim(self) -> None:
        """Gives whole free pages back."""
        if self._trim is not None:
            self._trim(0)


class Heap:
    """Decides when to trim: not while connections only come or messages flow, and not for a
    little."""

    def __init__(self, allocator: Allocator | None = None) -> None:
        self._allocator = allocator or Allocator()
        self._ended = 0
        self._looks = 0
        self._look_ms = 0
        self._busy_ms = 0
        self._trimmed = False  # since it was busy

    def connections(self, ended: int, now_ms: int) -> None:
        """ended: connections that ended since the start."""
        if ended != self._ended:
            if not self._looks:
                self._look_ms = max(self._look_ms, now_ms + HEAP_LOOK_MS)
            self._ended, self._looks = ended, HEAP_LOOKS
        if not self._looks or now_ms < self._look_ms:
            return
        self._looks, self._look_ms = self._looks - 1, now_ms + HEAP_LOOK_MS
        if self._allocator.free_bytes() > FREE_MAX_BYTES:
            self._allocator.trim()
            self._look_ms = now_ms + TRIM_MS

    def beat(self, now_ms: int, *, busy: bool) -> None:
        """At a heartbeat. busy: it has done something since the one before."""
        if busy:
            self._busy_ms, self._trimmed = now_ms, False
        elif not self._trimmed and now_ms - self._busy_ms >= IDLE_MS:
            self._trimmed = True
            if self._allocator.free_bytes() > IDLE_FREE_MAX_BYTES:
                self._allocator.trim()
