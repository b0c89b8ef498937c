"""Parts of BSON, Protocol Buffers and XML left out (zbroker/filters/projection.py)."""

from __future__ import annotations

import bson
import pytest

from tests.formats.describing import ORDER, order
from zbroker.filters import compile_select
from zbroker.formats import decode

XML = b'<o id="7" x="1"><p ccy="EUR">5</p><leg><s>a</s><n>1</n></leg><leg><s>b</s></leg>text</o>'


@pytest.mark.parametrize(
    ("select", "sent"),
    [
        ("-/,+/o/p", b'<o><p ccy="EUR">5</p></o>'),
        ("-/,+/o/@id,+/o/p/@ccy", b'<o id="7"><p ccy="EUR"/></o>'),
        ("-/,+/o/leg/s", b"<o><leg><s>a</s></leg><leg><s>b</s></leg></o>"),
        ("-/o/leg,-/o/@x,-/o/$", b'<o id="7"><p ccy="EUR">5</p></o>'),
        ("-/,+/o/p/$", b"<o><p>5</p></o>"),
        ("-/,+/none", b"<o/>"),
        ("-/o", b"<o/>"),
        ("+/none", XML),
    ],
)
def test_elements_attributes_and_text_are_left_out(select: str, sent: bytes) -> None:
    assert compile_select(select).apply("xml", XML) == sent


@pytest.mark.parametrize(
    ("select", "kept"),
    [
        ("-/,+/a/b", {"a": {"b": bson.Int64(1)}}),
        ("-/a/b,-/d", {"a": {"c": 2}}),
        ("-/,+/a/none", {}),
        ("-/,+/d/x", {}),
        ("-/d/x", {"a": {"b": bson.Int64(1), "c": 2}, "d": 3}),
    ],
)
def test_names_of_bson_are_left_out_and_others_keep_their_type(
    select: str, kept: dict[str, object]
) -> None:
    data = bson.encode({"a": {"b": bson.Int64(1), "c": 2}, "d": 3})
    assert compile_select(select).apply("bson", data) == bson.encode(kept)


@pytest.mark.parametrize(
    ("select", "kept"),
    [
        ("-/,+/a", {"a": 5}),
        ("-/,+/sub/b", {"sub": {"b": "y"}}),
        ("-/,+/sub/raw", {}),
        ("-/sub/a,-/leg,-/tags", {"a": 5, "b": "x", "sub": {"b": "y"}}),
        ("-/,+/leg", {"leg": [{"sym": "l"}]}),
    ],
)
def test_fields_of_a_message_are_left_out(select: str, kept: dict[str, object]) -> None:
    given = order(a=5, b="x", leg=[{"sym": "l"}], tags={1: "t"}, sub={"a": 7, "b": "y"})
    data = compile_select(select).apply(ORDER, given.SerializeToString())
    assert data == order(**kept).SerializeToString(deterministic=True)


def test_what_a_type_does_not_describe_is_left_out_with_the_rest() -> None:
    unknown = b"\xfa\x01\x06secret"
    data = order(a=5).SerializeToString() + unknown
    assert compile_select("-/,+/a").apply(ORDER, data) == order(a=5).SerializeToString()
    assert unknown in compile_select("-/b").apply(ORDER, data)
    assert decode(ORDER, data)["a"] == 5


@pytest.mark.parametrize(("type_", "data"), [("xml", b"<a"), ("bson", b"x"), (ORDER, b"\xff")])
def test_what_cannot_be_read_is_sent_as_it_is(type_: str, data: bytes) -> None:
    assert compile_select("-/").apply(type_, data) == data
