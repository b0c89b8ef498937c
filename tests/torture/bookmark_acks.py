"""Acknowledges by bookmark what was taken elsewhere: a program without the library that fails over.

The client library acknowledges where it got a message. See docs/reference/queues.md, "Without a
library".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

import msgpack
import zmq

from zbroker.errors import ZBrokerError

ANSWER_MS: Final = 4_000


class BookmarkAcks:
    """One connection to the queues listener of an instance; for a `with` block."""

    def __init__(self, url: str, name: str, queue: str) -> None:
        self._url, self._name, self._queue = url, name, queue
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def __enter__(self) -> Self:
        """Logs on. Raises: ZBrokerError."""
        try:
            ingest = self._dealer(self._url)
            logon = {"cmd": "logon", "cid": "1", "client": self._name, "version": 1}
            _put(ingest, logon | {"instance": self._name})
            hello = _get(ingest, "ack")
            self._queues = self._dealer(hello["endpoints"]["queues"])
            _put(self._queues, {"cmd": "logon", "cid": "1", "token": hello["token"]})
            _get(self._queues, "ack")
        except BaseException:
            self._context.destroy(linger=0)
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._context.destroy(linger=0)

    def settle(self, bookmarks: Sequence[str]) -> set[str]:
        """Those that the instance had, and answered that they are done. Raises: ZBrokerError."""
        for cid, bookmark in enumerate(bookmarks):
            ack = {"cmd": "ack", "cid": str(cid), "queue": self._queue, "bookmarks": [bookmark]}
            _put(self._queues, ack)
        answers = [_get(self._queues, "settled") for _ in bookmarks]
        return {bookmarks[int(one["cid"])] for one in answers if one.get("taken")}

    def _dealer(self, url: str) -> zmq.Socket[bytes]:
        dealer = self._context.socket(zmq.DEALER)
        dealer.connect(url)
        return dealer


def _put(socket: zmq.Socket[bytes], command: dict[str, Any]) -> None:
    socket.send_multipart([msgpack.packb(command)])


def _get(socket: zmq.Socket[bytes], kind: str) -> dict[str, Any]:
    """The next answer of this kind; heartbeats and others pass. Raises: ZBrokerError."""
    while socket.poll(ANSWER_MS):
        header: dict[str, Any] = msgpack.unpackb(socket.recv_multipart()[0])
        if header["cmd"] == kind:
            return header
        if header["cmd"] == "error":
            raise ZBrokerError(header["code"], header.get("reason", ""))
    raise ZBrokerError("timeout", f"no {kind!r} in {ANSWER_MS} ms")
