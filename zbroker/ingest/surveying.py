"""What is told of the connections of publishers, and how all of one client are ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from typing import Final, Protocol

from zbroker.ingest.effects import Effect, Send
from zbroker.wire import messages as m
from zbroker.wire.refused import Refusals
from zbroker.wire.surveys import DISCONNECTED, AskClients, ClientRow, Peers

ROWS_MAX: Final = 1_000  # of one answer: a turn of this room has to stay short


class Client(Protocol):
    """See zbroker.ingest.clients."""

    @property
    def rid(self) -> bytes: ...
    @property
    def name(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def instance(self) -> str: ...
    @property
    def session(self) -> int: ...
    @property
    def publisher(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def acked(self) -> int: ...
    @property
    def window_used(self) -> int: ...
    @property
    def heartbeat_s(self) -> float: ...


class Clients(Protocol):
    """Connections by name: a name has one."""

    @property
    def by_name(self) -> Mapping[str, Client]: ...


class Core(Protocol):
    """What is looked at of the room, and how a connection is forgotten."""

    @property
    def clients(self) -> Clients: ...
    @property
    def refusals(self) -> Refusals: ...

    def gone(self, rid: bytes, now_ms: int) -> list[Effect]: ...


def rows(core: Core, ask: AskClients, peers: Peers, now_ms: int) -> tuple[list[ClientRow], int]:
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


def disconnect(core: Core, client: str, now_ms: int) -> tuple[int, list[Effect]]:
    """Ends the session of `client`; how many there were, and what is to be told and sent.

    What it published before is in the log or on its way there: acknowledgements of that have nobody
    to go to, so it finds out at its next logon.
    """
    one = core.clients.by_name.get(client)
    if one is None:
        return 0, []
    error = m.Error("session_ended", DISCONNECTED, "ask whoever operates this broker")
    return 1, [Send(one.rid, error), *core.gone(one.rid, now_ms)]
