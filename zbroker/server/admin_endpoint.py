"""Where other processes, above all the admin, ask this one: a ROUTER, which a turn answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec
import zmq
from msgspec import Struct

from zbroker import sockets
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire.surveys import DISCONNECTED

QUESTIONS_MAX: Final = 4  # of one turn: the rest waits for the next

Context = zmq.Context[zmq.Socket[bytes]]
Q = TypeVar("Q")


class AdminEndpoint(Generic[Q]):
    """At `endpoint`, registered in the loop's poller. questions: what this process understands."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        questions: msgspec.msgpack.Decoder[Q],
        poller: zmq.Poller,
        log: logging.Logger,
    ) -> None:
        self._questions = questions
        self._log = log
        self.router = sockets.inner_router(context)
        self.router.bind(endpoint)
        poller.register(self.router, zmq.POLLIN)

    def asked(self) -> Iterator[tuple[bytes, Q]]:
        """A question and its sender."""
        for _ in range(QUESTIONS_MAX):
            received = sockets.receive_from(self.router)
            if received is None:
                return
            rid, frames, _ = received
            try:
                yield rid, codec.decode(self._questions, frames[0].buffer)
            except ClientError as error:
                self._log.error("a message that no process of ours sends: %s; ignored", error)

    def note_disconnected(self, client: str, count: int) -> None:
        """Logs that an operator ended connections of a client; of one that has none, nothing."""
        if count:
            self._log.warning(
                "%(client)s: %(count)d connections " + DISCONNECTED,
                {"client": client, "count": count},
                extra={"code": "client.disconnected"},
            )

    def tell(self, rid: bytes, answer: Struct) -> bool:
        """Sends the answer. False if the sender is gone; it does not wait long."""
        return sockets.send_to(self.router, rid, codec.encode(answer))
