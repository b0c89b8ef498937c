"""Looks at passwords beside the loop, which must not stand still for 30 ms."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import zmq

from zbroker.access import passwords
from zbroker.engine.contract import Ready
from zbroker.ingest.effects import Verify
from zbroker.ingest.events import Verified


class PasswordPort:
    """One thread. A source of a turn: `fd` can be read when there are answers."""

    drained = True
    next_wake_ms = None

    def __init__(self, poller: zmq.Poller) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pool = ThreadPoolExecutor(1, "passwords")
        self._answers: deque[Verified] = deque()
        poller.register(self.fd, zmq.POLLIN)

    def verify(self, effect: Verify) -> None:
        """Begins to look; the answer comes later."""
        self._pool.submit(self._look, effect)

    def events(self, ready: Ready, limit: object) -> Iterable[Verified]:
        """What was looked at since the last call."""
        if self.fd not in ready:
            return ()
        os.eventfd_read(self.fd)
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def _look(self, verify: Verify) -> None:
        good = False
        try:
            good = passwords.verify(verify.password, verify.hashed)
        finally:
            self._answers.append(Verified(verify.number, good))
            os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Waits for the one that is looked at."""
        self._pool.shutdown(cancel_futures=True)
        os.close(self.fd)
