"""Once a second, what the queues room tells of its queues: for rates, history, metrics, alarms.

Only what changed is asked for, and only queues with messages or dead letters are looked at for
alarms: queues that stand still cost nothing, however many there are. A thread of its own: a room
that hangs keeps nobody else waiting.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from zbroker.admin.queue_alarms import QueueObservation
from zbroker.admin.queue_document import totals
from zbroker.admin.queue_link import ROOM, QueueLink
from zbroker.admin.queue_rates import Growth, Key, key_of
from zbroker.clock import Clock
from zbroker.errors import ClientError
from zbroker.wire.queue_surveys import AskQueues, QueueRow, Queues

EVERY_S: Final = 1.0
STALE_MS: Final = 10_000  # what is older is not told as if it were so


class QueueWatch:
    """Begins with `start`; what is told, to any thread."""

    def __init__(self, desk: QueueLink, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock
        self._lock = threading.Lock()  # of all that follows
        self._growth = Growth()
        self._rows: dict[str, QueueRow] = {}
        self._filled: dict[str, QueueRow] = {}  # those with messages
        self._row_ms: dict[str, int] = {}  # when a row was told
        self._depth = 0  # of all of them
        self._look = self._incarnation = 0  # of the last answer
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
            ask = AskQueues(0, since=self._look, of=self._incarnation)
            told = self._desk.look(Queues, ask)
        except ClientError:
            return  # it starts, or hangs: what was told before grows old
        with self._lock:
            self._take(told, self._clock.mono_ms())

    def _take(self, told: Queues, now_ms: int) -> None:
        since = None if self._told_ms is None else now_ms
        names = [row.name for row in told.rows]
        over = self._rows.keys() - set(names) if told.whole else told.gone
        before = [row for name in (*over, *names) if (row := self._forget(name)) is not None]
        gone = {key_of(row) for row in before} - {key_of(row) for row in told.rows}
        for key in gone:
            del self._first_ms[key]
        for row in told.rows:
            self._rows[row.name], self._row_ms[row.name] = row, now_ms
            self._first_ms.setdefault(key_of(row), since)
            self._depth += row.depth
            if row.depth or row.bytes:
                self._filled[row.name] = row
        self._growth.take(told.rows, now_ms / 1_000, gone)
        self._look, self._incarnation, self._told_ms = told.look, told.incarnation, now_ms

    def _forget(self, name: str) -> QueueRow | None:
        row = self._rows.pop(name, None)
        if row is not None:
            self._depth -= row.depth
            self._filled.pop(name, None)
            del self._row_ms[name]
        return row

    # -- from any thread ------------------------------------------------------------------------

    def rows(self) -> list[QueueRow]:
        """Every queue as it was when it changed last; none, if nobody told for a while."""
        with self._lock:
            return list(self._rows.values()) if self._is_fresh() else []

    def filled(self) -> list[QueueRow]:
        """Those with messages, likewise."""
        with self._lock:
            return list(self._filled.values()) if self._is_fresh() else []

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
            grown = {f"{name}_grown": count for name, count in self._growth.grown.items()}
            return {ROOM: {"depth": self._depth} | grown}

    def seen(self, up_ms: int) -> QueueObservation:
        """Queues that there may be something to say of, for alarms. up_ms: of the room."""
        now_ms = self._clock.mono_ms()
        with self._lock:
            dead = self._growth.dead()
            names = {*self._filled, *(dead.keys() & self._rows.keys())}
            rows = [self._rows[name] for name in names] if self._is_fresh() else []
            known_ms = {}
            for row in rows:
                first_ms = self._first_ms[key_of(row)]
                known_ms[row.name] = up_ms if first_ms is None else min(up_ms, now_ms - first_ms)
            ago_ms = {row.name: now_ms - self._row_ms[row.name] for row in rows}
        return QueueObservation(rows, known_ms, dead, self._clock.wall_ns(), ago_ms)

    def _is_fresh(self) -> bool:
        told_ms = self._told_ms
        return told_ms is not None and self._clock.mono_ms() - told_ms < STALE_MS
