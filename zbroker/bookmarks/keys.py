"""The bytes of the bookmark index, version 1: one LMDB table with four kinds of keys. Pure.

Numbers are big-endian, so that LMDB's order of bytes is the order of numbers.

    key                                         value
    'p'  position u64                           place: the first batch of a block of log
    'r'  publisher u64, first sequence u64      place: where a run of sequences begins in a block
    's'                                         stamp
    't'  log time i64 + 2^63                    place: the first batch of a block with this time

            0          8        16       24     28
    place   | position | serial | offset | crc  |

            0        4         8          16           20         28     32
    stamp   | "zbIX" | version | instance | generation | position | crc  |

A crc is a CRC-32C over the key and the bytes before it in the value: LMDB pages have none, and
a flipped bit there would be a wrong answer.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from zbroker.checksums import crc32c

VERSION: Final = 1
BLOCK_BYTES: Final = 64 * 1024  # of log per entry: a scan from an entry is one read

POSITION: Final = b"p"
RUN: Final = b"r"
STAMP: Final = b"s"
TIME: Final = b"t"

_ONE: Final = struct.Struct(">cQ")
_TWO: Final = struct.Struct(">cQQ")
_CRC: Final = struct.Struct(">I")
_PLACE: Final = struct.Struct(">QQQ")
_STAMP: Final = struct.Struct(">4sIQIQ")
_STAMP_HEAD: Final = struct.Struct(">4sI")
_STAMP_MAGIC: Final = b"zbIX"
_U64_MAX: Final = (1 << 64) - 1
_TIME_BIAS: Final = 1 << 63  # log times are signed

assert _PLACE.size + _CRC.size == 28, "docs/reference/bookmarks.md says 28"
assert _STAMP.size + _CRC.size == 32, "docs/reference/bookmarks.md says 32"


class Hint(NamedTuple):
    """The place of a batch."""

    serial: int
    offset: int
    position: int


class Stamp(NamedTuple):
    """The extent of the index: everything below `position`, of this generation of the journal."""

    generation: int
    position: int


class BadKey(NamedTuple):
    """Why bytes are not what they should be."""

    why: str


EMPTY: Final = Stamp(0, 0)


def _clamp(number: int) -> int:
    return min(max(number, 0), _U64_MAX)


def position_key(position: int) -> bytes:
    """Key of the batch that begins at `position`."""
    return _ONE.pack(POSITION, _clamp(position))


def time_key(log_time: int) -> bytes:
    """Key of the first batch of a block with this log time (ns since 1970, may be negative)."""
    return _ONE.pack(TIME, _clamp(log_time + _TIME_BIAS))


def run_key(publisher: int, sequence: int) -> bytes:
    """Key of a publisher's run of sequences that begins with `sequence`."""
    return _TWO.pack(RUN, publisher, _clamp(sequence))


def run_prefix(publisher: int) -> bytes:
    """What all run keys of one publisher begin with."""
    return _ONE.pack(RUN, publisher)


def next_line(key: bytes) -> bytes:
    """The start of the line after that of `key`; empty after the last one."""
    if key.startswith(POSITION):
        return RUN
    if not key.startswith(RUN):
        return b""
    publisher = int(_ONE.unpack_from(key)[1])
    return run_prefix(publisher + 1) if publisher < _U64_MAX else TIME


def sequence_of(key: bytes) -> int:
    """The first sequence of the run with this key."""
    return int(_TWO.unpack(key)[2])


def time_of(key: bytes) -> int:
    """The log time in this key."""
    return int(_ONE.unpack(key)[1]) - _TIME_BIAS


def encode_place(key: bytes, hint: Hint) -> bytes:
    """The value with the place of the batch of `key`."""
    head = _PLACE.pack(hint.position, hint.serial, hint.offset)
    return head + _CRC.pack(crc32c(key + head))


def decode_place(key: bytes, value: bytes) -> Hint | BadKey:
    """The place in a value that was stored under `key`."""
    if len(value) != _PLACE.size + _CRC.size:
        return BadKey("an entry has a wrong length")
    head = value[: _PLACE.size]
    if _CRC.unpack_from(value, _PLACE.size)[0] != crc32c(key + head):
        return BadKey("an entry has a wrong checksum")
    position, serial, offset = _PLACE.unpack(head)
    return Hint(serial, offset, position)


def encode_stamp(stamp: Stamp, instance: int) -> bytes:
    """The value of the stamp."""
    head = _STAMP.pack(_STAMP_MAGIC, VERSION, instance, stamp.generation, stamp.position)
    return head + _CRC.pack(crc32c(STAMP + head))


def decode_stamp(value: bytes, instance: int | None = None) -> Stamp | BadKey:
    """The stamp of an index of this instance (of any, without one)."""
    if len(value) < _STAMP_HEAD.size:
        return BadKey("the stamp is too short")
    magic, version = _STAMP_HEAD.unpack_from(value)
    if magic != _STAMP_MAGIC:
        return BadKey("the stamp is not one of ours")
    if version != VERSION:
        return BadKey(f"it has version {version}, not {VERSION}")
    if len(value) != _STAMP.size + _CRC.size or _CRC.unpack_from(value, _STAMP.size)[0] != crc32c(
        STAMP + value[: _STAMP.size]
    ):
        return BadKey("the stamp has a wrong checksum")
    _, _, owner, generation, position = _STAMP.unpack_from(value)
    if instance is not None and owner != instance:
        return BadKey(f"it belongs to instance {owner:016x}")
    return Stamp(generation, position)
