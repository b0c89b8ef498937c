"""What a `[[destination]]` gets, from its table and the `[[record]]` tables beside it."""

from __future__ import annotations

from zbroker.config.replication import DestinationConfig
from zbroker.link_topics import LinkTopics, types_digest
from zbroker.recording import Recording


def link_topics(rule: DestinationConfig, recording: Recording) -> LinkTopics:
    """Its topics and filter. recording: how payloads are read.

    Raises: ClientError bad_topic, too_many, bad_filter.
    """
    return LinkTopics(rule.topics, rule.filter, filter_types(rule, recording))


def filter_types(rule: DestinationConfig, recording: Recording) -> int:
    """By which types its filter reads payloads: see `zbroker.link_topics.types_digest`.

    Raises: ClientError bad_filter.
    """
    if not rule.filter:
        return 0
    # few instances have a filter, and this import doubles the time of reading a config
    from zbroker.filters import FIXED, compile_at_once

    looks = compile_at_once(rule.filter, FIXED).looks
    return types_digest(recording.types_of("", regex=True)) if looks else 0
