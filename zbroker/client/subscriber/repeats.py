"""Which messages came already, where positions cannot tell. Pure.

A subscription with live delivery is sent what a power cut may still take out of the log. The
positions of what is lost are given to other messages, so after a reconnect a position says nothing
about what was seen behind the newest durable one. The publisher's sequence does: it rises in the
log and names the same message when its publisher sends it again.
"""

from __future__ import annotations

from typing import Final

from zbroker.client.message import Message
from zbroker.limits import CLIENTS_MAX

#: what one of them was last sent is durable long before so many others have published
PUBLISHERS_MAX: Final = CLIENTS_MAX


class Repeats:
    """The newest sequence of each publisher; those heard of longest ago are forgotten first."""

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}

    def fresh(self, messages: list[Message]) -> list[Message]:
        """Those of a batch (of one publisher, sequences rise) that did not come before."""
        publisher, last = messages[0].publisher, messages[-1].sequence
        newest = self._newest.pop(publisher, 0)
        if messages[0].sequence <= newest:
            messages = [message for message in messages if message.sequence > newest]
        self._newest[publisher] = max(newest, last)
        if len(self._newest) > PUBLISHERS_MAX:
            del self._newest[next(iter(self._newest))]
        return messages
