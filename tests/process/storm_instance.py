"""A broker that is killed and started again and again, on ports that stay the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.process.load import batches_of, until_running
from zbroker.cli.journal.rows import MessageRow, unpack
from zbroker.client import connect
from zbroker.free_ports import free_ports
from zbroker.local import LocalBroker, Settings
from zbroker.log.format import Batch

WAIT_S: Final = 60.0


class Instance:
    """A data directory, three ports, and the processes that serve them, if it runs."""

    def __init__(self, data: Path, **journal: str | int) -> None:
        self.data = data
        listeners = zip(("ingest", "delivery", "admin"), free_ports(3), strict=True)
        listen = {
            name: f"{'http' if name == 'admin' else 'tcp'}://127.0.0.1:{port}"
            for name, port in listeners
        }
        self.url = listen["ingest"]
        self._settings: Settings = {
            "listen": listen,
            "journal": {"segment_size": "1MiB", **journal},
        }
        self.start()

    def start(self) -> None:
        """Starts it on what is there."""
        self.broker = LocalBroker(self.data, settings=self._settings)
        self._supervisor = until_running(self.broker, "supervisor", 0)

    def kill(self) -> None:
        """SIGKILL to the supervisor, which takes its processes along."""
        os.kill(self._supervisor, signal.SIGKILL)
        self.broker.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    def kill_process(self, name: str) -> None:
        """SIGKILL; returns when another process has its place."""
        pid = until_running(self.broker, name, 0)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        until_running(self.broker, name, pid)

    def journal(self) -> dict[str, Any]:
        """What the journal tells of itself."""
        found: dict[str, Any] = self.broker.status()["journal"]
        return found

    def batches(self) -> Iterator[Batch]:
        """What was published, as it is in the files."""
        with connect(self.url) as client:
            end = client.ranges(timeout=WAIT_S).persisted
        return batches_of(self.data / "journal", end)

    def messages(self) -> list[MessageRow]:
        """The same, message by message, in the order of the log."""
        return [message for batch in self.batches() for message in unpack(batch)]

    def close(self) -> None:
        self.broker.close()
