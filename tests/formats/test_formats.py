"""What payloads mean, and how tools show them (zbroker/formats)."""

from __future__ import annotations

import json
import os
import random

import msgspec
import pytest

from zbroker.formats import TYPES, FormatError, decode, show

ROUNDS = int(os.environ.get("ZB_ROUNDS", "3000"))
ext = msgspec.msgpack.Ext


@pytest.mark.parametrize(
    ("type_", "data", "value"),
    [
        ("json", b' {"a": [1, 2.5, null, "x"]}\n', {"a": [1, 2.5, None, "x"]}),
        ("msgpack", b"\x82\xa1a\x01\x02\xc4\x01x", {"a": 1, 2: b"x"}),
        ("nvfix", b"symbol=AAPL\x01price=101.5\x01", {"symbol": "AAPL", "price": "101.5"}),
        ("nvfix", b"a=\x01b=x=y", {"a": "", "b": "x=y"}),
        ("nvfix", b"a=1\x01a=2\x01a=3\x01", {"a": ["1", "2", "3"]}),
        ("nvfix", b"", {}),
        ("fix", b"8=FIX.4.4\x0135=D\x0155=\xc3\xa9\x01", {8: "FIX.4.4", 35: "D", 55: "é"}),
        ("fix", b"95=3\x0196=a\x01b\x0110=128\x01", {95: "3", 96: "a\x01b", 10: "128"}),
        ("fix", b"95=2\x0196=\xff\x01\x01", {95: "2", 96: b"\xff\x01"}),
        ("fix", b"96=abc\x01", {96: "abc"}),
        ("fix", b"", {}),
        ("binary", b'{"a": 1}', None),
        ("auto", b'{"a": 1}', {"a": 1}),
        ("auto", b"\xff\xfe", None),
        ("auto", b"plain words", None),
    ],
)
def test_a_payload_is_read_by_its_type(type_: str, data: bytes, value: object) -> None:
    assert decode(type_, data) == value


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("json", b""),
        ("json", b"{"),
        ("json", b'"\xff"'),
        ("json", b"[" * 5_000),
        ("json", b"1 2"),
        ("msgpack", b""),
        ("msgpack", b"\xc1"),
        ("msgpack", b"\x91" * 5_000),
        ("msgpack", b"\x01\x02"),
        ("nvfix", b"a"),
        ("nvfix", b"=1"),
        ("nvfix", b"a=1\x01\x01b=2"),
        ("nvfix", b"a=\xff"),
        ("fix", b"a=1"),
        ("fix", b"05=1"),
        ("fix", b"35"),
        ("fix", b"35=D\x01\x01"),
        ("fix", b"95=9\x0196=abc\x01"),
        ("fix", b"95=1\x0196=abc\x01"),
        ("fix", b"95=x\x0196=abc\x01"),
        ("fix", b"95=" + b"9" * 5_000 + b"\x0196=abc\x01"),
    ],
)
def test_what_is_not_of_its_type_is_a_typed_error(type_: str, data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        decode(type_, data)
    assert caught.value.code == "bad_payload"
    assert caught.value.reason.startswith(f"the payload is not {type_}: ")


def test_a_type_that_there_is_not_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="message types auto, json"):
        decode("xml", b"<a/>")


@pytest.mark.parametrize(
    ("type_", "data", "shown"),
    [
        ("json", b'{"a": 1}', {"a": 1}),
        ("json", b"null", None),
        ("msgpack", b"\xc0", None),
        ("msgpack", b"\xc4\x01a", {"base64": "YQ=="}),
        ("msgpack", b"\x81\xc4\x01a\x01", {"{'base64': 'YQ=='}": 1}),
        ("msgpack", msgspec.msgpack.encode(ext(5, b"a")), {"ext": 5, "base64": "YQ=="}),
        ("msgpack", b"\xd6\xff\0\0\0\1", "1970-01-01T00:00:01+00:00"),
        ("msgpack", msgspec.msgpack.encode([float("inf")]), ["inf"]),
        ("fix", b"35=D\x01", {"35": "D"}),
        ("nvfix", b"oops", {"base64": "b29wcw==", "error": "the payload is not nvfix: "}),
        ("binary", b"null", {"base64": "bnVsbA=="}),
        ("auto", b"plain words", {"text": "plain words"}),
        ("auto", b"\xff", {"base64": "/w=="}),
        ("auto", b"\xc0", {"base64": "wA=="}),
        ("auto", b"null", None),
        ("auto", b"", {"text": ""}),
    ],
)
def test_tools_show_a_payload_as_json(type_: str, data: bytes, shown: object) -> None:
    found = show(type_, data)
    if isinstance(shown, dict) and "error" in shown:
        assert found.pop("error").startswith(shown.pop("error"))
    assert found == shown


def test_whatever_the_bytes_are_a_payload_can_be_shown() -> None:
    rng = random.Random(1)
    seeds = [b'{"a": [1, "x"]}', b"35=D\x0195=2\x0196=ab\x01", b"\x82\xa1a\x01\x02\xc4\x01x", b""]
    for _ in range(ROUNDS):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(0, 4)):
            data.insert(rng.randint(0, len(data)), rng.randrange(256))
        for type_ in TYPES:
            json.dumps(show(type_, bytes(data)), allow_nan=False)
