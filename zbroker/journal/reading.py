"""One run over the log: from a cursor, batch by batch, over segment ends and damaged places.

Batches verify themselves (their header CRC is seeded with the segment's salt and their own offset),
so this needs no group: behind a batch stands the next one, or the next group at a multiple of 512,
or the end of the segment, which the next segment's header knows. Bytes behind that end were set
aside by recovery and are never served. Use it through reader.Log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from zbroker.errors import StorageError
from zbroker.journal.disk import Disk
from zbroker.journal.format import (
    ALIGN,
    BATCH_MAGIC,
    DATA_AT,
    GROUP_ALIGN,
    GROUP_LENGTH,
    Batch,
    SegmentHeader,
    Stop,
    decode_batch_header,
    pad,
)
from zbroker.journal.segments import list_segments, read_around, read_header, segment_name
from zbroker.limits import KIB, MIB, U63_MAX

BLOCK_MIN_BYTES: Final = 16 * KIB  # enough for a reader that follows the end message by message
BLOCK_MAX_BYTES: Final = 1 * MIB
HEADERS_BLOCK_BYTES: Final = 64 * KIB
HEADERS_FAR_BYTES: Final = 4 * KIB  # where bodies are large, what follows a header is not read
HEADERS_CHUNK_BYTES: Final = 256 * KIB  # of headers that one step of a walk collects
HEADER_MAX_BYTES: Final = 16 * MIB  # of one batch: a longer one is a damaged length
_NEAR_END: Final = 256  # most headers are shorter; a block with less left is read again from there


class Cursor(NamedTuple):
    """The next batch to read: where it stands or where to look for it, and its position."""

    serial: int
    offset: int
    position: int


class Gap(NamedTuple):
    """Positions [first, end) that cannot be served, and why."""

    first: int
    end: int
    why: str


class Segment(NamedTuple):
    """What a reader knows of one file."""

    serial: int
    size: int
    header: SegmentHeader | None  # None: both copies are bad, so nothing in it can be verified
    seed: int
    end: int | None  # offset behind its last batch; None: the open segment, or nobody knows
    end_position: int | None  # position behind its last batch; None likewise
    last: bool

    @property
    def name(self) -> str:
        return segment_name(self.serial)


class Files:
    """The segments of one directory; `starts` are (first position, serial) of the readable ones."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.starts: list[tuple[int, int]] = []
        self.newest: SegmentHeader | None = None
        self._headers: dict[int, SegmentHeader | None] = {}
        self._segments: dict[int, Segment] = {}
        self.refresh()

    def refresh(self) -> None:
        """Looks for new and removed segments; only new ones are opened."""
        found = list_segments(self.disk)
        headers: dict[int, SegmentHeader | None] = {}
        for serial, _ in found:
            header = self._headers.get(serial) or read_header(self.disk, serial)
            headers[serial] = None if isinstance(header, Stop) else header
        self._headers = headers
        self._segments = {}
        for index, (serial, size) in enumerate(found):
            followers = [headers[number] for number, _ in found[index + 1 : index + 3]]
            self._segments[serial] = _segment(serial, size, headers[serial], followers)
        readable = [header for header in headers.values() if header]
        self.starts = [(header.first_position, header.serial) for header in readable]
        self.newest = readable[-1] if readable else None

    def end_of(self, generation: int) -> int | None:
        """The position at which a later generation begins; None if there is none."""
        headers = (header for header in self._headers.values() if header)
        later = (head.first_position for head in headers if head.generation > generation)
        return next(later, None)

    @property
    def first_position(self) -> int:
        """The oldest position that is kept; 1 for an empty log."""
        return self.starts[0][0] if self.starts else 1

    def segment(self, serial: int) -> Segment | None:
        """What is known of a segment; looks again if nothing is, or if a newer one exists.

        Without that a reader would run past the end at which a recovery sealed the segment.
        """
        segment = self._segments.get(serial)
        if segment is None or (segment.last and self.disk.exists(segment_name(serial + 1))):
            self.refresh()
            segment = self._segments.get(serial)
        return segment

    def start(self, position: int) -> Cursor:
        """The start of the segment that holds `position`, or of the oldest one."""
        if not self.starts:
            return Cursor(0, DATA_AT, 1)
        index = bisect_right(self.starts, (position, U63_MAX)) - 1
        first, serial = self.starts[max(index, 0)]
        return Cursor(serial, DATA_AT, first)

    def fetch(self, segment: Segment, offset: int, size: int) -> bytes:
        """Bytes of a segment below its end; unreadable pieces are zeros."""
        if segment.end is not None:
            size = min(size, segment.end - offset)
        try:
            return read_around(self.disk.read, segment.name, offset, max(size, 0))
        except StorageError as error:
            if error.code != "file_missing":
                raise
            self.refresh()  # it was removed meanwhile
            return b""


def _segment(
    serial: int, size: int, header: SegmentHeader | None, followers: list[SegmentHeader | None]
) -> Segment:
    end = end_position = None
    if followers and followers[0] is not None:
        end, end_position = followers[0].previous_end, followers[0].first_position
    elif len(followers) > 1 and followers[1] is not None and header is None:
        end_position = followers[1].first_position
    seed = header.seed if header else 0
    return Segment(serial, size, header, seed, end, end_position, not followers)


class Block:
    """Bytes of one segment, fresh from the file; `base` is the offset of the first of them."""

    __slots__ = ("base", "data", "files", "segment")

    def __init__(self, files: Files, segment: Segment) -> None:
        self.files = files
        self.segment = segment
        self.base = 0
        self.data = b""

    def load(self, offset: int, size: int) -> None:
        self.data = self.files.fetch(self.segment, offset, size)
        self.base = offset

    def batch_at(self, offset: int) -> Batch | Stop:
        """The batch header at `offset`; loads more where the block ends before the header does."""
        at, size, seed = offset - self.base, BLOCK_MIN_BYTES, self.segment.seed
        batch = (
            decode_batch_header(self.data, at, offset, seed) if at >= 0 else Stop(offset, "short")
        )
        while isinstance(batch, Stop) and batch.why == "short" and size <= HEADER_MAX_BYTES:
            self.load(offset, size)
            batch = decode_batch_header(self.data, 0, offset, seed)
            if len(self.data) < size:
                break
            size *= 4
        return batch

    def next_batch(self, offset: int) -> Batch | Stop:
        """The batch at `offset`, or else the first of the group behind it."""
        at = offset - self.base
        if self.data[at : at + len(BATCH_MAGIC)] == BATCH_MAGIC:  # else there is nothing to decode
            batch = self.batch_at(offset)
            if isinstance(batch, Batch):
                return batch
        return self.batch_at(pad(offset, GROUP_ALIGN) + GROUP_LENGTH)


class Reading:
    """Collects batches and gaps in `out`; `serial`, `offset`, `position` are where it goes on.

    bodies: also read and verify bodies. to_end: look for the end of a log that nobody writes:
    collect nothing and stop at the first thing that is no good batch.
    """

    def __init__(
        self, files: Files, cursor: Cursor, limit: int, *, bodies: bool, to_end: bool = False
    ) -> None:
        self.serial, self.offset, self.position = cursor
        self.limit = limit
        self.out: list[Batch | Gap] = []
        self.used = 0  # bytes of the log
        self.block = BLOCK_MIN_BYTES if bodies else HEADERS_BLOCK_BYTES
        self._block_max = BLOCK_MAX_BYTES if bodies else HEADERS_BLOCK_BYTES
        self._files = files
        self._bodies = bodies
        self._to_end = to_end
        self._left = 0

    def run(self, max_bytes: int) -> None:
        """Goes on until `limit` or until about `max_bytes` were collected.

        Without bodies also at the end of a segment, so that all of `out` stands in `serial`.
        """
        self._left = max_bytes
        while self.position < self.limit and self._left > 0:
            if not self._step() or (self.out and not self._bodies):
                return

    def _step(self) -> bool:
        """What can be had from one segment; False if there is nothing to go on with."""
        segment = self._files.segment(self.serial)
        if segment is None:
            return self._start_again()
        if segment.header is None or (segment.end is not None and self.offset >= segment.end):
            return self._next_segment(segment)
        return self._collect(segment) or self._missing(segment)

    def _start_again(self) -> bool:
        """The cursor's segment was removed, or there was none yet: goes by position."""
        if not self._files.starts:
            return False
        self._gap(min(self._files.first_position, self.limit), "removed")
        self.serial, self.offset, _ = self._files.start(self.position)
        return True

    def _next_segment(self, segment: Segment) -> bool:
        if segment.last:
            return False
        if segment.end_position is not None:
            self._gap(min(segment.end_position, self.limit), "missing")
        self.serial, self.offset = segment.serial + 1, DATA_AT
        return True

    def _collect(self, segment: Segment) -> bool:
        """Collects batches; False where there is none although there should be one."""
        block = Block(self._files, segment)
        end = U63_MAX if segment.end is None else segment.end
        limit = self.limit
        while self.position < limit and self._left > 0 and self.offset < end:
            if not 0 <= self.offset - block.base <= len(block.data) - _NEAR_END:
                block.load(self.offset, self.block)
                self.block = min(self.block * 4, self._block_max)
            batch = block.next_batch(self.offset)
            if not isinstance(batch, Batch) or batch.position != self.position:
                return False
            if not self._take(batch, block):
                return False
        return True

    def _take(self, batch: Batch, block: Block) -> bool:
        good = True
        if self._bodies:
            good = self._fetch_body(batch, block)
            if self._to_end and not good:
                return False
            self._left -= batch.body_length
        elif batch.body_length > HEADERS_BLOCK_BYTES:
            self.block = HEADERS_FAR_BYTES
        self._left -= batch.header_length
        end = batch.offset + batch.header_length + pad(batch.body_length)
        self.used += end - self.offset
        self.offset = end
        if not good:
            self._gap(batch.end_position, "damaged body")
        elif not self._to_end:
            self.out.append(batch)
        self.position = batch.end_position
        return True

    def _fetch_body(self, batch: Batch, block: Block) -> bool:
        """Sets the body if it is good. One copy: a slice of the block, or a read of its own."""
        at = batch.offset + batch.header_length - block.base
        body = block.data[at : at + batch.body_length]
        if len(body) < batch.body_length:
            body = self._files.fetch(block.segment, block.base + at, batch.body_length)
        batch.body = body
        return bool(crc32c(body) == batch.body_crc)

    def _missing(self, segment: Segment) -> bool:
        """No batch stands at `offset`: there is a newer segment, or this is damage."""
        fresh = self._files.segment(self.serial)
        if fresh is None or fresh.end != segment.end:
            return True
        if fresh.end is None and not fresh.last:
            return self._next_segment(fresh)  # its end is unknown: what follows may be set aside
        if self._to_end:
            return False
        self._step_over(fresh)
        return True

    def _step_over(self, segment: Segment) -> None:
        """Finds the next batch behind a damaged place; what lies between is a gap."""
        upto = self.limit
        if segment.end_position is not None:
            upto = min(upto, segment.end_position)
        found = self._search(segment)
        if found is not None and found.position < upto:
            self._gap(found.position, "damaged")
            self.offset = found.offset
            return
        self._gap(upto, "damaged")
        if segment.end is not None and upto == segment.end_position:
            self.offset = segment.end

    def _search(self, segment: Segment) -> Batch | None:
        """The next valid batch of this or a later position from `offset` on."""
        end = segment.size if segment.end is None else segment.end
        block, header = Block(self._files, segment), Block(self._files, segment)
        offset = pad(self.offset)
        while offset < end:
            block.load(offset, BLOCK_MAX_BYTES)
            at = block.data.find(BATCH_MAGIC)
            while at >= 0:
                if (offset + at) % ALIGN == 0:
                    batch = header.batch_at(offset + at)
                    if isinstance(batch, Batch) and batch.position >= self.position:
                        return batch
                at = block.data.find(BATCH_MAGIC, at + 1)
            offset += max(ALIGN, len(block.data) // ALIGN * ALIGN)
        return None

    def _gap(self, end: int, why: str) -> None:
        if end > self.position:
            self.out.append(Gap(self.position, end, why))
            self._left -= 1
            self.position = end


def walk(reading: Reading) -> Iterator[tuple[Batch | Gap, int]]:
    """Everything that `reading` (without bodies) finds, each with the serial of its segment."""
    while reading.position < reading.limit:
        reading.run(HEADERS_CHUNK_BYTES)
        if not reading.out:
            return
        found, reading.out = reading.out, []
        for item in found:
            yield item, reading.serial
