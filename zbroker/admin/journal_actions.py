"""Actions that the journal carries out: removals and reindexing, followed until they are done.

A removal is done when its last file is gone, which may take as long as somebody reads it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from msgspec.structs import replace

from zbroker.admin.history import HistoryEntry, JobProgress
from zbroker.admin.journal_link import Answer
from zbroker.admin.survey import Survey, Tools
from zbroker.errors import ClientError, StorageError
from zbroker.wire import internal as m

End = Callable[[HistoryEntry, str, str, float], None]  # entry, result, reason, seconds


class JournalActions:
    """Begun by any thread, looked after by the worker's."""

    def __init__(self, tools: Tools, survey: Survey, end: End) -> None:
        self._tools = tools
        self._survey = survey
        self._end = end
        self._lock = threading.Lock()
        self._removals: list[HistoryEntry] = []
        self._indexing: list[tuple[HistoryEntry, Future[Answer], float]] = []

    @property
    def anything(self) -> bool:
        """True while something is under way."""
        return bool(self._removals or self._indexing)

    def entries(self) -> list[HistoryEntry]:
        """What is under way."""
        with self._lock:
            return [*self._removals, *(entry for entry, _, _ in self._indexing)]

    def remove(
        self, entry: HistoryEntry, through: int, share_max: int, *, dry_run: bool, without: str = ""
    ) -> tuple[HistoryEntry | None, m.Removal]:
        """Asks the journal, when it knows all leases; what becomes of it is followed.

        Returns: None for the entry if nothing is removed. Raises: ClientError not_ready.
        """
        tools = self._tools
        sizes = {segment.serial: segment.bytes for segment in tools.catalog.segments()}
        tools.leases.secure(tools.link)
        removal = tools.link.ask(
            m.Removal, m.Remove, through=through, share_max=share_max, dry_run=dry_run,
            without=without,
        )  # fmt: skip
        if dry_run or not removal.serials:
            return None, removal
        entry = replace(
            entry,
            serials=removal.serials,
            bytes=sum(sizes.get(serial, 0) for serial in removal.serials),
            result="running",
            reason=removal.blocked,
            progress=JobProgress(0, len(removal.serials)),
        )
        with self._lock:
            entry = tools.history.new(entry)
            self._removals.append(entry)
        return entry, removal

    def adopt(self, entry: HistoryEntry) -> None:
        """A removal that was under way when the last process ended: the journal goes on with it."""
        with self._lock:
            self._removals.append(entry)

    def reindex(self, entry: HistoryEntry) -> HistoryEntry:
        """Asks for a new index, and returns at once."""
        with self._lock:
            entry = self._tools.history.new(replace(entry, result="running"))
            future = self._tools.link.send(m.Reindex)
            self._indexing.append((entry, future, time.monotonic()))
        return entry

    def look(self) -> bool:
        """Ends what is done; True if a removal was."""
        for item in [item for item in self._indexing if item[1].done()]:
            with self._lock:
                self._indexing.remove(item)
            self._indexed(*item)
        if not self._removals:
            return False
        try:
            left = set(self._survey.holders().removing)
            left |= {segment.serial for segment in self._tools.catalog.segments()}
        except (ClientError, StorageError):
            return False  # asked again in a moment
        gone = [self._gone(entry, left) for entry in list(self._removals)]
        return any(gone)

    def _gone(self, entry: HistoryEntry, left: set[int]) -> bool:
        waiting = sum(serial in left for serial in entry.serials)
        if waiting:
            total = len(entry.serials)
            self._tools.history.progress(entry.id, total - waiting, total)
            return False
        with self._lock:
            self._removals.remove(entry)
        self._end(entry, "done", entry.reason, 0.0)
        return True

    def _indexed(self, entry: HistoryEntry, future: Future[Answer], begun: float) -> None:
        took_s = time.monotonic() - begun
        error = future.exception()
        if error is not None:
            self._end(entry, "failed", getattr(error, "reason", str(error)), took_s)
            return
        answer = future.result()
        assert isinstance(answer, m.Done)
        self._end(entry, "failed" if answer.code else "done", answer.reason, took_s)
