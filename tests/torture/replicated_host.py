"""An instance on a host of its own, and what can happen to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.process.instances import Peer
from tests.process.load import until_running
from tests.torture.network import NetworkHost
from zbroker import memory_notes
from zbroker.control.log_comparison import ComparedLog
from zbroker.control.target import Admin
from zbroker.local import LocalBroker

PORTS: Final = {"ingest": 9101, "delivery": 9102, "queues": 9103, "replication": 9104}
COPY_PORTS: Final = {name: port + 100 for name, port in PORTS.items()}
ADMIN: Final = 9105
LOG_LINES: Final = 100_000


def listeners(address: str, ports: Mapping[str, int], admin: int) -> dict[str, str]:
    """Where an instance listens: its clients and peers by the network, its admin on the host."""
    found = {name: f"tcp://{address}:{port}" for name, port in ports.items()}
    return found | {"admin": f"http://127.0.0.1:{admin}"}


class HostedPeer:
    """One instance. logs: where what its processes logged is kept."""

    def __init__(self, host: NetworkHost, data: Path, logs: Path) -> None:
        self.host, self.name, self._logs, self._lives = host, host.name, logs, 0
        self.peer = Peer(host.name, data)
        self.peer.listen = listeners(host.address, PORTS, ADMIN)
        self.peer.url = self.url = self.peer.listen["ingest"]
        self.data = data
        self._twin: LocalBroker | None = None
        self._mode = "async"

    @property
    def is_up(self) -> bool:
        return self.peer.broker is not None

    def configure(self, others: Sequence[HostedPeer], mode: str, more: Mapping[str, Any]) -> None:
        """It sends to these."""
        self._mode = mode
        tables = [
            {"name": one.name, "to": [one.peer.listen["replication"]], "mode": mode}
            for one in others
        ]
        self.peer.settings = {
            "instance": {"name": self.name}, "listen": self.peer.listen, "destination": tables,
            **more,
        }  # fmt: skip

    def start(self) -> None:
        self.host.run(self.peer.start)

    def kill(self) -> None:
        """SIGKILL to all of it."""
        self._keep_log(self.peer.broker, "")
        self.host.run(self.peer.kill)

    def kill_process(self, name: str) -> None:
        """SIGKILL; returns when another process has its place."""
        self.host.run(self.peer.kill_process, name)

    def close(self) -> None:
        self.stop_twin()
        self._keep_log(self.peer.broker, "")
        self.host.run(self.peer.close)

    def lose(self) -> None:
        """Its disk."""
        shutil.rmtree(self.data)

    def forget_memory(self) -> None:
        """The notes that a reboot empties, of an instance that does not run."""
        identity = json.loads((self.data / "instance.json").read_text())
        memory_notes.remove(int(identity["instance"], 16))

    def set_aside(self) -> Path:
        """A copy of its directory, of an instance that does not run."""
        copy = self.data.with_name(f"{self.name}-older")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.data, copy, symlinks=True, ignore=shutil.ignore_patterns("run"))
        return copy

    def put_back(self, copy: Path) -> None:
        """The older copy instead of its directory."""
        self.lose()
        copy.rename(self.data)

    # -- a copy that is served as the same instance -----------------------------------------------

    def start_twin(self, destinations: Sequence[HostedPeer]) -> None:
        """A copy of its directory, as it is now, under another name on the same host."""
        copy = self.data.with_name(f"{self.name}-twin")
        shutil.rmtree(copy, ignore_errors=True)
        journal = self.pid("journal")
        os.kill(journal, signal.SIGSTOP)  # else the copy is of several moments
        try:
            with suppress(shutil.Error):  # other files come and go
                shutil.copytree(
                    self.data, copy, symlinks=True, ignore=shutil.ignore_patterns("run")
                )
        finally:
            os.kill(journal, signal.SIGCONT)
        tables = [
            {"name": one.name, "to": [one.peer.listen["replication"]], "mode": self._mode}
            for one in destinations
        ]
        settings: Any = self.peer.settings | {
            "instance": {"name": f"{self.name}-twin"}, "destination": tables,
            "listen": listeners(self.host.address, COPY_PORTS, ADMIN + 100),
        }  # fmt: skip
        self._twin = self.host.run(lambda: LocalBroker(copy, settings=settings))

    def twin_problems(self) -> list[str]:
        """Why other instances refuse the twin, as its admin says."""
        twin = self._twin
        assert twin is not None, "there is no twin"
        found = self.host.run(twin.ask, "/replication")
        return [link["problem"] for link in found["links"] if link["direction"] == "out"]

    def stop_twin(self) -> None:
        twin, self._twin = self._twin, None
        if twin is not None:
            self._keep_log(twin, "-twin")
            self.host.run(twin.close)

    # -- what it holds ----------------------------------------------------------------------------

    def compared(self) -> ComparedLog:
        """For compare_logs."""
        admin = Admin(self.peer.listen["admin"])
        return ComparedLog(self.name, lambda path: self.host.run(admin.ask, path))

    def ask(self, path: str) -> dict[str, Any]:
        """What its admin answers."""
        admin = Admin(self.peer.listen["admin"])
        return self.host.run(admin.ask, path)

    def tell(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What its admin answers to a change. Raises: ZBrokerError, also while it is down."""
        admin = Admin(self.peer.listen["admin"], self.data)
        return self.host.run(admin.tell, path, body)

    def pid(self, process: str) -> int:
        return self.host.run(lambda: until_running(self.peer.running, process, 0))

    def _keep_log(self, broker: LocalBroker | None, what: str) -> None:
        if broker is not None:
            self._lives += 1
            name = f"{self.name}{what}-{self._lives}.log"
            (self._logs / name).write_text(broker.log_tail(LOG_LINES))
