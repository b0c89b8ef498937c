"""Who is who and may do what (zbroker/access/core.py)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.access.build import HASH, KEYS, rules
from tests.access.test_permits import About
from zbroker.access.core import ACTIONS, MADE_UP, NOT_ACCEPTED, Access
from zbroker.access.grants import Principal
from zbroker.errors import ClientError
from zbroker.filters import Payloads

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

    def test_a_key_holds_while_it_stands_in_the_file(self) -> None:
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
