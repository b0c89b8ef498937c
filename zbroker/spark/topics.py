"""Which topics a range wants: all, one by name, or those whose whole name RE2 matches."""

from __future__ import annotations

from zbroker import topics
from zbroker.topics import Matcher


def matcher(topic: str | None, regex: bool) -> Matcher | None:
    """None for all topics. Raises: ClientError bad_topic, bad_filter."""
    return None if topic is None else topics.matcher(topic, regex=regex)
