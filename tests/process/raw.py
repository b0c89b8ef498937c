"""A client of the wire alone: it sends what it is given, in the key of one of the people."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgpack
import zmq

from tests.process.secured import Secured
from zbroker import sockets
from zbroker.sockets import Curve

WAIT_MS: Final = 30_000  # only a failure takes that long; a busy machine answers late


class Raw:
    """A DEALER that says what it is asked to."""

    def __init__(
        self,
        broker: Secured,
        who: str | None = "eve",
        listener: str = "ingest",
        *,
        curve: Curve | None = None,
        options: dict[int, bytes] | None = None,
    ) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDTIMEO, WAIT_MS)
        for option, value in (options or {}).items():
            self.socket.setsockopt(option, value)
        if who is not None:
            curve = broker.credentials(who).curve()
        if curve is not None:
            sockets.identify(self.socket, curve)
        self.socket.connect(broker.endpoints()[listener])

    def send(self, command: dict[str, Any], *body: bytes) -> None:
        self.socket.send_multipart([msgpack.packb(command), *body])

    def offer(self, command: dict[str, Any]) -> None:
        """Sends it, unless the broker has ended the handshake: then there is no queue for it."""
        with suppress(zmq.Again):
            self.socket.send(msgpack.packb(command), zmq.NOBLOCK)

    def get(self, wait_ms: int = WAIT_MS) -> dict[str, Any]:
        """The next answer, {} if there is none; heartbeats are none."""
        while self.socket.poll(wait_ms):
            header: dict[str, Any] = msgpack.unpackb(self.socket.recv_multipart()[0])
            if header["cmd"] != "heartbeat":
                return header
        return {}

    def ask(self, command: dict[str, Any], *body: bytes) -> dict[str, Any]:
        self.send(command, *body)
        return self.get()

    def logon(self, name: str, instance: str = "i", **more: Any) -> dict[str, Any]:
        return self.ask({"cmd": "logon", "cid": "1", "client": name, "instance": instance, **more})

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)
