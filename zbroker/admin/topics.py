"""GET /topics: what the log holds by topic, and who wants it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from heapq import nsmallest
from typing import Any, Final

from zbroker.access.patterns import AccessPattern
from zbroker.admin.process_link import ProcessLink
from zbroker.admin.requests import TopicsQuery
from zbroker.admin.tallies import TopicTally
from zbroker.admin.topic_counter import TopicCounter
from zbroker.clock import format_time
from zbroker.config import setting_of
from zbroker.errors import ClientError
from zbroker.recording import Recording
from zbroker.topics import Matcher, matcher
from zbroker.wire.surveys import AskTopics
from zbroker.wire.surveys import Topics as Told

PATTERNS_MAX: Final = 200  # of subscriptions, the most frequent ones: each is tried on each row


class TopicReports:
    """Answers from any thread."""

    def __init__(self, counting: TopicCounter, desks: ProcessLink, recording: Recording) -> None:
        self._counting = counting
        self._desks = desks
        self._recording = recording

    def answer(self, wanted: TopicsQuery) -> dict[str, Any]:
        """Those with the most messages first. Raises: ClientError, StorageError."""
        fits = _fits(wanted.match)
        counted, complete = self._counting.rows()
        interest = Interest(self._told())
        rows = {row.topic: row for row in counted}
        for topic in interest.exact:
            rows.setdefault(topic, TopicTally(topic, 0, 0, 0, 0, 0))
        found = [row for row in rows.values() if fits(row.topic)]
        shown = nsmallest(wanted.limit, found, key=lambda row: (-row.messages, row.topic))
        return {
            "complete": complete,
            "left_out": len(found) - len(shown),
            "topics": [self._row(row, interest.of(row.topic)) for row in shown],
        }

    def _told(self) -> list[Told]:
        """What the delivery workers say; what one that is silent would say is missing."""
        rooms = [room for room in self._desks.rooms if setting_of(room) == "delivery"]
        with suppress(ClientError):  # what is in the log can be told without them
            answers = self._desks.ask(Told, AskTopics(0), rooms)
            return [answer for answer in answers.values() if answer is not None]
        return []

    def _row(self, row: TopicTally, subscriptions: int) -> dict[str, Any]:
        there = row.messages > 0
        return {
            "topic": row.topic,
            "recorded": self._recording(row.topic),
            "messages": row.messages,
            "bytes": row.bytes,
            "first_time": format_time(row.first_time) if there else None,
            "last_time": format_time(row.last_time) if there else None,
            "last_position": row.last if there else None,
            "subscriptions": subscriptions,
        }


class Interest:
    """How many subscriptions want a topic; `exact` are those that are named."""

    def __init__(self, told: Iterable[Told]) -> None:
        self.exact: Counter[str] = Counter()
        patterns: Counter[str] = Counter()
        for row in (row for one in told for row in one.rows):
            (patterns if row.regex else self.exact)[row.topic] += row.subscriptions
        self._patterns: list[tuple[Matcher, int]] = []
        for text, count in patterns.most_common(PATTERNS_MAX):
            with suppress(ClientError):  # delivery has taken it, so this is a newer one's
                self._patterns.append((matcher(text, regex=True), count))

    def of(self, topic: str) -> int:
        """By name and by pattern."""
        return self.exact[topic] + sum(count for fits, count in self._patterns if fits(topic))


def _fits(match: str) -> Matcher:
    """Raises: ClientError bad_field."""
    if not match:
        return lambda _: True
    try:
        return AccessPattern(match)
    except ValueError as error:
        raise ClientError("bad_field", f"the query: `match`: {error}") from None
