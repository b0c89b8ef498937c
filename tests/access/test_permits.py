"""What is permitted (zbroker/access/permits.py and content.py), beside a model of one message."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.access.build import grant
from zbroker.access.content import Clause, TopicFilters
from zbroker.access.grants import Grant
from zbroker.access.permits import Permit, rules_of
from zbroker.filters import Payloads
from zbroker.limits import TOPICS_MAX

#: filter -> (what it says of the fields of a message on a topic, whether it looks at the fields)
FILTERS: dict[str, tuple[Callable[[dict[str, Any], str], bool], bool]] = {
    "/a = 1": (lambda fields, _: fields.get("a") == 1, True),
    "/a != 1": (lambda fields, _: fields.get("a") not in (1, None), True),
    "/b IS NULL": (lambda fields, _: fields.get("b") is None, True),
    "/a = 1 OR /b > 1": (lambda fields, _: fields.get("a") == 1 or fields.get("b", 0) > 1, True),
    "TOPIC_NAME() = 'x.a'": (lambda _, topic: topic == "x.a", False),
    "HEADER('of') != 'x.b'": (lambda _, topic: topic != "x.b", False),
}
PATTERNS = ["*", "x.*", "x.a", "*.a", "y"]
TOPICS = ["x.a", "x.b", "y", "z"]
FIELDS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2))
MESSAGES = st.lists(st.one_of(FIELDS, st.none()), max_size=6)  # None: bytes that are no JSON
ONE = st.tuples(
    st.sampled_from(["allow", "deny"]),
    st.lists(st.sampled_from(PATTERNS), max_size=2),
    st.sampled_from(["", "", *FILTERS]),
)
GRANTS = st.lists(ONE, max_size=5).map(
    lambda rows: [grant(kind, ["replay"], topics, text) for kind, topics, text in rows]
)


class About:
    """Of messages of one topic, which they have as a header, too."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topic(self, _i: int) -> str:
        return self._topic

    def time_ns(self, _i: int) -> int:
        return 0

    def bookmark(self, _i: int) -> str:
        return ""

    def header(self, _i: int, name: str) -> object:
        return self._topic if name == "of" else None

    def key(self, _i: int) -> bytes | None:
        return None


def permit_of(grants: list[Grant]) -> Permit:
    allow, deny = ([one for one in grants if one.kind == kind] for kind in ("allow", "deny"))
    return Permit(rules_of(allow), rules_of(deny))


def payloads(type_: str, messages: list[dict[str, Any] | None]) -> Payloads:
    return Payloads(type_, [b"{oops" if m is None else json.dumps(m).encode() for m in messages])


def is_permitted(
    grants: list[Grant], topic: str, message: dict[str, Any] | None, type_: str
) -> bool:
    """The model: one message, all grants, no cache."""
    unreadable = message is None or type_ == "binary"

    def holds(one: Grant, *, if_unreadable: bool) -> bool:
        if not one.fits(topic):
            return False
        if one.clause is None:
            return True
        says, looks = FILTERS[one.clause.text]
        return if_unreadable if unreadable and looks else says(message or {}, topic)

    allowed = any(holds(one, if_unreadable=False) for one in grants if one.kind == "allow")
    denied = any(holds(one, if_unreadable=True) for one in grants if one.kind == "deny")
    return allowed and not denied


def picked(permit: Permit, topic: str, found: Payloads, at: list[int]) -> list[int]:
    verdict = permit.verdict(topic)
    if verdict == "some":
        return permit.content(topic).picks(found, at, About(topic))
    return at if verdict == "all" else []


@given(GRANTS, MESSAGES, st.sampled_from(["json", "auto", "binary"]), st.data())
def test_what_is_permitted_is_what_the_model_says(
    grants: list[Grant], messages: list[dict[str, Any] | None], type_: str, data: st.DataObject
) -> None:
    at = data.draw(st.sets(st.sampled_from(range(len(messages)))).map(sorted)) if messages else []
    permit = permit_of(grants)
    for topic in TOPICS:
        model = [i for i in at if is_permitted(grants, topic, messages[i], type_)]
        assert picked(permit, topic, payloads(type_, messages), at) == model


@given(GRANTS, GRANTS)
def test_equal_keys_permit_the_same(one: list[Grant], other: list[Grant]) -> None:
    first, second = permit_of(one), permit_of(other)
    if first.key == second.key:
        assert [first.verdict(topic) for topic in TOPICS] == [
            second.verdict(topic) for topic in TOPICS
        ]
    for topic in TOPICS:
        if first.verdict(topic) != second.verdict(topic):
            assert first.key != second.key


@pytest.mark.parametrize(
    ("allowed", "denied", "nothing"),
    [
        (["x.a"], ["x.*"], True),
        (["x.a.*", "x.b"], ["x.*"], True),
        (["*.a"], ["*.a", "x"], True),
        (["x.*.c"], ["x.*c"], True),
        (["x.*"], ["x.a"], False),
        (["x.*"], ["*.a"], False),
        (["x.a", "y"], ["x.*"], False),
    ],
)
def test_what_is_denied_as_a_whole_is_nothing(
    allowed: list[str], denied: list[str], nothing: bool
) -> None:
    """Else a pattern would be looked up for somebody who may have no message at all."""
    grants = [grant("allow", ["replay"], allowed, ""), grant("deny", ["replay"], denied, "")]
    assert permit_of(grants).nothing is nothing


@given(GRANTS, MESSAGES)
def test_everything_and_nothing_are_what_they_say(
    grants: list[Grant], messages: list[dict[str, Any] | None]
) -> None:
    permit = permit_of(grants)
    for topic in TOPICS:
        assert not permit.everything or permit.verdict(topic) == "all"
        assert not permit.nothing or permit.verdict(topic) == "no"
        found = [is_permitted(grants, topic, message, "json") for message in messages]
        assert not permit.everything or all(found)
        assert not permit.nothing or not any(found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("allow", ["a", "b"], "")], [("allow", ["b"], ""), ("allow", ["a"], "")]),
        ([("allow", ["*"], ""), ("allow", ["a"], "/a = 1")], [("allow", ["**"], "")]),
        ([("allow", ["a"], ""), ("allow", ["a"], "/a = 1")], [("allow", ["a"], "")]),
        ([("allow", ["*"], "/a = 1"), ("allow", ["a"], "/a = 1")], [("allow", ["*"], "/a = 1")]),
        ([("allow", ["a"], ""), ("deny", ["a"], "")], []),
        ([("allow", ["*"], ""), ("deny", ["*"], "")], [("deny", ["a"], "")]),
        ([("allow", ["a"], ""), ("deny", ["*"], "")], []),
    ],
)
def test_what_permits_the_same_has_one_key(one: Any, other: Any) -> None:
    keys = [
        permit_of([grant(k, ["replay"], t, f) for k, t, f in rows]).key for rows in (one, other)
    ]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("allow", ["a"], "")], [("allow", ["b"], "")]),
        ([("allow", ["a"], "")], [("allow", ["a"], "/a = 1")]),
        ([("allow", ["a"], ""), ("deny", ["b"], "/a = 1")], [("allow", ["a"], "")]),
        ([("allow", ['a", "b'], "")], [("allow", ["a", "b"], "")]),
    ],
)
def test_what_permits_something_else_has_another_key(one: Any, other: Any) -> None:
    keys = [
        permit_of([grant(k, ["replay"], t, f) for k, t, f in rows]).key for rows in (one, other)
    ]
    assert keys[0] != keys[1]


def test_topics_that_the_same_filters_fit_share_their_content() -> None:
    permit = permit_of([grant("allow", ["replay"], ["x.*"], "/a = 1")])
    assert permit.content("x.a") is permit.content("x.b")


def test_topics_with_other_filters_have_another_content() -> None:
    permit = permit_of(
        [
            grant("allow", ["replay"], ["x.*"], "/a = 1"),
            grant("allow", ["replay"], ["x.more"], "/a = 2"),
            grant("deny", ["replay"], ["x.less"], "/b = 1"),
        ]
    )
    found = payloads("json", [{"a": 1}, {"a": 2}, {"a": 1, "b": 1}])
    assert picked(permit, "x", found, [0, 1, 2]) == []
    assert picked(permit, "x.a", found, [0, 1, 2]) == [0, 2]
    assert picked(permit, "x.more", found, [0, 1, 2]) == [0, 1, 2]
    assert picked(permit, "x.less", found, [0, 1, 2]) == [0]


def test_contents_are_equal_if_their_filters_are() -> None:
    one, other = Clause("/a = 1"), Clause("/a = 1")
    assert TopicFilters([one], []) == TopicFilters([other], [])
    assert hash(TopicFilters([one], [])) == hash(TopicFilters([other], []))
    assert TopicFilters([one], []) != TopicFilters(None, [])
    assert TopicFilters([one], []) != TopicFilters([one], [other])
    assert TopicFilters(None, [one]) != TopicFilters([one], [])


def test_answers_are_remembered_within_a_bound() -> None:
    permit = permit_of([grant("allow", ["replay"], ["t*"], "/a = 1")])
    for number in range(TOPICS_MAX + 3):
        assert permit.verdict(f"t{number}") == "some"
    assert len(permit._verdicts) == len(permit._contents) == 3
    assert permit.content("t0") == permit.content("t1")


@pytest.mark.parametrize("type_", ["json", "msgpack", "fix", "auto", "binary"])
def test_an_allow_permits_nothing_that_it_cannot_read(type_: str) -> None:
    content = TopicFilters([Clause("/a IS NULL"), Clause("/b IS NULL")], [])
    assert content.picks(Payloads(type_, [b"\xc1"]), [0], About("x")) == []
    content = TopicFilters([Clause("TOPIC_NAME() = 'x'")], [])
    assert content.picks(Payloads(type_, [b"\xc1"]), [0], About("x")) == [0]


@pytest.mark.parametrize("type_", ["json", "msgpack", "fix", "auto", "binary"])
def test_a_deny_takes_away_what_it_cannot_read(type_: str) -> None:
    found = Payloads(type_, [b"\xc1"])
    assert TopicFilters(None, [Clause("/a = 1")]).picks(found, [0], About("x")) == []


def test_a_deny_that_looks_at_no_payload_need_not_read_it() -> None:
    content = TopicFilters(None, [Clause("TOPIC_NAME() = 'x'")])
    found = Payloads("json", [b"\xc1"])
    assert content.picks(found, [0], About("y")) == [0]
    assert content.picks(found, [0], About("x")) == []


def test_a_deny_leaves_what_it_can_read_and_does_not_mean() -> None:
    content = TopicFilters(None, [Clause("/a = 1")])
    assert content.picks(payloads("json", [{"a": 1}, {"a": 2}, {}]), [0, 1, 2], About("x")) == [
        1,
        2,
    ]


def test_a_permit_shows_no_more_than_its_rules() -> None:
    assert repr(permit_of([grant("allow", ["replay"], ["x"])])) == 'Permit([[["x", ""]], []])'
