"""What delivery answers to the admin's questions about its peers and what they read."""

from __future__ import annotations

import logging

import zmq

from zbroker.delivery import reports
from zbroker.delivery.core import Core
from zbroker.delivery.effects import Effect
from zbroker.server import admin_endpoint
from zbroker.wire import surveys as s


class Desk:
    """At `endpoint`, registered in the loop's poller."""

    def __init__(
        self,
        context: admin_endpoint.Context,
        endpoint: str,
        incarnation: int,
        poller: zmq.Poller,
        log: logging.Logger,
    ) -> None:
        self._mine = incarnation
        self._log = log
        self._desk = admin_endpoint.AdminEndpoint(context, endpoint, s.TO_DESK, poller, log)

    def answer(self, core: Core, now_ms: int, peers: s.Peers = s.unknown) -> list[Effect]:
        """Answers what waits; what clients are to be told of it. peers: who is at which address."""
        effects: list[Effect] = []
        for rid, ask in self._desk.asked():
            told, more = self._told(core, ask, now_ms, peers)
            effects += more
            self._desk.tell(rid, told)
        return effects

    def _told(
        self, core: Core, ask: s.DeliveryQuestion, now_ms: int, peers: s.Peers
    ) -> tuple[s.Answer, list[Effect]]:
        if isinstance(ask, s.Disconnect):
            count, effects = reports.disconnect(core, ask.client, ask.number)
            self._desk.note_disconnected(ask.client, count)
            return s.Disconnected(ask.cid, count), effects
        if isinstance(ask, s.AskRefusals):
            return core.refusals.told(ask, peers), []
        if isinstance(ask, s.AskClients):
            return s.Clients(ask.cid, *reports.clients(core, ask, peers, now_ms)), []
        if isinstance(ask, s.AskTopics):
            return s.Topics(ask.cid, *reports.topics(core)), []
        rows, left_out = reports.rows(core, ask, now_ms)
        persisted = core.cursors.persisted
        return s.Subscriptions(ask.cid, self._mine, persisted, rows, left_out), []
