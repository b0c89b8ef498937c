"""The measurements, and how their results are computed. Pure."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from zbroker.errors import ZBrokerError
from zbroker.ids import check_topic

PREFIX: Final = "bench/"
STAMP_BYTES: Final = 8  # when a live message was sent, in ns of this host's monotonic clock


@dataclass(slots=True, frozen=True)
class BenchPlan:
    """The options. size: bytes of a message. sync: messages whose latency is measured."""

    topic: str
    messages: int
    size: int
    batch: bool
    publishers: int
    subscribers: int
    sync: int

    @classmethod
    def of(cls, *, topic: str | None, **options: Any) -> BenchPlan:  # noqa: ANN401 - numbers
        """Raises: ZBrokerError bad_topic."""
        topic = topic or f"{PREFIX}{uuid.uuid4().hex[:12]}"
        if not topic.startswith(PREFIX) or topic == PREFIX:
            reason = f"{topic!r} does not begin with {PREFIX}"
            raise ZBrokerError("bad_topic", reason, "so that no data of yours is touched")
        check_topic(topic)
        return cls(topic=topic, **options)

    def shares(self) -> list[int]:
        """How many messages each publisher publishes."""
        whole, rest = divmod(self.messages, self.publishers)
        return [whole + (number < rest) for number in range(self.publishers)]


def rate(messages: int, size: int, seconds: float) -> dict[str, float]:
    """Messages and bytes per second."""
    seconds = max(seconds, 1e-9)
    return {
        "messages": messages,
        "seconds": round(seconds, 4),
        "messages_s": round(messages / seconds, 1),
        "mb_s": round(messages * size / seconds / 1e6, 3),
    }


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds: at most so long took half, 99 of 100, all of them."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        "messages": len(ordered),
        "p50_ms": _ms(quantile(ordered, 0.5)),
        "p99_ms": _ms(quantile(ordered, 0.99)),
        "max_ms": _ms(ordered[-1]),
    }


def quantile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that is not exceeded by at least this part of them."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 4)
