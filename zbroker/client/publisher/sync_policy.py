"""When a publish store in a directory is synced."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Literal

from zbroker.errors import StorageError

Sync = Literal["each"] | float | None  # before each put returns; every so many seconds; never

_log: Final = logging.getLogger("zbroker.client")


class Syncing:
    """A thread that syncs every so many seconds."""

    def __init__(self, sync: Callable[[], None], interval_s: float) -> None:
        self._sync = sync
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zbroker store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Syncs once more, and ends."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._interval_s):
                self._sync()
            self._sync()
        except StorageError as error:  # after it nobody knows what a sync would say
            _log.error("client.store_not_synced: a power cut loses what is published: %s", error)
