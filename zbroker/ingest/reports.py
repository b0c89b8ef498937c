"""What is told of the connections of publishers, and how all of one client are ended. Pure."""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

from zbroker.ingest.clients import Client
from zbroker.ingest.core import IngestCore
from zbroker.ingest.effects import Effect, Send
from zbroker.wire import messages as m
from zbroker.wire.surveys import DISCONNECTED, AskClients, ClientRow, Peers

ROWS_MAX: Final = 1_000  # of one answer: a turn of this room has to stay short


def rows(
    core: IngestCore, ask: AskClients, peers: Peers, now_ms: int
) -> tuple[list[ClientRow], int]:
    """The connections that `ask` wants, by name; how many were left out. `now_ms`: monotonic."""
    known = core.clients.by_name
    found = [name for name in (ask.client,) if name in known] if ask.client else list(known)
    first = nsmallest(min(ask.limit, ROWS_MAX), found)
    return [_row(known[name], peers, now_ms) for name in first], len(found) - len(first)


def _row(one: Client, peers: Peers, now_ms: int) -> ClientRow:
    address, since_ms = peers(one.rid)
    return ClientRow(
        one.name, one.principal, one.instance, address,
        None if since_ms is None else now_ms - since_ms, one.session, one.publisher,
        one.acked, one.window_used, one.messages, 0, one.heartbeat_s,
    )  # fmt: skip


def disconnect(core: IngestCore, client: str, now_ms: int) -> tuple[int, list[Effect]]:
    """Ends the session of `client`; how many there were, and what is to be told and sent.

    What it published before is in the log or on its way there: acknowledgements of that have nobody
    to go to, so it finds out at its next logon.
    """
    one = core.clients.by_name.get(client)
    if one is None:
        return 0, []
    error = m.Error("session_ended", DISCONNECTED, "ask whoever operates this broker")
    return 1, [Send(one.rid, error), *core.gone(one.rid, now_ms)]
