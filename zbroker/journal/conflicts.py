"""Keeps batches that came twice with different content for people: <data>/conflicts.

    0      4          8         12       16        16+length
    +------+----------+---------+--------+------------+
    | zbCF | version  | length  | crc32c | msgpack map|  and so on; little-endian
    +------+----------+---------+--------+------------+  the CRC covers the map

A publisher that sends a sequence again with another content is answered as for a duplicate: the
first one counts. What it sent the second time is only here. At most CONFLICTS_MAX_BYTES are kept;
what does not fit, or finds no space on the disk, is counted only. A file that is damaged (a power
cut tears the last record) is renamed to conflicts.damaged-<n> and a new one is begun: nothing is
cut off and nothing is written after a place that readers cannot pass.
"""

from __future__ import annotations

import struct
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from msgspec import msgpack

from zbroker import durable_files
from zbroker.checksums import crc32c
from zbroker.journal.group_builder import Conflict
from zbroker.limits import MIB

CONFLICTS_MAX_BYTES: Final = 16 * MIB  # evidence for people, who read the first ones
VERSION: Final = 1
MAGIC: Final = b"zbCF"
HEAD: Final = struct.Struct("<4sIII")
assert HEAD.size == 16, "the picture says 16"


_DECODER: Final = msgpack.Decoder(Conflict)


def encode(conflict: Conflict) -> bytes:
    """One record."""
    data = msgpack.encode(conflict)
    return HEAD.pack(MAGIC, VERSION, len(data), crc32c(data)) + data


def read_conflicts(path: Path) -> list[Conflict]:
    """All records, oldest first; ends before the first record that is damaged or unknown."""
    return _read(path)[0]


def _read(path: Path) -> tuple[list[Conflict], int, int]:
    """The records, the bytes that they take, and the size of the file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0, 0
    found: list[Conflict] = []
    at = 0
    while (record := _decode(data, at)) is not None:
        found.append(record[0])
        at = record[1]
    return found, at, len(data)


def _decode(data: bytes, at: int) -> tuple[Conflict, int] | None:
    if len(data) - at < HEAD.size:
        return None
    magic, version, length, crc = HEAD.unpack_from(data, at)
    body = data[at + HEAD.size : at + HEAD.size + length]
    if magic != MAGIC or version != VERSION or len(body) < length or crc32c(body) != crc:
        return None
    try:
        return _DECODER.decode(body), at + HEAD.size + length
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Conflicts:
    """Appends to the file; from one thread at a time. `kept`: records that are in it."""

    def __init__(self, path: Path, max_bytes: int = CONFLICTS_MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self.kept = 0
        self.failed = ""  # why the last one could not be kept
        self._bytes = 0
        try:
            self._look()
        except OSError as error:
            self.failed = str(error)

    def _look(self) -> None:
        found, end, size = _read(self._path)
        if end < size:
            names = (self._path.with_name(f"{self._path.name}.damaged-{n}") for n in count(1))
            self._path.rename(next(name for name in names if not name.exists()))
            found, end = [], 0
        self.kept, self._bytes = len(found), end

    def keep(self, conflicts: list[Conflict]) -> None:
        """Appends what there is space for, and syncs. Never raises for a disk that fails."""
        before = self._bytes
        data = [record for one in conflicts if (record := self._fitting(one)) is not None]
        if not data:
            return
        try:
            durable_files.append(self._path, b"".join(data))
        except OSError as error:
            self._bytes = before
            self.failed = str(error)  # they are counted all the same; nothing depends on the file
            return
        self.kept += len(data)
        self.failed = ""

    def _fitting(self, conflict: Conflict) -> bytes | None:
        record = encode(conflict)
        if self._bytes + len(record) > self._max_bytes:
            return None
        self._bytes += len(record)
        return record
