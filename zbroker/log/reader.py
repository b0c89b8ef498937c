"""The readers' view of the log: whole batches by position, with every damaged range made explicit.

For all readers of the log: processes while it is written (they get a `limit`; positions below it
never change), tools and Spark from the directories alone. Archived and packed segments are read
like all others, also while they are being moved. Nothing is kept from one call to the next, since
bytes above the limit may change. Imports no lmdb and no zmq.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from zbroker.ids import Bookmark
from zbroker.limits import U63_MAX
from zbroker.log.batch_index import position_since, time_of
from zbroker.log.batch_reader import (
    BLOCK_MAX_BYTES,
    BLOCK_MIN_BYTES,
    BatchReader,
    header_lists,
    walk,
)
from zbroker.log.disk import Disk
from zbroker.log.files import Cursor, Extent, FileBlock, Files
from zbroker.log.format import DATA_AT, FLAG_SHOWS, KIND_PUBLISH, Batch
from zbroker.log.headers import Gap, Item, Skipped, Sparse, TopicSelection
from zbroker.log.places import SegmentPlaces, open_places
from zbroker.log.segments import read_note
from zbroker.topics import Matcher

__all__ = ["Cursor", "Extent", "Gap", "Item", "Log", "Skipped", "first_time", "last_time"]

WANTED_KEPT: Final = 32  # matchers whose answers one Log remembers


class Log(Files):
    """The segments of a journal directory and its archive directory. Not thread-safe."""

    def __init__(
        self,
        directory: Path | None = None,
        archive: Path | None = None,
        *,
        disk: Disk | None = None,
        places: SegmentPlaces | None = None,
    ) -> None:
        if places is None:
            assert directory is not None or disk is not None, "a Log reads a directory or a Disk"
            places = SegmentPlaces(disk) if disk else open_places(directory or Path(), archive)
        super().__init__(places)
        self._block = BLOCK_MIN_BYTES
        self._wanted: dict[Matcher, TopicSelection] = {}

    def close(self) -> None:
        """Closes the files."""
        self.places.close()

    def read(
        self, cursor: Cursor, limit: int, max_bytes: int, *, stored: bool = False, newest: int = 0
    ) -> tuple[list[Batch | Gap], Cursor]:
        """Whole, verified batches below position `limit`, about `max_bytes`, and the next cursor.

        At least one item if there is anything below `limit`; bodies are set. What a commit shows
        comes in its place (references.py), with the commit's `offset`; stored: it comes as it is
        in the log. newest: see read_wanted.
        """
        reading = BatchReader(self, cursor, limit, bodies=True, stored=stored, newest=newest)
        after = self._run(reading, max_bytes)
        return cast("list[Batch | Gap]", reading.out), after

    def read_wanted(
        self, cursor: Cursor, limit: int, max_bytes: int, wants: Matcher | None, newest: int = 0
    ) -> tuple[list[Item], Cursor]:
        """The same of some topics; None: of all.

        Runs of batches with none of them are one Skipped each: their headers are checked, their
        bodies are not read. Control records come as ever. A sealed segment whose summary says that
        it holds no such topic is skipped whole: with control records in it, and with what was
        damaged since the summary was made. After STEPS_MAX steps this returns in any case. Staged
        parts are skipped, too.

        newest: the segment that has the position before `limit`, or a later one, if the caller
        knows it; then no directory is looked at while there is none after the one that is read.
        """
        only = None if wants is None else self._remembering(wants)
        reading = BatchReader(self, cursor, limit, bodies=True, only=only, newest=newest)
        after = self._run(reading, max_bytes)
        return reading.out, after

    def read_headers(
        self, cursor: Cursor, limit: int, max_bytes: int, newest: int = 0
    ) -> tuple[list[Batch | Gap], Cursor]:
        """The same without bodies, of one segment: batches are as they are in the log.

        What only a body can show goes unnoticed: that it is damaged.
        """
        reading = BatchReader(self, cursor, limit, bodies=False, newest=newest)
        reading.run(max_bytes)
        after = Cursor(reading.serial, reading.offset, reading.position)
        return cast("list[Batch | Gap]", reading.out), after

    def _run(self, reading: BatchReader, max_bytes: int) -> Cursor:
        """As many bytes at a time as the last one used; where to go on."""
        reading.block = self._block
        reading.run(max_bytes)
        self._block = min(max(reading.used, BLOCK_MIN_BYTES), BLOCK_MAX_BYTES)
        return Cursor(reading.serial, reading.offset, reading.position)

    def _remembering(self, wants: Matcher) -> TopicSelection:
        wanted = self._wanted.get(wants)
        if wanted is None:
            if len(self._wanted) >= WANTED_KEPT:
                self._wanted.clear()
            wanted = self._wanted[wants] = TopicSelection(wants)
        return wanted

    def headers(self, cursor: Cursor, limit: int) -> Iterator[tuple[Batch, Cursor] | Gap]:
        """Batches below `limit` without their bodies, each with the cursor that points at it."""
        for found, serial in self.header_lists(cursor, limit):
            for item in found:
                if isinstance(item, Gap):
                    yield item
                else:
                    yield item, Cursor(serial, item.offset, item.position)

    def header_lists(
        self, cursor: Cursor, limit: int, newest: int = 0
    ) -> Iterator[tuple[list[Batch | Gap], int]]:
        """The same, faster: lists of items of one segment, each with its serial. newest: see
        read_wanted."""
        return header_lists(BatchReader(self, cursor, limit, bodies=False, newest=newest))

    def sparse_lists(
        self, cursor: Cursor, limit: int, block_bytes: int
    ) -> Iterator[tuple[list[Batch | Gap], int, int]]:
        """Only what an index of blocks of this size needs, and of how many batches that is all."""
        sparse, before = Sparse(block_bytes), 0
        reading = BatchReader(self, cursor, limit, bodies=False, only=sparse)
        for found, serial in header_lists(reading):
            yield found, serial, sparse.batches - before
            before = sparse.batches
        if sparse.batches > before:
            yield [], reading.serial, sparse.batches - before

    def body(self, batch: Batch, cursor: Cursor) -> bytes | memoryview | None:
        """The body of a batch whose header was read at `cursor`, as it is stored; None if it is
        damaged."""
        found, _ = self.read(cursor, batch.end_position, 1, stored=True)
        return found[0].body if found and isinstance(found[0], Batch) else None

    def seek(self, position: int, serial: int = 0, offset: int = 0) -> Cursor:
        """Where to read on from `position`: at the batch that holds it, else exactly there.

        `serial` and `offset` may name a batch at or before it, as an index does; a wrong hint
        costs time only. `position` is not above what was announced as written.
        """
        before = self._hinted(position, serial, offset) or self.start(position)
        reading = BatchReader(self, before, position, bodies=False)
        for item, found in walk(reading):
            if isinstance(item, Gap):
                if item.end > position:
                    return before
            elif item.end_position > position:
                return Cursor(found, item.offset, self._first_of(item, found, position))
            else:
                before = Cursor(found, item.end_offset, item.end_position)
        return Cursor(reading.serial, reading.offset, reading.position)

    def _first_of(self, batch: Batch, serial: int, position: int) -> int:
        """Where to begin in the batch that holds `position`: of a commit, with one of its parts."""
        segment = self.segment(serial) if batch.flags & FLAG_SHOWS else None
        found = self.shown(segment, batch) if segment is not None else None
        if found is None:
            return batch.position
        at = bisect_right(found.firsts, position - batch.position) - 1
        return batch.position + found.firsts[at]

    def _hinted(self, position: int, serial: int, offset: int) -> Cursor | None:
        segment = self.segment(serial) if serial else None
        if segment is None or segment.header is None or offset < DATA_AT:
            return None
        if segment.end is not None and offset >= segment.end:
            return None
        batch = FileBlock(self, segment).batch_at(offset)
        if not isinstance(batch, Batch) or batch.position > position:
            return None
        return Cursor(serial, offset, batch.position)

    def end(self) -> int:
        """The position after the last valid batch, for a log that is not written.

        Below what the acked-through note proves damage is stepped over; above it, it is the end.
        """
        return self.end_cursor().position

    def end_cursor(self) -> Cursor:
        """The same, and where that is."""
        self.refresh()
        if not self.starts:
            return self.start(1)
        first = self.starts[-1].position
        note = read_note(self.places.journal)
        proved = note.position if note and note.generation >= self.generation else first
        cursor = self.seek(max(first, proved))
        reading = BatchReader(self, cursor, U63_MAX, bodies=True, to_end=True)
        reading.run(U63_MAX)
        return Cursor(reading.serial, reading.offset, reading.position)

    def locate_time(self, ns: int) -> int:
        """The position of the first message with log time >= `ns`, else the end. Offline."""
        limit = self.end()
        begun = (start for start in reversed(self.starts) if self._begins_before(start, ns, limit))
        cursor = next(begun, None) or self.start(self.first_position)
        for item in self.headers(cursor, limit):
            if not isinstance(item, Gap) and last_time(item[0]) >= ns:
                return position_since(item[0], ns)
        return limit

    def _begins_before(self, start: Cursor, ns: int, limit: int) -> bool:
        items = self.headers(start, limit)
        found = next((item for item in items if not isinstance(item, Gap)), None)
        return found is not None and first_time(found[0]) < ns

    def locate(self, bookmark: Bookmark) -> int | None:
        """The position of this message, None if the log does not hold it. Offline; newest first."""
        limit = self.end()
        for start in reversed(self.starts):
            for item in self.headers(start, limit):
                if isinstance(item, Gap):
                    continue
                batch = item[0]
                step = bookmark.sequence - batch.sequence
                mine = batch.kind == KIND_PUBLISH and batch.publisher == bookmark.publisher
                if mine and 0 <= step < batch.taken:
                    return batch.position + step
            limit = start.position
        return None


def first_time(batch: Batch) -> int:
    """The log time of a batch's first message that counts."""
    return time_of(batch, batch.skip)


def last_time(batch: Batch) -> int:
    """The log time of a batch's last message that counts."""
    return time_of(batch, batch.count - batch.cut - 1)
