"""What payloads mean, and how tools show them (zbroker/formats)."""

from __future__ import annotations

import json
import os
import random

import msgspec
import pytest

from tests.collisions import flood
from tests.formats.describing import KINDS
from zbroker.formats import FormatError, decode, show

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
        decode("avro", b"<a/>")


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
        for type_ in KINDS:
            json.dumps(show(type_, bytes(data)), allow_nan=False)


def keyed(count: int, *keys: object) -> bytes:
    """A msgpack map with `count` entries: text as keys but for `keys`."""
    names = [*keys, *(f"name-{n}" for n in range(count - len(keys)))]
    encoded = b"".join(msgspec.msgpack.encode(name) + b"\x01" for name in names)
    return b"\xdf" + count.to_bytes(4, "big") + encoded


@pytest.mark.parametrize("data", [
    flood(200), flood(30_000), b"\x81\xa1a" + flood(200), b"\x91" + flood(200),
    keyed(65, 7), keyed(65, 2.5), keyed(300, True), keyed(65, (1, 2)), keyed(65, None),
    b"\xc4\x02\xde\x00" + flood(65),
])  # fmt: skip
def test_a_big_map_whose_keys_can_be_chosen_to_be_slow_is_unreadable(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode("msgpack", data)
    assert "error" in show("msgpack", data)


@pytest.mark.parametrize("data", [
    keyed(64, 7, 2.5), keyed(500), keyed(70_000), keyed(64, (1, 2)),
    msgspec.msgpack.encode({f"{n}".encode(): n for n in range(100)}),
    msgspec.msgpack.encode({"random": b"\xde\xff\xff\xdf\0\0\0\xff" * 40, "n": 0xDE00DF0000000000}),
    msgspec.msgpack.encode([{n: [n]} for n in range(100)]),
])  # fmt: skip
def test_other_maps_are_read_as_before(data: bytes) -> None:
    assert decode("msgpack", data) == msgspec.msgpack.decode(data)


def test_a_fix_message_has_a_bounded_number_of_tags() -> None:
    """Tags are numbers, whose hash has no seed either."""
    fields = [b"%d=x\x01" % tag for tag in range(10_000, 14_096)]
    assert len(decode("fix", b"".join(fields))) == 4_096
    assert decode("fix", b"1=x\x01" * 9_000) == {1: ["x"] * 9_000}
    with pytest.raises(FormatError, match="4097 different tags"):
        decode("fix", b"".join([*fields, b"9999=x\x01"]))
