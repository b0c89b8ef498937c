"""Acks of single messages, until the next turn notes them all at once. The only shared state that
threads of the program change without the lock: a lock for each ack would cost more than the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from zbroker.client.consumer.message import QueueMessage
from zbroker.engine.contract import Limit, Ready


class Acked(Struct, gc=False):
    """Event: the program is done with these."""

    messages: list[QueueMessage]


class SingleAcks:
    """A source of the turn. Each change of the list is atomic: threads may make them at once."""

    drained = True

    def __init__(self) -> None:
        self._messages: list[QueueMessage] = []
        self._called = False  # somebody has a turn come for them

    def add(self, message: QueueMessage) -> bool:
        """True if the caller has to have a turn come."""
        self._messages.append(message)
        if self._called:
            return False
        self._called = True
        return True

    def take(self) -> list[QueueMessage]:
        """All of them. From here on whoever adds one calls for a turn again."""
        self._called = False
        found = self._messages[:]
        del self._messages[: len(found)]  # more may have come meanwhile
        return found

    def events(self, ready: Ready, limit: Limit) -> Iterable[Acked]:
        """All of them, as one event."""
        found = self.take()
        return (Acked(found),) if found else ()

    def next_wake_ms(self) -> int | None:
        """Now, if there are some."""
        return 0 if self._messages else None
