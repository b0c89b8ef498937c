"""POST /replication/drain: publishers go to other instances once those hold what they published.

    hold at ingest --all settled, and durable at each destination that is up--> leave
                   --not within `wait_s`--> off: publishers go on here
    then replicated queues: see queue_drains.py

Source: the design of replication, "Clients".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from zbroker.admin.link_alarms import is_up
from zbroker.admin.process_link import ProcessLink, ReplicationLink
from zbroker.admin.queue_drains import LOOK_S, Handed, QueueDrain
from zbroker.admin.queue_drains import document as of_queues
from zbroker.admin.requests import DrainRequest, parse
from zbroker.clock import Clock
from zbroker.errors import ClientError
from zbroker.wire.replicas import ReplicationRow
from zbroker.wire.surveys import DrainIngest, IngestDrained

INGEST: Final = "ingest"
LEFT: Final = "publishers go on at other instances; stop this one when its subscribers may go, too"

Document = dict[str, Any]


class Drains:
    """Answers from any thread. persisted: the durable end of the log."""

    def __init__(
        self, processes: ProcessLink, links: ReplicationLink, persisted: Callable[[], int],
        clock: Clock, name: str, rest: Callable[[float], object] | None = None,
    ) -> None:  # fmt: skip
        """name: of this instance. rest: waits for so many seconds."""
        self._processes, self._links, self._clock = processes, links, clock
        self._persisted, self._name = persisted, name
        self._rest = rest or threading.Event().wait
        self._queues = QueueDrain(processes, links, persisted, clock, self._rest)
        self._one = threading.Lock()  # at a time

    def post(self, body: bytes) -> Document:
        """It is done when this returns. Raises: ClientError not_ready, not_found, StorageError."""
        ask = parse(DrainRequest, body)
        if ask.off:
            if not ask.dry_run:
                self._queues.off()
                self._tell("off")
            return self._document("off", ask, "publishers may log on here again", Handed())
        if not any(is_up(row) for row in self._destinations()):
            reason = "there is no destination to which a link is up, so publishers cannot go on"
            raise ClientError("not_ready", reason, "see replication ls; nothing was changed")
        if ask.dry_run:
            text = "publishers would go on at other instances"
            return self._document("off", ask, text, self._queues.plan())
        with self._one:
            return self._drain(ask)

    def _drain(self, ask: DrainRequest) -> Document:
        until_ms = self._clock.mono_ms() + round(ask.wait_s * 1_000)
        try:
            self._wait(ask.wait_s, until_ms)
        except BaseException:
            self._tell("off")
            raise
        left = self._tell("leave")
        handed = self._queues.give(until_ms)
        return self._document(left.state, ask, LEFT, handed) | {"sessions": left.sessions}

    def _wait(self, wait_s: float, until_ms: int) -> None:
        """Until destinations have all that was accepted here."""
        end: int | None = None
        while True:
            held = self._tell("hold")
            if end is None and not held.unsettled_bytes:
                end = self._persisted()
            up = [row for row in self._destinations() if is_up(row)]
            lack = [row for row in up if end is None or row.mark < end]
            if up and not lack:
                return
            if self._clock.mono_ms() >= until_ms:
                what = ", ".join(f"{row.name} lacks {row.lag} positions" for row in lack)
                reason = f"not drained in {wait_s:g} s: {what or 'no link to a destination is up'}"
                raise ClientError("not_ready", reason, "publishers go on here; ask again later")
            self._rest(LOOK_S)

    def _destinations(self) -> list[ReplicationRow]:
        return [row for row in self._links.look().rows if row.direction == "out"]

    def _tell(self, what: str) -> IngestDrained:
        said = self._processes.ask(IngestDrained, DrainIngest(0, what), [INGEST])[INGEST]
        if said is None:
            raise ClientError("not_ready", "the ingest process does not answer", "try again")
        return said

    def _document(self, state: str, ask: DrainRequest, text: str, handed: Handed) -> Document:
        said = {"state": state, "dry_run": ask.dry_run, "sessions": 0, "text": text}
        return said | of_queues(handed, self._name, planned=ask.dry_run)
