"""Values of expressions and the slow reading of their trees agree (zbroker/filters/expressions)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import making, naive
from tests.filters.test_compiler import About
from tests.formats.describing import KINDS
from tests.seed_counts import seed_count
from zbroker.errors import ClientError
from zbroker.filters import Payloads, compile_expression, compile_filter
from zbroker.filters.nodes import fields_of
from zbroker.filters.parser import parse
from zbroker.formats import TYPES, FormatError, decode

NONE = About()  # without headers
JSON = [b'{"a":1,"s":"x"}', b'{"a":2.5}', b"malformed", b'{"s":""}', b"[1]"]


def values(
    text: str,
    type_: str,
    data: Sequence[bytes],
    at: Sequence[int] | None = None,
    about: About = NONE,
) -> Any:
    found = Payloads(type_, data)
    return compile_expression(text).values(found, range(len(data)) if at is None else at, about)


def expected(text: str, type_: str, data: Sequence[bytes], about: About) -> list[Any]:
    """By the slow reading."""
    tree = parse(text)
    found: list[Any] = []
    for i, payload in enumerate(data):
        message = about.message(i, payload)
        try:
            value: Any = decode(type_, payload)
        except FormatError:
            if fields_of(tree):
                found.append(None)
                continue
            value = None
        found.append(naive.evaluate(tree, value, message))
    return found


@pytest.mark.parametrize("type_", KINDS, ids=TYPES)
@given(data=st.data())
@settings(max_examples=seed_count(50, 400), deadline=None)
def test_a_value_is_what_the_slow_reading_gives(type_: str, data: Any) -> None:
    text = data.draw(making.with_message)
    batch = data.draw(st.lists(making.payloads(type_), max_size=6))
    about = About(data.draw(making.rows_of_headers))
    wanted = expected(text, type_, batch, about)
    wanted = list(map(repr, wanted))  # NaN is equal to nothing, 1 to True
    assert list(map(repr, values(text, type_, batch, about=about))) == wanted
    some = range(len(batch))[::2]
    assert list(map(repr, values(text, type_, batch, some, about))) == wanted[::2]


@given(
    text=making.with_message,
    batch=st.lists(making.payloads("json"), max_size=6),
    headers=making.rows_of_headers,
)
@settings(max_examples=seed_count(50, 400), deadline=None)
def test_a_filter_picks_where_its_text_has_a_true_value(
    text: str, batch: list[bytes], headers: list[dict[str, Any] | None]
) -> None:
    about = About(headers)
    picked = (
        compile_filter(text).test("json").picks(Payloads("json", batch), range(len(batch)), about)
    )
    found = values(text, "json", batch, about=about)
    assert picked == [i for i, value in enumerate(found) if naive.truth(value) is True]


def test_a_payload_that_cannot_be_read_has_no_value() -> None:
    assert values("/a", "json", JSON) == [1, 2.5, None, None, None]
    assert values("COALESCE(/a, 7)", "json", JSON) == [1, 2.5, None, 7, 7]
    assert values("COALESCE(/a, 7)", "binary", JSON) == [7] * 5


def test_an_expression_without_fields_does_not_look_into_payloads() -> None:
    assert values("MESSAGE_SIZE() + 1", "json", JSON) == [len(each) + 1 for each in JSON]


def test_a_header_has_its_value_whatever_the_payload_is() -> None:
    about = About([{"a": 7}, None, {"a": b"x"}, {}, {"a": ""}])
    assert values("HEADER('a')", "json", JSON, about=about) == [7, None, b"x", None, ""]
    assert values("COALESCE(HEADER('a'), /s)", "json", JSON[:2], about=about) == [7, None]


def test_values_come_in_the_order_asked_for() -> None:
    assert values("/a", "json", JSON, [1, 2, 0]) == [2.5, None, 1]
    assert values("/a", "json", JSON, []) == []


@pytest.mark.parametrize(
    ("type_", "payload", "value"),
    [
        ("json", b'{"44":"101"}', "101"),
        ("auto", b'{"44":101}', 101),
        ("msgpack", msgspec.msgpack.encode({44: 101}), 101),
        ("nvfix", b"44=101\x01", "101"),
        ("fix", b"35=D\x0144=101\x01", "101"),
        ("binary", b'{"44":101}', None),
    ],
)
def test_a_field_is_read_in_every_type(type_: str, payload: bytes, value: Any) -> None:
    assert values("/44", type_, [payload]) == [value]
    assert values("/44 * 2", type_, [payload]) == [None if value is None else 202]


def test_payloads_are_decoded_once_for_filters_and_expressions() -> None:
    found = Payloads("json", [b'{"a":{"b":1}}'])
    value = compile_expression("/a").values(found, [0], About())[0]
    assert compile_expression("/a").values(found, [0], About())[0] is value


def test_a_wrong_expression_is_refused_with_the_column() -> None:
    with pytest.raises(ClientError, match="bad_filter: column 6: a field"):
        compile_expression("/a + ")
