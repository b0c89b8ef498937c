"""Lists of topics for a link: what they carry, and that two of one meaning have one digest."""

from __future__ import annotations

import pytest

from zbroker.errors import ClientError
from zbroker.filters.limits import FILTER_MAX_CHARS as COMPILED_MAX_CHARS
from zbroker.filters.parser import parse
from zbroker.limits import U63_MAX
from zbroker.link_topics import (
    EVERYTHING,
    FILTER_MAX_CHARS,
    PATTERNS_MAX,
    LinkTopics,
    types_digest,
)
from zbroker.topics import TopicType


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


# -- filters ----------------------------------------------------------------------------------


def filtered(text: str, *topics: str, types: int = 0) -> LinkTopics:
    return LinkTopics(topics, text, types)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a > 1\n  AND /b = 2 ", "/a > 1 AND /b = 2"),
        ("[/odd  name]  = 1", "[/odd  name] = 1"),
        (r"/a =  r'\'  AND /b = '  x'", r"/a = r'\' AND /b = '  x'"),
        (r"""/a = 'it\'s  so'  OR  "  y" = /b""", r"""/a = 'it\'s  so' OR "  y" = /b"""),
        (r"/a = 1  OR'\''  = /b", r"/a = 1 OR'\'' = /b"),
    ],
)
def test_white_space_between_the_words_of_a_filter_says_nothing(one: str, other: str) -> None:
    assert filtered(one, "t") == filtered(other, "t")
    assert filtered(one).digest == filtered(other).digest
    assert filtered(one).filter == other
    assert parse(one) == parse(other), "they mean the same"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a = ' x'", "/a = '  x'"),
        ("[/a b] = 1", "[/a  b] = 1"),
        ("/a LIKE r' +'", "/a LIKE r'  +'"),
        ("/a = 1", "/a = 2"),
    ],
)
def test_filters_that_may_differ_have_other_digests(one: str, other: str) -> None:
    assert filtered(one) != filtered(other)
    assert filtered(one).digest != filtered(other).digest


def test_topics_filter_and_types_all_count() -> None:
    links = [
        EVERYTHING, filtered("", "t"), filtered("/a"), filtered("/a", "t"), filtered("/a", "u"),
        filtered("/a", "t", types=7), LinkTopics(["t", "/a", "0"]),
    ]  # fmt: skip
    assert len({one.digest for one in links}) == len(set(links)) == len(links)


def test_the_digest_of_a_filter_never_changes() -> None:
    assert filtered("/price > 100", "orders").digest == 5_470_626_594_714_541_663
    assert filtered("", "trades.*", "orders").digest == 3_082_514_471_447_935_551


def test_a_filter_alone_leaves_something_out() -> None:
    assert not filtered("/a = 1").is_everything
    assert filtered("/a = 1")("any topic")
    assert filtered(" \n") == EVERYTHING
    assert filtered("", types=7) == EVERYTHING, "types count where a filter reads payloads"


def test_people_read_topics_and_filter() -> None:
    links = (EVERYTHING, filtered("", "b", "a"), filtered("/a  = 1"), filtered("/a", "t"))
    texts = ["all topics", "a, b", "all topics where /a = 1", "t where /a"]
    assert [str(one) for one in links] == texts


def test_a_link_takes_every_filter_that_can_be_compiled() -> None:
    assert FILTER_MAX_CHARS == COMPILED_MAX_CHARS


def test_types_that_are_all_the_default_have_no_digest() -> None:
    assert types_digest([]) == types_digest([TopicType("a"), TopicType(".*", True)]) == 0
    json = TopicType("a", False, "json")
    assert 0 < types_digest([json]) == types_digest([json, TopicType("b")]) <= U63_MAX
    others = [
        [json], [TopicType("b"), json], [TopicType("a", True, "json")],
        [TopicType("a", False, "msgpack")], [json, TopicType("b", False, "json")],
    ]  # fmt: skip
    assert len({types_digest(one) for one in others}) == len(others)
