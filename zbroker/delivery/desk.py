"""delivery's socket for questions about its peers: the admin asks, a turn answers."""

from __future__ import annotations

import logging
from typing import Final

import zmq

from zbroker import sockets
from zbroker.delivery import surveying
from zbroker.delivery.effects import Effect
from zbroker.delivery.surveying import Core
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import surveys as s

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

    def answer(self, core: Core, now_ms: int, peers: s.Peers = s.unknown) -> list[Effect]:
        """Answers what waits; what clients are to be told of it. peers: who is at which address."""
        effects: list[Effect] = []
        for _ in range(QUESTIONS_MAX):
            received = sockets.receive_from(self._router)
            if received is None:
                break
            rid, frames, _ = received
            try:
                ask = codec.decode(s.TO_DESK, frames[0].buffer)
            except ClientError as error:
                self._log.error("a question that no room of ours asks: %s; ignored", error)
                continue
            told, more = self._told(core, ask, now_ms, peers)
            effects += more
            sockets.send_to(self._router, rid, codec.encode(told))  # who asks does not wait long
        return effects

    def _told(
        self, core: Core, ask: s.DeliveryQuestion, now_ms: int, peers: s.Peers
    ) -> tuple[s.Answer, list[Effect]]:
        if isinstance(ask, s.Disconnect):
            count, effects = surveying.disconnect(core, ask.client)
            self._log.warning("%s: %d connections %s", ask.client, count, s.DISCONNECTED)
            return s.Disconnected(ask.cid, count), effects
        if isinstance(ask, s.AskRefusals):
            return core.refusals.told(ask, peers, now_ms), []
        if isinstance(ask, s.AskClients):
            return s.Clients(ask.cid, *surveying.clients(core, ask, peers, now_ms)), []
        if isinstance(ask, s.AskTopics):
            return s.Topics(ask.cid, *surveying.topics(core)), []
        rows, left_out = surveying.rows(core, ask, now_ms)
        persisted = core.cursors.persisted
        return s.Subscriptions(ask.cid, self._mine, persisted, rows, left_out), []
