"""Instances of the demo that replicate to each other: what starts and kills them, and compares."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from zbroker.control.log_comparison import ComparedLog, LogComparison, compare_logs
from zbroker.free_ports import free_ports
from zbroker.local import LocalBroker, Settings

WAIT_S: Final = 300.0
LOOK_S: Final = 0.3
_LISTENERS: Final = ("ingest", "delivery", "queues", "admin", "replication")


class DemoInstance:
    """One of them: its directory, its ports, and its processes while it runs."""

    def __init__(self, name: str, data: Path, ports: Sequence[int]) -> None:
        self.name, self.data = name, data
        self.listen = {
            listener: f"{'http' if listener == 'admin' else 'tcp'}://127.0.0.1:{port}"
            for listener, port in zip(_LISTENERS, ports, strict=True)
        }
        self.url = self.listen["ingest"]
        self.settings: Settings = {}
        self._broker: LocalBroker | None = None

    def configure(
        self, others: Sequence[DemoInstance], more: Settings,
        destination: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """It sends its log to these. more: other tables; destination: further keys of theirs."""
        self.settings = {
            "instance": {"name": self.name},
            "listen": self.listen,
            "destination": [
                {
                    "name": one.name, "to": [one.listen["replication"]], "mode": "sync",
                    **(destination or {}),
                }
                for one in others
            ],
            **more,
        }  # fmt: skip

    @property
    def broker(self) -> LocalBroker:
        """Its processes."""
        assert self._broker is not None, f"{self.name} does not run"
        return self._broker

    def start(self) -> None:
        """Starts it on what its directory holds."""
        self._broker = LocalBroker(self.data, settings=self.settings)

    def kill(self) -> None:
        """SIGKILL, as when a host loses its power."""
        os.kill(self.broker.pids["supervisor"], signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """Stops it, if it runs."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    def copy(self, place: Path) -> None:
        """A copy of its directory; it does not run."""
        shutil.copytree(self.data, place, symlinks=True, ignore=shutil.ignore_patterns("run"))

    def put_back(self, place: Path) -> None:
        """This copy instead of its directory."""
        shutil.rmtree(self.data)
        place.rename(self.data)


def instances_in(directory: Path, names: Sequence[str]) -> list[DemoInstance]:
    """With these names, on free ports; they are neither configured nor started."""
    size = len(_LISTENERS)
    ports = free_ports(len(names) * size)
    return [
        DemoInstance(name, directory / name, ports[n * size : (n + 1) * size])
        for n, name in enumerate(names)
    ]


def start_all(instances: Sequence[DemoInstance]) -> None:
    """All at once: a new one waits until the others have said that they are new, too."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(DemoInstance.start, instances))


def until_equal(instances: Sequence[DemoInstance]) -> LogComparison:
    """The last comparison: of equal logs, or after WAIT_S of what there was."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = compare_logs([ComparedLog(one.name, one.broker.ask) for one in instances])
        if found.state == "equal" or time.monotonic() > deadline:
            return found
        time.sleep(LOOK_S)
