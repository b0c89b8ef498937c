"""Instances that replicate to each other: real brokers, on ports that stay the same."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import zmq

from tests.process.load import batches_of, until, until_running
from zbroker import sockets
from zbroker.client import connect
from zbroker.errors import ZBrokerError
from zbroker.free_ports import free_ports
from zbroker.ids import Origin
from zbroker.local import LocalBroker, Settings
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.paths import Paths
from zbroker.wire import codec
from zbroker.wire.replicas import AskLinks, Links

WAIT_S: Final = 60.0
NAMES: Final = "abcde"
LISTENERS: Final = ("ingest", "delivery", "queues", "admin", "replication")


class Peer:
    """One instance: its data directory, its ports, and its processes if it runs."""

    def __init__(self, name: str, data: Path) -> None:
        self.name, self.data = name, data
        ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        self.listen = {
            each: f"{'http' if each == 'admin' else 'tcp'}://127.0.0.1:{port}"
            for each, port in ports.items()
        }
        self.url = self.listen["ingest"]
        self.settings: dict[str, Any] = {}
        self.broker: LocalBroker | None = None

    def start(self) -> None:
        """Starts it on what is there."""
        self.broker = LocalBroker(self.data, settings=self.settings)
        self._supervisor = until_running(self.broker, "supervisor", 0)

    @property
    def running(self) -> LocalBroker:
        assert self.broker is not None, f"{self.name} is down"
        return self.broker

    def is_open(self) -> bool:
        """Whether publishers may log on."""
        return self.links().phase == "open"

    def begin_fresh(self) -> None:
        """A person says that its log is a new one; peers that are away are not waited for."""

        def opened() -> bool:
            with suppress(ZBrokerError):
                self.running.ask("/replication/fresh", {})
            return self.is_open()

        until(opened, f"{self.name} to begin", WAIT_S)

    def kill(self) -> None:
        """SIGKILL to the supervisor, which takes its processes along."""
        with suppress(ProcessLookupError):
            os.kill(self._supervisor, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            broker.close()

    def pid(self, process: str) -> int:
        return until_running(self.running, process, 0)

    def kill_process(self, name: str) -> None:
        """SIGKILL; returns when another process has its place."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        until_running(self.running, name, pid)

    def links(self) -> Links:
        """What its replication process says of its links."""
        at = Paths(self.data, self.data, self.data, 0).ipc("replication-desk")
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            dealer = sockets.dealer(context, at)
            dealer.send(codec.encode(AskLinks(1)))
            assert dealer.poll(int(WAIT_S * 1_000)), "the replication process does not answer"
            return msgspec.msgpack.decode(dealer.recv(), type=Links)
        finally:
            context.destroy(linger=0)

    def knows_destinations(self) -> bool:
        """Whether each was reached once; before that its instance has no name here."""
        return all(row.instance for row in self.links().rows if row.direction == "out")

    def batches(self) -> list[Batch]:
        """Everything published that its log holds."""
        with connect(self.url) as client:
            end = client.ranges(timeout=WAIT_S).persisted
        found = batches_of(self.data / "journal", end)
        return [batch for batch in found if batch.kind == KIND_PUBLISH]

    def messages(self) -> dict[tuple[int, int], int]:
        """Publisher and sequence of each message, and how often it is there."""
        found: dict[tuple[int, int], int] = {}
        for batch in self.batches():
            first = batch.sequence + batch.skip
            for sequence in range(first, first + batch.taken):
                key = batch.publisher, sequence
                found[key] = found.get(key, 0) + 1
        return found

    def orders(self) -> dict[Origin, list[int]]:
        """The positions of each origin, in the order of the log."""
        found: dict[Origin, list[int]] = {}
        for batch in self.batches():
            found.setdefault(batch.origin, []).append(batch.origin_position)
        return found


class Instances:
    """Several instances, each of which sends to all others. Stopped at the end of a `with` block.

    row: each sends to its neighbours only. destination: further keys of the [[destination]] tables.
    more: tables of all configs.
    """

    def __init__(
        self, count: int = 2, *, destination: Mapping[str, Any] | None = None,
        more: Settings | None = None, starts: bool = True, row: bool = False,
    ) -> None:  # fmt: skip
        self._place = tempfile.TemporaryDirectory(prefix="zbroker-instances-")
        place = Path(self._place.name)
        self.peers = [Peer(name, place / name) for name in NAMES[:count]]
        for at, peer in enumerate(self.peers):
            others = [
                other for n, other in enumerate(self.peers)
                if n != at and (not row or abs(n - at) == 1)
            ]  # fmt: skip
            peer.settings = self._settings(peer, others, destination or {}, more or {})
        self._starts = starts

    @staticmethod
    def _settings(
        peer: Peer, others: Sequence[Peer], destination: Mapping[str, Any], more: Settings
    ) -> dict[str, Any]:
        tables = [
            {"name": other.name, "to": [other.listen["replication"]], **destination}
            for other in others
        ]
        return {
            "instance": {"name": peer.name}, "listen": peer.listen, "destination": tables, **more
        }  # fmt: skip

    def __enter__(self) -> Self:
        try:
            if self._starts:
                for peer in self.peers:
                    peer.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        self._place.cleanup()

    def until_equal(self, messages: int) -> None:
        """Waits until all hold so many messages, and the same ones, each once."""

        def equal() -> bool:
            first, *others = (peer.messages() for peer in self.peers)
            return len(first) == messages and all(other == first for other in others)

        until(equal, f"all to hold {messages}: {[len(p.messages()) for p in self.peers]}", WAIT_S)
        for peer in self.peers:
            assert set(peer.messages().values()) == {1}, f"{peer.name} holds a message twice"
            for origin, order in peer.orders().items():
                assert order == sorted(order), f"{origin} is out of order at {peer.name}"
