"""Which queues take messages of a topic, found without asking each of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from zbroker.limits import TOPICS_MAX
from zbroker.queues.queue_state import QueueState


class TopicIndex:
    """Of all queues that run. Answers are remembered until one begins or ends."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, QueueState]] = {}
        self._patterns: dict[str, QueueState] = {}
        self._known: dict[str, list[QueueState]] = {}

    def add(self, one: QueueState) -> None:
        """It takes part from now on."""
        self._of(one)[one.name] = one
        self._known.clear()

    def remove(self, one: QueueState) -> None:
        """It takes part no more."""
        self._of(one).pop(one.name, None)
        self._known.clear()

    def _of(self, one: QueueState) -> dict[str, QueueState]:
        config = one.definition.config
        if config.regex:
            return self._patterns
        return self._exact.setdefault(config.topic or config.name, {})

    def of(self, topics: Sequence[str]) -> list[QueueState]:
        """Each queue that takes one of these topics, once."""
        if len(topics) == 1:
            return self._one(topics[0])
        return list({one.name: one for topic in topics for one in self._one(topic)}.values())

    def _one(self, topic: str) -> list[QueueState]:
        found = self._known.get(topic)
        if found is None:
            if len(self._known) >= TOPICS_MAX:
                self._known.clear()
            found = list(self._exact.get(topic, {}).values())
            found += [one for one in self._patterns.values() if one.definition.topics(topic)]
            self._known[topic] = found
        return found
