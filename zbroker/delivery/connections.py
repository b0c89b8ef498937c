"""Who is logged on: identity, subscriptions, credit and heartbeats of each connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from zbroker.delivery.subscription import SubscriptionState
from zbroker.heartbeats import QuietMs
from zbroker.limits import CREDIT_MAX_BYTES, KIB
from zbroker.server.budgets import DEFAULT, Budget
from zbroker.server.peers import Peer, Peers

#: what a subscription gets even when its connection's credit is used up, so that it cannot stall
CREDIT_MIN_BYTES: Final = 64 * KIB
ENDED_MAX: Final = 64  # sids remembered because commands for them may still be on their way


@dataclass(slots=True)
class DeliveryConnection(Peer):
    """One logged-on peer."""

    plans: int = 0
    subscriptions: dict[str, SubscriptionState] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)

    def grant(self, asked: int, one: SubscriptionState | None = None) -> int:
        """How much of the credit asked for a subscription, or more of it, may be given.

        What was granted once is given again as it is used: who returns it is not left without.
        """
        room = min(max(0, CREDIT_MAX_BYTES - self.use.credit), self.use.account.credit_left)
        if one is None:
            return min(asked, max(room, CREDIT_MIN_BYTES))
        given = min(asked, max(0, max(one.window, CREDIT_MIN_BYTES) - one.credit + room))
        self._widen(one, one.credit + given)
        return given

    def _widen(self, one: SubscriptionState, window: int) -> None:
        if window > one.window:
            self.use.promise(window - one.window)
            one.window = window

    def begin(self, one: SubscriptionState) -> None:
        """A new one, with its credit."""
        self.subscriptions[one.names.sid] = one
        self.use.subscribe()
        self._widen(one, one.credit)

    def end(self, sid: str) -> None:
        """Remembers that a subscription is over."""
        one = self.subscriptions.pop(sid)
        self.use.subscribe(-1)
        self.use.promise(-one.window)
        if len(self.ended) >= ENDED_MAX:
            del self.ended[next(iter(self.ended))]
        self.ended[sid] = None


class Connections(Peers[DeliveryConnection]):
    """All connections by routing id."""

    def __init__(self, quiet_ms: QuietMs | None = None, budget: Budget = DEFAULT) -> None:
        super().__init__(DeliveryConnection, quiet_ms, budget)
