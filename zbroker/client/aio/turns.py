"""When something in an event loop has its next turn: soon, or when its time has come."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Handle, TimerHandle
from collections.abc import Callable


class Turns:
    """Calls `turn`, once for all who asked since the last time."""

    def __init__(self, loop: AbstractEventLoop, turn: Callable[[], None]) -> None:
        self._loop = loop
        self._turn = turn
        self._handle: Handle | None = None
        self._timer: TimerHandle | None = None
        self._closed = False

    @property
    def is_soon(self) -> bool:
        """True if one is coming in the next round of the loop."""
        return self._handle is not None

    def soon(self) -> None:
        """Has one in the next round of the loop."""
        if self._handle is None and not self._closed:
            self._handle = self._loop.call_soon(self._now)

    def within(self, wait_ms: int) -> None:
        """Has one in `wait_ms` at the latest. A timer that is set for earlier is left as it is."""
        due = self._loop.time() + max(1, wait_ms) / 1_000
        if self._closed or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._late)

    def close(self) -> None:
        """There are no more turns."""
        self._closed = True
        for handle in (self._handle, self._timer):
            if handle is not None:
                handle.cancel()
        self._handle = self._timer = None

    def _now(self) -> None:
        self._handle = None
        self._turn()

    def _late(self) -> None:
        self._timer = None
        self._turn()
