"""The page about message types says what they do (docs/reference/message-types.md)."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT
from tests.filters.alone import takes
from zbroker.filters import compile_filter
from zbroker.formats import TYPES, bson, decoder, protobuf, xml

PAGE = (ROOT / "docs/reference/message-types.md").read_text()
XML = re.findall(r"^\| expression \| of `([^`]+)` \|$", PAGE, re.MULTILINE)[0].encode()
ROWS = re.findall(r"^\| `(/[^`]+)` \| `('[^`]+')` \|$", PAGE, re.MULTILINE)


def test_every_type_has_a_row() -> None:
    assert {*TYPES} <= {*re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)}


@pytest.mark.parametrize(("expression", "value"), ROWS)
def test_an_example_of_xml_is_true(expression: str, value: str) -> None:
    assert takes(compile_filter(f"{expression} = {value}").test("xml"), XML)


def test_the_limits_are_those_of_the_code() -> None:
    assert len(ROWS) == 5
    assert xml.DEPTH_MAX == bson.DEPTH_MAX == protobuf.DEPTH_MAX == decoder.ODD_KEYS_MAX == 64
    assert f"{protobuf.VALUES_MAX:,}" in PAGE
    assert f"{protobuf.PARSED_MAX_BYTES * 2 >> 20} MiB / (64 + 16 " in PAGE
    assert f"{protobuf.DESCRIPTORS_MAX_BYTES >> 10} KiB" in PAGE
