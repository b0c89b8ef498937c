"""zbroker/server/admin_endpoint.py: where the admin asks a process with clients."""

from __future__ import annotations

import logging

import pytest
import zmq

from zbroker.engine.effects import NoteDisconnected
from zbroker.server.admin_endpoint import AdminEndpoint
from zbroker.wire import surveys as s


@pytest.mark.parametrize(("count", "lines"), [(0, []), (2, ["ann: 2 connections disconnected by"])])
def test_only_who_was_there_is_logged_as_disconnected(
    count: int, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    log = logging.getLogger("test_desk")
    desk = AdminEndpoint(context, "inproc://desk", s.TO_INGEST_DESK, zmq.Poller(), log)
    try:
        desk.note_disconnected(NoteDisconnected("ann", count))
    finally:
        desk.router.close(0)
        context.term()
    found = [record for record in caplog.records if record.name == "test_desk"]
    assert [record.getMessage()[:34] for record in found] == lines
    assert all(record.code == "client.disconnected" for record in found)
