"""What other programs take of the processors meanwhile, which no workload can see by itself."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Final

import psutil

LOOK_S: Final = 0.5
QUIET_PERCENT: Final = 12.0


class MachineLoad:
    """Since it was made: percent of the machine that was stolen, idle, or used by others.

    Others: neither this process nor what descends from it. Kernel threads that write for us count
    as others.
    """

    def __init__(self) -> None:
        self._times, self._mine = psutil.cpu_times(), _mine()

    def notes(self) -> dict[str, float]:
        """For a sample."""
        now = psutil.cpu_times()
        wall = sum(now) - sum(self._times) or 1.0
        idle = now.idle + now.iowait - self._times.idle - self._times.iowait
        steal = now.steal - self._times.steal
        others = max(0.0, wall - idle - steal - (_mine() - self._mine))
        return {
            name: max(0.0, round(100 * value / wall, 1))
            for name, value in (("steal", steal), ("idle", idle), ("others", others))
        }


def _mine() -> float:
    total = sum(os.times()[:4])
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            total += sum(one.cpu_times()[:4])
    return total


def wait_for_quiet(patience_s: float, most: float = QUIET_PERCENT) -> None:
    """Until others take little of the machine, but not for ever."""
    ends = time.monotonic() + patience_s
    while time.monotonic() < ends:
        load = MachineLoad()
        time.sleep(LOOK_S)
        if load.notes()["others"] < most:
            return
