"""Sets of topics: one exact name, or an RE2 pattern for whole names; and types of their payloads.

RE2 runs in time linear in the topic, and its memory is bounded; `re` has neither bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import re2
from msgspec import Struct

from zbroker.errors import ClientError
from zbroker.ids import check_topic
from zbroker.limits import MIB, TOPICS_MAX

PATTERN_MEMORY_BYTES: Final = 1 * MIB  # a compiled pattern with its automata
PATTERN_STEPS_MAX: Final = 1_250  # of RE2's program, as in filters (\pL+ has 1,201)
CACHED_TOPICS_MAX: Final = 10_000  # answers kept for one pattern
TYPE_DEFAULT: Final = "auto"

Matcher = Callable[[str], bool]
T = TypeVar("T")


def matcher(topic: str, *, regex: bool) -> Matcher:
    """The predicate for a topic or pattern.

    Raises: ClientError bad_topic, or bad_filter for a pattern that RE2 does not take.
    """
    if regex:
        found = _IN_USE.get(topic)
        if found is None:
            found = _IN_USE[topic] = TopicPattern(topic)
        return found
    check_topic(topic)
    return topic.__eq__


def chars_to_compile(topic: str, *, regex: bool) -> int:
    """How much of a pattern is still to be compiled: nothing, if the same one is in use."""
    return len(topic) if regex and topic not in _IN_USE else 0


class TopicCache(dict[str, T]):
    """Answers for topics, each found once; all are forgotten when there are too many."""

    def __init__(self, find: Callable[[str], T], most: int) -> None:
        super().__init__()
        self._find, self._most = find, most

    def __missing__(self, topic: str) -> T:
        found = self._find(topic)
        if len(self) >= self._most:
            self.clear()
        self[topic] = found
        return found


class TopicPattern:
    """A compiled pattern that remembers its answers; shared by all who want the same topics."""

    def __init__(self, pattern: str) -> None:
        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_BYTES
        options.log_errors = False
        try:
            made = re2.compile(pattern, options)
        except re2.error as error:
            raise ClientError("bad_filter", f"the pattern cannot be used: {_text(error)}") from None
        if (steps := made.programsize) > PATTERN_STEPS_MAX:
            reason = f"the pattern has {steps} steps, at most {PATTERN_STEPS_MAX}"
            raise ClientError("bad_filter", reason)
        fullmatch = made.fullmatch
        self._known = TopicCache(lambda topic: fullmatch(topic) is not None, CACHED_TOPICS_MAX)

    def __call__(self, topic: str) -> bool:
        return self._known[topic]


#: The compiled patterns in use. Making one takes milliseconds.
_IN_USE: Final[WeakValueDictionary[str, TopicPattern]] = WeakValueDictionary()


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


class TopicType(Struct, omit_defaults=True, frozen=True):
    """How payloads of the topics that fit are read. type: of `zbroker.formats`, with its schema."""

    topic: str
    regex: bool = False
    type: str = TYPE_DEFAULT


class TopicTypes:
    """The type of each topic: that of the first rule that fits.

    A queue's definition keeps its rules: an expression must find the same in a message whenever the
    log is read again. Changes of `[[record]]` are for new queues.
    """

    def __init__(self, rules: Sequence[TopicType]) -> None:
        self._rules = [(matcher(one.topic, regex=one.regex), one.type) for one in rules]
        self._known = TopicCache(self._found, TOPICS_MAX)

    def __call__(self, topic: str) -> str:
        return self._known[topic]

    def _found(self, topic: str) -> str:
        return next((name for fits, name in self._rules if fits(topic)), TYPE_DEFAULT)
