"""Who is logged on: identity, subscriptions, credit and heartbeats of each connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from zbroker.delivery.subscription import Subscription
from zbroker.limits import CREDIT_MAX_BYTES, HEARTBEAT_MS, KIB
from zbroker.wire.token import Token

#: what a subscription gets even when its connection's credit is used up, so that it cannot stall
CREDIT_MIN_BYTES: Final = 64 * KIB
ENDED_MAX: Final = 64  # sids remembered because commands for them may still be on their way
SILENT_INTERVALS_MAX: Final = 2
ROUTING_ID_BYTES: Final = 5  # what ZeroMQ makes itself: a zero and four more


@dataclass(slots=True)
class Connection:
    """One logged-on peer. `interval_ms`: of the heartbeats it asked for; two missed end it."""

    rid: bytes
    token: Token
    heard_ms: int
    interval_ms: int | None
    next_beat_ms: int
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

    def silent(self, now_ms: int) -> bool:
        """True if it asked for heartbeats and missed two."""
        limit = SILENT_INTERVALS_MAX * self.interval_ms if self.interval_ms else None
        return limit is not None and now_ms - self.heard_ms >= limit

    def beat_due(self, now_ms: int) -> bool:
        """True if a heartbeat has to be sent now; the next one is due an interval later."""
        if now_ms < self.next_beat_ms:
            return False
        self.next_beat_ms = now_ms + (self.interval_ms or HEARTBEAT_MS)
        return True


class Connections(dict[bytes, Connection]):
    """All connections by routing id."""

    def logon(self, rid: bytes, token: Token, heartbeat_s: float | None, now_ms: int) -> Connection:
        """Takes in a peer that proved who it is."""
        interval_ms = int(heartbeat_s * 1000) if heartbeat_s else None
        next_beat_ms = now_ms + (interval_ms or HEARTBEAT_MS)
        connection = self[rid] = Connection(rid, token, now_ms, interval_ms, next_beat_ms)
        return connection

    def silent(self, now_ms: int) -> list[bytes]:
        """Who missed two heartbeats."""
        return [rid for rid, connection in self.items() if connection.silent(now_ms)]

    def beats(self, now_ms: int) -> list[bytes]:
        """Whom to send a heartbeat now."""
        return [rid for rid, connection in self.items() if connection.beat_due(now_ms)]


def made_by_zeromq(rid: bytes) -> bool:
    """True unless the peer chose its routing id itself, which would let it take another's place."""
    return len(rid) == ROUTING_ID_BYTES and rid[0] == 0
