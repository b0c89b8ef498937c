"""Who is who and may do what (zbroker/access/core.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.access.build import HASH, KEYS, grant, rules
from zbroker.access.core import ACTIONS, MADE_UP, NOT_ACCEPTED, Access, Permit, explain, rules_of
from zbroker.access.grants import Clause, Grant, Principal, TopicFilters
from zbroker.errors import ClientError
from zbroker.filters import Payloads
from zbroker.limits import TOPICS_MAX

RULES = rules("""
[principal.pricer]
keys = ["$0", "$1"]
roles = ["feed", "reader"]
[principal.pricer-eu]
keys = ["$2"]
roles = ["feed"]
[principal.ann]
keys = ["$3"]
password = "$H"
roles = ["operator"]
[principal.ben]
keys = ["$3"]
password = "$H"
names = ["ben", "desk-*"]
[principal.idle]
keys = []
[[role.feed.allow]]
actions = ["publish"]
topics = ["prices.*"]
[[role.reader.allow]]
actions = ["replay"]
[[role.reader.deny]]
actions = ["*"]
topics = ["*.secret"]
[[role.operator.allow]]
actions = ["admin_read"]
""")


def admitted(access: Access, key: str, user: str | None, name: str) -> str:
    """What a logon without a password comes to."""
    principal = access.identify(key, user)
    access.check_name(principal, name)
    return principal


class TestWho:
    def test_each_key_of_a_principal_stands_for_it(self) -> None:
        assert RULES.principals_of(KEYS[0]) == RULES.principals_of(KEYS[1]) == ("pricer",)
        assert admitted(RULES, KEYS[1], None, "pricer") == "pricer"

    def test_a_user_may_be_given_with_a_key_of_its_own(self) -> None:
        assert admitted(RULES, KEYS[0], "pricer", "pricer") == "pricer"

    def test_a_shared_key_needs_a_user(self) -> None:
        assert admitted(RULES, KEYS[3], "ben", "desk-7") == "ben"
        with pytest.raises(ClientError, match="auth_failed: this key needs a `user`"):
            RULES.identify(KEYS[3], None)

    @pytest.mark.parametrize(
        ("key", "user"),
        [("", None), (KEYS[5], None), (KEYS[5], "pricer"), (KEYS[0], "ann"), (KEYS[3], "nobody")],
    )
    def test_who_is_not_known_hears_the_same(self, key: str, user: str | None) -> None:
        with pytest.raises(ClientError) as caught:
            admitted(RULES, key, user, "pricer")
        assert (caught.value.code, caught.value.reason) == ("auth_failed", NOT_ACCEPTED)

    def test_a_key_holds_while_it_is_in_the_file(self) -> None:
        assert RULES.holds("ann", KEYS[3])
        assert not RULES.holds("ann", KEYS[0])
        assert not RULES.holds("gone", KEYS[0])
        assert not RULES.holds("", KEYS[0])

    def test_only_who_has_a_password_needs_one(self) -> None:
        assert RULES.password_of("ann") == HASH
        assert RULES.password_of("pricer") == RULES.password_of("gone") == ""


class TestNames:
    @pytest.mark.parametrize(
        "name", ["pricer", "pricer-1", "pricer.a.b", *(name.replace("*", "1") for name in MADE_UP)]
    )
    def test_a_principal_has_its_own_and_made_up_names(self, name: str) -> None:
        assert RULES.may_name("pricer", name)

    @pytest.mark.parametrize(
        "name", ["", "pricer2", "xpricer", "ann", "client", "pricer-eu", "pricer-eu-1", "ben"]
    )
    def test_it_has_no_other_names(self, name: str) -> None:
        assert not RULES.may_name("pricer", name)
        with pytest.raises(ClientError) as caught:
            admitted(RULES, KEYS[0], None, name)
        assert caught.value.code == "not_entitled"

    def test_names_that_are_listed_are_all_it_has(self) -> None:
        assert RULES.may_name("ben", "desk-1")
        assert not RULES.may_name("ben", "client-1")
        assert not RULES.may_name("ben", "ben-1")

    def test_a_name_that_somebody_lists_is_no_default_of_others(self) -> None:
        access = rules(
            "[principal.a]\nkeys = ['$0']\n"
            "[principal.b]\nkeys = ['$1']\nnames = ['a-main', 'client-b', 'a.*']\n"
        )
        assert not access.may_name("a", "a-main")
        assert not access.may_name("a", "client-b")
        assert access.may_name("b", "a-main")
        assert access.may_name("a", "a-other")

    def test_who_is_gone_has_no_name(self) -> None:
        assert not RULES.may_name("gone", "gone")

    @given(
        st.sets(st.text("ab-.", min_size=1, max_size=5), min_size=1, max_size=5),
        st.text("ab-.", min_size=1, max_size=8),
    )
    def test_by_default_a_name_belongs_to_one_principal(self, names: set[str], name: str) -> None:
        access = Access([Principal(one, ()) for one in names], {})
        having = [one for one in names if access.may_name(one, name)]
        beginning = [one for one in names if name == one or name.startswith((one + "-", one + "."))]
        assert having == ([max(beginning, key=len)] if beginning else [])


class TestWhat:
    def test_what_no_role_allows_is_not_permitted(self) -> None:
        assert RULES.may("pricer", "publish", "prices.eu")
        assert not RULES.may("pricer", "publish", "orders")
        assert not RULES.may("pricer", "subscribe", "prices.eu")
        assert not any(RULES.may("idle", action) for action in ACTIONS)
        assert not any(RULES.may("gone", action) for action in ACTIONS)

    @pytest.mark.parametrize(
        ("roles", "patterns"),
        [
            (
                "[[role.r.allow]]\nactions = ['replicate']\ntopics = ['a.b', 'c*']\n",
                [r"a\.b", "c.*"],
            ),
            ("[[role.r.allow]]\nactions = ['*']\n", [".*"]),
            ("[[role.r.allow]]\nactions = ['publish']\n", []),
        ],
    )
    def test_topics_of_a_link_are_patterns(self, roles: str, patterns: list[str]) -> None:
        access = rules("[principal.a]\nkeys = ['$0']\nroles = ['r']\n" + roles)
        assert access.permit("a", "replicate").patterns() == patterns

    def test_a_link_has_no_denied_topics(self) -> None:
        role = "[[role.r.{}]]\nactions = ['replicate']\ntopics = ['{}']\n"
        text = role.format("allow", "*") + role.format("deny", "secret")
        access = rules("[principal.a]\nkeys = ['$0']\nroles = ['r']\n" + text)
        assert access.permit("a", "replicate").patterns() is None

    def test_no_action_implies_another(self) -> None:
        for action in ACTIONS:
            access = rules(
                "[principal.a]\nkeys = ['$0']\nroles = ['r']\n"
                f"[[role.r.allow]]\nactions = ['{action}']\n"
            )
            assert [one for one in ACTIONS if access.may("a", one)] == [action]

    def test_a_deny_wins_over_every_role(self) -> None:
        assert RULES.may("pricer", "replay", "prices.eu")
        assert not RULES.may("pricer", "replay", "prices.secret")
        assert not RULES.may("pricer", "publish", "prices.secret")
        assert RULES.may("pricer-eu", "publish", "prices.secret")

    def test_without_a_topic_it_is_asked_for_any(self) -> None:
        assert RULES.may("pricer", "publish")
        assert RULES.may("ann", "admin_read")
        assert not RULES.may("ann", "admin_write")

    def test_consuming_is_about_the_name_of_the_queue(self) -> None:
        access = rules(
            "[principal.a]\nkeys = ['$0']\nroles = ['r']\n"
            "[[role.r.allow]]\nactions = ['consume']\ntopics = ['work', 'eu.*']\n"
            "[[role.r.allow]]\nactions = ['consume']\ntopics = ['trades']\nfilter = '/a = 1'\n"
            "[[role.r.allow]]\nactions = ['subscribe']\ntopics = ['orders']\n"
            "[[role.r.deny]]\nactions = ['*']\ntopics = ['*.secret']\n"
        )
        permit = access.permit("a", "consume")
        names = ("work", "eu.mail", "trades", "orders", "eu.secret")
        assert [permit.verdict(name) for name in names] == ["all", "all", "some", "no", "no"]
        found = Payloads("json", [b'{"a":1}', b'{"a":2}', b"?"])
        assert permit.content("trades").picks(found, [0, 1, 2], About("orders")) == [0]

    def test_equal_rules_are_one_permit(self) -> None:
        assert RULES.permit("pricer-eu", "publish") is RULES.permit("pricer-eu", "publish")
        assert RULES.permit("idle", "publish") is RULES.permit("gone", "replay")
        assert RULES.permit("pricer", "publish") is not RULES.permit("pricer-eu", "publish")

    def test_a_permit_has_the_same_key_after_the_file_was_read_again(self) -> None:
        text = (
            "[principal.a]\nkeys = ['$0']\nroles = ['r']\n[[role.r.allow]]\nactions = ['publish']\n"
        )
        assert rules(text).permit("a", "publish").key == rules(text).permit("a", "publish").key


class TestOff:
    def test_everybody_may_do_everything(self) -> None:
        off = Access.off()
        assert not off.on
        assert admitted(off, "", None, "anyone") == admitted(off, "", "ann", "x") == ""
        assert off.holds("", "")
        assert off.holds("x", "y")
        assert off.may_name("", "anyone")
        assert off.password_of("") == ""
        assert all(off.permit("", action).everything for action in ACTIONS)
        assert off.permit("", "publish").verdict("x") == "all"


def test_nothing_shows_keys_or_hashes() -> None:
    shown = repr(RULES) + repr(RULES.principals) + repr(RULES.roles) + str(Access.off())
    assert not [secret for secret in (*KEYS, HASH, HASH[20:]) if secret in shown]
    with pytest.raises(ClientError) as caught:
        admitted(RULES, KEYS[3], "pricer", "x")
    assert not [secret for secret in (*KEYS, "ann", "ben", "pricer") if secret in str(caught.value)]


EXPLANATION_RULES = rules("""
[principal.a]
keys = ["$0"]
roles = ["one", "two"]
[[role.one.allow]]
actions = ["replay"]
topics = ["x.*"]
[[role.one.deny]]
actions = ["*"]
topics = ["x.s"]
[[role.one.deny]]
actions = ["replay"]
topics = ["x.f"]
filter = "/a = 1"
[[role.two.allow]]
actions = ["replay"]
topics = ["y"]
filter = "/a = 1"
[[role.two.allow]]
actions = ["admin_read"]
""")


@pytest.mark.parametrize(
    ("action", "topic", "verdict", "grants"),
    [
        ("replay", "x.a", "all", ["one allow 1"]),
        ("replay", "x.s", "no", ["one deny 1"]),
        ("replay", "x.f", "some", ["one allow 1", "one deny 2"]),
        ("replay", "y", "some", ["two allow 1"]),
        ("replay", "z", "no", []),
        ("replay", None, "some", ["one allow 1", "one deny 1", "one deny 2", "two allow 1"]),
        ("publish", None, "no", ["one deny 1"]),
        ("publish", "x.a", "no", []),
        ("admin_read", None, "all", ["two allow 2"]),
        ("consume", "z", "no", []),
    ],
)
def test_the_grants_that_decide_are_named(
    action: str, topic: str | None, verdict: str, grants: list[str]
) -> None:
    decision = explain(EXPLANATION_RULES, "a", action, topic)
    assert decision.verdict == verdict
    assert [f"{one.role} {one.kind} {one.number}" for one in decision.grants] == grants


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
