"""delivery's socket for questions about its subscriptions: the admin asks, a turn answers."""

from __future__ import annotations

import logging
from typing import Final

import zmq

from zbroker import sockets
from zbroker.delivery.surveying import Core, rows
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire.surveys import TO_DESK, Subscriptions

QUESTIONS_MAX: Final = 4  # of one turn: the rest waits for the next

Context = zmq.Context[zmq.Socket[bytes]]


class Desk:
    """A ROUTER at `endpoint`, registered in the loop's poller."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        incarnation: int,
        poller: zmq.Poller,
        log: logging.Logger,
    ) -> None:
        self._mine = incarnation
        self._log = log
        self._router = sockets.inner_router(context)
        self._router.bind(endpoint)
        poller.register(self._router, zmq.POLLIN)

    def answer(self, core: Core, now_ms: int) -> None:
        """Answers what waits."""
        for _ in range(QUESTIONS_MAX):
            received = sockets.receive_from(self._router)
            if received is None:
                return
            rid, frames, _ = received
            try:
                ask = codec.decode(TO_DESK, frames[0].buffer)
            except ClientError as error:
                self._log.error("a question that no room of ours asks: %s; ignored", error)
                continue
            found, left_out = rows(core, ask, now_ms)
            told = Subscriptions(ask.cid, self._mine, core.cursors.persisted, found, left_out)
            sockets.send_to(self._router, rid, codec.encode(told))  # who asks does not wait long
