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
LOOK_MAX_S: Final = 0.1  # to ask a broker a hundred times a second takes the processor it waits for
SHARE: Final = 20  # of the time waited: what happens is noticed at most a twentieth later


def busy(load: float, cores: int) -> float:
    """How many times as long something may take: the processes that want each core, at most 8."""
    return min(BUSY_MAX, max(1.0, load / cores))


class Limit:
    """So many seconds of a machine that does nothing else, counted from now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()

    @property
    def waited_s(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Asked again and again, while the load may change."""
        cores = len(os.sched_getaffinity(0))
        return self.waited_s > self._seconds * busy(os.getloadavg()[0], cores)


def until(done: Callable[[], object], what: str, seconds: float, look_s: float = LOOK_S) -> None:
    """Looks again and again, less often with time; fails if it is not true within the limit."""
    limit = Limit(seconds)
    while not done():
        assert not limit.is_over, f"not in {seconds} s of a quiet machine: {what}"
        time.sleep(pause_s(limit.waited_s, look_s))


def pause_s(waited_s: float, least_s: float) -> float:
    """From one look to the next one."""
    return max(least_s, min(LOOK_MAX_S, waited_s / SHARE))
