"""How payloads of topics are read, as a definition recorded it. Pure.

What an expression of a queue finds in a message must be the same whenever the log is read again, so
the types are part of the queue's definition. What `[[record]]` says later is for new queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from zbroker.limits import TOPICS_MAX
from zbroker.topics import matcher

TYPE_DEFAULT: Final = "auto"


class TopicType(Struct, omit_defaults=True, frozen=True):
    """How payloads of the topics that fit are read. type: of `zbroker.formats`, with its schema."""

    topic: str
    regex: bool = False
    type: str = TYPE_DEFAULT


class TopicTypes:
    """The type of each topic: what the first rule that fits says."""

    def __init__(self, rules: Sequence[TopicType]) -> None:
        self._rules = [(matcher(one.topic, regex=one.regex), one.type) for one in rules]
        self._known: dict[str, str] = {}

    def __call__(self, topic: str) -> str:
        found = self._known.get(topic)
        if found is None:
            if len(self._known) >= TOPICS_MAX:
                self._known.clear()
            found = next((name for fits, name in self._rules if fits(topic)), TYPE_DEFAULT)
            self._known[topic] = found
        return found
