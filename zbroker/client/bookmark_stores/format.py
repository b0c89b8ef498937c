"""What the bytes in a bookmark store's file mean. Pure.

    key      0x01, then BLAKE2b-128 of client, 0x00, name
    value    crc32c u32 little-endian | msgpack [client, name, [[instance, generation, top, [open...]]...]]
    header   key 0x00: b"zbroker bookmark store" | version u32 little-endian

The CRC covers the key and the rest of the value.
"""  # noqa: E501

from __future__ import annotations

import hashlib
import struct
from typing import Final, NamedTuple

import msgspec

from zbroker.checksums import crc32c
from zbroker.client.bookmark_stores.progress import Reached, State
from zbroker.ids import Origin

VERSION: Final = 1
HEADER_KEY: Final = b"\x00"

_MAGIC: Final = b"zbroker bookmark store"
_U32: Final = struct.Struct("<I")


class Key(NamedTuple):
    """Which subscription: the client's name and its own."""

    client: str
    name: str


class BadRecord(NamedTuple):
    """Why bytes cannot be used."""

    why: str


class _Record(msgspec.Struct, array_like=True):
    client: str
    name: str
    lines: list[tuple[int, int, int, tuple[int, ...]]]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Record)


def header() -> bytes:
    """The value of HEADER_KEY."""
    return _MAGIC + _U32.pack(VERSION)


def check_header(value: bytes | None) -> BadRecord | None:
    """Why a header cannot be used; None if it is one of this version."""
    if value is None or not value.startswith(_MAGIC) or len(value) != len(_MAGIC) + _U32.size:
        return BadRecord("it has no header of a bookmark store")
    (version,) = _U32.unpack_from(value, len(_MAGIC))
    return None if version == VERSION else BadRecord(f"it has version {version}, this is {VERSION}")


def encode_key(key: Key) -> bytes:
    """The key of the state of a subscription."""
    named = f"{key.client}\x00{key.name}".encode()
    return b"\x01" + hashlib.blake2b(named, digest_size=16).digest()


def encode_state(key: Key, state: State) -> bytes:
    """The bytes of a state."""
    lines = [(o.instance, o.generation, r.top, r.open) for o, r in sorted(state.items())]
    body: bytes = _ENCODER.encode(_Record(key.client, key.name, lines))
    return _U32.pack(crc32c(encode_key(key) + body)) + body


def decode_state(key: bytes, value: bytes) -> tuple[Key, State] | BadRecord:
    """Whose state it is, and the state."""
    if len(value) <= _U32.size:
        return BadRecord(f"a record has {len(value)} bytes")
    body = value[_U32.size :]
    if _U32.unpack_from(value)[0] != crc32c(key + body):
        return BadRecord("the checksum of a record is wrong")
    try:
        record = _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        return BadRecord(f"a record cannot be read: {error}")
    state = {Origin(line[0], line[1]): Reached(line[2], line[3]) for line in record.lines}
    return Key(record.client, record.name), state
