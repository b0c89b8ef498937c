"""Payloads of Protocol Buffers, by descriptors (zbroker/formats/protobuf.py)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from tests.formats.describing import ORDER, SHOP, add, order, shop
from zbroker.errors import ClientError
from zbroker.formats import FormatError, MessageType, decode, protobuf, reader, show, types

EMPTY = {
    "a": 0, "b": "", "price": 0.0, "leg": [], "side": "BUY", "tags": {}, "raw": b"", "numbers": [],
    "large": 0, "good": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"a": -5}, {"b": "é"}, {"price": 1.5}, {"raw": b"\xff"}, {"numbers": [1, -2]},
        {"large": 2**64 - 1}, {"good": True},
    ],
)  # fmt: skip
def test_fields_have_the_names_of_the_file_and_defaults(fields: dict[str, Any]) -> None:
    assert decode(ORDER, order(**fields).SerializeToString()) == EMPTY | fields


def test_messages_enums_and_maps_are_plain_values() -> None:
    given = order(leg=[{"sym": "x", "n": 2}, {}], side=1, tags={3: "t"}, sub={"a": 7})
    found = decode(ORDER, given.SerializeToString())
    assert found["leg"] == [{"sym": "x", "n": 2}, {"sym": "", "n": 0}]
    assert (found["side"], found["tags"]) == ("SELL", {"3": "t"})
    assert found["sub"] == EMPTY | {"a": 7}
    given.side = 9
    assert decode(ORDER, given.SerializeToString())["side"] == 9


def test_times_and_wrappers_are_what_they_stand_for() -> None:
    given = order()
    given.at.seconds, given.at.nanos = 86_400, 5_000
    given.size.value = 0
    found = decode(ORDER, given.SerializeToString())
    assert found["at"] == dt.datetime(1970, 1, 2, microsecond=5, tzinfo=dt.UTC)
    assert found["size"] == 0
    given.at.seconds = 10**14
    assert decode(ORDER, given.SerializeToString())["at"] == {"seconds": 10**14, "nanos": 5_000}


def test_an_absent_message_has_no_value() -> None:
    found = decode(ORDER, b"")
    assert not {"at", "size", "sub"} & set(found)
    assert show(ORDER, b"")["raw"] == {"base64": ""}


def nested(levels: int) -> bytes:
    data = b""
    for _ in range(levels):
        length, size = len(data), b""
        while length > 127:
            size += bytes([length & 127 | 128])
            length >>= 7
        data = b"\x5a" + size + bytes([length]) + data
    return data


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a", b"\x12\x01\xff", b"\x12\x7f", b"{}", nested(64), nested(5_000)]
)
def test_what_is_no_such_message_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="the payload is not protobuf") as caught:
        decode(ORDER, data)
    assert len(str(caught.value)) < 500, "the descriptors are not part of it"


def test_depth_is_bounded() -> None:
    assert decode(ORDER, nested(63))


def test_the_values_of_a_payload_are_bounded() -> None:
    many = b"\x22\x00" * (protobuf.VALUES_MAX // 3 + 1)  # a leg of two fields each
    with pytest.raises(FormatError, match="more than 1048576 values"):
        decode(ORDER, many)


def test_the_bytes_of_a_payload_are_bounded_by_its_largest_submessage() -> None:
    read = reader(ORDER)
    assert isinstance(read, protobuf.ProtobufReader)
    assert read.bytes_max == 2 * protobuf.PARSED_MAX_BYTES // (64 + 16 * 13)
    with pytest.raises(FormatError, match=f"{read.bytes_max} of this message are read"):
        decode(ORDER, b"\x12\x00" * (read.bytes_max // 2 + 1))


# -- the type ---------------------------------------------------------------------------------


def test_a_type_is_text_that_reads_back() -> None:
    found = types.parse(ORDER)
    assert (found.name, found.message) == ("protobuf", "shop.Order")
    assert str(found) == ORDER
    assert types.name_of(ORDER) == "protobuf"
    assert str(types.parse("json")) == "json"


@pytest.mark.parametrize(
    "text",
    [
        "", "none", "protobuf;message=a", "protobuf;a;b", "protobuf;message=a;descriptors=?",
        "protobuf;message=a;descriptors=;", "none;message=a;descriptors=",
    ],
)  # fmt: skip
def test_other_texts_are_no_type(text: str) -> None:
    with pytest.raises(ClientError) as caught:
        types.parse(text)
    assert caught.value.code == "bad_field"
    with pytest.raises(ValueError, match=r"is none of the message types|this is no"):
        decode(text, b"")


@pytest.mark.parametrize(
    "text",
    ["protobuf", "protobuf;message=a;descriptors=", "protobuf;message=shop.Order;descriptors=/w=="],
)
def test_a_type_without_what_it_needs_is_our_mistake(text: str) -> None:
    with pytest.raises(ValueError, match=r"says too little|cannot be made"):
        decode(text, b"")


# -- descriptors ------------------------------------------------------------------------------


def test_only_what_a_message_needs_is_kept() -> None:
    found = shop()
    other = found.file.add(name="other.proto", package="other", syntax="proto3")
    add(other.message_type.add(name="Other"), "a int64")
    found.file[0].source_code_info.location.add(leading_comments="x" * 100_000)
    data = protobuf.pruned(found.SerializeToString(), "shop.Order")
    assert data == protobuf.pruned(SHOP, "shop.Order")
    names = [one.name for one in descriptor_pb2.FileDescriptorSet.FromString(data).file]
    assert names[-1] == "shop.proto", "imports come first"
    assert len(names) == 3


def test_a_message_in_a_message_is_found() -> None:
    data = protobuf.pruned(SHOP, "shop.Order.Leg")
    assert decode(str(MessageType("protobuf", "shop.Order.Leg", data)), b"") == {"sym": "", "n": 0}


def without(name: str) -> bytes:
    found = shop()
    kept = [one for one in found.file if one.name != name]
    data: bytes = descriptor_pb2.FileDescriptorSet(file=kept).SerializeToString()
    return data


def unknown_type() -> bytes:
    found = shop()
    found.file[0].message_type[0].field[3].type_name = ".shop.None"
    data: bytes = found.SerializeToString()
    return data


def large() -> bytes:
    found = shop()
    names = (f"n{'x' * 200}{n} string" for n in range(400))
    add(found.file[0].message_type[0].nested_type.add(name="L"), *names)
    data: bytes = found.SerializeToString()
    return data


@pytest.mark.parametrize(
    ("data", "message", "reason"),
    [
        (b"\xff", "shop.Order", "the file is not a FileDescriptorSet"),
        (b"", "shop.Order", "the file describes no message 'shop.Order'"),
        (SHOP, "Order", "the file describes no message 'Order'"),
        (without("google/protobuf/wrappers.proto"), "shop.Order", "imports 'google/protobuf/wra"),
        (unknown_type(), "shop.Order", "'shop.Order' cannot be made of its descriptors"),
        (large(), "shop.Order", "what 'shop.Order' needs has"),
    ],
)
def test_descriptors_that_cannot_be_used_are_refused(
    data: bytes, message: str, reason: str
) -> None:
    with pytest.raises(ClientError) as caught:
        protobuf.pruned(data, message)
    assert reason in caught.value.reason
    assert caught.value.hint
