"""What is recorded in the log, and what type its payloads have: the `[[record]]` tables. Pure.

Without any table everything is recorded. With some, a topic is recorded if one of them fits; the
first that fits says the type. What is not recorded is live only: it goes from ingest to delivery,
has no position and no bookmark, and nothing of it can be read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from zbroker.errors import ClientError
from zbroker.limits import TOPICS_MAX
from zbroker.topics import Matcher, matcher

TYPE_DEFAULT: Final = "auto"


class Rule(Protocol):
    """One `[[record]]` table."""

    @property
    def topic(self) -> str: ...
    @property
    def regex(self) -> bool: ...
    @property
    def type(self) -> str: ...


class BadRule(ClientError):
    """The table with this index, from 0, cannot be used."""

    index = 0


class Recording:
    """The answer for each topic, remembered."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Raises: BadRule bad_topic or bad_filter."""
        self.everything = not rules
        self._rules = [(_matcher(index, rule), rule.type) for index, rule in enumerate(rules)]
        self._known: dict[str, str | None] = {}

    def __call__(self, topic: str) -> bool:
        """True if messages of `topic` are recorded."""
        return self.everything or self._found(topic) is not None

    def type_of(self, topic: str) -> str:
        """How payloads of `topic` are read: a type of `zbroker.formats`."""
        return self._found(topic) or TYPE_DEFAULT

    def _found(self, topic: str) -> str | None:
        try:
            return self._known[topic]
        except KeyError:
            pass
        if len(self._known) >= TOPICS_MAX:
            self._known.clear()
        found = next((type_ for wants, type_ in self._rules if wants(topic)), None)
        self._known[topic] = found
        return found


def _matcher(index: int, rule: Rule) -> Matcher:
    try:
        return matcher(rule.topic, regex=rule.regex)
    except ClientError as error:
        bad = BadRule(error.code, error.reason, error.hint)
        bad.index = index
        raise bad from None
