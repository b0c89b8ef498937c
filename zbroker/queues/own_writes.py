"""A client whose acknowledgement or purge was confirmed does not find these messages again. Pure.

    an outcome is durable   --> that is confirmed; the queue has it until it reads that in the log
    the queue is looked at  --> once it was read as far as this process has written

Source: docs/reference/client-queues.md.
"""

from __future__ import annotations

from collections.abc import Callable

from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry


class OwnWrites:
    """Looks at queues that wait until they were read."""

    def __init__(self, manager: QueueRegistry) -> None:
        self._manager = manager
        self._waiting: list[tuple[QueueState, int, Callable[[], None]]] = []

    def when_read(self, one: QueueState, then: Callable[[], None]) -> None:
        """Calls `then` once a queue shows all that has landed by now, at once if it is still being
        read for the first time; or once it is over."""
        written = self._manager.commits.last_position
        if self._is_due(one, written):
            then()
        else:
            self._waiting.append((one, written, then))

    def tick(self) -> None:
        """Looks at those that were read by now."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            one, written, then = each
            if self._is_due(one, written):
                then()
            else:
                self._waiting.append(each)

    def _is_due(self, one: QueueState, written: int) -> bool:
        runs = self._manager.running.get(one.name) is one
        return one.folded > written or not (runs and one.ready)
