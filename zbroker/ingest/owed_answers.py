"""Answers to clients whose queues are full: merged, and sent as soon as there is space. Pure."""

from __future__ import annotations

from typing import Final

from zbroker.engine.effects import Answer
from zbroker.limits import UNRECORDED_NAMED_MAX
from zbroker.wire.messages import Ack

RETRY_MS: Final = 20  # how soon it is tried again
FILTERED_KEPT_BYTES: Final = 16 * 100_000  # of runs for a client that does not read its acks


class OwedAnswers:
    """By client, of each kind the newest: acks are merged, so it says it all."""

    def __init__(self) -> None:
        self._owed: dict[bytes, dict[str, Answer]] = {}
        self.next_wake_ms: int | None = None

    def put(self, answer: Answer, now_ms: int) -> None:
        """Keeps an answer that found a full queue, in the place of an older one of its kind."""
        if self.next_wake_ms is None:
            self.next_wake_ms = now_ms + RETRY_MS
        kinds = self._owed.setdefault(answer.rid, {})
        message = answer.message
        if not isinstance(message, Ack) or message.cid is not None:
            kinds[type(message).__name__] = answer
            return
        kind = message.type if message.unrecorded is None else "unrecorded"
        older = kinds[kind].message if kind in kinds else None
        if isinstance(older, Ack) and message.unrecorded is not None:
            names = dict.fromkeys([*message.unrecorded, *(older.unrecorded or [])])
            message.unrecorded = list(names)[:UNRECORDED_NAMED_MAX]
            runs = (older.filtered or b"") + (message.filtered or b"")
            message.filtered = runs[-FILTERED_KEPT_BYTES:] or None
        kinds[kind] = answer

    def due(self, now_ms: int) -> list[Answer]:
        """Takes out what may be tried again."""
        if self.next_wake_ms is None or now_ms < self.next_wake_ms:
            return []
        owed, self._owed, self.next_wake_ms = self._owed, {}, None
        return [answer for kinds in owed.values() for answer in kinds.values()]

    def forget(self, rid: bytes) -> None:
        """This client is gone."""
        self._owed.pop(rid, None)
