"""What an access file says, as values: grants of roles, and principals. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from zbroker.limits import TOPIC_MAX_BYTES

if TYPE_CHECKING:
    from zbroker.filters import Filter, MessageMetadata, Payloads


#: action -> what it is needed for
ACTIONS: Final[dict[str, str]] = {
    "publish": "publish to a topic",
    "subscribe": "receive new messages: no bookmark, no `until`",
    "replay": "receive recorded messages, from any point on: `bookmark`, `until`, ranges",
    "consume": "take messages from a queue, or browse them: `topics` are names of queues",
    "configure": "declare, delete and purge queues, declare and delete exchanges: `topics` are "
    "their names",
    "bind": "bind a queue to exchanges, and unbind it: `topics` are names of queues",
    "dtx_admin": "decide distributed transactions of others: `topics` are names of principals",
    "replicate": "send the log of another instance here: messages of these topics",
    "admin_read": "see clients, subscriptions, topics and the log's files over HTTP",
    "admin_write": "change something over HTTP: archive, remove, hold, disconnect",
}
ADMIN: Final = frozenset({"admin_read", "admin_write"})  # these are about no topic
UNFILTERED_TOPICS: Final = frozenset({"configure", "bind", "dtx_admin", "replicate"})
UNFILTERED: Final = ADMIN | UNFILTERED_TOPICS  # these see no single message, so no filter fits them

Kind = Literal["allow", "deny"]


class Grant(Struct, frozen=True):
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


ANY: Final = "*"
_STARS: Final = re.compile(r"\*+")


class AccessPattern:
    """A compiled pattern. text: its shortest form; equal texts fit the same."""

    __slots__ = ("_first", "_last", "_middle", "_shortest", "text")

    def __init__(self, text: str) -> None:
        """Raises: ValueError for one that nothing can fit."""
        if not text or not text.isprintable():
            raise ValueError(f"{text[:64]!r} is not printable text")
        self.text = _STARS.sub(ANY, text)
        first, *middle = self.text.split(ANY)
        self._first = first
        self._last = middle.pop() if middle else None
        self._middle = middle
        self._shortest = len(self.text) - self.text.count(ANY)
        if self._shortest > TOPIC_MAX_BYTES:
            raise ValueError(f"{text[:64]!r} is longer than {TOPIC_MAX_BYTES} bytes")

    def __call__(self, name: str) -> bool:
        """True if the whole of `name` fits."""
        if self._last is None:
            return name == self._first
        if len(name) < self._shortest or not name.startswith(self._first):
            return False
        at, end = len(self._first), len(name) - len(self._last)
        for part in self._middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return name.endswith(self._last)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


_MAYBE_NOTHING: Final = frozenset({"auto", "binary"})  # these read as None what they cannot read


class Clause:
    """The filter of a grant."""

    def __init__(self, text: str) -> None:
        """Raises: ClientError bad_filter."""
        # most access files have no filter, and this import doubles the time of reading one
        from zbroker.filters.content_filter import Filter
        from zbroker.filters.nodes import fields_of
        from zbroker.filters.parser import parse
        from zbroker.filters.vocabulary import FIXED

        tree = parse(text, FIXED)
        self.text = text
        self.looks = bool(fields_of(tree))  # into payloads; not so at topics, headers, times
        self._filter: Filter = Filter(text, tree)

    def picks(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> list[int]:
        """Those of `at` that can be read and that the filter is true for."""
        found = self._filter.test(payloads.type).picks(payloads, at, about)
        return _readable(payloads, found) if self.looks else found

    def refuses(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> set[int]:
        """Those of `at` that the filter is true for, and those that cannot be read."""
        if not self.looks:
            return set(self._filter.test(payloads.type).picks(payloads, at, about))
        readable = _readable(payloads, at)
        found = self._filter.test(payloads.type).picks(payloads, readable, about)
        return set(at).difference(readable).union(found)


class TopicFilters:
    """The filters that decide over one topic: one of `allow` (None: all), and none of `deny`."""

    def __init__(self, allow: Sequence[Clause] | None, deny: Sequence[Clause]) -> None:
        self._allow = allow
        self._deny = deny
        allowed = None if allow is None else frozenset(clause.text for clause in allow)
        self._key = (allowed, frozenset(clause.text for clause in deny))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicFilters) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def picks(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> list[int]:
        """Which of the messages `at` (ascending, each once) are permitted, ascending."""
        kept = self._allowed(payloads, at, about)
        for clause in self._deny:
            if not kept:
                break
            refused = clause.refuses(payloads, kept, about)
            kept = [i for i in kept if i not in refused]
        return kept

    def _allowed(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> list[int]:
        if self._allow is None:
            return list(at)
        if len(self._allow) == 1:
            return self._allow[0].picks(payloads, at, about)
        found: set[int] = set()
        for clause in self._allow:
            left = [i for i in at if i not in found]
            if not left:
                break
            found.update(clause.picks(payloads, left, about))
        return sorted(found)


def _readable(payloads: Payloads, at: Sequence[int]) -> list[int]:
    """Those of `at` whose payloads can be looked into."""
    if not at:
        return []
    good, values = payloads.values(at)
    if payloads.type not in _MAYBE_NOTHING:
        return list(good)
    return [i for i, value in zip(good, values, strict=True) if value is not None]
