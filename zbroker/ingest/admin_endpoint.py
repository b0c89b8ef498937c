"""What ingest answers to the admin's questions about its clients."""

from __future__ import annotations

import logging

import zmq

from zbroker.ingest import reports
from zbroker.ingest.core import IngestCore
from zbroker.ingest.effects import Effect
from zbroker.server import admin_endpoint
from zbroker.wire import surveys as s


class Desk:
    """At `endpoint`, registered in the loop's poller.

    disconnects: how many there were: each token says of how many it knows.
    """

    def __init__(
        self,
        context: admin_endpoint.Context,
        endpoint: str,
        poller: zmq.Poller,
        log: logging.Logger,
    ) -> None:
        self._log = log
        self._desk = admin_endpoint.AdminEndpoint(context, endpoint, s.TO_INGEST_DESK, poller, log)
        self.router = self._desk.router
        self.disconnects = 0

    def answer(self, core: IngestCore, now_ms: int, peers: s.Peers = s.unknown) -> list[Effect]:
        """Answers what waits; what clients are to be told of it. peers: who is at which address."""
        effects: list[Effect] = []
        for rid, ask in self._desk.asked():
            if isinstance(ask, s.Disconnect):
                self.disconnects = max(self.disconnects, ask.number)
                count, more = reports.disconnect(core, ask.client, now_ms)
                effects += more
                self._desk.note_disconnected(ask.client, count)
                self._desk.tell(rid, s.Disconnected(ask.cid, count))
            elif isinstance(ask, s.AskRefusals):
                self._desk.tell(rid, core.refusals.told(ask, peers))
            else:
                self._desk.tell(rid, s.Clients(ask.cid, *reports.rows(core, ask, peers, now_ms)))
        return effects
