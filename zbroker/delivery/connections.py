"""Who is logged on: identity, subscriptions, credit and heartbeats of each connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from zbroker.delivery.subscription import Subscription
from zbroker.heartbeats import DoorHeartbeats, Pulse, QuietMs
from zbroker.limits import CREDIT_MAX_BYTES, KIB
from zbroker.wire.token import Token

#: what a subscription gets even when its connection's credit is used up, so that it cannot stall
CREDIT_MIN_BYTES: Final = 64 * KIB
ENDED_MAX: Final = 64  # sids remembered because commands for them may still be on their way
ROUTING_ID_BYTES: Final = 5  # what ZeroMQ makes itself: a zero and four more


@dataclass(slots=True)
class Connection:
    """One logged-on peer."""

    rid: bytes
    token: Token
    pulse: Pulse
    plans: int = 0
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)

    def grant(self, asked: int, one: Subscription | None = None) -> int:
        """How much of the credit asked for a subscription, or more of it, may be given.

        What was granted once is given again as it is used: who returns it is not left without.
        """
        promised = sum(other.window for other in self.subscriptions.values())
        room = max(0, CREDIT_MAX_BYTES - promised)
        if one is None:
            return min(asked, max(room, CREDIT_MIN_BYTES))
        given = min(asked, max(0, max(one.window, CREDIT_MIN_BYTES) - one.credit + room))
        one.window = max(one.window, one.credit + given)
        return given

    def end(self, sid: str) -> None:
        """Remembers that a subscription is over."""
        del self.subscriptions[sid]
        if len(self.ended) >= ENDED_MAX:
            del self.ended[next(iter(self.ended))]
        self.ended[sid] = None


class Connections(dict[bytes, Connection]):
    """All connections by routing id."""

    def __init__(self, quiet_ms: QuietMs | None = None) -> None:
        super().__init__()
        self.heartbeats = DoorHeartbeats(quiet_ms)
        self.came: list[bytes] = []  # logged on, for who minds the door
        self.left: list[bytes] = []

    def leave(self, rid: bytes) -> None:
        """Forgets a peer."""
        del self[rid]
        self.left.append(rid)

    def logon(self, rid: bytes, token: Token, heartbeat_s: float | None, now_ms: int) -> Connection:
        """Takes in a peer that proved who it is."""
        self.came.append(rid)
        connection = self[rid] = Connection(rid, token, self.heartbeats.begin(heartbeat_s, now_ms))
        return connection

    def beats(self, now_ms: int, *, drained: bool) -> tuple[list[bytes], list[bytes]]:
        """Who is silent, and whom to send a heartbeat now."""
        pulses = ((rid, connection.pulse) for rid, connection in self.items())
        return self.heartbeats.tick(now_ms, pulses, drained=drained)


def made_by_zeromq(rid: bytes) -> bool:
    """True unless the peer chose its routing id itself, which would let it take another's place."""
    return len(rid) == ROUTING_ID_BYTES and rid[0] == 0
