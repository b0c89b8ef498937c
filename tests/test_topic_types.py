"""zbroker/topics.py: the type of each topic, as a definition recorded it."""

from __future__ import annotations

import pytest

from zbroker import topics
from zbroker.topics import TopicType, TopicTypes


def test_the_first_rule_that_fits_decides() -> None:
    types = TopicTypes([TopicType("a", type="fix"), TopicType("a|b", regex=True, type="json")])
    assert [types(topic) for topic in ("a", "b", "c", "a")] == ["fix", "json", "auto", "fix"]


def test_only_so_many_topics_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TOPICS_MAX", 2)
    types = TopicTypes([TopicType("a", type="fix")])
    for topic in ("a", "b", "c", "a"):
        assert types(topic) == ("fix" if topic == "a" else "auto")
    assert len(types._known) <= 2
