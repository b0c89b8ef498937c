"""Looks at passwords beside the loop, which must not stand still for 30 ms."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from zbroker.access import passwords
from zbroker.ingest.effects import Verify


class Verifier:
    """One thread; `fd` can be read when there are answers."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pool = ThreadPoolExecutor(1, "passwords")
        self._answers: deque[tuple[int, bool]] = deque()

    def ask(self, verify: Verify) -> None:
        """Begins to look; the answer comes later."""
        self._pool.submit(self._look, verify)

    def answers(self) -> list[tuple[int, bool]]:
        """Number and result of what was looked at since the last call."""
        os.eventfd_read(self.fd)
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def _look(self, verify: Verify) -> None:
        good = False
        try:
            good = passwords.verify(verify.password, verify.hashed)
        finally:
            self._answers.append((verify.number, good))
            os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Waits for the one that is looked at."""
        self._pool.shutdown(cancel_futures=True)
        os.close(self.fd)
