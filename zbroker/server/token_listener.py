"""What every core does for the clients of a listener that takes tokens. Pure.

logon --> known --commands--> logoff, silence, no right any more, an operator ends it --> gone
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import Any, ClassVar, Final, Generic, TypeVar

from msgspec import Struct
from msgspec.msgpack import Decoder

from zbroker.access.core import Access
from zbroker.engine.contract import Now
from zbroker.engine.effects import NoteDisconnected, Send, Tell
from zbroker.engine.events import Unauthenticated
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.limits import HEARTBEAT_MS
from zbroker.recording import Recording
from zbroker.server.budgets import DEFAULT, Budget
from zbroker.server.peers import Peer, Peers, Received, admit, check_key, decode, welcome
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import surveys as s
from zbroker.wire.disconnects import NONE, Disconnects

_HEARTBEAT: Final = codec.encode(m.Heartbeat())

P = TypeVar("P", bound=Peer)


class ListenerSettings(Struct, frozen=True):
    """key: of the instance's tokens. clients_max: logged-on connections. budget: of each principal.

    incarnation: of this process. disconnects: whose tokens count no more.
    """

    key: bytes
    clients_max: int
    incarnation: int = 0
    recording: Recording = Recording([])
    access: Access = Access.off()
    budget: Budget = DEFAULT
    disconnects: Disconnects = NONE


class TokenListener(ABC, Generic[P]):
    """Base of a core. commands: what performs each kind; it gives effects, or None.

    decoder: of commands. sid_ends: commands that, if they are refused, end what has their sid.
    """

    decoder: ClassVar[Decoder[Any]]
    sid_ends: ClassVar[tuple[type, ...]]

    def __init__(
        self, settings: ListenerSettings, connections: Peers[P], addresses: s.Peers
    ) -> None:
        """addresses: of connections, and since when they are there."""
        self.connections, self.addresses = connections, addresses
        connections.access, connections.disconnects = settings.access, settings.disconnects
        self.refusals = s.RefusalLog(settings.incarnation)
        self.commands: dict[type, Callable[[P, Any], Sequence[Any] | None]] = {
            m.Heartbeat: lambda _connection, _command: None,
            m.Logoff: self._logoff,
        }
        self._key, self._clients_max = settings.key, settings.clients_max

    @abstractmethod
    def gone(self, rid: bytes) -> None:
        """Forgets a connection, if it is known."""

    @abstractmethod
    def origin(self) -> Origin | None:
        """The log, once the journal was heard of."""

    @abstractmethod
    def entitle(self, connection: P) -> Sequence[Any]:
        """The rules have changed: ends what a connection may not have any more."""

    def command(self, received: Received, now: Now) -> Sequence[Any]:
        """What follows from one command."""
        rid = received.rid
        command: Any = None
        try:
            command = decode(self.decoder, received)
            if isinstance(command, m.ListenerLogon):
                return self._logon(received, command, now)
            connection = self.connections.get(rid)
            if connection is None:
                raise ClientError("not_logged_on", "this connection has no logon on this listener")
            check_key(connection, received.key)
            self.connections.heard(connection, command, now.mono_ms)
            return self.commands[type(command)](connection, command) or ()
        except ClientError as error:
            if error.code in s.CODES:
                self.note(rid, s.command_text(command), error.code, s.stranger(received.key))
            cid = getattr(command, "cid", None)
            if command is None and received.frames:
                cid = codec.cid_of(received.frames[0])
            # an error with a sid ends it: so not the one that is in use
            ends = isinstance(command, self.sid_ends) and error.code != "sid_in_use"
            return [self.connections.refusal(rid, error, cid, command.sid if ends else None)]

    def note(self, rid: bytes, what: str, code: str, peer: str = "") -> None:
        """Adds to the audit log. peer: the name of a connection without a logon."""
        known = self.connections.get(rid)
        self.refusals.add(rid, known.token.principal if known else peer, what, code)

    def unauthenticated(self, event: Unauthenticated) -> Sequence[Any]:
        """Adds a connection that was refused to the audit log."""
        self.refusals.add(b"", s.stranger(event.key), "connect", "auth_failed", event.host)
        return ()

    def _logon(self, received: Received, command: m.ListenerLogon, now: Now) -> Sequence[Send]:
        rid, connections = received.rid, self.connections
        token = connections.token_of(command, received, self._key, now.wall_ns / 1e9)
        origin = self.origin()
        if origin is None:  # the client would go on with the one of its connection before
            raise ClientError("not_ready", "this process has not heard from the journal yet")
        self.gone(rid)
        if len(connections) >= self._clients_max:
            raise ClientError("too_many", f"{len(connections)} clients are connected here")
        connection = connections.logon(rid, token, command.heartbeat_s, now.mono_ms)
        answer = welcome(connection, command.cid)
        answer.origin = origin
        return [Send(rid, codec.encode(answer))]

    def _logoff(self, connection: P, command: m.Logoff) -> Sequence[Send]:
        self.gone(connection.rid)
        return [Send(connection.rid, codec.encode(m.Ack("processed", command.cid)))]

    def rules_changed(self, access: Access) -> list[Any]:
        """Ends the sessions, and what is in them, that these rules forbid."""
        self.connections.access = access
        effects: list[Any] = []
        for connection in list(self.connections.values()):
            try:
                admit(access, connection.token, connection.token.key)
            except ClientError as error:
                self.note(connection.rid, "stay logged on", error.code)
                effects.append(self._end(connection.rid, error))
            else:
                effects += self.entitle(connection)
        return effects

    def beat(self, now_ms: int, *, drained: bool) -> list[Send]:
        """Heartbeats that are due, and the ends of silent sessions."""
        silent, due = self.connections.beats(now_ms, drained=drained)
        sends = [Send(rid, _HEARTBEAT) for rid in due]
        for rid in silent:
            error = ClientError("not_logged_on", "nothing was heard for two heartbeats")
            sends.append(self._end(rid, error))
        return sends

    def answer(
        self, rid: bytes, ask: s.AskRefusals | s.Disconnect
    ) -> Sequence[NoteDisconnected | Send | Tell]:
        """A question that the admin has for every listener; `rid`: of the admin."""
        if isinstance(ask, s.AskRefusals):
            return [Tell(rid, self.refusals.report(ask, self.addresses))]
        error = ClientError("session_ended", s.DISCONNECTED, "ask whoever operates this broker")
        found = self.connections.disconnect(ask.client, ask.number)
        return [
            *([NoteDisconnected(ask.client, len(found))] if found else ()),
            *[self._end(each, error) for each in found],
            Tell(rid, s.Disconnected(ask.cid, len(found))),
        ]

    def _end(self, rid: bytes, error: ClientError) -> Send:
        self.gone(rid)
        return self.connections.refusal(rid, error)


def client_rows(
    connections: Peers[P], ask: s.AskClients, most: int, row: Callable[[P], s.ClientRow]
) -> s.Clients:
    """The connections that `ask` is about, by name. most: so many of them at most."""
    named = [
        (one.token.name, rid) for rid, one in connections.items()
        if ask.client in ("", one.token.name)
    ]  # fmt: skip
    rows = [row(connections[rid]) for _, rid in nsmallest(most, named)]
    return s.Clients(ask.cid, rows, len(named) - len(rows))


def client_row(
    one: Peer, addresses: s.Peers, now_ms: int, messages: int, subscriptions: int
) -> s.ClientRow:
    """One connection. messages: sent to its subscriptions or consumers."""
    token = one.token
    address, since_ms = addresses(one.rid)
    return s.ClientRow(
        token.name, token.principal, token.instance, address,
        None if since_ms is None else now_ms - since_ms, token.session, None, None, 0,
        messages, subscriptions, (one.pulse.interval_ms or HEARTBEAT_MS) / 1_000,
    )  # fmt: skip
