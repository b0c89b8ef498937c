"""What `publish` and `publish_many` were given, checked, for both shells of the client."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from zbroker.client.values import to_bytes, to_ns
from zbroker.ids import check_topic
from zbroker.limits import TOPICS_MAX


class Topics:
    """`known`: those that were checked already; the others cost a call."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def check(self, topic: str) -> None:
        """Raises: TypeError, ZBrokerError bad_topic."""
        if topic in self.known:
            return
        if not isinstance(topic, str):
            raise TypeError(f"a topic is a str, not {type(topic).__name__}")
        check_topic(topic)
        if len(self.known) >= TOPICS_MAX:
            self.known.clear()
        self.known.add(topic)


def many(
    payloads: Iterable[bytes], times: Iterable[datetime | int] | None
) -> tuple[list[bytes], list[int] | None]:
    """Payloads and their times, as many of these or none. Raises: TypeError, ValueError."""
    data = [item if type(item) is bytes else to_bytes(item) for item in payloads]
    if not data:
        raise ValueError("publish_many needs at least one payload")
    stamps = None if times is None else [to_ns(time) for time in times]
    if stamps is not None and len(stamps) != len(data):
        raise ValueError(f"{len(data)} payloads have {len(stamps)} times")
    return data, stamps
