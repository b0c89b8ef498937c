"""Keeps a part of the log of a running instance while a job needs it: a lease that is renewed.

    hold --renewed by a thread--> held --release, or no renewal for `ttl_s`--> free

Reading through the broker holds what is being read by itself; a lease is for ranges whose tasks
have not begun. It is asked for at the instance's admin, which may be out of reach or refuse it:
then the job runs all the same, after a warning.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from zbroker.client.connect_types import Credentials
from zbroker.errors import ZBrokerError
from zbroker.spark.ranges import LogRange

TTL_S: Final = 600  # a driver that was killed keeps the log for so long
MOVES_S: Final = 5.0  # a stream commits many times a second; an older position is safe
_RENEWALS: Final = 3  # in the time of a lease: one may fail


class NotHeldWarning(UserWarning):
    """A part of the log is read without a lease: retention may remove what is not read yet."""


class LogHold:
    """The log from a position on, for one job. Nothing is asked before `hold`."""

    def __init__(
        self, url: str, who: str, credentials: Credentials | None = None, ttl_s: int = TTL_S
    ) -> None:
        self._url, self._who, self._credentials = url, who, credentials
        self._ttl_s = ttl_s
        self._position = 0
        self._refused = False
        self._due = 0.0
        self._moved = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def hold(self, position: int, *, renew: bool = True) -> bool:
        """Holds the log from `position` on; False after a warning, once it was refused."""
        if self._refused:
            return False
        with self._lock:
            self._position = position
        try:
            self._report(position, self._ttl_s)
        except (ZBrokerError, OSError) as error:
            self._refused = True
            warnings.warn(
                f"the log of {self._url} is not held from position {position} on: {error}. "
                "If retention removes what is not read yet, the job fails with bookmark_expired",
                NotHeldWarning,
                stacklevel=2,
            )
            return False
        if self._thread is None and renew:
            self._thread = threading.Thread(target=self._renew, daemon=True, name="zbroker-lease")
            self._thread.start()
        return True

    def move(self, position: int) -> None:
        """Lets go what is before `position`, with the next renewal or some seconds later."""
        with self._lock:
            self._position = max(position, self._position)
        self._moved.set()

    def release(self) -> None:
        """Ends it; if the instance cannot be reached, it ends by itself."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            with suppress(ZBrokerError, OSError):  # it expires
                self._report(self._position, 0)

    def _renew(self) -> None:
        while not self._ended.wait(min(MOVES_S, self._ttl_s / _RENEWALS)):
            if not self._moved.is_set() and time.monotonic() < self._due:
                continue
            self._moved.clear()
            with self._lock:
                position = self._position
            with suppress(ZBrokerError, OSError):  # the next one may succeed before it expires
                self._report(position, self._ttl_s)

    def _report(self, position: int, ttl_s: int) -> None:
        # not where only a directory is read: it needs ZeroMQ
        from zbroker.control.target import admin_at

        body = {"who": self._who, "what": "spark", "position": position, "ttl_s": ttl_s}
        admin_at(self._url, self._credentials).tell("/journal/hold", body)
        self._due = time.monotonic() + ttl_s / _RENEWALS


@contextmanager
def held(ranges: Iterable[LogRange], ttl_s: int = TTL_S) -> Iterator[bool]:
    """While the block runs, what the live ranges of a plan need stays; True if that is so.

    Warns: NotHeldWarning, if the instance does not grant it.
    """
    live = [part for part in ranges if part.is_live]
    if not live:
        yield True
        return
    first = min(live, key=lambda part: part.first)
    lease = LogHold(first.source, f"spark-{first.job}", first.credentials, ttl_s)
    try:
        yield lease.hold(first.first)
    finally:
        lease.release()
