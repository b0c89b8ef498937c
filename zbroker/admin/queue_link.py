"""Questions to the queues room: one answer, or the reason why there is none."""

from __future__ import annotations

from typing import Final, TypeVar

from zbroker.admin.process_link import ProcessLink
from zbroker.errors import ClientError
from zbroker.wire import queue_surveys as q

ROOM: Final = "queues"
CHANGE_MAX_MS: Final = 5_000  # what changes something is answered when it is durable

A = TypeVar("A", q.Queues, q.Consumers, q.Explained, q.Browsed, q.Points)


class QueueLink:
    """Answers to any thread."""

    def __init__(self, link: ProcessLink) -> None:
        self._link = link

    def look(self, kind: type[A], question: q.QueuesQuestion) -> A:
        """What is. Raises: ClientError not_ready, or what the room says."""
        answer = self._link.ask(kind, question, [ROOM])[ROOM]
        if answer is None:
            raise ClientError("not_ready", "the queues room does not answer", "try again")
        if isinstance(answer, q.Explained | q.Browsed) and answer.code:
            raise ClientError(answer.code, answer.reason)
        return answer

    def change(self, question: q.QueuesQuestion) -> q.Changed:
        """What has become so. Raises: ClientError likewise."""
        answer = self._link.ask(q.Changed, question, [ROOM], CHANGE_MAX_MS)[ROOM]
        if answer is None:
            reason = "the queues room did not answer in time; it may be done all the same"
            raise ClientError("not_ready", reason, "look before you ask again")
        if answer.code:
            raise ClientError(answer.code, answer.reason, answer.hint)
        return answer
