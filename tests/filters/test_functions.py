"""Edges of functions that the manual's examples do not show (zbroker/filters/functions.py)."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from typing import Any

import pytest

from tests.filters.test_compiler import About
from zbroker.filters import Payloads, compile_expression
from zbroker.filters.functions import FUNCTIONS
from zbroker.filters.values import is_null

NUMBERS = [
    "SIN",
    "COS",
    "TAN",
    "COT",
    "ASIN",
    "ACOS",
    "ATAN",
    "SINH",
    "COSH",
    "TANH",
    "RADIANS",
    "DEGREES",
]
FIELDS = ("/a", "/b", "/c", "/d")


def value(text: str, **fields: Any) -> Any:
    found = Payloads("json", [json.dumps(fields).encode()])
    return compile_expression(text).values(found, [0], About())[0]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("item", [None, "x", "", [], {}, {"a": 1}])
def test_what_is_no_number_has_no_angle(name: str, item: object) -> None:
    assert value(f"{name}(/a)", a=item) is None


@pytest.mark.parametrize("name", NUMBERS)
def test_an_angle_may_be_spelled_or_the_first_of_an_array(name: str) -> None:
    expected = value(f"{name}(/a)", a=0.5)
    assert isinstance(expected, float)
    assert value(f"{name}(/a)", a="0.5") == value(f"{name}(/a)", a=[0.5, "x"]) == expected


@pytest.mark.parametrize("name", ["SIN", "SINH", "COSH", "DEGREES", "TAN"])
@pytest.mark.parametrize("item", [1e308, -1e308, 2**64 - 1, 710])
def test_a_result_is_finite_or_null(name: str, item: float) -> None:
    found = value(f"{name}(/a)", a=item)
    assert found is None or math.isfinite(found)


@pytest.mark.parametrize(
    ("item", "low", "high", "count", "bucket"),
    [
        (-0.1, 0, 10, 5, 0), (0, 0, 10, 5, 1), (1.99, 0, 10, 5, 1), (2, 0, 10, 5, 2),
        (9.999, 0, 10, 5, 5), (10, 0, 10, 5, 6), (1e300, 0, 10, 5, 6), (10.1, 10, 0, 5, 0),
        (10, 10, 0, 5, 1), (0.1, 10, 0, 5, 5), (0, 10, 0, 5, 6), (5, 5, 5, 5, None),
        (1, 0, 10, 0.5, None), (1, 0, 10, -1, None), ("x", 0, 10, 5, None),
        (2**64 - 2, 0, 2**64 - 1, 2**40, 2**40), (1, -1e308, 1e308, 10, None),
        (0, -1, 1, 1e308, None), (0.1 + 0.2, 0, 0.3, 3, 4),
    ],
)  # fmt: skip
def test_buckets_are_those_of_sql(
    item: object, low: float, high: float, count: float, bucket: int | None
) -> None:
    fields = {"a": item, "b": low, "c": high, "d": count}
    assert value("WIDTH_BUCKET(/a, /b, /c, /d)", **fields) == bucket


@pytest.mark.parametrize(
    ("places", "metres"),
    [
        ((0, 0, 0, 0), 0), ((0, 0, 0, 180), 20_015_115), ((90, 0, -90, 77), 20_015_115),
        ((0, 179.5, 0, -179.5), 111_195), ((91, 0, 0, 0), None), ((0, 0, 0, 181), None),
        ((-90.1, 0, 0, 0), None), (("x", 0, 0, 0), None),
    ],
)  # fmt: skip
def test_distances_are_those_on_the_earth(
    places: tuple[Any, Any, Any, Any], metres: int | None
) -> None:
    found = value("GEO_DISTANCE(/a, /b, /c, /d)", **dict(zip("abcd", places, strict=True)))
    assert found is None if metres is None else found == pytest.approx(metres, abs=1)


def test_hashes_are_of_the_bytes_in_utf_8() -> None:
    item = "é" * 3_000
    assert value("MD5(/a)", a=item) == hashlib.md5(item.encode()).hexdigest()
    assert value("CRC32(/a)", a=item) == zlib.crc32(item.encode())


def test_a_number_is_hashed_as_its_text() -> None:
    assert value("MD5(/a)", a=1.5) == value("MD5(/a)", a="1.5")
    assert value("CRC64(/a)", a="x" * 4_096) is not None
    assert value("CRC64(/a)", a="x" * 4_097) is None


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_null_is_an_argument_of_every_function(name: str) -> None:
    function = FUNCTIONS[name]
    if set(function.takes) & set("prf"):
        return  # constants, which are checked when the filter is made
    items = ", ".join(["/none"] * function.least)
    found = value(f"{name}({items})")
    assert is_null(found) or name == "ARRAY_COUNT"
