"""The thread that counts what the log holds of each topic, for GET /topics.

It begins with the first question, goes on from where it is with each further one, and rests when
nobody has asked for REST_MS: an instance that nobody asks pays nothing. A slice of work is followed
by a longer pause, in a niced thread: whoever serves clients goes first.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from zbroker.admin.tallies import Tallies, TopicTally
from zbroker.clock import Clock
from zbroker.errors import StorageError
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.paths import Paths

SLICE_MS: Final = 10  # of work
PAUSE_S: Final = 0.03  # after each: a quarter of one core at most
REST_MS: Final = 600_000
WAIT_S: Final = 1.0  # for an answer that is complete: enough for a short log
NICE: Final = 19
STOP_WAIT_S: Final = 1.0

End = Callable[[], int]  # how far the log is durable. Raises: ClientError, StorageError


class TopicCounter:
    """`rows` from any thread."""

    def __init__(self, paths: Paths, end: End, clock: Clock, log: logging.Logger) -> None:
        self._paths = paths
        self._end = end
        self._clock = clock
        self._log = log
        self._tallies = Tallies()
        self._cursor: Cursor | None = None
        self._lock = threading.Lock()  # of both
        self._wanted = 0  # the position up to which somebody wants it counted
        self._asked_ms = 0
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._done = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="topics", daemon=True)

    def rows(self) -> tuple[list[TopicTally], bool]:
        """What is counted so far, and whether that is everything as of now.

        Raises: ClientError not_ready, StorageError.
        """
        wanted = self._end()
        with self._done:
            self._asked_ms = self._clock.mono_ms()
            self._wanted = max(self._wanted, wanted)
            if not self._thread.is_alive() and not self._stop.is_set():
                self._thread.start()
            self._wake.set()
            self._done.wait_for(lambda: self._tallies.position >= wanted, WAIT_S)
        with self._lock:
            tallies = self._tallies
            return list(tallies.rows()), tallies.position >= wanted and not tallies.full

    def stop(self) -> None:
        """Ends the thread soon."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WAIT_S)

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        log: Log | None = None
        while not self._stop.is_set():
            try:
                log = log or Log(self._paths.journal, self._paths.archive)
                more = self.turn(log)
            except (StorageError, OSError) as error:
                self._log.warning("topics cannot be counted: %s; tried again when asked", error)
                more = False
            finally:
                if log is not None:
                    log.close()  # a file that stays open takes space after it was unlinked
            if more:
                self._stop.wait(PAUSE_S)
            else:
                self._wake.wait()
                self._wake.clear()

    def turn(self, log: Log) -> bool:
        """One slice; True if there is more to do, and somebody wants it. Raises: StorageError."""
        now_ms, wanted = self._clock.mono_ms(), self._wanted
        log.refresh()
        with self._lock:
            self._tallies.forget(log.first_position)
            self._slice(log, wanted, now_ms + SLICE_MS)
            more = self._tallies.position < wanted
        if not more:
            with self._done:
                self._done.notify_all()
        return more and now_ms - self._asked_ms < REST_MS

    def _slice(self, log: Log, wanted: int, until_ms: int) -> None:
        cursor = self._cursor or log.seek(log.first_position)
        for found, serial in log.header_lists(cursor, wanted):
            self._tallies.take(found, serial)
            last = found[-1]
            if isinstance(last, Gap):
                cursor = log.seek(last.end)
            else:
                cursor = Cursor(serial, last.end_offset, last.end_position)
            if self._clock.mono_ms() >= until_ms:
                break
        else:
            self._tallies.position = max(self._tallies.position, wanted)
        self._cursor = cursor
