"""Makes the bookmark index anew from the log while the old one serves, then swaps them.

idle --begin--> reading the log in a helper thread --between two commits--> swapped, IndexRebuilt
"""

from __future__ import annotations

from typing import Final

from zbroker.bookmarks.rebuild import Rebuild, batches_of
from zbroker.errors import StorageError, ZBrokerError
from zbroker.journal.effects import RebuildIndex
from zbroker.journal.events import IndexRebuilt
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.startup import OpenJournal
from zbroker.log.reader import Log
from zbroker.server.process import Process
from zbroker.wire.internal import Done

SHARE: Final = 0.5  # of the time of one core: publishers and readers go first
ROUNDS_MAX: Final = 10  # of catching up in the helper; what is left is little, and read at once


class Reindexing:
    """One rebuild at a time; `finish` swaps, when no commit of the old index runs."""

    def __init__(self, process: Process, opened: OpenJournal, helpers: Helpers) -> None:
        self._process = process
        self._opened = opened
        self._helpers = helpers
        self._asked: RebuildIndex | None = None
        self._ready: Rebuild | None = None
        self._log: Log | None = None  # in one thread after the other

    def begin(self, asked: RebuildIndex) -> None:
        """Begins; the core asks for one at a time."""
        self._asked = asked
        self._helpers.submit(self._read, self._read_all, self._end)

    def _read(self) -> Rebuild | None:
        """In the helper thread; None if the process is stopping."""
        process, core = self._process, self._opened.core
        self._log = log = Log(process.paths.journal, process.paths.archive)
        rebuild = Rebuild(
            process.paths.index,
            process.paths.instance,
            core.origin.generation,
            batches_of(log),
            share=SHARE,
        )
        for _ in range(ROUNDS_MAX):
            until = core.persisted
            if not rebuild.run(until, lambda: process.stopping):
                rebuild.give_up()
                return None
            if core.persisted == until:
                break
        return rebuild

    def _read_all(self, rebuild: Rebuild | None) -> None:
        self._ready = rebuild

    def finish(self) -> IndexRebuilt | None:
        """Swaps, if it is time. Call it while no commit of the index runs."""
        rebuild, self._ready = self._ready, None
        if rebuild is None:
            return None
        opened = self._opened
        try:
            opened.use(rebuild.finish(opened.core.persisted, opened.index))
        except StorageError as error:
            return self._end(error)
        self._process.log.info(
            "journal.reindexed: the bookmark index was made anew from %(batches)d batches",
            {"batches": rebuild.batches},
        )
        self._helpers.submit(rebuild.remove_old, lambda _: self._end(None))
        return None

    def _end(self, error: Exception | None) -> IndexRebuilt:
        asked, self._asked = self._asked, None
        assert asked is not None
        if self._log is not None:
            self._log.close()
        if isinstance(error, ZBrokerError):
            return IndexRebuilt(asked.rid, Done(asked.cid, error.code, error.reason))
        if error is not None:
            raise error
        return IndexRebuilt(asked.rid, Done(asked.cid))
