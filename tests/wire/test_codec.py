"""Header frames: what is read of those that are refused (zbroker/wire/codec.py)."""

from __future__ import annotations

import msgspec
import pytest

from tests.collisions import flood, header, pairs
from zbroker.errors import ClientError
from zbroker.limits import HEADER_MAX_BYTES
from zbroker.wire import bodies, codec

CID = msgspec.msgpack.encode("it")


def test_the_pairs_of_the_attack_have_one_hash() -> None:
    some = pairs()
    assert len({hash(next(some)) for _ in range(100)}) == 1


@pytest.mark.parametrize(
    ("frame", "cid"),
    [
        (header(cmd=b"\xa1x", cid=CID), "it"),
        (header(cid=CID, other=flood(3)), "it"),
        (header(cid=b"\xd9\x40" + b"x" * 64), "x" * 64),
        (header(cid=b"\xd9\x41" + b"x" * 65), None),
        (header(cid=b"\x05"), None),
        (header(cmd=b"\xa1x"), None),
        (b"\x81\x92\x01\x02\xc0", None),
        (b"\x91\xc0", None),
        (b"\xc1", None),
        (b"", None),
    ],
)
def test_of_a_refused_header_only_its_cid_is_read(frame: bytes, cid: str | None) -> None:
    assert codec.cid_of(frame) == cid


def test_what_else_is_in_a_refused_header_is_not_built() -> None:
    """Building it would take a minute of a listener's one thread."""
    frame = header(cid=CID, cmd=b"\xa1x", other=flood(4_000))
    assert len(frame) < HEADER_MAX_BYTES
    assert codec.cid_of(frame) == "it"


def test_a_header_over_its_limit_is_not_looked_at() -> None:
    frame = header(cid=CID, pad=msgspec.msgpack.encode(bytes(HEADER_MAX_BYTES)))
    assert codec.cid_of(frame) is None


@pytest.mark.parametrize("value", [flood(3), flood(3_000), b"\x91\xc0", b"\xd6\xff\0\0\0\1"])
def test_headers_of_one_message_are_scalars_and_nothing_else_is_built(value: bytes) -> None:
    frame = header(cmd=b"\xa7publish", seq=b"\x01", topic=b"\xa1t", headers=header(a=value))
    command = codec.decode(codec.INGEST, frame)
    assert isinstance(command, codec.messages.Publish)
    assert command.headers is not None
    assert not bodies.is_scalar(command.headers["a"])


@pytest.mark.parametrize(
    "value", ["x", "x" * 300, 1, -1, 1 << 63, -(1 << 40), 2.5, True, None, b"b"]
)
def test_every_scalar_is_a_header(value: object) -> None:
    raw = msgspec.Raw(msgspec.msgpack.encode(value))
    assert bodies.is_scalar(raw)
    assert bodies.scalar(raw) == value


@pytest.mark.parametrize("count", [3, 200, 3_000])
def test_a_header_column_with_a_map_in_a_value_is_refused(count: int) -> None:
    column = b"\x91" + header(a=flood(count))
    with pytest.raises(ClientError, match="a header is text") as caught:
        bodies.headers(column, 1)
    assert caught.value.code == "bad_field"
    with pytest.raises(ClientError):
        bodies.HeaderColumn(codec.messages.Columns(headers=column), 1).of(0)


def test_headers_of_many_names_are_read() -> None:
    row = {f"name-{n}": n for n in range(300)}
    assert bodies.headers(msgspec.msgpack.encode([row, None]), 2) == [row, None]
