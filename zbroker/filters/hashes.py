"""Hashes of texts, over their bytes in UTF-8."""

from __future__ import annotations

import hashlib
import zlib
from typing import Final

CRC64_MAX_BYTES: Final = 4_096  # some 0.2 us a byte, in Python; a longer text has none

_CRC64: Final = 0xC96C5795D7870F42  # CRC-64/XZ: ECMA-182, reflected
_ALL_ONES: Final = (1 << 64) - 1


def _table() -> tuple[int, ...]:
    found = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC64 if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_TABLE: Final = _table()


def md5(item: str) -> str:
    return hashlib.md5(item.encode(), usedforsecurity=False).hexdigest()


def crc32(item: str) -> int:
    return zlib.crc32(item.encode())


def crc64(item: str) -> int | None:
    data = item.encode()
    if len(data) > CRC64_MAX_BYTES:
        return None
    crc = _ALL_ONES
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ _ALL_ONES
