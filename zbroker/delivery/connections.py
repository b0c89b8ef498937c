"""Connections of subscribers: subscriptions, credit, and the right to read. Pure.

Rights are checked at each command, and again when the rules change:

    logon       the token's principal must hold the key of the connection
    subscribe   from now on: the action `subscribe`
    replay      with `bookmark` or `until`, and ranges: the action `replay`

A subscription to one topic that may not be read is refused. A pattern gets the topics that may be
read; it is refused if there are none. Source: docs/reference/access.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zbroker.access.core import Permit
from zbroker.delivery.subscription import SubscriptionState
from zbroker.errors import ClientError
from zbroker.limits import CREDIT_MAX_BYTES, KIB
from zbroker.server.peers import Peer, Peers
from zbroker.wire.messages import Ranges

#: what a subscription gets even when its connection's credit is used up, so that it cannot stall
CREDIT_MIN_BYTES: Final = 64 * KIB


@dataclass(slots=True)
class DeliveryConnection(Peer):
    """One logged-on peer."""

    plans: int = 0
    subscriptions: dict[str, SubscriptionState] = field(default_factory=dict)

    def grant(self, asked: int, one: SubscriptionState | None = None) -> int:
        """How much of the credit asked for a subscription, or more of it, may be given.

        Credit that was granted once is given again as it is used, so a subscriber keeps its window.
        """
        left = min(max(0, CREDIT_MAX_BYTES - self.use.credit), self.use.account.credit_left)
        if one is None:
            return min(asked, max(left, CREDIT_MIN_BYTES))
        given = min(asked, max(0, max(one.window, CREDIT_MIN_BYTES) - one.credit + left))
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
        self.over(sid, self.subscriptions.pop(sid).window)


Connections = Peers[DeliveryConnection]  # by routing id


class ReadRight(NamedTuple):
    """What somebody wants to read. unrecorded: also what is not recorded."""

    action: str
    topic: str
    regex: bool = False
    unrecorded: bool = False


class Rights:
    """What may be read by the rules as they are now."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def allow(self, one: SubscriptionState, principal: str, *, unrecorded: bool = False) -> bool:
        """Has `one` get what may be read now, and nothing else; True if that has changed.

        unrecorded: it wants what is not recorded, too. Raises: ClientError not_entitled.
        """
        wanted = ReadRight(one.action, one.topic, regex=one.regex, unrecorded=unrecorded)
        return one.selection.allow(self.check(principal, wanted))

    def check(self, principal: str, wanted: ReadRight) -> Permit:
        """What may be read of what is wanted; asked before anything is made for it.

        Raises: ClientError not_entitled.
        """
        action, topic = wanted.action, wanted.topic
        access = self._connections.access
        permit = access.permit(principal, action)
        if permit.nothing or (not wanted.regex and permit.verdict(topic) == "no"):
            raise _refused(principal, action, topic)
        if wanted.unrecorded and permit.key != access.permit(principal, "subscribe").key:
            raise _refused(principal, "subscribe", f"{topic}, where it is not recorded,")
        return permit

    def check_ranges(self, principal: str, command: Ranges) -> None:
        """Without a topic it is about the log as a whole: the right to any topic will do.

        Raises: ClientError not_entitled.
        """
        every = command.topic is None
        topic = "anything" if command.topic is None else command.topic
        self.check(principal, ReadRight("replay", topic, command.regex or every))


def _refused(principal: str, action: str, what: str) -> ClientError:
    return ClientError("not_entitled", f"{principal!r} may not {action} {what!r}")
