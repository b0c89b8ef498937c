"""When the tables are written, and with what: every SAVE_MS, and before the process ends. Pure.

    folded --what changed is copied--> SaveTables --written by a helper--> TablesSaved

A start reads the log from where the tables end, so they are written often enough to make that
short. A save is of what changed since the one before, so it begins only after that one ended.
"""

from __future__ import annotations

from typing import Final

from zbroker.engine.effects import Exit, Note
from zbroker.queues.effects import SaveTables
from zbroker.queues.events import TablesSaved
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.snapshots import Snapshots

SAVE_MS: Final = 30_000
SAVE_POSITIONS: Final = 1_000_000  # folded since the last save: then earlier


class SaveSchedule:
    """Of the queues core."""

    def __init__(self, manager: QueueRegistry) -> None:
        self._manager = manager
        self._snapshots = Snapshots()
        self._next_ms: int | None = None
        self._saved_at = 0  # how far the log was folded then
        self._saving = self._stopping = self._last = False

    def stop(self) -> None:
        """The process is to end: it does after one more save."""
        self._stopping = True

    def saved(self, done: TablesSaved) -> None:
        """A save ended."""
        self._saving = False
        if done.error:
            self._snapshots.forget()
            text = f"{done.error}; nothing is lost: the next start reads more of the log"
            self._manager.notes.append(Note("queues.not_saved", text))

    def tick(self, now_ms: int) -> list[SaveTables | Exit]:
        """At the end of a turn: a save, if it is time; or the end."""
        if self._saving:
            return []
        if self._stopping:
            if self._last or not self._manager.known:
                return [Exit()]
            self._last = True
            return [self._save()]
        if self._next_ms is None:
            self._next_ms = now_ms + SAVE_MS
        folded = self._manager.following.lowest or 0
        if folded - self._saved_at < SAVE_POSITIONS and (
            now_ms < self._next_ms or folded == self._saved_at
        ):
            return []
        self._next_ms, self._saved_at = now_ms + SAVE_MS, folded
        return [self._save()]

    def _save(self) -> SaveTables:
        assert self._manager.here is not None, "a Welcome came before"
        self._saving = True
        return SaveTables(self._manager.here, self._snapshots.take(self._manager))
