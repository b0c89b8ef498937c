"""Work to be repeated at its time, such as a read that failed. Pure.

Whatever waits may be stale when its time has come: the core looks again before it does it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """Things with a time each, in the order in which they were put off."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, T]] = []
        self.next_wake_ms: int | None = None  # when the first of them is due

    def put(self, what: T, at_ms: int) -> None:
        """Keeps it until then."""
        self._waiting.append((at_ms, what))
        self.next_wake_ms = at_ms if self.next_wake_ms is None else min(at_ms, self.next_wake_ms)

    def due(self, now_ms: int) -> list[T]:
        """Takes out what is due."""
        if self.next_wake_ms is None or now_ms < self.next_wake_ms:
            return []
        found = [what for at_ms, what in self._waiting if at_ms <= now_ms]
        self._waiting = [each for each in self._waiting if each[0] > now_ms]
        self.next_wake_ms = min((at_ms for at_ms, _ in self._waiting), default=None)
        return found

    def __len__(self) -> int:
        return len(self._waiting)
