"""The running queues that a batch may enter, by its topics and by its routes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from zbroker.exchanges.route_column import RoutedName, routed
from zbroker.limits import TOPICS_MAX
from zbroker.log.format import Batch
from zbroker.queues.queue_state import QueueState
from zbroker.topics import TopicCache


class TopicIndex:
    """Running queues by topic. Answers are remembered until one begins or ends."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, QueueState]] = {}
        self._patterns: dict[str, QueueState] = {}
        self._known = TopicCache(self._takers, TOPICS_MAX)

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
            return self._known[topics[0]]
        return list({one.name: one for topic in topics for one in self._known[topic]}.values())

    def _takers(self, topic: str) -> list[QueueState]:
        exact = self._exact.get(topic, {}).values()
        return [*exact, *(one for one in self._patterns.values() if one.definition.topics(topic))]


class RouteIndex:
    """Running queues by the names that routes have for them: one batch costs what it names."""

    def __init__(self) -> None:
        self._by_name: dict[RoutedName, QueueState] = {}

    def add(self, one: QueueState) -> None:
        """It takes part from now on."""
        self._by_name.update(dict.fromkeys(one.definition.names, one))

    def remove(self, one: QueueState) -> None:
        """It takes part no more."""
        for name in one.definition.names:
            self._by_name.pop(name, None)

    def of(self, batch: Batch) -> list[QueueState]:
        """Each queue that messages of a batch go to, once. A name that is not known here may be
        that of a queue that comes later, which reads the log again."""
        found = routed(batch)
        if found is None or not self._by_name:
            return []
        named = (self._by_name.get(name) for name in found.queues)
        return list({one.name: one for one in named if one is not None}.values())
