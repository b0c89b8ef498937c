"""zbroker/server/admin_endpoint.py: where the admin asks a process with clients."""

from __future__ import annotations

import logging

import pytest
import zmq

from zbroker.engine.effects import NoteDisconnected
from zbroker.server.admin_endpoint import AdminEndpoint
from zbroker.wire import surveys as s


def test_a_client_that_was_disconnected_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    log = logging.getLogger("test_desk")
    endpoint = AdminEndpoint(context, "inproc://desk", s.INGEST_QUESTIONS, zmq.Poller(), log)
    try:
        endpoint.note_disconnected(NoteDisconnected("ann", 2))
    finally:
        endpoint.router.close(0)
        context.term()
    [record] = [record for record in caplog.records if record.name == "test_desk"]
    assert record.getMessage().startswith("ann: 2 connections disconnected by")
    assert record.code == "client.disconnected"
