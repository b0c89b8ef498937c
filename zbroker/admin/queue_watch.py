"""Once a second, what the queues room tells of its queues: for rates, history, metrics, alarms.

A thread of its own: a room that hangs keeps nobody else waiting.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from zbroker.admin.queue_alarms import Seen
from zbroker.admin.queue_desk import ROOM, QueueDesk
from zbroker.admin.queue_document import totals
from zbroker.admin.queue_rates import Growth, Key, key_of
from zbroker.clock import Clock
from zbroker.errors import ClientError
from zbroker.wire.queue_surveys import AskQueues, QueueRow, Queues

EVERY_S: Final = 1.0
STALE_MS: Final = 10_000  # what is older is not told as if it were so


class QueueWatch:
    """Begins with `start`; what is told, to any thread."""

    def __init__(self, desk: QueueDesk, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock
        self._lock = threading.Lock()  # of all that follows
        self._growth = Growth()
        self._rows: list[QueueRow] = []
        self._first_ms: dict[Key, int | None] = {}  # when it was seen first; None: it was there
        self._told_ms: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queues", daemon=True)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def stop(self) -> None:
        """At the latest when a question that is under way is given up."""
        self._stop.set()

    def _run(self) -> None:
        self.look()
        while not self._stop.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        """Asks once."""
        try:
            told = self._desk.look(Queues, AskQueues(0))
        except ClientError:
            return  # it starts, or hangs: what was told before grows old
        now_ms = self._clock.mono_ms()
        with self._lock:
            since = None if self._told_ms is None else now_ms
            keys = [key_of(row) for row in told.rows]
            self._first_ms = {key: self._first_ms.get(key, since) for key in keys}
            self._growth.take(told.rows, now_ms / 1_000)
            self._rows, self._told_ms = told.rows, now_ms

    # -- from any thread ------------------------------------------------------------------------

    def rows(self) -> list[QueueRow]:
        """Every queue as it was a second ago; none, if nobody told for a while."""
        with self._lock:
            return list(self._fresh())

    def rates(self, row: QueueRow) -> dict[str, float]:
        """Of one queue, over the last seconds."""
        with self._lock:
            return self._growth.rates(key_of(row))

    def totals(self) -> dict[str, Any]:
        """Of all queues, for the status."""
        return totals(self.rows())

    def numbers(self) -> dict[str, dict[str, Any]]:
        """For the history, as statistics of the room; nothing while it does not tell."""
        with self._lock:
            if not self._is_fresh():
                return {}
            depth = sum(row.depth for row in self._rows)
            grown = {f"{name}_grown": count for name, count in self._growth.grown.items()}
            return {ROOM: {"depth": depth} | grown}

    def seen(self, up_ms: int) -> Seen:
        """For alarms. up_ms: for how long the room has run."""
        now_ms = self._clock.mono_ms()
        with self._lock:
            known_ms = {
                name: up_ms if first_ms is None else min(up_ms, now_ms - first_ms)
                for (name, _), first_ms in self._first_ms.items()
            }
            rows, dead = list(self._fresh()), self._growth.dead()
        return Seen(rows, known_ms, dead, self._clock.wall_ns())

    def _fresh(self) -> list[QueueRow]:
        return self._rows if self._is_fresh() else []

    def _is_fresh(self) -> bool:
        told_ms = self._told_ms
        return told_ms is not None and self._clock.mono_ms() - told_ms < STALE_MS
