"""Bindings by headers (zbroker/exchanges/header_index.py): vectors, and a model of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.exchanges.making import arguments, cases, headers
from tests.exchanges.naive_matching import headers_match
from tests.exchanges.planted import planted
from zbroker.exchanges import exchange, header_index
from zbroker.exchanges.exchange import conditions_of
from zbroker.exchanges.header_index import HeaderIndex

EXAMPLES = 150
SOUGHT = 2_000  # in which a planted bug is found
TARGETS = 3  # several bindings have one

#: arguments beside x-match = all, headers, does it match; and with x-match = any
VECTORS = [
    ({}, None, True, False),
    ({}, {"n": 1}, True, False),
    ({"n": 1}, None, False, False),
    ({"n": 1}, {"n": 1, "m": 2}, True, True),
    ({"n": 1, "m": 2}, {"n": 1, "m": 2}, True, True),
    ({"n": 1, "m": 2}, {"n": 1, "m": 3}, False, True),
    ({"n": 1, "m": 2}, {"m": 2}, False, True),
    ({"n": 1}, {"n": 1.0}, True, True),
    ({"n": 2**64 - 1}, {"n": 2**64 - 1}, True, True),
    ({"n": 2**53 + 1}, {"n": float(2**53)}, False, False),
    ({"n": 0.5}, {"n": 0.5}, True, True),
    ({"n": 0.0}, {"n": -0.0}, True, True),
    ({"n": 1}, {"n": float("nan")}, False, False),
    ({"n": 1}, {"n": True}, False, False),
    ({"n": True}, {"n": 1}, False, False),
    ({"n": True}, {"n": True}, True, True),
    ({"n": 1}, {"n": "1"}, False, False),
    ({"n": "v"}, {"n": "V"}, False, False),
    ({"n": "v"}, {"n": b"v"}, True, True),
    ({"n": b"\xff"}, {"n": b"\xff"}, True, True),
    ({"n": None}, {"n": 1}, True, True),
    ({"n": None}, {"n": None}, True, True),
    ({"n": None}, {"m": 1}, False, False),
    ({"n": 1}, {"n": None}, False, False),
    ({"x-n": 1}, {"x-n": 2}, True, False),
    ({"x-n": 1, "n": 1}, {"n": 1}, True, True),
    ({"X-n": 1}, {"X-n": 2}, False, False),
]


def matches(given: dict[str, Any], found: dict[str, Any] | None) -> bool:
    index: HeaderIndex[str] = HeaderIndex()
    conditions = conditions_of(given)
    assert conditions is not None
    index.add(conditions, "q")
    return index.match(index.project(found)) == {"q"}


@pytest.mark.parametrize(("asked", "found", "all_of", "any_of"), VECTORS)
def test_arguments_match_headers(
    asked: dict[str, Any], found: dict[str, Any] | None, all_of: bool, any_of: bool
) -> None:
    assert matches({"x-match": "all", **asked}, found) is all_of
    assert matches({"x-match": "any", **asked}, found) is any_of


@pytest.mark.parametrize(("asked", "found", "all_of", "any_of"), VECTORS)
def test_the_model_matches_likewise(
    asked: dict[str, Any], found: dict[str, Any] | None, all_of: bool, any_of: bool
) -> None:
    assert headers_match({"x-match": "all", **asked}, found) is all_of
    assert headers_match({"x-match": "any", **asked}, found) is any_of


def test_names_with_x_are_compared_where_that_is_asked_for() -> None:
    assert matches({"x-match": "all-with-x", "x-n": 1}, {"x-n": 1})
    assert not matches({"x-match": "all-with-x", "x-n": 1}, {"x-n": 2})
    assert matches({"x-match": "any-with-x", "x-n": 1, "n": 1}, {"x-n": 1})
    assert matches({"x-match": "all-with-x"}, {"x-match": "any"})


def test_headers_that_no_binding_mentions_do_not_tell_messages_apart() -> None:
    index: HeaderIndex[str] = HeaderIndex()
    conditions = conditions_of({"x-match": "all", "region": "eu"})
    assert conditions is not None
    index.add(conditions, "q")
    one = index.project({"region": "eu", "trace": "1"})
    assert one == index.project({"trace": "2", "region": "eu"})
    assert index.project({"region": "us"}) == index.project({"region": "as"}) == ()


def test_nothing_is_left_of_removed_bindings() -> None:
    index: HeaderIndex[int] = HeaderIndex()
    many = [
        conditions_of({"x-match": match, **more})
        for match in ("all", "any")
        for more in ({}, {"n": 1}, {"n": None, "m": "v"})
    ]
    for number, one in enumerate(many):
        assert one is not None
        index.add(one, number)
    for number, one in enumerate(many):
        assert one is not None
        index.remove(one, number)
    assert (index._names, index._asking, index._always) == ({}, {}, {})


# -- against the model ----------------------------------------------------------------------------


def compare(examples: int, index_module: ModuleType = header_index,
            values_module: ModuleType = exchange) -> None:  # fmt: skip
    """Bindings are added, some are removed again; then headers find what the model says."""

    @cases(examples)
    @given(
        st.lists(arguments.filter(bool), max_size=6),
        st.lists(headers, min_size=1, max_size=4),
        st.integers(0),
    )
    def judge(added: list[dict[str, Any]], asked: list[Any], gone: int) -> None:
        index = index_module.HeaderIndex()
        for number, each in enumerate(added):
            index.add(values_module.conditions_of(each), number % TARGETS)
        left = dict(enumerate(added))
        for number, each in enumerate(added):
            if gone >> number & 1:
                index.remove(values_module.conditions_of(each), number % TARGETS)
                del left[number]
        for found in asked:
            expected = {
                number % TARGETS for number, each in left.items() if headers_match(each, found)
            }
            assert index.match(index.project(found)) == expected, found

    judge()


def test_any_arguments_and_headers_match_as_in_the_model() -> None:
    compare(EXAMPLES)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_hundred_thousand_arguments_and_headers_match_as_in_the_model() -> None:
    compare(100_000)


PLANTED = {
    "any is taken for all": ("not conditions.all or count", "count"),
    "all is taken for any": ("if not conditions.all or count == len(conditions.of):", "if count:"),
    "all without conditions matches nothing": ("found = set(self._always)", "found: set = set()"),
    "any without conditions matches": (
        "        if conditions.all and not conditions.of:\n            self._always[target] += 1",
        "        if not conditions.of:\n            self._always[target] += 1",
    ),
    "presence is not asked for": ("if None in values:", "if None in ():"),
    "a null is not there": ("if None in values:", "if value and None in values:"),
    "a removed binding takes its like along": ("if asking[conditions, target]:", "if not asking:"),
    "a removed binding takes its condition along": (
        "            if not asking:\n",
        "            if asking or True:\n",
    ),
    "a removed condition takes its name along": (
        "            if not values:\n",
        "            if values or True:\n",
    ),
}  # fmt: skip
PLANTED_VALUES = {
    "a bool is a number": ("    if kind is bool:\n", "    if kind is set:\n"),
    "bytes are not text": ("            return value.decode()\n", "            return value\n"),
    "names with x are always compared": ("(with_x or", "(True or"),
    "names with x are never compared": ("(with_x or", "(False or"),
    "x-match is compared": ("name != MATCH and (with_x", "(with_x"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_of_the_index_is_found_by_the_model(name: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        compare(SOUGHT, planted(header_index, *PLANTED[name]))


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTED_VALUES)
def test_a_planted_bug_of_the_values_is_found_by_the_model(name: str) -> None:
    values = planted(exchange, *PLANTED_VALUES[name])
    index = planted(header_index, "class HeaderIndex", "class HeaderIndex")
    index.__dict__["comparable"] = values.comparable
    with pytest.raises((AssertionError, KeyError)):
        compare(SOUGHT, index, values)
