"""Which topics are wanted (zbroker/topics.py)."""

from __future__ import annotations

import pytest

from zbroker import topics
from zbroker.errors import ClientError


@pytest.mark.seed("004-26")
def test_a_topic_matches_itself_only():
    wants = topics.matcher("orders.*", regex=False)
    assert wants("orders.*")
    assert not wants("orders.x")


@pytest.mark.seed("004-26")
def test_a_pattern_matches_whole_names():
    wants = topics.matcher("orders|trades", regex=True)
    assert [wants(name) for name in ("orders", "trades", "orders2", "xorders")] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("pattern", ["a(", "*", r"(a)\1", "a{5000}", "(?=a)"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern):
    with pytest.raises(ClientError, match="bad_filter"):
        topics.matcher(pattern, regex=True)


def test_a_pattern_forgets_rather_than_grow_without_bound():
    wants = topics.TopicPattern("t[0-9]*")
    for number in range(topics.CACHED_TOPICS_MAX + 5):
        assert wants(f"t{number}")
    assert len(wants._known) == 5


def test_a_pattern_has_few_steps() -> None:
    """Many more would take many milliseconds to compile, while others wait."""
    with pytest.raises(ClientError, match=r"steps|cannot be used") as caught:
        topics.matcher(r"(?i)[\pL\pN]{90}", regex=True)
    assert caught.value.code == "bad_filter"
    assert topics.matcher(r"\pL+", regex=True)("abc")


def test_a_pattern_is_compiled_once_as_long_as_somebody_has_it() -> None:
    first = topics.matcher("orders[.].*", regex=True)
    assert topics.matcher("orders[.].*", regex=True) is first
