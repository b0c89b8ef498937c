"""When the tables are written, and by whom: every SAVE_MS, in a thread, and once at the end.

    folded --what changed is copied in the loop--> written in a thread --> tables

A start reads the log from where they stand, so they are written often enough to make that short.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import lmdb

from zbroker import known_log
from zbroker.ids import Origin
from zbroker.process import Process
from zbroker.queues.manager import Manager, Saved
from zbroker.queues.snapshots import Key, Snapshot, Snapshots
from zbroker.queues.tables import Tables

SAVE_MS: Final = 30_000
SAVE_POSITIONS: Final = 1_000_000  # folded since the last save: then earlier


class Saving:
    """Of one process."""

    def __init__(self, process: Process, directory: Path) -> None:
        self._log = process.log
        self._directory = directory
        self._tables = Tables(directory)
        self._snapshots = Snapshots()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tables")
        self._writing: Future[None] | None = None
        self._next_ms: int | None = None
        self._saved_at = 0

    def load(self, here: Origin, persisted: int) -> dict[Key, Saved]:
        """What the tables hold of this log."""
        return self._tables.load(here, persisted)

    def turn(self, manager: Manager, now_ms: int) -> None:
        """Writes, if it is time."""
        if self._next_ms is None:
            self._next_ms = now_ms + SAVE_MS
        if self._writing is not None:
            if not self._writing.done():
                return
            self._finish()
        folded = manager.following.lowest or 0
        far = folded - self._saved_at >= SAVE_POSITIONS
        if (now_ms >= self._next_ms and folded != self._saved_at) or far:
            self._next_ms = now_ms + SAVE_MS
            self._saved_at = folded
            self._begin(manager)

    def _begin(self, manager: Manager) -> None:
        assert manager.here is not None
        taken = self._snapshots.take(manager)
        self._writing = self._thread.submit(self._write, manager.here, taken)

    def _write(self, here: Origin, taken: Snapshot) -> None:
        """The tables, and beside them how far the log was, for the journal's next start."""
        self._tables.save(here, taken)
        known = max([taken.upto, *(one.position for one in taken.many.values())])
        if known:
            with suppress(OSError):  # it only adds to what the journal knows by itself
                known_log.write(self._directory, here, known)

    def _finish(self) -> None:
        assert self._writing is not None
        try:
            self._writing.result()
        except lmdb.Error as error:
            self._snapshots.forget()
            self._log.warning(
                "queues.not_saved: %s; nothing is lost: the next start reads more of the log", error
            )
        self._writing = None

    def save(self, manager: Manager) -> None:
        """Writes now."""
        if self._writing is not None:
            self._finish()
        if manager.here is not None and manager.known:
            self._begin(manager)
            self._finish()

    def close(self) -> None:
        """Waits for what is being written."""
        self._thread.shutdown(wait=True)
        self._tables.close()
