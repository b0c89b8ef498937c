"""Whether a process hears about each change in another one, or only on its beat. Pure.

    on the beat --something here waits--> each change --nothing has waited for a while--> the beat

Each message wakes its reader, so a process gets those about changes only while it needs them.
"""

from __future__ import annotations

from typing import Final

FOLLOW_MS: Final = 1_000  # after the last need: short ones, one after the other, cost no changes


class NewsNeed:
    """on: it hears about each change."""

    def __init__(self) -> None:
        self.on = False
        self._needed_ms = 0

    def changed(self, now_ms: int, *, needed: bool) -> bool:
        """needed: something waits for it. Returns: whether `on` is another one now."""
        if needed:
            self._needed_ms = now_ms
        if needed == self.on or (now_ms - self._needed_ms < FOLLOW_MS and not needed):
            return False
        self.on = needed
        return True
