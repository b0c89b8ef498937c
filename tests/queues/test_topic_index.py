"""zbroker/queues/topic_index.py: which queues take messages of a topic."""

from __future__ import annotations

import pytest

from tests.queues.bench import Bench, work
from zbroker.queues import topic_index
from zbroker.queues.topic_index import TopicIndex


def _index(at: Bench) -> TopicIndex:
    return at.manager.folding.index


def _names(at: Bench, *topics: str) -> list[str]:
    return sorted(one.name for one in _index(at).of(topics))


def test_queues_are_found_by_topic_and_by_pattern() -> None:
    at = Bench(work("a"), work("b", topic="other"), work("c", topic="t|o.*", regex=True))
    assert _names(at, "t") == ["a", "c"]
    assert _names(at, "other") == ["b", "c"]
    assert _names(at, "t", "other", "x") == ["a", "b", "c"]
    assert _names(at, "x") == []


def test_what_ends_is_not_found_any_more() -> None:
    at = Bench(work("a"), work("b", topic="t.*", regex=True))
    assert _names(at, "t") == ["a", "b"]
    for name in ("a", "b"):
        _index(at).remove(at.manager.running[name])
    assert _names(at, "t") == []
    _index(at).add(at.manager.running["a"])
    assert _names(at, "t") == ["a"]


def test_only_so_many_answers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_index, "TOPICS_MAX", 2)
    at = Bench(work("a"))
    for topic in ("t", "x", "y", "t"):
        assert _names(at, topic) == (["a"] if topic == "t" else [])
    assert len(_index(at)._known) <= 2
