"""Lists of topics for a link: what they carry, and that two of one meaning have one digest."""

from __future__ import annotations

import pytest

from zbroker.errors import ClientError
from zbroker.limits import U63_MAX
from zbroker.link_topics import EVERYTHING, PATTERNS_MAX, LinkTopics


def test_a_name_is_that_topic_only() -> None:
    topics = LinkTopics(["orders", "a.b"])
    assert [name for name in ("orders", "orders2", "a.b", "axb") if topics(name)] == [
        "orders",
        "a.b",
    ]


def test_a_star_is_any_text() -> None:
    topics = LinkTopics(["trades.*", "*.eu"])
    assert all(map(topics, ("trades.", "trades.us", "orders.eu")))
    assert not topics("trades")
    assert not topics("orders.us")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["b", "a"], ["a", "b", "a"]),
        (["orders*", "orders.eu", "orders"], ["orders*"]),
        (["a**b"], ["a*b"]),
        (["*", "orders"], []),
        (["**"], []),
    ],
)
def test_lists_of_one_meaning_are_equal(one: list[str], other: list[str]) -> None:
    assert LinkTopics(one) == LinkTopics(other)
    assert LinkTopics(one).digest == LinkTopics(other).digest
    assert len({LinkTopics(one), LinkTopics(other)}) == 1


def test_other_lists_have_other_digests() -> None:
    lists = [["a"], ["b"], ["a", "b"], ["a*"], ["*a"], ["ab"]]
    digests = {LinkTopics(one).digest for one in lists}
    assert len(digests) == len(lists)
    assert all(0 < digest <= U63_MAX for digest in digests)


def test_the_digest_never_changes() -> None:
    """It is in logs, and in what instances say to each other."""
    assert LinkTopics(["trades.*", "orders"]).digest == 3_082_514_471_447_935_551


def test_everything_has_digest_0() -> None:
    assert EVERYTHING.digest == 0
    assert EVERYTHING.is_everything
    assert EVERYTHING("x")
    assert not LinkTopics(["a"]).is_everything


def test_a_list_covers_patterns_whose_topics_it_carries() -> None:
    topics = LinkTopics(["orders.*", "b"])
    assert all(map(topics.covers, ("orders.*", "orders.eu.*", "orders.eu", "b")))
    assert not any(map(topics.covers, ("*", "orders*", "b*")))
    assert EVERYTHING.covers("*")


def test_some_of_several_topics_may_be_carried() -> None:
    topics = LinkTopics(["a"])
    assert topics.any_of(["b", "a"])
    assert not topics.all_of(["b", "a"])
    assert topics.all_of([])


@pytest.mark.parametrize("text", ["", "a\n", "x" * 256])
def test_what_no_topic_fits_is_refused(text: str) -> None:
    with pytest.raises(ClientError, match="bad_topic"):
        LinkTopics([text])


def test_a_list_has_a_limit() -> None:
    with pytest.raises(ClientError, match="too_many"):
        LinkTopics(f"t{n}" for n in range(PATTERNS_MAX + 1))
