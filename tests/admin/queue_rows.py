"""Queues as their process tells them, and a process that answers what the test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from zbroker.admin.process_link import QueueLink
from zbroker.wire import queue_surveys as q
from zbroker.wire.queue_messages import BrowsedRow

SECOND_NS = 1_000_000_000


def row(name: str = "work", **more: Any) -> q.QueueRow:
    """A work queue over `orders` that the config defines."""
    made = q.QueueRow(name, "work", "orders", False, "config", 1, 7, {}, "ready")
    return msgspec.structs.replace(made, **more)


def consumer(queue: str = "work", client: str = "ann", **more: Any) -> q.ConsumerRow:
    made = q.ConsumerRow(queue, client, "s1", "127.0.0.1:5", 64, 3, 1_000, 9, 6)
    return msgspec.structs.replace(made, **more)


def message(position: int, **more: Any) -> BrowsedRow:
    made = BrowsedRow(position, f"7|{position}|", "orders", SECOND_NS, 20, "leased", 2, 1, "ann", 5)
    return msgspec.structs.replace(made, **more)


class Clock:
    """Stands still."""

    def __init__(self) -> None:
        self.ms = 100_000

    def mono_ms(self) -> int:
        return self.ms

    def wall_ns(self) -> int:
        return self.ms * 1_000_000


class FakeQueues:
    """In place of the link to the desk: `rows` are its queues, `say` answers all other questions.

    changed: what it tells of those that changed, and which are gone.
    silent: it answers nothing. asked: every question, in order.
    """

    processes = ("queues",)

    def __init__(self, *rows: q.QueueRow) -> None:
        self.rows = list(rows)
        self.incarnation = 1
        self.changed: tuple[list[q.QueueRow], list[str]] | None = None  # instead of `rows`
        self.silent = False
        self.asked: list[Any] = []
        self.waits: list[int] = []
        self.say: Callable[[Any], Any] = lambda ask: q.Changed(ask.cid)

    @property
    def link(self) -> QueueLink:
        link: Any = self
        return QueueLink(link)

    def ask(
        self, answer: type, question: Any, processes: list[str], wait_ms: int = 0
    ) -> dict[str, Any]:
        assert processes == ["queues"]
        self.asked.append(question)
        self.waits.append(wait_ms)
        if self.silent:
            return {"queues": None}
        reply = self._queues(question) if isinstance(question, q.AskQueues) else self.say(question)
        assert isinstance(reply, answer)
        return {"queues": reply}

    def _queues(self, ask: q.AskQueues) -> q.Queues:
        if self.changed is not None:
            return q.Queues(
                ask.cid, self.incarnation, 90, self.changed[0], 2, False, self.changed[1]
            )
        rows = [one for one in self.rows if ask.name in ("", one.name)]
        return q.Queues(ask.cid, self.incarnation, 90, rows, 1)
