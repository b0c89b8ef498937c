"""Processes of `zbroker.demo.worker` at one broker; ended however the demo ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

STOP_S: Final = 10.0


class WorkerProcesses:
    """They work at one broker. Each has a name and, in `directory`, a file of its own."""

    def __init__(self, prefix: str, directory: Path) -> None:
        self._prefix, self._directory = prefix, directory
        self._started = 0
        self._running: list[subprocess.Popen[bytes]] = []
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def start(self, url: str, count: int) -> None:
        """So many more."""
        for _ in range(count):
            self._started += 1
            name = f"{self._prefix}-{self._started}"
            file = self._directory / f"worker-{self._started}.sqlite"
            command = [sys.executable, "-m", "zbroker.demo.worker", url, name, str(file)]
            self._running.append(subprocess.Popen(command))

    def kill(self, count: int | None = None) -> int:
        """SIGKILL to the first ones, or to all. Returns: how many."""
        killed = self._running[:count]
        for one in killed:
            one.kill()
        for one in killed:
            one.wait()
        del self._running[:count]
        return len(killed)

    def close(self) -> None:
        """Lets them end."""
        for one in self._running:
            one.terminate()
        for one in self._running:
            try:
                one.wait(STOP_S)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        self._running.clear()
