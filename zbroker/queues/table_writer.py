"""The tables are written by a thread, so that the turn does not wait for the disk."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import lmdb

from zbroker import known_log
from zbroker.clock import Clock
from zbroker.engine.contract import Limit, Ready
from zbroker.ids import Origin
from zbroker.queues.effects import SaveTables
from zbroker.queues.events import TablesSaved
from zbroker.queues.registry import SavedQueue
from zbroker.queues.snapshots import Key, Snapshot
from zbroker.queues.tables import Tables

LOOK_MS: Final = 20  # how often the thread is looked at while it writes


class TableWriter:
    """The tables of one process, as a source of its turn: when they were written."""

    drained = True

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory, self._clock = directory, clock
        self._tables = Tables(directory)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tables")
        self._writing: Future[None] | None = None

    def load(self, here: Origin, persisted: int) -> dict[Key, SavedQueue]:
        """What the tables hold of this log."""
        return self._tables.load(here, persisted)

    def save(self, effect: SaveTables) -> None:
        """Begins to write."""
        assert self._writing is None, "one at a time"
        self._writing = self._thread.submit(self._write, effect.here, effect.taken)

    def _write(self, here: Origin, taken: Snapshot) -> None:
        """The tables, and beside them how far the log was, for the journal's next start."""
        self._tables.save(here, taken)
        known = max([taken.upto, *(one.position for one in taken.many.values())])
        if known:
            with suppress(OSError):  # it only adds to what the journal knows by itself
                known_log.write(self._directory, here, known)

    def events(self, ready: Ready, limit: Limit) -> Iterable[TablesSaved]:
        """TablesSaved, once the thread has ended."""
        if self._writing is None or not self._writing.done():
            return ()
        writing, self._writing = self._writing, None
        try:
            writing.result()
        except lmdb.Error as error:
            return (TablesSaved(str(error)),)
        return (TablesSaved(),)

    def next_wake_ms(self) -> int | None:
        """Soon, as long as the thread writes."""
        return None if self._writing is None else self._clock.mono_ms() + LOOK_MS

    def close(self) -> None:
        """Waits for what is being written."""
        self._thread.shutdown(wait=True)
        self._tables.close()
