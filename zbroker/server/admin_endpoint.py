"""Where other processes, above all the admin, ask this one: a ROUTER, a source of its turn."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import zmq
from msgspec import Struct

from zbroker import sockets
from zbroker.engine.contract import Limit, Ready
from zbroker.engine.effects import NoteDisconnected, Tell
from zbroker.engine.events import Asked
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire.surveys import DISCONNECTED

QUESTIONS_MAX: Final = 4  # of one turn: the rest waits for the next

Context = zmq.Context[zmq.Socket[bytes]]
Questions = msgspec.msgpack.Decoder[Any]  # what a process understands


class AdminEndpoint:
    """At `endpoint`, for questions of this process."""

    drained = True
    next_wake_ms = None

    def __init__(
        self,
        context: Context,
        endpoint: str,
        questions: Questions,
        poller: zmq.Poller,
        log: logging.Logger,
    ) -> None:
        self._questions, self._log = questions, log
        self.router = sockets.inner_router(context)
        self.router.bind(endpoint)
        poller.register(self.router, zmq.POLLIN)

    def events(self, ready: Ready, limit: Limit) -> Iterable[Asked]:
        """Some of the questions that wait."""
        return self._asked() if self.router in ready else ()

    def _asked(self) -> Iterator[Asked]:
        for _ in range(QUESTIONS_MAX):
            received = sockets.receive_from(self.router)
            if received is None:
                return
            rid, frames, _ = received
            try:
                yield Asked(rid, codec.decode(self._questions, frames[0].buffer))
            except ClientError as error:
                self._log.error("a message that no process of ours sends: %s; ignored", error)

    def tell(self, effect: Tell) -> None:
        """Sends the answer. The sender does not wait long, and may be gone."""
        self.send(effect.rid, effect.answer)

    def send(self, rid: bytes, message: Struct) -> bool:
        """Sends something to a process that has asked before. False if it is gone."""
        return sockets.send_to(self.router, rid, codec.encode(message))

    def note_disconnected(self, effect: NoteDisconnected) -> None:
        """Logs that an operator ended connections of a client."""
        self._log.warning(
            "%(client)s: %(count)d connections " + DISCONNECTED,
            {"client": effect.client, "count": effect.count},
            extra={"code": "client.disconnected"},
        )
