"""One run over the log: from a cursor, batch by batch, over segment ends and damaged places.

Batches verify themselves (their header CRC is seeded with the segment's salt and their own offset),
so this needs no group: after a batch comes the next one, or the next group at a multiple of 512,
or the end of the segment, which the next segment's header knows. Bytes after that end were set
aside by recovery and are never served. Use it through reader.Log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

from zbroker.checksums import crc32c
from zbroker.limits import KIB, MIB, U63_MAX
from zbroker.log.files import HEADER_MAX_BYTES, Cursor, FileBlock, Files, Segment
from zbroker.log.format import ALIGN, BATCH_MAGIC, DATA_AT, FLAG_SHOWS, KIND_PUBLISH, Batch, pad
from zbroker.log.headers import (
    Gap,
    Item,
    Skipped,
    Sparse,
    TopicSelection,
    announced_length,
    decode_headers,
    pick_headers,
    skim_headers,
    take_bodies,
)
from zbroker.log.references import Reference, stand_in

BLOCK_MIN_BYTES: Final = 16 * KIB  # enough for a reader that follows the end message by message
BLOCK_MAX_BYTES: Final = 1 * MIB
HEADERS_BLOCK_BYTES: Final = 64 * KIB
HEADERS_FAR_BYTES: Final = 4 * KIB  # where bodies are large, what follows a header is not read
HEADERS_CHUNK_BYTES: Final = 1 * MIB  # of log that one step of a walk collects the headers of
SKIP_BLOCK_BYTES: Final = 128 * KIB  # where hardly anything is wanted: the cheapest per batch
#: More of a body than this is not read to get to the next header. From the page cache that pays
#: from 64 KiB on, from a disk from 128 KiB on: there each jump waits for the disk.
SKIP_FAR_BYTES: Final = 128 * KIB
#: Steps of one call with a topic selection: blocks, or PICKS_MAX batches of one, and segments that
#: are stepped over. So its caller soon does something else again, whatever is found.
STEPS_MAX: Final = 16
#: Bytes that look like long headers and are not, in one search: a payload may be full of them.
FAKES_MAX_BYTES: Final = 256 * MIB
#: A block with less left is read again from there: a header may follow the end of a group.
_NEAR_END: Final = 1 * KIB


class BatchReader:
    """Collects batches and gaps in `out`; `serial`, `offset`, `position` are where it goes on.

    bodies: also read and verify bodies. to_end: look for the end of a log that is not written:
    collect nothing and stop at the first thing that is not a good batch. stored: commits come as
    they are in the log, instead of the messages that they show. only: without bodies, collect what
    this Sparse needs; or with bodies, what this TopicSelection wants and control records: only then
    there is anything Skipped in `out`. newest: see Files.segment.
    """

    def __init__(  # noqa: PLR0913 - what is collected, all with defaults
        self,
        files: Files,
        cursor: Cursor,
        limit: int,
        *,
        bodies: bool,
        to_end: bool = False,
        stored: bool = False,
        only: Sparse | TopicSelection | None = None,
        newest: int = 0,
    ) -> None:
        self.serial, self.offset, self.position = cursor
        self.limit = limit
        self.out: list[Item] = []
        self.used = 0  # bytes of the log, without what was skipped
        self.block = BLOCK_MIN_BYTES if bodies else HEADERS_BLOCK_BYTES
        self._block_max = BLOCK_MAX_BYTES if bodies else HEADERS_BLOCK_BYTES
        self._files = files
        self._newest = newest
        self._bodies = bodies
        self._to_end = to_end
        self._shows = bodies and not to_end and not stored
        self._sparse = only if isinstance(only, Sparse) else None
        self._wanted = only if isinstance(only, TopicSelection) else None
        self._left = 0
        self._steps = U63_MAX if self._wanted is None else STEPS_MAX

    def run(self, max_bytes: int) -> None:
        """Goes on until `limit` or until about `max_bytes` were collected.

        Without bodies also at the end of a segment, so that all of `out` is in `serial`.
        """
        self._left = max_bytes
        while self.position < self.limit and self._left > 0 and self._steps > 0:
            if not self._step() or (self.out and not self._bodies):
                return

    def _step(self) -> bool:
        """What can be had from one segment; False if there is nothing to go on with."""
        segment = self._files.segment(self.serial, self._newest)
        if segment is None:
            return self._start_again()
        if segment.header is None or (segment.end is not None and self.offset >= segment.end):
            return self._next_segment(segment)
        if self._wanted is not None and self._skip_segment(segment, self._wanted):
            return True
        return self._collect(segment) or self._missing(segment)

    def _start_again(self) -> bool:
        """The cursor's segment is gone or missing, or there was none yet: goes by position."""
        if not self._files.starts:
            return False
        found = self._files.start(self.position)
        if found.serial < self.serial:  # it is not there: goes on after it
            found = self._files.start_after(self.serial) or found
        if found.position > self.position:
            why = self._files.why_missing(self.serial)
            self._gap(min(found.position, self.limit), why)
        self.serial, self.offset, _ = found
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
        block = FileBlock(self._files, segment)
        end = U63_MAX if segment.end is None else segment.end
        limit = self.limit
        while self.position < limit and self._left > 0 and self.offset < end and self._steps > 0:
            if not 0 <= self.offset - block.base <= len(block.data) - _NEAR_END:
                block.load(self.offset, self.block)
                self.block = min(self.block * 4, self._block_max)
            if self._at_once(block):
                continue
            batch = block.next_batch(self.offset)
            if not isinstance(batch, Batch):
                return False
            if batch.position != self.position and not self._inside(batch):
                return False
            if not self._take(batch, block):
                return False
        return True

    def _inside(self, batch: Batch) -> bool:
        """True if the cursor is between messages of a commit; headers begin with its own."""
        shows = batch.flags & FLAG_SHOWS
        if not shows or not batch.position < self.position < batch.end_position:
            return False
        if not self._shows:
            self.position = batch.position
        return True

    def _at_once(self, block: FileBlock) -> bool:
        if self._wanted is not None:
            return self._pick(block, self._wanted)
        return self._run_over(block) if self._sparse is None else self._skim(block, self._sparse)

    def _run_over(self, block: FileBlock) -> bool:
        """Collects what follows on, is whole in the block and good; False if nothing does.

        Fast, since every batch of the log goes through it; all else is for the slow way.
        """
        stop = FLAG_SHOWS if self._shows else 0  # what follows is decoded once, after the commit
        found = decode_headers(
            block.data, block.base, self.offset, block.segment.seed, self.position, self.limit,
            self._left, stop,
        )  # fmt: skip
        if self._bodies:
            del found[take_bodies(found, block.data, block.base, stop) :]
        if not found:
            return False
        last = found[-1]
        if last.body_length > HEADERS_BLOCK_BYTES and not self._bodies:
            self.block = HEADERS_FAR_BYTES
        end = last.end_offset
        self.used += end - self.offset
        self._left -= end - self.offset
        self.offset, self.position = end, last.end_position
        if not self._to_end:
            self.out += found
        return True

    def _skim(self, block: FileBlock, sparse: Sparse) -> bool:
        """The same for an index; False if nothing follows on."""
        if sparse.serial != self.serial:
            sparse.begin(self.serial)
        found, offset, position = skim_headers(
            block.data, block.base, self.offset, block.segment.seed, self.position, self.limit,
            self._left, sparse,
        )  # fmt: skip
        if offset == self.offset:
            return False
        if offset > block.base + len(block.data) + HEADERS_BLOCK_BYTES:
            self.block = HEADERS_FAR_BYTES
        self.used += offset - self.offset
        self._left -= offset - self.offset
        self.offset, self.position = offset, position
        self.out += found
        return True

    def _pick(self, block: FileBlock, wanted: TopicSelection) -> bool:
        """The same for a topic selection; False if nothing follows on."""
        self._steps -= 1
        found, offset, position, left = pick_headers(
            block.data, block.base, self.offset, block.segment.seed, self.position, self.limit,
            self._left, wanted,
        )  # fmt: skip
        if offset == self.offset:
            return False
        served = self._left - left
        if 2 * served < offset - self.offset:
            self._skip_on(offset - block.base - len(block.data))
        self.used += served
        self._left = left
        self.offset, self.position = offset, position
        first = found[0] if found else None
        if isinstance(first, Skipped):
            self._skip(first)
            del found[0]
        self.out += found
        return True

    def _skip_on(self, unread: int) -> None:
        """Sets how much is read next, where hardly anything is wanted; `unread`: of a body."""
        far = unread > SKIP_FAR_BYTES
        self.block = HEADERS_FAR_BYTES if far else min(self.block, SKIP_BLOCK_BYTES)

    def _skip(self, run: Skipped) -> None:
        """Nothing of it is wanted: one item with the run before it."""
        before = self.out[-1] if self.out else None
        if isinstance(before, Skipped):
            self.out[-1] = run._replace(first=before.first)
        else:
            self.out.append(run)

    def _skip_segment(self, segment: Segment, wanted: TopicSelection) -> bool:
        """Steps over the rest of a segment if a summary says that it holds nothing wanted."""
        header, end = segment.header, segment.end_position
        if header is None or end is None:
            return False
        if not header.first_position <= self.position < end <= self.limit:
            return False
        topics = self._files.topics(segment)
        if topics is None or wanted.segment(topics):
            return False
        self._skip(Skipped(self.position, end, 0, 0))
        self.serial, self.offset, self.position = segment.serial + 1, DATA_AT, end
        self._steps -= 1
        return True

    def _skip_batch(self, batch: Batch) -> bool:
        end = batch.end_position
        if end > batch.position:
            last = batch.sequence + batch.taken - 1
            origin = batch.origin if batch.kind == KIND_PUBLISH else None
            at = batch.origin_position + batch.taken - 1
            self._skip(Skipped(self.position, end, batch.publisher, last, origin, at))
        self._skip_on(batch.body_length)
        self.offset, self.position = batch.end_offset, end
        return True

    def _take(self, batch: Batch, block: FileBlock) -> bool:
        if self._wanted is not None and not self._wanted.batch(batch):
            return self._skip_batch(batch)
        if batch.flags & FLAG_SHOWS and self._shows:
            return self._show(batch, block)
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
            if self._sparse is not None:
                self._sparse.batches += 1
        self.position = batch.end_position
        return True

    def _show(self, commit: Batch, block: FileBlock) -> bool:
        """Collects what a commit shows, from `position` on, as if it were here."""
        found = self._files.shown(block.segment, commit)
        if found is None:
            self._gap(commit.end_position, "damaged body")
        else:
            at = bisect_right(found.firsts, self.position - commit.position) - 1
            for part in islice(found.parts, at, None):
                if self.position >= self.limit or self._left <= 0 or self._steps <= 0:
                    return True
                self._show_part(commit, part)
        self.offset = commit.end_offset
        return True

    def _show_part(self, commit: Batch, part: Reference) -> None:
        first, end = self.position - commit.position, self.position + part.count
        staged = self._files.staged(part)
        if staged is None:
            self._gap(end, "damaged part of a commit")
        elif self._wanted is not None and not self._wanted.topics(staged.topics):
            last = commit.sequence + first + part.count - 1
            at = commit.origin_position + last - commit.sequence
            self._skip(Skipped(self.position, end, commit.publisher, last, commit.origin, at))
            self._steps -= 1
            self.position = end
        else:
            self.out.append(stand_in(commit, staged, first))
            self._left -= staged.header_length + staged.body_length
            self.position = end

    def _fetch_body(self, batch: Batch, block: FileBlock) -> bool:
        """Sets the body if it is good. One copy: a slice of the block, or a read of its own."""
        at = batch.offset + batch.header_length - block.base
        body = block.data[at : at + batch.body_length]
        if len(body) < batch.body_length:
            body = self._files.fetch(block.segment, block.base + at, batch.body_length)
        batch.body = body
        return crc32c(body) == batch.body_crc

    def _missing(self, segment: Segment) -> bool:
        """There is no batch at `offset`: there is a newer segment, or this is damage."""
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
        """Finds the next batch after a damaged place; all between is a gap."""
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
        block, header = FileBlock(self._files, segment), FileBlock(self._files, segment)
        offset, spare = pad(self.offset), FAKES_MAX_BYTES
        while offset < end:
            block.load(offset, BLOCK_MAX_BYTES)
            at = block.data.find(BATCH_MAGIC)
            while at >= 0:
                length = announced_length(block.data, at)
                if (offset + at) % ALIGN == 0 and length <= max(spare, BLOCK_MIN_BYTES):
                    batch = header.batch_at(offset + at)
                    if isinstance(batch, Batch) and batch.position >= self.position:
                        return batch
                    spare -= min(length, HEADER_MAX_BYTES) if length > BLOCK_MIN_BYTES else 0
                at = block.data.find(BATCH_MAGIC, at + 1)
            offset += max(ALIGN, len(block.data) // ALIGN * ALIGN)
        return None

    def _gap(self, end: int, why: str) -> None:
        if end > self.position:
            self.out.append(Gap(self.position, end, why))
            self._left -= 1
            self.position = end


def walk(reading: BatchReader) -> Iterator[tuple[Batch | Gap, int]]:
    """Everything that `reading` (without bodies) finds, each with the serial of its segment."""
    for found, serial in header_lists(reading):
        for item in found:
            yield item, serial


def header_lists(reading: BatchReader) -> Iterator[tuple[list[Batch | Gap], int]]:
    """The same, faster: lists of the items that were found at once in one segment."""
    while reading.position < reading.limit:
        position = reading.position
        reading.run(HEADERS_CHUNK_BYTES)
        found, reading.out = cast("list[Batch | Gap]", reading.out), []
        if found:
            yield found, reading.serial
        elif reading.position == position:
            return
