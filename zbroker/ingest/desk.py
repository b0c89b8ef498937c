"""ingest's socket for questions about its clients: the admin asks, a turn answers."""

from __future__ import annotations

import logging
from typing import Final

import zmq

from zbroker import sockets
from zbroker.errors import ClientError
from zbroker.ingest import surveying
from zbroker.ingest.effects import Effect
from zbroker.ingest.surveying import Core
from zbroker.wire import codec
from zbroker.wire import surveys as s

QUESTIONS_MAX: Final = 4  # of one turn: the rest waits for the next

Context = zmq.Context[zmq.Socket[bytes]]


class Desk:
    """A ROUTER at `endpoint`, registered in the loop's poller."""

    def __init__(
        self, context: Context, endpoint: str, poller: zmq.Poller, log: logging.Logger
    ) -> None:
        self._log = log
        self.router = sockets.inner_router(context)
        self.router.bind(endpoint)
        poller.register(self.router, zmq.POLLIN)

    def answer(self, core: Core, now_ms: int, peers: s.Peers = s.unknown) -> list[Effect]:
        """Answers what waits; what clients are to be told of it. peers: who is at which address."""
        effects: list[Effect] = []
        for _ in range(QUESTIONS_MAX):
            received = sockets.receive_from(self.router)
            if received is None:
                break
            rid, frames, _ = received
            try:
                ask = codec.decode(s.TO_INGEST_DESK, frames[0].buffer)
            except ClientError as error:
                self._log.error("a question that no room of ours asks: %s; ignored", error)
                continue
            if isinstance(ask, s.AskRefusals):
                told: s.Answer = core.refusals.told(ask, peers, now_ms)
            elif isinstance(ask, s.Disconnect):
                count, more = surveying.disconnect(core, ask.client, now_ms)
                effects += more
                self._log.warning("%s: %d sessions %s", ask.client, count, s.DISCONNECTED)
                told = s.Disconnected(ask.cid, count)
            else:
                told = s.Clients(ask.cid, *surveying.rows(core, ask, peers, now_ms))
            sockets.send_to(self.router, rid, codec.encode(told))  # who asks does not wait long
        return effects
