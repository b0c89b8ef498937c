"""Decides what the log records, and the types of payloads, by the `[[record]]` tables. Pure.

Without any table everything is recorded, or nothing ([journal] record). With some, the first one
that matches the topic decides: it sets the type, and, if it has a filter, only messages for which
it is true are recorded. Other messages are live only: they go from ingest to delivery, have no
position and no bookmark, and cannot be read again.

The answer for a message depends on its topic, payload and headers, its publisher's time and the
tables: the same message that comes again gets the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from zbroker.errors import ClientError
from zbroker.limits import TOPICS_MAX
from zbroker.topics import TYPE_DEFAULT as TYPE_DEFAULT
from zbroker.topics import TopicCache, TopicType, matcher

if TYPE_CHECKING:
    from zbroker.filters import MessageMetadata

_READ_ANYTHING: Final = frozenset({"auto", "binary"})  # no bytes are wrong


class RecordRule(Protocol):
    """One `[[record]]` table."""

    @property
    def topic(self) -> str: ...
    @property
    def regex(self) -> bool: ...
    @property
    def payload_type(self) -> str: ...
    @property
    def filter(self) -> str: ...


class BadRule(ClientError):
    """The table with this index, from 0, cannot be used, because of what `key` says."""

    index = 0
    key = "topic"


class RecordFilter:
    """The filter of one table: it decides over each message."""

    def __init__(self, text: str, type_: str) -> None:
        """Raises: ClientError bad_filter."""
        # few instances have a filter, and this import doubles the time of reading a config
        from zbroker.filters import FIXED, Payloads, compile_filter

        self._type, self._payloads = type_, Payloads
        self._test = compile_filter(text, FIXED).test(type_)

    def maybe(self, plain: bytes | memoryview) -> bool:
        """False if no message of this packed body, without its compression, can be recorded."""
        return self._test.maybe(plain)

    def look(
        self, messages: Sequence[bytes], at: Sequence[int], about: MessageMetadata
    ) -> tuple[set[int], int]:
        """Which of the messages `at` are recorded, and how many others are not of their type."""
        payloads = self._payloads(self._type, messages)
        found = set(self._test.picks(payloads, at, about))
        if len(found) == len(at) or self._type in _READ_ANYTHING:
            return found, 0
        left = [index for index in at if index not in found]
        return found, len(left) - len(payloads.values(left)[0])


class _CompiledRule:
    def __init__(self, index: int, rule: RecordRule) -> None:
        key = "topic"
        try:
            self.wants = matcher(rule.topic, regex=rule.regex)
            key = "filter"
            self.content = RecordFilter(rule.filter, rule.payload_type) if rule.filter else None
        except ClientError as error:
            bad = BadRule(error.code, error.reason, error.hint)
            bad.index, bad.key = index, key
            raise bad from None
        self.type = rule.payload_type
        self.kind = None if rule.filter else True  # all is recorded; None: content decides


class Recording:
    """The answer for each topic, remembered."""

    def __init__(self, rules: Sequence[RecordRule], *, nothing: bool = False) -> None:
        """`nothing`: without rules nothing is recorded. Raises: BadRule bad_topic or bad_filter."""
        self._rules = list(rules)
        self._tables = [_CompiledRule(index, rule) for index, rule in enumerate(rules)]
        self._known = TopicCache(self._find, TOPICS_MAX)
        self.everything = not rules and not nothing
        self.by_content = any(table.content is not None for table in self._tables)

    def __call__(self, topic: str) -> bool:
        """True if messages of `topic` are recorded, all or some of them."""
        return self.everything or self._known[topic] is not None

    def kind(self, topic: str) -> bool | None:
        """Whether messages of `topic` are recorded; None: their content decides."""
        if self.everything:
            return True
        found = self._known[topic]
        return False if found is None else found.kind

    def content(self, topic: str) -> RecordFilter:
        """What decides over messages of a topic whose `kind` is None."""
        found = self._known[topic]
        assert found is not None
        assert found.content is not None
        return found.content

    def type_of(self, topic: str) -> str:
        """How payloads of `topic` are read: a type of `zbroker.formats`, with all it needs."""
        found = self._known[topic]
        return TYPE_DEFAULT if found is None else found.type

    def types_of(self, topic: str, *, regex: bool = False) -> list[TopicType]:
        """How payloads of a topic, or of all topics of a pattern, are read, for a definition."""
        if not regex:
            return [TopicType(topic, False, self.type_of(topic))]
        return [TopicType(rule.topic, rule.regex, rule.payload_type) for rule in self._rules]

    def _find(self, topic: str) -> _CompiledRule | None:
        return next((table for table in self._tables if table.wants(topic)), None)
