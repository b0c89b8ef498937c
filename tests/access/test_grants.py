"""Patterns of topics and names (zbroker/access/grants.py)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.access.grants import AccessPattern
from zbroker.limits import TOPIC_MAX_BYTES

TEXTS = st.one_of(
    st.text("ab*.[]\\?^$(+|", min_size=1, max_size=12), st.text("ab*", min_size=1, max_size=8)
)
NAMES = st.one_of(st.text("ab.[]\\?^$(+|", max_size=12), st.text("ab", max_size=8))


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("orders", ["orders"], ["orders.x", "xorders", "order", ""]),
        ("orders.*", ["orders.", "orders.eu.x"], ["orders", "ordersx"]),
        ("*.eu", [".eu", "a.eu"], ["aeu", "a.eu.b"]),
        ("a*b*c", ["abc", "aXbXc", "abbcc"], ["ab", "acb", "xabc"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("*ab*ba", ["abba", "xabxba"], ["xaba"]),
        ("*", ["", "anything"], []),
        ("**", ["", "anything"], []),
        ("a.c", ["a.c"], ["abc"]),
        ("[ab]", ["[ab]"], ["a", "b"]),
        ("a\\*", ["a\\", "a\\b"], ["a*", "ab"]),
        ("a?", ["a?"], ["a", "ab"]),
        ("é*", ["é", "éa"], ["e"]),
    ],
)
def test_only_a_star_is_special(pattern: str, fitting: list[str], others: list[str]) -> None:
    fits = AccessPattern(pattern)
    assert [name for name in fitting if not fits(name)] == []
    assert [name for name in others if fits(name)] == []


@given(TEXTS, NAMES)
def test_it_fits_what_a_regular_expression_would(pattern: str, name: str) -> None:
    model = ".*".join(map(re.escape, pattern.split("*")))
    assert AccessPattern(pattern)(name) == (re.fullmatch(model, name, re.DOTALL) is not None)


@given(TEXTS)
def test_its_text_is_another_way_to_write_it(pattern: str) -> None:
    assert AccessPattern(AccessPattern(pattern).text).text == AccessPattern(pattern).text
    assert "**" not in AccessPattern(pattern).text


@pytest.mark.parametrize("text", ["", "a\nb", "a\x00", "x" * (TOPIC_MAX_BYTES + 1)])
def test_what_nothing_can_fit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"printable|longer"):
        AccessPattern(text)


def test_stars_do_not_count_for_its_length() -> None:
    assert AccessPattern("*x" * TOPIC_MAX_BYTES)("x" * TOPIC_MAX_BYTES)
    assert not AccessPattern("*x" * TOPIC_MAX_BYTES)("x" * (TOPIC_MAX_BYTES - 1))
