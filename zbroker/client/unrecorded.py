"""Which topics the broker does not record, as its acks name them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from zbroker.limits import TOPICS_MAX


class Unrecorded:
    """`topics` is read by other threads; it stays the same set.

    The broker's settings may change with a restart. A topic that was not recorded is taken for
    recorded again once a batch of it is settled in a session in which the topic was not named.
    """

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self._named: set[str] = set()

    def new_session(self) -> None:
        """The broker may be another one now."""
        self._named.clear()

    def named(self, topics: Iterable[str]) -> None:
        """An ack says that these are not recorded."""
        for known in (self.topics, self._named):
            if len(known) >= TOPICS_MAX:
                known.clear()
            known.update(topics)

    def settled(self, topics: set[str]) -> None:
        """A batch is settled; its topics would have been named by now."""
        self.topics -= topics - self._named
