"""What the replication core is started with, and how instances know each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from zbroker.access.core import Access
from zbroker.replication.durability import DestinationRule
from zbroker.replication.link_filter import TypeOf, as_any
from zbroker.wire.replication import LinkWelcome, wrong

FEATURE_LEVEL: Final = 5
TOPICS_LEVEL: Final = 2  # lower ones count what comes over a link with topics as everything
REQUESTS_LEVEL: Final = 3  # lower ones do not know requests between queues
NAMES_LEVEL: Final = 4  # lower ones do not know requests that name messages
SESSIONS_LEVEL: Final = 5  # lower ones do not know requests for sessions


class LinkIdentity(NamedTuple):
    """How an instance names itself in a Hello."""

    instance: int
    name: str
    group: str
    feature_level: int

    def another(self, link: str, welcome: LinkWelcome, *, all_topics: bool = True) -> str:
        """Why the instance that answered is not the destination of the config; "" if it is."""
        if reason := wrong(welcome.statement):
            return reason
        if not all_topics and welcome.feature_level < TOPICS_LEVEL:
            return (
                "the release there does not know `topics` and `filter` of a destination, and would "
                "count what they want as everything; update it first, or take them away"
            )
        if welcome.name != link:
            return f"the instance there is called {welcome.name!r}; change `destination.to`"
        if welcome.statement.instance == self.instance:
            return "the instance there has the id of this one: one of them is a copy"
        return ""


class ReplicationSettings(NamedTuple):
    """sync_needed, min_sync: see zbroker.config.ReplicationConfig. access: the rules
    for instances that send here. type_of: how filters of destinations read payloads of a topic."""

    instance: int
    name: str
    group: str
    incarnation: int
    destinations: Sequence[DestinationRule]
    sync_needed: int = 0
    min_sync: int = 0
    access: Access = Access.off()
    return_wait_ms: int = 0
    type_of: TypeOf = as_any
