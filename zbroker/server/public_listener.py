"""What every public door of an instance has: its socket, its keys, and the rules as they are now.

The rules (`security.access`) are read again when the file changes; a client that is no longer
permitted is disconnected within a second.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zbroker.access.core import Access
from zbroker.access.file import AccessFile
from zbroker.limits import KIB, MIB
from zbroker.server.listener.listener import Listener
from zbroker.server.process import Process, Stats
from zbroker.server.security import server_curve

LOOK_MS: Final = 200  # how often the rules are looked at
UNREAD_SLACK_BYTES: Final = 64 * KIB


def access_file(process: Process) -> AccessFile:
    """The rules of this instance. Raises: ConfigError, if there should be some and are none."""
    path = process.config.security.access
    return AccessFile(Path(path) if path else None, process.clock, process.log)


class PublicListener:
    """A process's listener and its access rules. Raises: ConfigError."""

    def __init__(self, process: Process, *, frame_bytes: int, sndhwm: int) -> None:
        self._process = process
        self._file = access_file(process)
        limits = process.config.limits
        self.door = Listener(
            process.context, process.listen, frame_bytes=frame_bytes, sndhwm=sndhwm,
            unread_bytes=limits.window_bytes + frame_bytes + UNREAD_SLACK_BYTES,
            connections=limits.connections, curve=server_curve(process.config),
            allowed=self._allowed, clock=process.clock, log=process.log,
        )  # fmt: skip
        process.before_end.append(self.door.release)
        self.secure = process.config.security.on
        self._heap = Heap()

    @property
    def access(self) -> Access:
        """The rules as they are now."""
        return self._file.access

    def refused(self, events: Mapping[object, int], now_ms: int) -> list[tuple[str, str]]:
        """Lets in and cuts off. Returns: key and address of those whose key is not known."""
        self.door.turn(events, now_ms)
        self._heap.turn(self.door.ended, now_ms)
        return self.door.strangers()

    def look(self, now_ms: int) -> Access | None:
        """The rules, if they have changed since the last look."""
        return self._file.access if self.secure and self._file.look(now_ms) else None

    def open(self) -> str:
        """Makes sure that strangers are refused, and tells where clients may connect."""
        self.door.self_test()
        return self.door.endpoint

    def stats(self) -> Stats:
        """The statistics of the listener."""
        told: Stats = dict(self.door.counts)
        if self.secure:
            told["access_version"], told["access_problem"] = self._file.version, self._file.problem
        return told

    def _allowed(self, key: str) -> bool:
        return bool(self._file.access.principals_of(key))


FREE_MAX_BYTES: Final = 64 * MIB  # kept for what comes next
HEAP_LOOKS: Final = 3  # libzmq frees in a thread of its own, some time after a connection ended
HEAP_LOOK_MS: Final = 1_000
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
                self._look_ms = max(self._look_ms, now_ms + HEAP_LOOK_MS)
            self._ended, self._looks = ended, HEAP_LOOKS
        if not self._looks or now_ms < self._look_ms:
            return
        self._looks, self._look_ms = self._looks - 1, now_ms + HEAP_LOOK_MS
        if self._allocator.free_bytes() > FREE_MAX_BYTES:
            self._allocator.trim()
            self._look_ms = now_ms + TRIM_MS
