"""Many batch headers at once: `format.decode_batch_header` for a whole block, in one loop.

A walk over the log decodes millions of headers; to call a function for each of them and to look its
result over takes as long again as the decoding. These stop at whatever is not simply the next good
batch, and do not say what that is: decoding one header finds out. Every header's CRC is checked,
also by `skim_headers`, which decodes only what an index needs: little more than half the work.
"""

from __future__ import annotations

import struct
from typing import Final

from google_crc32c import extend as crc_extend
from google_crc32c import value as crc32c

from zbroker.journal.format import (
    BATCH,
    BATCH_MAGIC,
    FLAG_LATE,
    GROUP_ALIGN,
    GROUP_LENGTH,
    KIND_PUBLISH,
    VERSION,
    Batch,
    Stop,
    decode_batch_header,
    decode_tail,
    offset_bytes,
    tails,
)

_BATCH_BYTES: Final = BATCH.size
_LENGTH_AT: Final = 8
_CRC_AT: Final = BATCH.size - 4
_unpack: Final = BATCH.unpack_from

#: The same 112 bytes: magic and version, kind, header length, body length, flags, count, skip,
#: position, publisher, cut, header crc
_SKIMMED: Final = struct.Struct("<6sHIIIII4xQQ56xII")
_HEAD: Final = BATCH_MAGIC + VERSION.to_bytes(2, "little")
assert _SKIMMED.size == BATCH.size, "it is the same header"
_skim: Final = _SKIMMED.unpack_from


def decode_headers(  # noqa: PLR0913 - each is one thing that a block of the log is read by
    data: bytes, base: int, offset: int, seed: int, position: int, limit: int, room: int
) -> list[Batch]:
    """The good batches that follow on from `offset`, of positions from `position` below `limit`.

    `data` are bytes of a segment from offset `base` on. Batches begin in the next `room` bytes.
    """
    found: list[Batch] = []
    at, size = offset - base, len(data)
    last = min(size - _BATCH_BYTES, at + room - 1)
    while position < limit and at <= last:
        (magic, version, kind, length, body_length, flags, count, skip, topics, _, own, publisher,
         session, sequence, prev, log_time, origin_instance, origin_position, origin_generation,
         body_crc, cut, crc) = _unpack(data, at)  # fmt: skip
        if magic != BATCH_MAGIC:
            at += -(base + at) % GROUP_ALIGN + GROUP_LENGTH
            if data[at : at + 4] != BATCH_MAGIC:
                break
            continue
        behind = at + length
        taken = count - skip - cut
        if (
            own != position
            or version != VERSION
            or behind > size
            or length < _BATCH_BYTES
            or length % 8
            or (taken <= 0 and (taken or count))
        ):
            break
        tail = data[at + _BATCH_BYTES : behind]
        if crc_extend(seed, offset_bytes(base + at) + data[at : at + _CRC_AT] + tail) != crc:
            break
        known = tails.get(tail)
        if known is None or len(known[0]) != topics:
            try:
                known = decode_tail(tail, topics)
            except (struct.error, UnicodeDecodeError):
                break
        names, columns, extra = known
        found.append(Batch(
            kind, own, publisher, session, sequence, prev, count, log_time, names, b"", body_crc,
            body_length, skip, flags, origin_instance, origin_generation, origin_position, columns,
            extra, base + at, length, cut,
        ))  # fmt: skip
        position += taken
        at = behind + (body_length + 7) // 8 * 8
    return found


def announced_length(data: bytes, at: int) -> int:
    """How long the batch header at `data[at:]` says it is. Nobody verified it yet."""
    return int.from_bytes(data[at + _LENGTH_AT : at + _LENGTH_AT + 4], "little")


class Sparse:
    """Which batches an index needs: of each block of a segment the first one, the first one of each
    publisher in it, and those that came late. `batches` counts all that were looked at.
    """

    __slots__ = ("batches", "block_bytes", "block_end", "seen", "serial")

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.batches = 0
        self.begin(0)

    def begin(self, serial: int) -> None:
        """Goes on in another segment."""
        self.serial = serial
        self.block_end = 0
        self.seen: set[int] = set()


def skim_headers(  # noqa: PLR0913 - each is one thing that a block of the log is read by
    data: bytes, base: int, offset: int, seed: int, position: int, limit: int, room: int,
    sparse: Sparse,
) -> tuple[list[Batch], int, int]:  # fmt: skip
    """Like `decode_headers`, but only what `sparse` needs; offset and position behind the last."""
    found: list[Batch] = []
    at = done = offset - base
    size, seen, block_end = len(data), sparse.seen, sparse.block_end - base
    last = min(size - _BATCH_BYTES, at + room - 1)
    while position < limit and at <= last:
        head, kind, length, body_length, flags, count, skip, own, publisher, cut, crc = _skim(
            data, at
        )
        if head != _HEAD:
            at += -(base + at) % GROUP_ALIGN + GROUP_LENGTH
            if data[at : at + 6] != _HEAD:
                break
            continue
        behind = at + length
        taken = count - skip - cut
        if (
            own != position
            or behind > size
            or length < _BATCH_BYTES
            or length % 8
            or (taken <= 0 and (taken or count))
        ):
            break
        covered = data[at : at + _CRC_AT] + data[at + _BATCH_BYTES : behind]
        if crc_extend(seed, offset_bytes(base + at) + covered) != crc:
            break
        begins, late = at >= block_end, flags & FLAG_LATE
        if begins or (kind == KIND_PUBLISH and (late or publisher not in seen)):
            batch = decode_batch_header(data, at, base + at, seed)
            if isinstance(batch, Stop):
                break
            found.append(batch)
            if begins:
                seen.clear()
                block_end = _block_end(base + at, sparse.block_bytes) - base
            if kind == KIND_PUBLISH and not late:
                seen.add(publisher)
        sparse.batches += 1
        position += taken
        at = done = behind + (body_length + 7) // 8 * 8
    sparse.block_end = block_end + base
    return found, base + done, position


def _block_end(offset: int, block_bytes: int) -> int:
    return offset // block_bytes * block_bytes + block_bytes


def take_bodies(found: list[Batch], data: bytes, base: int) -> int:
    """Sets the bodies that stand whole in `data`; how many are good before the first other one."""
    for index, batch in enumerate(found):
        at = batch.offset + batch.header_length - base
        size = batch.body_length
        batch.body = body = data[at : at + size]
        if len(body) < size or crc32c(body) != batch.body_crc:
            return index
    return len(found)
