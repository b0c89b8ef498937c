"""Regular expressions of filters (zbroker/filters/patterns)."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters.alone import takes
from zbroker.filters import compile_filter
from zbroker.filters.limits import STEP_BYTES_MAX, TEXT_MAX_CHARS
from zbroker.filters.patterns import BadPattern, TextPattern

LETTERS = "aB1 -/\"'é$^"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("AB", ("AB", "anywhere")),
        ("^AB", ("AB", "begin")),
        ("AB$", ("AB", "end")),
        ("^A-B c$", ("A-B c", "whole")),
        ("A.B", None),
        ("(?i)ab", None),
        ("^$", None),
    ],
)
def test_a_pattern_that_is_only_text_is_known(text: str, plain: object) -> None:
    assert TextPattern(text).plain == plain


@given(
    st.text(st.sampled_from(LETTERS), min_size=1, max_size=4),
    st.text(st.sampled_from(LETTERS + "\n"), max_size=8),
)
@settings(deadline=None)
def test_text_is_found_where_re2_finds_it(pattern: str, text: str) -> None:
    assert TextPattern(pattern).search(text) == (re2.search(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "result"),
    [
        ("b+", "-", "abbcb", "a-c-"),
        ("(.)(.)", r"\2\1", "abcd", "badc"),
        ("b", r"\\[\0]", "abc", r"a\[b]c"),
        ("(x)?b", r"<\1>", "ab", "a<>"),
        ("x*", "-", "ab", "-a-b-"),
        ("é", "e", "été", "ete"),
        ("z", "-", "abc", "abc"),
    ],
)
def test_what_matches_is_replaced(pattern: str, replacement: str, text: str, result: str) -> None:
    made = TextPattern(pattern)
    made.check_replacement(replacement)
    assert made.replace(text, replacement) == result


def test_a_result_that_would_be_too_long_is_none() -> None:
    assert TextPattern("x").replace("x" * 2_000, "y" * 1_000) is None
    assert TextPattern("x").replace("x" * 100 + "z" * TEXT_MAX_CHARS, "") is not None


@pytest.mark.parametrize("replacement", [r"\1", r"\9", r"\n", "\\"])
def test_a_replacement_names_only_groups_that_are_there(replacement: str) -> None:
    with pytest.raises(BadPattern):
        TextPattern("x").check_replacement(replacement)


@pytest.mark.parametrize(
    "text", ["(", "[a", "a{2000}", "(a?){300}b{300}", r"\1", "(?=x)", "(?<n>x", "x" * 2_000]
)
def test_a_bad_pattern_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        TextPattern(text)


def test_a_pattern_that_backtracking_cannot_end_does() -> None:
    text = "a" * 50_000
    assert not TextPattern("(a+)+$x|(a|aa)+b").search(text)


MANY_STEPS = "[ab][a-z]{1000}[XY]"  # too many states for a table: each byte costs each step


def test_a_text_that_would_take_too_long_is_null_to_a_pattern() -> None:
    pattern = TextPattern(MANY_STEPS)
    assert pattern.steps > 1_000
    fits, long = "a" * pattern.most, "a" * (pattern.most + 1)
    assert (pattern.search(fits), pattern.search(long)) == (False, None)
    assert pattern.truth([fits[: len(fits) // 2]] * 2) is False
    assert pattern.truth([fits, "b"]) is None, "an array is one text"


def test_a_pattern_of_text_only_has_no_steps_and_no_such_limit() -> None:
    assert TextPattern("ab").steps == 0
    assert TextPattern("^ab").truth(["x" * (17 << 20), "abc"]) is True


@pytest.mark.parametrize("asked", ["", "NOT "])
@pytest.mark.parametrize("shape", ['{{"a": "{}"}}', '{{"a": ["{}"]}}'])
def test_a_filter_is_neither_true_nor_false_of_a_text_that_is_too_long(
    asked: str, shape: str
) -> None:
    data = shape.format("a" * (STEP_BYTES_MAX // 1_000)).encode()
    for claim in (f"{asked}(/a LIKE '{MANY_STEPS}')", f"{asked}REGEXP_MATCH(/a, '{MANY_STEPS}')"):
        assert not takes(compile_filter(claim).test("json"), data)
        assert takes(compile_filter(f"({claim}) IS NULL").test("json"), data)


def test_a_replacement_whose_matches_look_at_all_that_follows_gives_up() -> None:
    """Each `a` is a match, but only after a look at the whole rest for a `b`."""
    assert TextPattern("a(.*b)?").replace("a" * 100, "x") == "x" * 100
    assert TextPattern("a(.*b)?").replace("a" * 200_000, "x") is None
    assert TextPattern(MANY_STEPS).replace("a" * 100_000, "x") is None
