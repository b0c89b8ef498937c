"""Searches for the first message that a selector is true for: each turn one slice of one of them.

    begun --fewer than SEARCHES_MAX run--> running --slices, in turn with the others--> over

A slice is an effect of the turn like any other, and the last one of it: what every queue has to do
goes first. How large a slice is, is up to who reads it (log_work.py). Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from pyroaring import BitMap64

from zbroker.filters import Filter
from zbroker.queues import events
from zbroker.queues.effects import Search

SEARCHES_MAX: Final = 4  # at a time: the more, the longer each takes; the others wait

#: the first message that matches, or None; what stands before a position was examined
Searched = Callable[[int | None, int], None]


class Searches:
    """Of the queues process. A search is known by the key of its consumer."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._running: set[int] = set()
        self._due: deque[Search] = deque()
        self._open: dict[int, Searched] = {}
        self._last_job = 0

    def begin(self, key: int, go: Callable[[], None]) -> None:
        """Calls `go` as soon as it may run: it asks for a slice, or ends the search."""
        self._waiting.append((key, go))

    def end(self, key: int) -> None:
        """A search that was begun is over."""
        self._running.discard(key)

    def slice(self, positions: BitMap64, content: Filter, then: Searched) -> None:
        """The next slice of a search that runs."""
        self._last_job += 1
        self._open[self._last_job] = then
        self._due.append(Search(self._last_job, positions, content))

    def next(self) -> Search | None:
        """The slice of this turn."""
        while self._waiting and self._has_place:
            key, go = self._waiting.popleft()
            self._running.add(key)
            go()
        return self._due.popleft() if self._due else None

    def searched(self, done: events.Searched) -> None:
        """A Search was done."""
        self._open.pop(done.job)(done.hit, done.end)

    @property
    def busy(self) -> bool:
        """True if the next turn has a slice, or a search may begin."""
        return bool(self._due) or (bool(self._waiting) and self._has_place)

    @property
    def _has_place(self) -> bool:
        return len(self._running) < SEARCHES_MAX
