"""Which queues changed since a reader looked last, so that unchanged ones cost nothing. Pure."""

from __future__ import annotations


class Changes:
    """Which queues changed since a reader looked last, so that unchanged ones cost nothing.

    A reader keeps the number of its look, and later changes are found by it, however many readers
    there are.
    """

    def __init__(self) -> None:
        self._number = 1
        self._changed: dict[str, int] = {}  # the last one to change is at the end

    def note(self, name: str) -> None:
        """Something of this queue changed, or it is new, or gone."""
        self._changed.pop(name, None)
        self._changed[name] = self._number

    def look(self) -> int:
        """The number of this look: what changed until now is known with it."""
        self._number += 1
        return self._number - 1

    def since(self, look: int) -> list[str]:
        """What changed after that look, the newest change first."""
        found: list[str] = []
        for name in reversed(self._changed):
            if self._changed[name] <= look:
                break
            found.append(name)
        return found
