"""Memory that a process gives back to the system after connections ended.

glibc is set to keep freed memory (see the zygote), since the next batches need it again. But
connections that did not read can have held far more than that, and it would stay for ever.
"""

from __future__ import annotations

import ctypes
from typing import Final

from zbroker.limits import MIB

FREE_MAX_BYTES: Final = 64 * MIB  # kept for what comes next
LOOKS: Final = 3  # libzmq frees in a thread of its own, some time after a connection ended
LOOK_MS: Final = 1_000
TRIM_MS: Final = 10_000  # trimming 300 MiB takes 70 ms
_NAMES: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
    "keepcost",
)  # fmt: skip


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
    """Decides when to trim: not while connections only come, and not for a little."""

    def __init__(self, allocator: Allocator | None = None) -> None:
        self._allocator = allocator or Allocator()
        self._ended = 0
        self._looks = 0
        self._look_ms = 0

    def turn(self, ended: int, now_ms: int) -> None:
        """ended: connections that ended since the start."""
        if ended != self._ended:
            if not self._looks:
                self._look_ms = max(self._look_ms, now_ms + LOOK_MS)
            self._ended, self._looks = ended, LOOKS
        if not self._looks or now_ms < self._look_ms:
            return
        self._looks, self._look_ms = self._looks - 1, now_ms + LOOK_MS
        if self._allocator.free_bytes() > FREE_MAX_BYTES:
            self._allocator.trim()
            self._look_ms = now_ms + TRIM_MS
