"""The page of the manual about filters says what they do (docs/reference/filters.md)."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT
from tests.filters.alone import takes
from zbroker.filters import compile_filter, compile_select, limits
from zbroker.filters.functions import CHANGING, FUNCTIONS
from zbroker.filters.tree_builder import SPECIAL
from zbroker.filters.vocabulary import CONSTANTS, Vocabulary

PAGE = (ROOT / "docs/reference/filters.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]*)` \| `([^`]+)` \|$", re.MULTILINE)
EXAMPLES = ROW.findall(PAGE.partition("## Select")[0])
NAMES = {*FUNCTIONS, *SPECIAL, *CHANGING, *CONSTANTS}
ASKED = Vocabulary(
    constants={
        "INSTANCE_NAME": "zbroker", "GROUP_NAME": "default", "CLIENT_NAME": "desk-1", "USER": "ann"
    }
)  # fmt: skip
SELECTS = ROW.findall(PAGE.partition("## Select")[2])


@pytest.mark.parametrize(("expression", "payload", "result"), EXAMPLES)
def test_an_example_is_true(expression: str, payload: str, result: str) -> None:
    if result == "NULL":
        claims = [f"({expression}) IS NULL"]
    else:
        claims = [f"({expression}) = {result}", f"({expression}) IS NOT NULL"]
    if result in ("true", "false"):
        claims.append(expression if result == "true" else f"NOT ({expression})")
    for claim in claims:
        test = compile_filter(claim, ASKED).test("json")
        assert takes(test, payload.encode(), "orders", {"book": "b3", "size": 5}, b"k1"), claim


@pytest.mark.parametrize(("select", "payload", "sent"), SELECTS)
def test_an_example_of_select_is_true(select: str, payload: str, sent: str) -> None:
    assert compile_select(select).apply("json", payload.encode()) == sent.encode()


def test_examples_of_both_kinds_are_found() -> None:
    assert len(EXAMPLES) > 90
    assert len(SELECTS) == 4


@pytest.mark.seed("004-56")
def test_every_function_is_in_the_table_and_has_an_example() -> None:
    described = re.findall(r"^\| `\w+\(.*$", PAGE, re.MULTILINE)
    for name in NAMES:
        assert any(f"`{name}(" in line for line in described), name
        assert any(f"{name}(" in expression for expression, _, _ in EXAMPLES), name


def test_the_page_names_no_function_that_there_is_not() -> None:
    table = PAGE.partition("## Functions")[2].partition("| expression |")[0]
    assert set(re.findall(r"([A-Z_0-9]+)\(", table)) == NAMES


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    table = PAGE.partition("## Limits")[2].partition("## Select")[0]
    for limit in (
        limits.FILTER_MAX_CHARS,
        limits.DEPTH_MAX,
        limits.NODES_MAX,
        limits.IN_MAX,
        limits.PATTERNS_MAX,
        limits.PATTERN_MAX_CHARS,
        limits.PATTERN_STEPS_MAX,
        limits.PATH_STEPS_MAX,
        limits.PATH_MAX_CHARS,
    ):
        assert f"{limit:,}" in table
    assert f"{limits.TEXT_MAX_CHARS:,}" in PAGE
    assert f"{limits.SELECT_ENTRIES_MAX:,} entries" in PAGE
