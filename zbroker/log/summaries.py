"""The content of a sealed segment in short, in a small file beside it: `<serial>.idx`.

    magic "zbSM", version u32, length u32, CRC-32C u32, then `length` bytes of msgpack

Nothing depends on it: one that is missing, damaged, of another version or of another segment is
made again by a walk over the headers (archive.py).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from contextlib import suppress
from operator import itemgetter
from typing import Final

from msgspec import DecodeError, Struct, msgpack

from zbroker.checksums import crc32c
from zbroker.errors import StorageError
from zbroker.limits import KIB, MIB
from zbroker.log import owner
from zbroker.log.format import DATA_AT, SegmentHeader
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.segments import PART_SUFFIX, discard, summary_name

#: magic, version, length and CRC-32C of what follows
SUMMARY_HEAD: Final = struct.Struct("<4sIII")
SUMMARY_MAGIC: Final = b"zbSM"
SUMMARY_VERSION: Final = 1
SUMMARY_MAX_BYTES: Final = 16 * MIB  # a longer file is not a summary
TOPICS_MAX: Final = 1_000  # names kept; a log with more of them is not searched by topic
MARK_BYTES: Final = 64 * KIB  # of the segment from one mark to the next


class Summary(Struct, frozen=True):
    """The content of one sealed segment, which has positions [first, end).

    missing: positions among them that cannot be served. messages, control_records: the others.
    first_time, last_time: log times of its messages. topics: sorted; if topics_capped there are
    more. marks: (offset, position) of a batch at least every MARK_BYTES.
    """

    instance: int
    serial: int
    salt: int
    generation: int
    first: int
    end: int
    end_offset: int
    size: int
    batches: int
    messages: int
    control_records: int
    missing: int
    body_bytes: int
    first_time: int | None
    last_time: int | None
    topics: list[str]
    topics_capped: bool
    marks: list[tuple[int, int]]

    def at_or_before(self, position: int) -> int:
        """The offset of a batch from which `position` is soon found."""
        index = bisect_right(self.marks, position, key=itemgetter(1))
        return self.marks[index - 1][0] if index else DATA_AT

    def topics_of(self, first: int, end: int) -> frozenset[str] | None:
        """Every topic at positions [first, end); None if this does not know all of them."""
        if (first, end) != (self.first, self.end) or self.topics_capped or self.missing:
            return None  # it does not know what was at damaged places
        return frozenset(self.topics)


def encode(made: Summary) -> bytes:
    """The content of the file."""
    body = msgpack.encode(made)
    return SUMMARY_HEAD.pack(SUMMARY_MAGIC, SUMMARY_VERSION, len(body), crc32c(body)) + body


def decode(data: bytes, header: SegmentHeader) -> Summary | None:
    """The summary of the segment with this header; None if the file does not hold it."""
    if len(data) < SUMMARY_HEAD.size:
        return None
    body = data[SUMMARY_HEAD.size :]
    if SUMMARY_HEAD.unpack_from(data) != (SUMMARY_MAGIC, SUMMARY_VERSION, len(body), crc32c(body)):
        return None
    try:
        found = _DECODER.decode(body)
    except (DecodeError, UnicodeDecodeError):
        return None
    wanted = (header.instance, header.serial, header.salt)
    return found if (found.instance, found.serial, found.salt) == wanted else None


def read_summary(places: SegmentPlaces, header: SegmentHeader) -> Summary | None:
    """The one that is kept in either directory."""
    name = summary_name(header.serial)
    for disk in places.disks:
        if disk.exists(name):
            with suppress(StorageError):  # it can be made again
                found = decode(disk.read(name, 0, SUMMARY_MAX_BYTES), header)
                if found is not None:
                    return found
    return None


def write_summary(places: SegmentPlaces, place: SegmentPlace, made: Summary) -> None:
    """Keeps it beside the segment. Losing it is fine: it can be made again."""
    disk, name = places.disk(place), summary_name(place.serial)
    part = name + PART_SUFFIX
    with suppress(StorageError):
        owner.check(places)
        discard(disk, part)
        disk.create(part)
        disk.write(part, 0, [encode(made)])
        discard(disk, name)
        disk.rename(part, name)


_DECODER: Final = msgpack.Decoder(Summary)
