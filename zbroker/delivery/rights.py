"""What a connection may read: checked at each command, and again when the rules change. Pure.

    logon       the token's principal must hold the key of the connection
    subscribe   from now on: the action `subscribe`
    replay      with `bookmark` or `until`, and ranges: the action `replay`

A subscription to one topic that may not be read is refused. A pattern gets what may be read of it;
it is refused when that is nothing at all. Source: docs/reference/access.md.
"""

from __future__ import annotations

from typing import NamedTuple

from zbroker.access.core import Access, Permit
from zbroker.delivery.subscription import SubscriptionState
from zbroker.errors import ClientError
from zbroker.wire.messages import Ranges


class ReadRight(NamedTuple):
    """What somebody wants to read. unrecorded: also what is not recorded."""

    action: str
    topic: str
    regex: bool = False
    unrecorded: bool = False


class Rights:
    """The rules as they are now."""

    def __init__(self, access: Access) -> None:
        self.access = access

    def allow(self, one: SubscriptionState, principal: str, *, unrecorded: bool = False) -> bool:
        """Has `one` get what may be read now, and nothing else; True if that has changed.

        unrecorded: it wants what is not recorded, too. Raises: ClientError not_entitled.
        """
        wanted = ReadRight(one.action, one.topic, regex=one.regex, unrecorded=unrecorded)
        return one.wish.allow(self.check(principal, wanted))

    def check(self, principal: str, wanted: ReadRight) -> Permit:
        """What may be read of what is wanted; asked before anything is made for it.

        Raises: ClientError not_entitled.
        """
        action, topic = wanted.action, wanted.topic
        permit = self.access.permit(principal, action)
        if permit.nothing or (not wanted.regex and permit.verdict(topic) == "no"):
            raise _refused(principal, action, topic)
        if wanted.unrecorded and permit.key != self.access.permit(principal, "subscribe").key:
            raise _refused(principal, "subscribe", f"{topic}, where it is not recorded,")
        return permit

    def check_ranges(self, principal: str, command: Ranges) -> None:
        """Without a topic it is about the log as a whole: the right to any topic will do.

        Raises: ClientError not_entitled.
        """
        topic = command.topic
        permit = self.access.permit(principal, "replay")
        exact = topic is not None and not command.regex
        if permit.nothing or (exact and permit.verdict(topic or "") == "no"):
            raise _refused(principal, "replay", topic or "anything")


def _refused(principal: str, action: str, what: str) -> ClientError:
    return ClientError("not_entitled", f"{principal!r} may not {action} {what!r}")
