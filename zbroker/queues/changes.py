"""Which queues changed since somebody looked, so that those that stand still cost nothing. Pure.

Whoever looks keeps the number of the look. What changes afterwards is found by it, however many
queues there are, and by however many that look.
"""

from __future__ import annotations


class Changes:
    """Of the queues of a process, by name."""

    def __init__(self) -> None:
        self._number = 1
        self._changed: dict[str, int] = {}  # the last one to change stands at the end

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
