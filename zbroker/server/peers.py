"""The clients logged on at a listener that takes tokens: identity, rights, heartbeats. Pure.

The ingest listener answers a logon with a token; the others verify it by themselves. A peer must
have the key that the token was made for, at the logon and at every command.
Source: docs/reference/wire.md, docs/reference/access.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from zbroker.access.core import Access
from zbroker.engine.effects import LoggedOff, LoggedOn, Send
from zbroker.errors import ClientError
from zbroker.heartbeats import ListenerHeartbeats, Pulse, QuietMs
from zbroker.limits import FRAMES_MAX, HEARTBEAT_MS
from zbroker.server.budgets import DEFAULT, Accounts, Budget, ConnectionUse
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.disconnects import NONE
from zbroker.wire.token import Token, verify

ROUTING_ID_BYTES: Final = 5  # what ZeroMQ makes itself: a zero and four more
ENDED_MAX: Final = 64  # sids remembered because commands for them may still be on their way

C = TypeVar("C")


class Received(Struct, gc=False):
    """One command as it came: its sender, its frames, and whether there were more than allowed.

    key: the CURVE key of its connection, "" without.
    """

    rid: bytes
    frames: Sequence[bytes]
    over: bool = False
    key: str = ""


def decode(decoder: msgspec.msgpack.Decoder[C], received: Received) -> C:
    """The command in one message. Raises: ClientError."""
    if received.over or len(received.frames) != 1:
        count = f"more than {FRAMES_MAX}" if received.over else len(received.frames)
        raise ClientError("bad_frame", f"a command here is one frame; this one has {count}")
    return codec.decode(decoder, received.frames[0])


@dataclass(slots=True)
class Peer:
    """One logged-on connection. use: what it has of its principal's budget. ended: recent sids."""

    rid: bytes
    token: Token
    pulse: Pulse
    use: ConnectionUse = field(default_factory=ConnectionUse, kw_only=True)
    ended: dict[str, None] = field(default_factory=dict, kw_only=True)

    def over(self, sid: str, window: int) -> None:
        """Gives back the credit that a subscription or consumer had, and remembers its sid."""
        self.use.subscribe(-1)
        self.use.promise(-window)
        if len(self.ended) >= ENDED_MAX:
            del self.ended[next(iter(self.ended))]
        self.ended[sid] = None


P = TypeVar("P", bound=Peer)


class Peers(dict[bytes, P], Generic[P]):
    """All clients of a listener by routing id. `came`, `left`: the changes, for the guard.

    access: the rules as they are now. disconnects: whose tokens count no more, as operators said.
    errors: how many were sent.
    """

    def __init__(
        self,
        make: Callable[[bytes, Token, Pulse], P],
        quiet_ms: QuietMs | None = None,
        budget: Budget = DEFAULT,
    ) -> None:
        """quiet_ms: see ListenerHeartbeats. budget: of each principal."""
        super().__init__()
        self.accounts = Accounts(budget)
        self.access, self.disconnects = Access.off(), NONE
        self.errors = 0
        self._make = make
        self.heartbeats = ListenerHeartbeats(quiet_ms)
        self.came: list[bytes] = []
        self.left: list[bytes] = []

    def leave(self, rid: bytes) -> None:
        """Forgets a peer."""
        self.accounts.close(self.pop(rid).use)
        self.left.append(rid)

    def token_of(
        self, command: m.ListenerLogon, received: Received, key: bytes, now_s: float
    ) -> Token:
        """What a logon proves; `key` is that of the instance's tokens. Raises: ClientError."""
        if not made_by_zeromq(received.rid):
            raise ClientError("auth_failed", "a routing id must not be chosen by the client")
        token = verify(key, command.token, now_s)
        admit(self.access, token, received.key)
        self.disconnects.check(token)
        return token

    def disconnect(self, client: str, number: int) -> list[bytes]:
        """Which connections of `client` an operator ends; tokens from before count no more.

        number: see zbroker.wire.surveys.Disconnect.
        """
        if number:
            self.disconnects = self.disconnects.add(client, number)
        return [rid for rid, peer in self.items() if peer.token.name == client]

    def logon(self, rid: bytes, token: Token, heartbeat_s: float | None, now_ms: int) -> P:
        """Takes in a peer that proved who it is. Raises: ClientError too_many."""
        use = self.accounts.open(token.principal)
        self.came.append(rid)
        peer = self[rid] = self._make(rid, token, self.heartbeats.begin(heartbeat_s, now_ms))
        peer.use = use
        return peer

    def refusal(
        self, rid: bytes, error: ClientError, cid: str | None = None, sid: str | None = None
    ) -> Send:
        """The error that answers a command, or ends a session or what has this sid."""
        self.errors += 1
        return Send(rid, codec.encode(m.Error(error.code, error.reason, error.hint, cid, sid)))

    def heard(self, peer: P, command: object, now_ms: int) -> None:
        """A command came, which may ask for other heartbeats."""
        interval_s = command.heartbeat_s if isinstance(command, m.Heartbeat) else None
        self.heartbeats.heard(peer.pulse, now_ms, interval_s)
        peer.use.account.now_ms = now_ms

    def moved(self) -> list[LoggedOff | LoggedOn]:
        """Since the last call. Departures first: a peer may have come back under its id."""
        if not self.left and not self.came:
            return []
        came = dict.fromkeys(rid for rid in self.came if rid in self)
        effects: list[LoggedOff | LoggedOn] = [LoggedOff(rid) for rid in self.left]
        effects += map(LoggedOn, came)
        self.left.clear()
        self.came.clear()
        return effects

    def beats(self, now_ms: int, *, drained: bool) -> tuple[list[bytes], list[bytes]]:
        """The silent clients, and those due for a heartbeat now."""
        pulses = ((rid, peer.pulse) for rid, peer in self.items())
        return self.heartbeats.tick(now_ms, pulses, drained=drained)


def welcome(peer: Peer, cid: str | None) -> m.Ack:
    """The answer to a logon."""
    beat_s = (peer.pulse.interval_ms or HEARTBEAT_MS) / 1000
    return m.Ack("processed", cid, version=m.VERSION, heartbeat_s=beat_s)


def admit(access: Access, token: Token, key: str) -> None:
    """Raises: ClientError, unless who has `key` may be who `token` says, under that name."""
    if token.key != key or not access.holds(token.principal, key):
        raise ClientError("auth_failed", "the token was made for another connection's key")
    access.check_name(token.principal, token.name)


def check_key(peer: Peer, key: str) -> None:
    """Raises: ClientError auth_failed for a command that came with another key."""
    if peer.token.key != key:
        raise ClientError("auth_failed", "this connection was logged on with another key")


def made_by_zeromq(rid: bytes) -> bool:
    """True unless the peer chose its routing id itself, which would let it take another's place."""
    return len(rid) == ROUTING_ID_BYTES and rid[0] == 0
