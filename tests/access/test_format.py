"""What an access file says (zbroker/access/format.py)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.access.build import HASH, KEYS, rules
from zbroker.access import format as access_format
from zbroker.access.core import ACTIONS, Access
from zbroker.access.format import EXAMPLE, parse
from zbroker.errors import ConfigError

ONE = "[principal.a]\nkeys = ['$0']\nroles = ['r']\n"
ROLE = ONE + "[[role.r.allow]]\n"

#: text -> (the line that the error names or 0, what its reason says, what its hint says)
BROKEN: list[tuple[str, int, str, str]] = [
    ("", 0, "no principal", "access example"),
    ("[role.r]\n", 0, "no principal", "access example"),
    ("[principal.a\n", 1, "Expected", "TOML"),
    (ONE + "x = \n", 4, "Invalid", "TOML"),
    ("principle = 1\n", 1, "unknown key `principle`", "did you mean `principal`?"),
    ("principal = 1\n", 1, "`principal` holds tables", "[principal.NAME]"),
    ("[principal]\na = 1\n", 2, "`principal.a` is a table", "[principal.a]"),
    ("[principal.a]\n", 1, "missing required field `keys`", "access example"),
    ("[principal.a]\nkeys = []\nkey = 1\n", 3, "unknown key `principal.a.key`", "`keys`"),
    ("[principal.a]\nkeys = 'x'\n", 2, "`principal.a.keys`: Expected `array`", "access example"),
    ("[principal.a]\nkeys = [1]\n", 2, "`principal.a.keys`: Expected `str`", "access example"),
    ("[principal.a]\nkeys = ['short']\n", 2, "not 40 characters of Z85", "key show"),
    (f"[principal.a]\nkeys = ['{'#' * 40}']\n", 2, "not 40 characters of Z85", "key show"),
    ("[principal.a]\nkeys = []\npassword = 'secret'\n", 3, "not a hash", "key password"),
    ("[principal.a]\nkeys = []\nnames = ['']\n", 3, "a client name cannot be used", "any"),
    ("[principal.a]\nkeys = []\nroles = ['x']\n", 3, "unknown role `x`", "there are: none"),
    (ONE + "[role.rr]\n", 3, "unknown role `r`", "did you mean `rr`?"),
    ('[principal."a*"]\nkeys = []\n', 1, "name 'a*' cannot be used", "printable"),
    ('[principal.""]\nkeys = []\n', 1, "name '' cannot be used", "printable"),
    ("[principal.client]\nkeys = []\n", 1, "no principal is called 'client'", "another name"),
    ('[principal."$a"]\nkeys = []\n', 1, "no principal is called '$a'", "another name"),
    (ONE + "[role]\nr = 1\n", 5, "`role.r` is a table", "[role.r]"),
    (ONE + "[role.r]\nallow = 1\n", 5, "`role.r.allow` is a list of tables", "[[role.r.allow]]"),
    (ONE + "[role.r.allow]\n", 4, "`role.r.allow` is a list of tables", "[[role.r.allow]]"),
    (ONE + "[[role.r.alow]]\n", 4, "unknown key `role.r.alow`", "did you mean `allow`?"),
    (ROLE, 4, "missing required field `actions`", "access example"),
    (ROLE + "actions = []\n", 5, "`actions` is empty", "publish"),
    (ROLE + "actions = ['reply']\n", 5, "unknown action `reply`", "did you mean `replay`?"),
    (ROLE + "actions = ['*']\ntopic = 'x'\n", 6, "unknown key `role.r.allow.topic`", "`topics`"),
    (ROLE + "actions = ['*']\ntopics = [\"a\\n\"]\n", 6, "a topic pattern cannot be used", "any"),
    (ROLE + "actions = ['*']\nfilter = '/a ='\n", 6, "column 5", "filters.md"),
    (ROLE + "actions = ['replicate']\nfilter = '/a = 1'\n", 6, "replicate cannot have", "own"),
    (ROLE + "actions = ['*', 'admin_read']\nfilter = '/a = 1'\n", 6, "admin_read cannot", "own"),
    (ROLE + "actions = ['admin_write']\ntopics = ['x']\n", 6, "about no topic", "leave `topics`"),
    (
        ROLE + "actions = ['*']\n[[role.r.allow]]\nactions = ['consume']\nfilter = '/'\n",
        8, "`filter` cannot be used", "filters.md",
    ),
    (
        ONE.replace("['r']", "[]") + "[principal.b]\nkeys = [\n'$1',\n'$0']\npassword = '$H'\n",
        2, "principals 'a' and 'b' share a key", "give 'a' a `password`",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "reason", "hint"), BROKEN)
def test_an_error_says_where_and_what_to_write(
    text: str, line: int, reason: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(text, "z.toml")
    place = f"z.toml:{line}: " if line else "z.toml: "
    assert caught.value.code == "bad_config"
    assert caught.value.reason.startswith(place), caught.value.reason
    assert reason in caught.value.reason
    assert hint in caught.value.hint
    assert not [
        secret for secret in (*KEYS, HASH, "short", "secret") if secret in str(caught.value)
    ]


def test_a_whole_file_is_read() -> None:
    access = rules(
        ONE + "password = '$H'\nnames = ['a', 'b-*']\n"
        "[[role.r.allow]]\nactions = ['publish', 'replay']\ntopics = ['x.*', 'y']\n"
        "filter = '/a = 1'\n[[role.r.deny]]\nactions = ['replay']\ntopics = ['x.s']\n"
    )
    one = access.principals["a"]
    assert (one.keys, one.password, one.roles) == ((KEYS[0],), HASH, ("r",))
    assert [pattern.text for pattern in one.names or ()] == ["a", "b-*"]
    allow, deny = access.roles["r"]
    assert (allow.kind, allow.number, sorted(allow.actions)) == ("allow", 1, ["publish", "replay"])
    assert [pattern.text for pattern in allow.topics] == ["x.*", "y"]
    assert allow.clause is not None
    assert allow.clause.text == "/a = 1"
    assert (deny.kind, deny.number, deny.clause) == ("deny", 1, None)


class TestEveryAction:
    def test_alone_it_is_all_of_them(self) -> None:
        assert may(rules(ROLE + "actions = ['*']\n")) == list(ACTIONS)

    def test_with_topics_it_leaves_out_what_is_about_none(self) -> None:
        found = may(rules(ROLE + "actions = ['*']\ntopics = ['x']\n"))
        assert found == [one for one in ACTIONS if not one.startswith("admin")]

    def test_with_a_filter_it_leaves_out_what_cannot_have_one(self) -> None:
        found = may(rules(ROLE + "actions = ['*']\nfilter = '/a = 1'\n"))
        assert found == ["publish", "subscribe", "replay", "consume"]

    def test_a_deny_with_a_filter_takes_away_as_a_whole_what_has_no_filter(self) -> None:
        access = rules(
            ROLE + "actions = ['*']\n[[role.r.deny]]\nactions = ['*']\ntopics = ['x']\n"
            "filter = '/a = 1'\n"
        )
        assert access.permit("a", "replay").verdict("x") == "some"
        for action in ("replicate", "configure", "bind"):
            assert access.permit("a", action).verdict("x") == "no"
            assert access.permit("a", action).verdict("y") == "all"
        assert access.may("a", "admin_write")

    def test_every_topic_may_be_written_out(self) -> None:
        assert may(rules(ROLE + "actions = ['admin_read']\ntopics = ['*']\n")) == ["admin_read"]

    def test_no_topic_is_nothing(self) -> None:
        assert may(rules(ROLE + "actions = ['*']\ntopics = []\n")) == []


def may(access: Access) -> list[str]:
    return [action for action in ACTIONS if access.may("a", action)]


def test_who_shares_a_key_has_a_password() -> None:
    text = "[principal.a]\nkeys = ['$0']\npassword = '$H'\n"
    assert rules(text + text.replace(".a]", ".b]")).principals_of(KEYS[0]) == ("a", "b")


def test_a_key_that_is_twice_counts_once() -> None:
    assert rules("[principal.a]\nkeys = ['$0', '$0']\n").principals_of(KEYS[0]) == ("a",)


@pytest.mark.parametrize(
    ("what", "table"),
    [
        (f"{access_format.PATTERNS_MAX + 1} topic patterns", f"topics = {['x'] * 1_001}\n"),
        (f"{access_format.FILTERS_MAX + 1} filters", ""),
    ],
)
def test_roles_have_their_limits(what: str, table: str) -> None:
    grants = "[[role.r.allow]]\nactions = ['replay']\n" + (table or "filter = '/a = 1'\n")
    with pytest.raises(ConfigError, match=what):
        rules(ONE + grants * (1 if table else access_format.FILTERS_MAX + 1))


def test_the_example_can_be_used() -> None:
    access = parse(EXAMPLE, "example")
    assert access.permit("risk", "replay").verdict("trades") == "some"
    assert access.may("pricer", "publish", "prices.eu")
    assert not access.may("risk", "replay", "prices.secret")


@given(st.integers(0, len(EXAMPLE)))
def test_a_part_of_a_file_is_read_or_refused(cut: int) -> None:
    try:
        access = parse(EXAMPLE[:cut], "example")
    except ConfigError:
        return
    assert access.principals


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=10,
    ),
    st.sampled_from(["principal", "role", "principal.a", "role.r", "role.r.allow", "x"]),
)
def test_whatever_is_in_a_file_is_refused_with_a_reason(value: object, place: str) -> None:
    with pytest.raises(ConfigError):
        parse(f"{place} = {written(value)}\n", "z.toml")


def written(value: object) -> str:
    """As TOML; it need not be right."""
    if isinstance(value, dict):
        pairs = (f"{written(key)} = {written(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
