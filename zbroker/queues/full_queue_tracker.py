"""Which queues with overflow = "reject-publish" are full, and when ingest hears of it. Pure.

    starting --all queues were read--> known
    free --as much waits as may--> full --less waits, altered, deleted--> free

    ingest hears   each change, at the end of its turn; all of it when it begins to listen
                   on each beat, while a queue is full, or while this process is starting

While nothing is full a beat says nothing. Beats that are missing mean that this process is gone:
see zbroker.ingest.full_queue_gate.
"""

from __future__ import annotations

from typing import Final

from zbroker.limits import BEAT_MS
from zbroker.queues.context import QueuesContext
from zbroker.queues.effects import PublishFull
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.length_limit import is_full
from zbroker.queues.work.queue import Queue
from zbroker.wire.full_queues import FullQueue, FullQueues

ROWS_PER_MS: Final = 100  # of full queues: a message about more of them comes less often


class FullQueueTracker:
    """Looks at each queue that changed, and says which are full."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared
        self._full: dict[str, tuple[QueueState, FullQueue]] = {}
        self._is_known = False
        self._has_news = True
        self._next_ms = 0  # no message before, whatever the news
        self._beat_ms = 0

    def look(self, one: QueueState) -> None:
        """Something of a queue has changed, at the end of a turn. One that offers nothing for a
        while, as it is to be on several instances, is as full as it was."""
        if not one.offers or not isinstance(one.queue, Queue):
            return
        if is_full(one.queue):
            row, (before, said) = _row(one), self._full.get(one.name, (None, None))
            self._has_news = self._has_news or before is not one or said != row
            self._full[one.name], one.full = (one, row), True
        elif one.full:
            one.full = False
            self._forget(one.name)

    def _forget(self, name: str) -> None:
        self._has_news = self._full.pop(name, None) is not None or self._has_news

    def listens(self) -> None:
        """An ingest process has begun to listen, and knows nothing."""
        self._has_news = True

    def tick(self, now_ms: int) -> list[PublishFull]:
        """What ingest is to hear now."""
        running = self._shared.manager.running
        for name in [name for name, (one, _) in self._full.items() if running.get(name) is not one]:
            self._forget(name)
        if not self._is_known and self._shared.manager.ready:
            self._is_known = self._has_news = True
        wake_ms = self.next_wake_ms()
        if wake_ms is None or now_ms < wake_ms:
            return []
        rows = [row for _, row in self._full.values()]
        self._has_news = False
        self._next_ms, self._beat_ms = now_ms + len(rows) // ROWS_PER_MS, now_ms + BEAT_MS
        return [PublishFull(FullQueues(rows, self._is_known))]

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        if self._has_news:
            return self._next_ms
        return None if self._is_known and not self._full else self._beat_ms


def _row(one: QueueState) -> FullQueue:
    definition, config = one.definition, one.definition.config
    topic = "" if config.bound else config.topic or config.name
    lives = sorted(life for _, life in definition.names)
    return FullQueue(one.name, topic, config.regex, lives, config.max_length, config.max_bytes)
