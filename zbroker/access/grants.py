"""What an access file says, as values: grants of roles, and principals. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from zbroker.access.content import Clause
from zbroker.access.patterns import AccessPattern

#: action -> what it is needed for
ACTIONS: Final[dict[str, str]] = {
    "publish": "publish to a topic",
    "subscribe": "receive new messages: no bookmark, no `until`",
    "replay": "receive recorded messages, from any point on: `bookmark`, `until`, ranges",
    "consume": "take messages from a queue, or browse them: `topics` are names of queues",
    "replicate": "nothing yet",
    "admin_read": "see clients, subscriptions, topics and the log's files over HTTP",
    "admin_write": "change something over HTTP: archive, remove, hold, disconnect",
}
ADMIN: Final = frozenset({"admin_read", "admin_write"})  # these are about no topic
UNFILTERED: Final = ADMIN | {"replicate"}  # these see no single message, so no filter fits them

Kind = Literal["allow", "deny"]


@dataclass(frozen=True, slots=True)
class Grant:
    """One `[[role.NAME.allow]]` or `deny` table. number: from 1, per role and kind."""

    role: str
    kind: Kind
    number: int
    actions: frozenset[str]
    topics: tuple[AccessPattern, ...]
    clause: Clause | None = None

    def fits(self, topic: str) -> bool:
        """True if it is about `topic`."""
        return any(pattern(topic) for pattern in self.topics)


@dataclass(frozen=True, slots=True)
class Principal:
    """One `[principal.NAME]` table. names: None for those that every principal has."""

    name: str
    keys: tuple[str, ...] = field(repr=False)
    password: str = field(default="", repr=False)
    roles: tuple[str, ...] = ()
    names: tuple[AccessPattern, ...] | None = None
