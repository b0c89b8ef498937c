"""What `publish` and `publish_many` were given, checked, for both shells of the client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, TypeVar

from zbroker.client.values import to_bytes, to_ns
from zbroker.ids import check_topic
from zbroker.limits import TOPICS_MAX

T = TypeVar("T")


class CheckedTopics:
    """`known`: those that were checked already; the others cost a call."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def check_many(self, topic: str | Sequence[str], count: int) -> str | list[str]:
        """One for all of `count` messages, or one for each. Raises: as `check`, ValueError."""
        if isinstance(topic, str | bytes) or not isinstance(topic, Sequence):
            self.check(topic)
            return topic
        if len(topic) != count:
            raise ValueError(f"{count} payloads have {len(topic)} topics")
        for each in dict.fromkeys(topic):
            self.check(each)
        return list(topic)

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


def parts(values: str | Sequence[T] | None, start: int, end: int) -> Iterable[Any]:
    """Those of [start, end): of one topic, or of no times, as many as are asked for."""
    return values[start:end] if isinstance(values, list) else repeat(values)


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
