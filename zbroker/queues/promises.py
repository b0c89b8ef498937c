"""Answers about replicated queues, which wait until enough synchronous destinations have it. Pure.

    landed --its position is below `through`--> said
           --else--> waits, in its order

Answers to acknowledgements, releases and rejects wait, and messages of at-most-once queues before
they are sent: an answer survives the loss of this host. How far the destinations are says the
replication process: see ReplicatedMark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from zbroker.engine.effects import FollowMark
from zbroker.engine.replicated_mark import ReplicatedMark
from zbroker.queues.queue_state import QueueState
from zbroker.wire.replicas import Replicated


class Promises(ReplicatedMark):
    """on: there are synchronous destinations; else nothing ever waits."""

    def __init__(self, *, on: bool) -> None:
        super().__init__(on=on)
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def say(self, one: QueueState, position: int, then: Callable[[], None]) -> None:
        """Calls `then` when everything of this queue up to a position is safe."""
        if one.replicated is None:
            then()
        else:
            self.at(position, then)

    def at(self, position: int, then: Callable[[], None]) -> None:
        """Calls `then` when all of the log up to a position is safe."""
        if not self._waiting and position < self.through:
            then()
        else:
            self._waiting.append((position, then))

    def follow_mark(self, now_ms: int) -> list[FollowMark]:
        """While answers wait for it."""
        return self.follow(now_ms, needed=bool(self._waiting))

    def replicated(self, said: Replicated) -> None:
        """Destinations hold more now, or others are waited for."""
        self.moved(said)
        self._go_on()

    def journal_begins(self, journal: int) -> None:
        """See ReplicatedMark."""
        super().journal_begins(journal)
        self._go_on()

    def _go_on(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] < self.through:
            waiting.popleft()[1]()

    def __len__(self) -> int:
        return len(self._waiting)
