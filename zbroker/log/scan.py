"""Finds the content of the open segment: good groups, and the bad stretches between them.

Reads past the page cache and verifies everything: group CRCs, batch headers, bodies, the chain of
groups. An end is believed only after the rest of the file was searched. What a bad stretch means
(torn tail or damage) is for recovery.py to decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from zbroker.checksums import crc32c
from zbroker.limits import KIB, MIB
from zbroker.log.disk import Disk
from zbroker.log.format import (
    ALIGN,
    BATCH,
    BATCH_MAGIC,
    DATA_AT,
    FLAG_UNIT,
    GROUP_ALIGN,
    GROUP_LENGTH,
    GROUP_MAGIC,
    Batch,
    GroupHeader,
    ParseStop,
    SegmentHeader,
    batch_crc,
    check_group,
    decode_batch_header,
    decode_group_header,
    pad,
)
from zbroker.log.headers import announced_length
from zbroker.log.segments import read_around, segment_name

WINDOW_BYTES: Final = 4 * MIB
#: Headers up to here are simply read. Longer ones that turn out to be none may cost so many bytes
#: in all: a payload may be full of fakes.
_SHORT_BYTES: Final = 64 * KIB
FAKES_MAX_BYTES: Final = 256 * MIB
_ZEROS: Final = bytes(WINDOW_BYTES)


class ScannedGroup(Struct):
    """A good group: its headers are intact; `bad` are the batches whose bodies are not."""

    header: GroupHeader
    bad: list[Batch] = field(default_factory=list)


class BadStretch(Struct, frozen=True):
    """Bytes from `start` up to `end` that hold no valid group; `blank` if all of them are zeros."""

    start: int
    end: int
    blank: bool


class SegmentScan:
    """One segment, read past the page cache in large windows."""

    def __init__(self, disk: Disk, header: SegmentHeader, size: int) -> None:
        self.size = size
        self.header = header
        self._disk = disk
        self._name = segment_name(header.serial)
        self._seed = header.seed
        self._window = b""
        self._base = 0
        self._spare = FAKES_MAX_BYTES

    def items(self) -> Iterator[ScannedGroup | BadStretch]:
        """The content of the segment, in order; a last Stretch is the rest of the file."""
        offset, position = DATA_AT, self.header.first_position
        crc: int | None = 0
        while offset < self.size:
            group = self._group(offset)
            if isinstance(group, ScannedGroup) and _follows(group.header, position, crc):
                yield group
                offset, crc = group.header.end_offset, group.header.crc
                position = group.header.first_position + group.header.positions
                continue
            blank = self._is_blank(offset, self.size)  # after a clean end: read once then
            found = self.size if blank else self._next_group(offset, position)
            yield BadStretch(offset, found, blank or self._is_blank(offset, found))
            offset, crc = found, None

    def salvage(self, stretch: BadStretch, position: int, below: int) -> tuple[int, int]:
        """How far whole batches go on in a bad stretch: (offset, position) after the last.

        Only those of positions from `position` up to `below`, and up to the end of a unit; batches
        between them may be missing.
        """
        end = stretch.start
        whole = end, position  # not inside a unit
        for place in self._places(stretch.start, stretch.end, BATCH_MAGIC, ALIGN):
            inside = whole[1] != position
            if position >= below and not inside:
                break
            batch = self._batch(place, stretch.end) if place >= end else None
            follows = batch is not None and position <= batch.position
            if batch is None or not follows or not (inside or batch.position < below):
                continue
            if self._body_is_good(batch):
                end, position = batch.end_offset, batch.end_position
                whole = whole if batch.flags & FLAG_UNIT else (end, position)
        return whole

    def cache_is_blank(self, offset: int) -> bool:
        """True if also the page cache shows only zeros from `offset` on.

        After a failed write the cache may show bytes that the medium never got, and the next
        write would bring some of them back.
        """
        while offset < self.size:
            data = self._disk.read(self._name, offset, WINDOW_BYTES)
            if not _is_zero(data):
                return False
            offset += max(len(data), 1)
        return True

    def _group(self, offset: int) -> ScannedGroup | None:
        header = decode_group_header(self._get(offset, GROUP_LENGTH), 0, offset)
        if isinstance(header, ParseStop) or offset + header.length > self.size:
            return None
        if self._batch(offset + GROUP_LENGTH, self.size) is None:
            return None  # before megabytes are read for a fake
        data = self._get(offset, header.length)
        at, group, crcs = GROUP_LENGTH, ScannedGroup(header), []
        position = header.first_position
        for _ in range(header.batches):
            batch = decode_batch_header(data, at, offset + at, self._seed)
            if isinstance(batch, ParseStop) or batch.position != position:
                return None
            crcs.append(batch_crc(data[at : at + batch.header_length]))
            body = at + batch.header_length
            if crc32c(data[body : body + batch.body_length]) != batch.body_crc:
                group.bad.append(batch)
            at = body + pad(batch.body_length)
            position = batch.end_position
        whole = at == header.length and position == header.first_position + header.positions
        return group if whole and check_group(data, 0, header, crcs, self._seed) else None

    def _next_group(self, offset: int, position: int) -> int:
        """Offset of the next valid group that may follow, else the file's end."""
        for place in self._places(offset + GROUP_ALIGN, self.size, GROUP_MAGIC, GROUP_ALIGN):
            group = self._group(place)
            if group is not None and group.header.first_position >= position:
                return place
        return self.size

    def _places(self, start: int, end: int, magic: bytes, align: int) -> Iterator[int]:
        """Where `magic` is, aligned; blocks of zeros cost a comparison."""
        for base in range(start, end, WINDOW_BYTES):
            data = self._get(base, min(WINDOW_BYTES, end - base))
            at = -1 if _is_zero(data) else data.find(magic)
            while at >= 0:
                if (base + at) % align == 0:
                    yield base + at
                at = data.find(magic, at + 1)

    def _is_blank(self, start: int, end: int) -> bool:
        steps = range(start, end, WINDOW_BYTES)
        return all(_is_zero(self._get(base, min(WINDOW_BYTES, end - base))) for base in steps)

    def _batch(self, offset: int, end: int) -> Batch | None:
        data = self._get(offset, min(BATCH.size, end - offset))
        length = announced_length(data, 0)
        if length > min(end - offset, max(self._spare, _SHORT_BYTES)):
            return None
        batch = decode_batch_header(self._get(offset, length), 0, offset, self._seed)
        if isinstance(batch, Batch):
            return batch
        self._spare -= length if length > _SHORT_BYTES else 0
        return None

    def _body_is_good(self, batch: Batch) -> bool:
        body = self._get(batch.offset + batch.header_length, batch.body_length)
        return crc32c(body) == batch.body_crc

    def _get(self, offset: int, size: int) -> bytes:
        """Bytes of the medium; unreadable ones are zeros."""
        if not (self._base <= offset and offset + size <= self._base + len(self._window)):
            window_bytes = min(max(size, WINDOW_BYTES), max(self.size - offset, 0))
            self._window = read_around(self._disk.read_direct, self._name, offset, window_bytes)
            self._base = offset
        at = offset - self._base
        return self._window[at : at + size]


def _follows(group: GroupHeader, position: int, crc: int | None) -> bool:
    """`crc`: of the group before; None if that one is unknown."""
    if crc is None:
        return group.first_position >= position
    return group.first_position == position and group.previous_crc == crc


def _is_zero(data: bytes) -> bool:
    """data: a window at most. `strip` would take twenty times as long."""
    return data == _ZEROS[: len(data)]
