"""How long a test waits for what has to happen: longer on a busy machine.

No test asserts on time. A limit is there so that a test which can never succeed ends; on a machine
with other work everything takes longer, and a limit in seconds would be a claim about the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

BUSY_MAX: Final = 8.0
LOOK_S: Final = 0.01


def busy(load: float, cores: int) -> float:
    """How many times as long something may take: the processes that want each core, at most 8."""
    return min(BUSY_MAX, max(1.0, load / cores))


class Limit:
    """So many seconds of a machine that does nothing else, counted from now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Asked again and again, while the load may change."""
        cores = len(os.sched_getaffinity(0))
        limit_s = self._seconds * busy(os.getloadavg()[0], cores)
        return time.monotonic() - self._began > limit_s


def until(done: Callable[[], object], what: str, seconds: float, look_s: float = LOOK_S) -> None:
    """Looks again and again; fails when it is not true within the limit."""
    limit = Limit(seconds)
    while not done():
        assert not limit.is_over, f"not in {seconds} s of a quiet machine: {what}"
        time.sleep(look_s)
