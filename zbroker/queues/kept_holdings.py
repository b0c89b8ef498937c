"""What sessions with a time-out hold when the queues process begins again. Pure.

    a queue begins --> what may have been delivered is held back
        a consumer of such a session says that it has a message --> its own again, without a lease
        each of them has said so of all its consumers, or is over --> the rest is offered, flagged
        min(its time-out, a lease) of each is over --> likewise

No record says who had which message: that would be a write for each delivery. So consumers say it.
Only messages that may have been delivered wait; new ones do not. Where no session is kept nothing
waits for longer than the question which there are; all of the queue waits for that, so that it
keeps its order.
Source: seed 001, "Timeouts of detached sessions"; the design of sessions, 4.
"""

from __future__ import annotations

from collections.abc import Iterable

from zbroker.engine.contract import Now
from zbroker.queues.context import QueuesContext
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work import held_back
from zbroker.queues.work.consumers import GRACE_MS
from zbroker.queues.work.queue import Queue


class KeptHoldings:
    """Messages that are held back since this process began."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared
        self._since: dict[str, int] = {}  # by queue: when it began to hold back

    def began(self, many: Iterable[QueueState]) -> None:
        """They offer from now on."""
        for one in many:
            if isinstance(one.queue, Queue) and one.queue.consumers.held_back:
                self._since.setdefault(one.name, self._shared.now.mono_ms)

    def tick(self, now: Now) -> None:
        """Gives up what is held back for no session any more."""
        if not self._since:
            return
        wait_ms = self._shared.manager.sessions.restating_ms()
        for name in [*self._since]:
            one = self._shared.manager.running.get(name)
            queue = None if one is None else one.queue
            if one is None or not isinstance(queue, Queue) or not queue.consumers.held_back:
                del self._since[name]
            elif self._shared.leaving or now.mono_ms >= self._until_ms(one, wait_ms):
                del self._since[name]
                held_back.release(queue)
                self._shared.touch(one)

    def _until_ms(self, one: QueueState, wait_ms: int | None) -> int:
        lease_ms = one.definition.config.lease or GRACE_MS
        most_ms = lease_ms if wait_ms is None else min(lease_ms, wait_ms)
        return self._since[one.name] + most_ms

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        if not self._since:
            return None
        running, wait_ms = (
            self._shared.manager.running,
            self._shared.manager.sessions.restating_ms(),
        )
        known = (running[name] for name in self._since if name in running)
        return min((self._until_ms(one, wait_ms) for one in known), default=None)
