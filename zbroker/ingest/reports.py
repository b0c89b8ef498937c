"""What the admin process is told of the connections of publishers. Pure."""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

from zbroker.ingest.clients import ClientConnection, ClientRegistry
from zbroker.wire.surveys import AskClients, ClientRow, Peers

ROWS_MAX: Final = 1_000  # of one answer: a turn has to stay short


def rows(
    clients: ClientRegistry, ask: AskClients, peers: Peers, now_ms: int
) -> tuple[list[ClientRow], int]:
    """The connections that `ask` wants, by name; how many were left out. `now_ms`: monotonic."""
    known = clients.by_name
    found = [name for name in (ask.client,) if name in known] if ask.client else list(known)
    first = nsmallest(min(ask.limit, ROWS_MAX), found)
    return [_row(known[name], peers, now_ms) for name in first], len(found) - len(first)


def _row(one: ClientConnection, peers: Peers, now_ms: int) -> ClientRow:
    address, since_ms = peers(one.rid)
    return ClientRow(
        one.name, one.principal, one.instance, address,
        None if since_ms is None else now_ms - since_ms, one.session, one.publisher,
        one.acked, one.window_used, one.messages, 0, one.heartbeat_s,
    )  # fmt: skip
