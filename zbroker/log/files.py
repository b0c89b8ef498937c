"""What a reader knows of the segments: where each begins and ends, and how to get bytes of it.

Copies of a segment come and go (places.py) while somebody reads it. All of them hold the same
bytes, so a reader that finds its copy gone looks again and goes on in another one. Beside a sealed
segment may be a summary, which says what topics are in it (archive.py makes it).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import Final, NamedTuple

from zbroker.checksums import crc32c
from zbroker.errors import StorageError
from zbroker.limits import KIB, MIB
from zbroker.log.format import (
    BATCH_MAGIC,
    DATA_AT,
    GROUP_ALIGN,
    GROUP_LENGTH,
    KIND_STAGED,
    Batch,
    ParseStop,
    SegmentHeader,
    decode_batch_header,
    pad,
)
from zbroker.log.generations import Generations
from zbroker.log.places import LOOKS_MAX, SegmentPlace, SegmentPlaces, settled
from zbroker.log.references import Reference, Shown, shown
from zbroker.log.segments import read_note, unknown_version
from zbroker.log.summaries import read_summary

HEADER_MAX_BYTES: Final = 16 * MIB  # of one batch: a longer one is a damaged length
HEADER_FIRST_BYTES: Final = 16 * KIB  # most headers are shorter
TOPIC_SETS_KEPT: Final = 64  # of one reader; each has at most 1,000 names


class Cursor(NamedTuple):
    """The next batch to read: where it is or where to look for it, and its position."""

    serial: int
    offset: int
    position: int


class Extent(NamedTuple):
    """A segment: its first position, and the bytes of its file, also where that is packed."""

    first: int
    bytes: int


class Segment(NamedTuple):
    """What a reader knows of one segment."""

    place: SegmentPlace  # the copy that is read
    size: int  # of the segment file, also where it is packed
    header: SegmentHeader | None  # None: both copies are bad, so nothing in it can be verified
    seed: int
    end: int | None  # offset after its last batch; None: the open segment, or unknown
    end_position: int | None  # position after its last batch; None likewise
    last: bool

    @property
    def serial(self) -> int:
        return self.place.serial


class Files:
    """The segments of a log; `starts`: where the readable ones begin, oldest first."""

    def __init__(self, places: SegmentPlaces) -> None:
        self.places = places
        self.starts: list[Cursor] = []
        self.newest: SegmentHeader | None = None
        self._headers: dict[SegmentPlace, SegmentHeader] = {}
        self._segments: dict[int, Segment] = {}
        self._oldest = 0  # serial of the oldest segment that is kept; 0 if there is no note
        self._topics: dict[int, frozenset[str] | None] = {}  # by salt; None: nothing tells them
        self._shown: tuple[tuple[int, int, int], Shown | None] = ((0, 0, 0), None)
        self.refresh()

    def refresh(self) -> None:
        """Looks for new, moved and removed segments; only new files are opened."""
        settled(self._look)

    def _look(self) -> None:
        note = read_note(self.places.journal)
        self._oldest = max(note.oldest, 1) if note else 0
        found = [
            self._choose(copies)
            for serial, copies in self.places.by_serial().items()
            if serial >= self._oldest  # those below are about to be unlinked
        ]
        headers = {place.serial: header for place, header in found}
        self._headers = {place: header for place, header in found if header}
        self._topics = {salt: topics for salt, topics in self._topics.items() if topics is not None}
        last = max(headers, default=0)
        self._segments = {
            place.serial: self._segment(place, headers, last=place.serial == last)
            for place, _ in found
        }
        readable = [header for header in headers.values() if header]
        self.starts = [Cursor(head.serial, DATA_AT, head.first_position) for head in readable]
        self.newest = readable[-1] if readable else None

    def _choose(self, copies: list[SegmentPlace]) -> tuple[SegmentPlace, SegmentHeader | None]:
        """The best copy that has a header. Raises: StorageError unknown_version."""
        newer = False
        for place in copies:
            header = self._headers.get(place) or self.places.header(place)
            if not isinstance(header, ParseStop):
                return place, header
            newer = newer or header.why == "version"
        if newer:
            raise unknown_version(self.places.name(copies[0]), "use the release that wrote it")
        return copies[0], None

    def _segment(
        self, place: SegmentPlace, headers: dict[int, SegmentHeader | None], *, last: bool
    ) -> Segment:
        """Its end is in the header of the next one."""
        serial = place.serial
        header, follower, second = (headers.get(serial + step) for step in range(3))
        end = end_position = None
        if follower is not None:
            end, end_position = follower.previous_end, follower.first_position
        elif header is None and serial + 1 in headers and second is not None:
            end_position = second.first_position
        size, seed = self.places.size(place), header.seed if header else 0
        return Segment(place, size, header, seed, end, end_position, last)

    @property
    def instance(self) -> int:
        """The instance that wrote this log; 0 if it is empty."""
        return self.newest.instance if self.newest else 0

    @property
    def generation(self) -> int:
        """The generation of the newest segment; 0 if there is none."""
        return self.newest.generation if self.newest else 0

    @property
    def extents(self) -> list[Extent]:
        """The readable segments as they were at the last look, oldest first."""
        return [Extent(one.position, self._segments[one.serial].size) for one in self.starts]

    @property
    def generations(self) -> set[int]:
        """Generations of the segments that are here and can be read."""
        return {head.generation for head in self._headers.values()}

    @property
    def history(self) -> Generations:
        """Where each of these begins."""
        heads = self._headers.values()
        return Generations((head.generation, head.first_position) for head in heads)

    def end_of(self, generation: int) -> int | None:
        """The position at which a later generation begins; None if there is none."""
        later = (
            head.first_position for head in self._headers.values() if head.generation > generation
        )
        return next(later, None)

    @property
    def first_position(self) -> int:
        """The log start: the oldest position that is kept; 1 for an empty log.

        Segment 1 begins there even if nothing in it can be read: its positions are a gap.
        """
        return self.starts[0].position if self.starts and 1 not in self._segments else 1

    @property
    def missing(self) -> range:
        """Serials that were not removed and are not there: is the archive directory mounted?

        Only the note knows what was removed; without one nothing is missing.
        """
        first = min(self._segments, default=0)
        return range(self._oldest, first) if self._oldest and first else range(0)

    def why_missing(self, serial: int) -> str:
        """Why there is no such segment, for a cursor in it."""
        return "missing" if self._oldest and serial >= self._oldest else "removed"

    def segment(self, serial: int, newest: int = 0) -> Segment | None:
        """All that is known of a segment; looks again if that is nothing, or if a newer one exists.

        Without that a reader would run past the end at which a recovery sealed the segment.
        newest: the open segment, if the caller knows it; 0: the directories are asked.
        """
        segment = self._segments.get(serial)
        if segment is None or (segment.last and self._has_successor(serial, newest)):
            self.refresh()
            segment = self._segments.get(serial)
        return segment

    def _has_successor(self, serial: int, newest: int) -> bool:
        # four access(2), since the next one may have been archived and packed meanwhile
        return newest > serial if newest else self.places.exists(serial + 1)

    def start(self, position: int) -> Cursor:
        """The start of the segment that holds `position`, or of the oldest one."""
        if not self.starts:
            return Cursor(0, DATA_AT, 1)
        index = bisect_right(self.starts, position, key=attrgetter("position")) - 1
        if index < 0 and 1 in self._segments:
            return Cursor(1, DATA_AT, 1)  # unreadable: reading makes a gap of it
        return self.starts[max(index, 0)]

    def start_after(self, serial: int) -> Cursor | None:
        """The start of the next readable segment after that one."""
        return next((start for start in self.starts if start.serial > serial), None)

    def fetch(self, segment: Segment, offset: int, size: int) -> bytes:
        """Bytes of a segment below its end; unreadable pieces are zeros."""
        if segment.end is not None:
            size = min(size, segment.end - offset)
        size = max(size, 0)
        known: Segment | None = self._segments.get(segment.serial, segment)
        looks = LOOKS_MAX
        while known is not None:
            try:
                return self.places.read(known.place, offset, size)
            except StorageError as error:
                if error.code != "file_missing" or not looks:
                    raise
            looks -= 1
            self.refresh()  # the copy is gone: archived, packed or removed meanwhile
            known = self._segments.get(segment.serial)
        return b""

    def shown(self, segment: Segment, commit: Batch) -> Shown | None:
        """The content of a commit in `segment`; None if its body is damaged. The last one
        is remembered: it may be large, and is read piece by piece."""
        key = segment.serial, segment.seed, commit.offset
        if self._shown[0] != key:
            body = self.fetch(segment, commit.offset + commit.header_length, commit.body_length)
            good = crc32c(body) == commit.body_crc
            self._shown = key, shown(commit, body) if good else None
        return self._shown[1]

    def staged(self, part: Reference) -> Batch | None:
        """The staged part with its body; None if it is not there, or damaged."""
        segment = self.segment(part.serial)
        if segment is None or segment.header is None:
            return None
        found = FileBlock(self, segment).batch_at(part.offset)
        if not isinstance(found, Batch) or found.kind != KIND_STAGED:
            return None
        if (found.position, found.taken) != (part.position, part.count):
            return None
        found.body = self.fetch(segment, found.offset + found.header_length, found.body_length)
        return found if crc32c(found.body) == found.body_crc else None

    def topics(self, segment: Segment) -> frozenset[str] | None:
        """Every topic in a sealed segment, if a summary beside it tells them all."""
        header = segment.header
        if header is None or segment.end_position is None:
            return None
        if header.salt not in self._topics:
            if len(self._topics) >= TOPIC_SETS_KEPT:
                self._topics.clear()
            found = read_summary(self.places, header)
            self._topics[header.salt] = (
                found.topics_of(header.first_position, segment.end_position) if found else None
            )
        return self._topics[header.salt]


class FileBlock:
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

    def batch_at(self, offset: int) -> Batch | ParseStop:
        """The batch header at `offset`; loads more where the block ends before the header does."""
        at, size, seed = offset - self.base, HEADER_FIRST_BYTES, self.segment.seed
        batch = (
            decode_batch_header(self.data, at, offset, seed)
            if at >= 0
            else ParseStop(offset, "short")
        )
        while isinstance(batch, ParseStop) and batch.why == "short" and size <= HEADER_MAX_BYTES:
            self.load(offset, size)
            batch = decode_batch_header(self.data, 0, offset, seed)
            if len(self.data) < size:
                break
            size *= 4
        return batch

    def next_batch(self, offset: int) -> Batch | ParseStop:
        """The batch at `offset`, or else the first of the group after it."""
        at = offset - self.base
        if self.data[at : at + len(BATCH_MAGIC)] == BATCH_MAGIC:  # else there is nothing to decode
            batch = self.batch_at(offset)
            if isinstance(batch, Batch):
                return batch
        return self.batch_at(pad(offset, GROUP_ALIGN) + GROUP_LENGTH)
