"""Makes the bookmark index anew from the log while the old one serves, then swaps them.

idle --begin--> reading the log in a helper thread --between two commits--> swapped, told
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbroker.bookmarks.rebuild import Rebuild, batches_of
from zbroker.errors import ClientError, StorageError
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.startup import Opened
from zbroker.log.reader import Log
from zbroker.server.process import Process

SHARE: Final = 0.5  # of the time of one core: publishers and readers go first
ROUNDS_MAX: Final = 10  # of catching up in the helper; what is left is little, and read at once

Told = Callable[[Exception | None], None]


class Reindexing:
    """One rebuild at a time; `finish` swaps, when no commit of the old index runs."""

    def __init__(self, process: Process, opened: Opened, helpers: Helpers) -> None:
        self._process = process
        self._opened = opened
        self._helpers = helpers
        self._told: Told | None = None
        self._ready: Rebuild | None = None
        self._log: Log | None = None  # in one thread after the other

    def begin(self, told: Told) -> None:
        """`told` gets None, or the error, when it is done. Raises: ClientError too_many."""
        if self._told is not None:
            raise ClientError("too_many", "the index is being made anew already")
        self._told = told
        self._helpers.submit(self._read, self._read_all, self._end)

    def _read(self) -> Rebuild | None:
        """In the helper thread; None if the process is stopping."""
        process, core = self._process, self._opened.core
        self._log = log = Log(process.paths.journal, process.paths.archive)
        rebuild = Rebuild(
            process.paths.index,
            process.paths.instance,
            core.generation,
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

    def finish(self) -> None:
        """Swaps, if it is time. Call it while no commit of the index runs."""
        rebuild, self._ready = self._ready, None
        if rebuild is None:
            return
        opened = self._opened
        try:
            opened.use(rebuild.finish(opened.core.persisted, opened.index))
        except StorageError as error:
            self._end(error)
            return
        self._process.log.info(
            "journal.reindexed: the bookmark index was made anew from %(batches)d batches",
            {"batches": rebuild.batches},
        )
        self._helpers.submit(rebuild.remove_old, lambda _: self._end(None))

    def _end(self, error: Exception | None) -> None:
        told, self._told = self._told, None
        assert told is not None
        if self._log is not None:
            self._log.close()
        told(error)
