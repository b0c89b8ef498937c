"""Refuses what is published to queues that are full, as the queues process reports them. Pure.

    free --reported full--> full --reported free, or no report for FORGET_MS--> free

    the queues process   what follows here
    dies                 its last report holds for FORGET_MS: long enough for the next process to
                         start; then publishers go on, and the queue gets more than its limit
    starts               it says that it does not know yet: the last report holds on
    is there again       its report counts, whatever the one before said
    ends a queue         it is not in the next report

An ingest process that begins hears a report at once, or takes everything until there is one.
What this session took before is never refused: it may be in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbroker.errors import ClientError
from zbroker.exchanges.exchange import BoundQueue
from zbroker.ingest.routing import Routed
from zbroker.limits import TOPICS_MAX
from zbroker.log.queue_records import QueueDeclaration
from zbroker.topics import Matcher, TopicCache, matcher
from zbroker.wire.full_queues import FullQueue, FullQueues
from zbroker.wire.messages import Publish

FORGET_MS: Final = 30_000  # a process that died is back by then, unless it cannot start


class FullQueueGate:
    """rows: the queues that are full. refused: messages that were."""

    def __init__(self, recorded: Callable[[str], bool | None] | None) -> None:
        """recorded: which topics are, see Recording.kind; None: all. Messages of others enter no
        queue."""
        self.refused = 0
        self._recorded = recorded
        self._heard_ms = 0
        self._take([])

    def learn(self, said: FullQueues, now_ms: int) -> None:
        """The queues process reports."""
        self._heard_ms = now_ms
        if said.known and said.rows != self.rows:
            self._take(said.rows)

    def tick(self, now_ms: int) -> None:
        """Forgets what a process reported that is gone."""
        if self.rows and now_ms - self._heard_ms >= FORGET_MS:
            self._take([])

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._heard_ms + FORGET_MS if self.rows else None

    def _take(self, rows: list[FullQueue]) -> None:
        self.rows = rows
        self._of_topic = TopicCache(self._find, TOPICS_MAX)
        self._topics = {row.topic: row for row in rows if row.topic and not row.regex}
        self._patterns: list[tuple[Matcher, FullQueue]] = [
            (matcher(row.topic, regex=True), row) for row in rows if row.regex
        ]
        self._bound = {
            BoundQueue(row.name, QueueDeclaration(*life)): row for row in rows for life in row.lives
        }

    def check(self, publish: Publish, routed: Routed) -> None:
        """Whether a publish may go on. Raises: ClientError queue_full."""
        topics = publish.topics if publish.topics is not None else [publish.topic or ""]
        row = next(filter(None, map(self._of_topic.__getitem__, topics)), None)
        if row is None and routed.found and self._bound:
            queues = frozenset[BoundQueue]().union(*set(routed.found))
            row = next((self._bound[one] for one in queues if one in self._bound), None)
        if row is not None:
            self.refused += publish.count or 1
            raise _refusal(row, publish.count or 1)

    def _find(self, topic: str) -> FullQueue | None:
        if self._recorded is not None and self._recorded(topic) is False:
            return None
        if topic in self._topics:
            return self._topics[topic]
        return next((row for matches, row in self._patterns if matches(topic)), None)


def _refusal(row: FullQueue, count: int) -> ClientError:
    limits = {"max_length": row.max_length, "max_bytes": row.max_bytes}
    text = ", ".join(f"{key} {value}" for key, value in limits.items() if value)
    what = "the message is" if count == 1 else f"the {count} messages of this batch are"
    return ClientError("queue_full", f"queue {row.name!r} is full ({text}); {what} not in the log")
