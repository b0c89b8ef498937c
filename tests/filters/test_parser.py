"""What is a filter, and what is refused (zbroker/filters/parser, building, grammar)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters.alone import takes
from zbroker.errors import ClientError
from zbroker.filters import compile_filter, nodes
from zbroker.filters.functions import FUNCTIONS
from zbroker.filters.limits import (
    DEPTH_MAX,
    FILTER_MAX_CHARS,
    IN_MAX,
    NODES_MAX,
    PATTERN_MAX_CHARS,
    PATTERNS_MAX,
)
from zbroker.filters.parser import parse

WORDS = ["AND", "or", "not ", "in", "is", "null", "nan", "like", "between", "begins with", "(", ")"]
WORDS += ["/a", "/b[0]", "[/c d]", "'x'", '"y"', r"r'\d'", "5", "1.5", "-", "+", "*", "/", "%", ","]
WORDS += [
    "= ",
    "<>",
    "<=",
    "IF(",
    "LENGTH(",
    "NOPE(",
    "REGEXP_REPLACE(",
    "'[' ",
    "\\",
    "'",
    " ",
    "é",
]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("/a = 1 OR /b = 2 AND NOT /c = 3", "((/a = 1) OR ((/b = 2) AND (NOT (/c = 3))))"),
        ("NOT NOT /a", "(NOT (NOT /a))"),
        ("/a + 2 * -/b - 1 > 0", "(((/a + (2 * (-/b))) - 1) > 0)"),
        ("/a - 1 - 1 = 0", "(((/a - 1) - 1) = 0)"),
        ("/a / 2 % 3 = 0", "(((/a / 2) % 3) = 0)"),
        ("/a MOD 2 = 1", "/a % 2 = 1"),
        ("/a BETWEEN 1 AND 2 AND /b", "((/a BETWEEN 1 AND 2) AND /b)"),
        ("/a NOT IN (1)", "NOT (/a IN (1))"),
        ("/a is not null", "NOT (/a IS NULL)"),
        ("/a == 1 and /b <> 2", "/a = 1 AND /b != 2"),
        ("/a = - - 5", "/a = 5"),
        ("/a\n=\t'x'", "/a = \"x\""),
        (r"'a\\\'\"\n\x41\u00e9' = /a", '"a\\\\\'\\"\\nAé" = /a'),
        (r"r'\d' = /a", r"'\\d' = /a"),
        ("[/a/b[0]] = 1", "/a/b[0] = 1"),
        ("/a BEGINS WITH 'x'", "/a BEGINS WITH ('x')"),
        ("if(/a, 1, 2) = coalesce(/b)", "IF(/a, 1, 2) = COALESCE(/b)"),
    ],
)  # fmt: skip
def test_two_texts_are_the_same_filter(text: str, same: str) -> None:
    assert parse(text) == parse(same)


def test_a_name_is_taken_whole() -> None:
    assert parse("/a-1") == parse("[/a-1]")
    assert isinstance(parse("/a -1"), nodes.Arithmetic)
    assert isinstance(parse("/a / 2"), nodes.Arithmetic)
    assert isinstance(parse("/a/2"), nodes.Field)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "a field, a value or a function is expected, the filter ends"),
        ("/a =", 5, "a field, a value or a function is expected, the filter ends"),
        ("/a 5", 4, "an operator is expected, not `5`"),
        ("/a = 1 = 2", 8, "`AND` is expected, not `=`"),
        ("/a = 1)", 7, "not `\\)`"),
        ("(/a = 1", 8, "is expected, the filter ends"),
        ("/a = 'x", 6, "this text has no end"),
        ("/a begins 'x'", 11, "`WITH` is expected"),
        ("/a between 1 or 2", 14, "`AND` is expected, not `or`"),
        ("price > 5", 1, "a field, a value or a function is expected, not `price`"),
        ("NOPE(/a)", 1, "there is no function NOPE"),
        ("/b AND LEFT(/a)", 8, "LEFT takes 2 arguments, not 1"),
        ("SUBSTR(/a)", 1, "SUBSTR takes 2 to 3 arguments, not 1"),
        ("CONCAT() = 1", 1, "CONCAT takes at least 1 arguments, not 0"),
        ("IF(/a, 1)", 1, "IF takes 3 arguments, not 2"),
        ("TOPIC_NAME(1)", 1, "TOPIC_NAME takes 0 arguments, not 1"),
        ("HEADER() = 1", 1, "HEADER takes 1 arguments, not 0"),
        ("/a = HEADER('a', 'b')", 6, "HEADER takes 1 arguments, not 2"),
        ("HEADER(/a) = 1", 8, "the name of a header is expected"),
        ("HEADER(5) = 1", 8, "the name of a header is expected"),
        ("HEADER('') = 1", 8, "the name of a header is expected"),
        ("HEADER(CONCAT('a')) = 1", 8, "the name of a header is expected"),
        ("LEFT(/a, 'two')", 10, "a number is expected"),
        ("/a + 'two' > 1", 6, "a number is expected"),
        ("-'two' > 1", 2, "a number is expected"),
        ("/a LIKE 'a('", 9, "a bad regular expression: missing"),
        ("/a LIKE '(?=x)'", 9, "a bad regular expression"),
        ("/a LIKE 5", 9, "a regular expression is expected"),
        ("/a LIKE ''", 9, "a regular expression is expected"),
        ("/a LIKE /b", 9, "a constant is expected"),
        ("REGEXP_MATCH(/a, /b)", 18, "a regular expression is expected"),
        ("REGEXP_REPLACE(/a, 'x', r'\\1') = 1", 25, "the pattern has no group 1"),
        ("REGEXP_REPLACE(/a, 'x', r'\\n') = 1", 25, "a replacement has"),
        ("REGEXP_REPLACE(/a, 'x', /b) = 1", 25, "a replacement is expected"),
        ("STRFTIME('%A', /a) = 1", 10, "`%A` is not known"),
        ("STRPTIME(/a, /b) = 1", 14, "a format of a time is expected"),
        ("/a BEGINS WITH ('x', '')", 22, "a text that is not empty is expected"),
        ("/a = 18446744073709551616", 6, "an integer has 64 bits"),
        ("/a = -9223372036854775809", 6, "an integer has 64 bits"),
        ("/a = 1e999", 6, "this number is too large"),
        ("/a = '\\d'", 7, "is not an escape here"),
        ("/a = '\\ud800'", 7, "is not an escape here"),
        ("/a = '\ud800'", 7, "this is not a character"),
        ("[/] = 1", 2, "`/` and a name are expected"),
        ("/b = 1 AND /a[9999999999]", 14, "a place from"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_column(
    text: str, column: int, reason: str
) -> None:
    with pytest.raises(ClientError, match=rf"column {column}: .*{reason}") as refused:
        compile_filter(text)
    assert refused.value.code == "bad_filter"


def many(count: int, each: str, between: str) -> str:
    return between.join([each] * count)


def around(count: int, before: str, each: str, behind: str) -> str:
    return before * count + each + behind * count


AT_MOST = {
    "characters": lambda over: "/a" + " " * (FILTER_MAX_CHARS - 2 + over),
    "levels of NOT": lambda over: "NOT " * (DEPTH_MAX - 1 + over) + "/a",
    "levels of sums": lambda over: many(DEPTH_MAX + over, "/a", "+"),
    "levels of calls": lambda over: around(DEPTH_MAX - 1 + over, "ABS(", "/a", ")"),
    "nodes": lambda over: "COALESCE(/a" + ",0" * (NODES_MAX - 2 + over) + ")",
    "values of IN": lambda over: "/a IN (" + many(IN_MAX + over, "1", ",") + ")",
    "patterns": lambda over: many(PATTERNS_MAX + over, "/a LIKE '[x]'", " OR "),
    "characters of a pattern": lambda over: f"/a LIKE '{'x' * (PATTERN_MAX_CHARS + over)}'",
}  # fmt: skip


@pytest.mark.parametrize("limit", AT_MOST)
def test_a_filter_at_a_limit_is_taken(limit: str) -> None:
    test = compile_filter(AT_MOST[limit](0)).test("json")
    assert not takes(test, b'{"b": 1}')


@pytest.mark.parametrize("limit", AT_MOST)
def test_a_filter_over_a_limit_is_refused(limit: str) -> None:
    with pytest.raises(ClientError, match=r"column [0-9]+: .*at most") as refused:
        compile_filter(AT_MOST[limit](1))
    assert refused.value.code == "bad_filter"


@pytest.mark.parametrize(
    "text",
    [
        "(" * (FILTER_MAX_CHARS // 2 - 1) + "/a" + ")" * (FILTER_MAX_CHARS // 2 - 1),
        "- " * 4_000 + "5",
        "'" * FILTER_MAX_CHARS,
        "'\\" * (FILTER_MAX_CHARS // 2),
        "[/" * (FILTER_MAX_CHARS // 2),
        "9" * FILTER_MAX_CHARS,
        "/a LIKE '((((x{1000}){1000}){1000}){1000})'",
        "/a LIKE '(a?){500}b{500}'",
        "/a LIKE '" + "(" * 1_000 + "'",
    ],
)
def test_a_hostile_filter_is_taken_or_refused(text: str) -> None:
    assert_taken_or_refused(text)


@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=12).map("".join)))
@settings(deadline=None)
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    assert_taken_or_refused(text)


@given(st.data())
@settings(deadline=None)
def test_any_call_is_a_filter_or_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FUNCTIONS)))
    arguments = data.draw(
        st.lists(
            st.sampled_from(["/a", "'x'", "'5'", "-1", "2.5", "1e300", "NULL", "true", "'%Y'"]),
            max_size=4,
        )
    )
    assert_taken_or_refused(f"{name}({', '.join(arguments)}) = 1")


def assert_taken_or_refused(text: str) -> None:
    """Nothing but a refusal is raised, and what is taken can be asked."""
    code = "bad_filter"
    try:
        filter_ = compile_filter(text)
    except ClientError as refused:
        code = refused.code
    else:
        for payload in (b'{"a":"x1","b":[2]}', b'{"a":5}', b'{"a":[]}', b"{"):
            takes(filter_.test("json"), payload)
    assert code == "bad_filter"
