"""Bodies that are ruled out hold no match (zbroker/filters/needs)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import making
from tests.filters.alone import takes
from tests.filters.test_compiler import About
from tests.formats.describing import KINDS
from tests.seed_counts import seed_count
from zbroker.filters import Payloads, compile_filter
from zbroker.formats import TYPES
from zbroker.wire import bodies

AAPL = msgspec.json.encode({"symbol": "AAPL", "price": 7, "note": "5 MSFT"})


@pytest.mark.parametrize("type_", KINDS, ids=TYPES)
@given(data=st.data())
@settings(max_examples=seed_count(50, 400), deadline=None)
def test_a_body_with_a_match_is_never_ruled_out(type_: str, data: Any) -> None:
    text = data.draw(st.one_of(making.with_headers, narrow()))
    batch = data.draw(st.lists(making.payloads(type_), min_size=1, max_size=4))
    about = About(data.draw(making.rows_of_headers))
    test = compile_filter(text).test(type_)
    if test.picks(Payloads(type_, batch), range(len(batch)), about):
        body = bodies.pack(batch)
        assert test.maybe(body)
        assert test.maybe(memoryview(body))


def narrow() -> st.SearchStrategy[str]:
    """Conditions of which something is known, and their combinations."""
    no = st.sampled_from(["", "NOT "])
    build = st.builds
    text = making.solid_texts
    leaf = st.one_of(
        build("{}{} {} {}".format, no, making.loaded, st.sampled_from(["=", "!="]), text),
        build("{} {}BEGINS WITH {}".format, making.loaded, no, text),
        build("{} {}ENDS WITH {}".format, making.fields, no, text),
        build("{} {}LIKE {}".format, making.loaded, no, making.patterns.map(making.quoted)),
        build("{} {}IN ({}, {})".format, making.loaded, no, text, making.constants),
        build("INSTR({}, {}) {}".format, making.loaded, text, st.sampled_from(["", "> 0", "= 0"])),
        build("{} IS NOT NULL".format, making.loaded),
        build("{} = {}".format, making.fields, making.headers),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            build("({} AND {})".format, inner, inner),
            build("({} OR {})".format, inner, inner),
            build("NOT ({})".format, inner),
        ),
        max_leaves=4,
    )


@pytest.mark.parametrize(
    "text",
    [
        "/symbol = 'IBM'",
        "'IBM' = /symbol",
        "NOT /symbol != 'IBM'",
        "/symbol IN ('IBM', 'SAP', NULL)",
        "/symbol BEGINS WITH ('IB', 'SA')",
        "/symbol BEGINS WITH 'APL'",
        "/symbol ENDS WITH 'AAP'",
        "/note LIKE '^MSFT'",
        "/note LIKE 'IBM'",
        "INSTR(/symbol, 'IBM')",
        "INSTR(/symbol, 'IBM') > 0",
        "/price > 5 AND /symbol = 'IBM'",
        "/symbol = 'IBM' OR /symbol = 'SAP' AND /price > 5",
        "/quantity > 5",
        "/quantity IS NOT NULL",
        "NOT /quantity = 5",
        "/order/price BETWEEN 1 AND 10",
    ],
)
def test_a_body_without_what_is_needed_is_ruled_out(text: str) -> None:
    assert not compile_filter(text).test("json").maybe(bodies.pack([AAPL] * 3))


@pytest.mark.parametrize(
    "text",
    [
        "/symbol = 'AAPL'",
        "/symbol != 'IBM'",
        "/symbol = 'IBM' OR /price > 5",
        "/price = '7.0'",
        "/price LIKE '7'",
        "/quantity IS NULL",
        "UPPER(/symbol) = 'IBM'",
        "/symbol = TOPIC_NAME()",
        "TOPIC_NAME() = 'IBM'",
        "HEADER('book') = 'IBM'",
        "HEADER('book') IN ('IBM', 'SAP')",
        "HEADER('book') LIKE 'IBM'",
        "HEADER('book') BEGINS WITH 'IBM'",
        "INSTR(HEADER('book'), 'IBM') > 0",
        "/symbol = HEADER('book')",
        "/symbol = 'IBM' OR HEADER('book') = 'IBM'",
    ],
)
def test_a_body_that_may_match_is_kept(text: str) -> None:
    assert compile_filter(text).test("json").maybe(bodies.pack([AAPL] * 3))


def test_a_json_body_with_a_backslash_is_kept() -> None:
    test = compile_filter("/symbol = 'IBM'").test("json")
    escaped = b'{"symbol":"\\u0049BM"}'
    assert takes(test, escaped)
    assert test.maybe(bodies.pack([escaped]))


@pytest.mark.parametrize(
    ("type_", "payload", "kept"),
    [
        ("nvfix", b"symbol=IBM\x01price=7\x01", True),
        ("nvfix", b"symbol=SAP\x01note=IBM\x01", False),
        ("msgpack", msgspec.msgpack.encode({"symbol": "IBM"}), True),
        ("msgpack", msgspec.msgpack.encode({"symbol": "SAP"}), False),
        ("auto", b"IBM", False),
        ("binary", b"IBM", True),
    ],
)
def test_what_is_needed_is_spelled_as_in_the_type(type_: str, payload: bytes, kept: bool) -> None:
    assert compile_filter("/symbol = 'IBM'").test(type_).maybe(bodies.pack([payload])) == kept


def test_a_tag_of_fix_is_needed_with_its_value() -> None:
    test = compile_filter("/35 = '8'").test("fix")
    assert test.maybe(bodies.pack([b"35=8\x01"]))
    assert not test.maybe(bodies.pack([b"35=D\x0138=8\x01"]))


def test_a_list_too_long_to_search_for_asks_for_its_field_only() -> None:
    listed = ", ".join(f"'symbol {number}'" for number in range(500))
    test = compile_filter(f"/symbol IN ({listed})").test("json")
    assert test.maybe(bodies.pack([AAPL]))
    assert not test.maybe(bodies.pack([b'{"price":1}']))
