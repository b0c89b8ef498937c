"""BSON payloads (zbroker/formats/bson.py)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import bson
import pytest
from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId
from bson import Timestamp as Ts
from bson.regex import Regex

from zbroker.formats import FormatError, decode, show
from zbroker.formats import bson as own

HEX = "507f1f77bcf86cd799439011"


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (5, 5), (Int64(2**40), 2**40), (-1.5, -1.5), ("é", "é"), (True, True), (None, None),
        (b"x", b"x"), (Binary(b"x", 4), b"x"), ({"b": Int64(1)}, {"b": 1}),
        ([1, {"b": Int64(2)}], [1, {"b": 2}]), (ObjectId(HEX), HEX), (Decimal128("1.50"), "1.50"),
        (dt.datetime(2020, 1, 2, tzinfo=dt.UTC), dt.datetime(2020, 1, 2, tzinfo=dt.UTC)),
        (DatetimeMS(10**17), 1e14), (Ts(5, 6), 5), (Regex("a.*b", "i"), "a.*b"),
        (Code("f()"), "f()"), (Code("f()", {"x": 1}), "f()"), (MinKey(), {"type": "MinKey"}),
        (MaxKey(), {"type": "MaxKey"}), (DBRef("c", Int64(5)), {"$ref": "c", "$id": 5}),
    ],
)  # fmt: skip
def test_a_value_of_each_kind(given: Any, value: object) -> None:
    data = bson.encode({"a": given})
    found = decode("bson", data)
    assert found == {"a": value}
    assert type(found["a"]) is type(value)
    show("bson", data)
    assert own.encode(own.parse(data)) == data


def deep(levels: int, kind: bytes = b"\x03") -> bytes:
    inner = bson.encode({})
    begin = kind + b"a\0"
    more = 4 + len(begin) + 1  # bytes of each level; copying them level by level takes seconds
    sizes = (len(inner) + more * level for level in range(levels, 0, -1))
    return b"".join(n.to_bytes(4, "little") + begin for n in sizes) + inner + bytes(levels)


WHOLE = bson.encode({"a": 1})


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\5", WHOLE[:-1], WHOLE + b"x", WHOLE[:-1] + b"x", b"\xff\xff\xff\x7f" + WHOLE[4:],
        b"\xff\xff\xff\xff" + WHOLE[4:], b"\5\0\0\0\1", b"\x0c\0\0\0\x02a\0\xff\xff\xff\x7fx\0\0",
        b"\x0e\0\0\0\x02a\0\2\0\0\0\xff\0\0", b"\x08\0\0\0\x77a\0\0", b"{}",
        b"\x10\0\0\0\x02$ref\0\2\0\0\0c\0\0"[:-1], deep(65), deep(500), deep(65, b"\x04"),
        deep(100_000),
    ],
)  # fmt: skip
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        decode("bson", data)
    assert caught.value.code == "bad_payload"


def test_depth_is_bounded() -> None:
    assert decode("bson", deep(63))
    with pytest.raises(FormatError, match="nested deeper than 64"):
        decode("bson", deep(64))
