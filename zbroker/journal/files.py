"""What a reader knows of the segments: where each begins and ends, and how to get bytes of it.

Copies of a segment come and go (places.py) while somebody reads it. All of them hold the same
bytes, so a reader that finds its copy gone looks again and goes on in another one.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from zbroker.errors import StorageError
from zbroker.journal.format import DATA_AT, SegmentHeader, Stop
from zbroker.journal.places import LOOKS_MAX, Place, Places
from zbroker.journal.segments import read_note
from zbroker.limits import U63_MAX


class Cursor(NamedTuple):
    """The next batch to read: where it stands or where to look for it, and its position."""

    serial: int
    offset: int
    position: int


class Segment(NamedTuple):
    """What a reader knows of one segment."""

    place: Place  # the copy that is read
    size: int  # of the segment file, also where it is packed
    header: SegmentHeader | None  # None: both copies are bad, so nothing in it can be verified
    seed: int
    end: int | None  # offset behind its last batch; None: the open segment, or nobody knows
    end_position: int | None  # position behind its last batch; None likewise
    last: bool

    @property
    def serial(self) -> int:
        return self.place.serial


class Files:
    """The segments of a log; `starts` are (first position, serial) of the readable ones."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.starts: list[tuple[int, int]] = []
        self.newest: SegmentHeader | None = None
        self._headers: dict[Place, SegmentHeader] = {}
        self._segments: dict[int, Segment] = {}
        self._oldest = 0  # serial of the oldest segment that is kept; 0 if there is no note
        self.refresh()

    def refresh(self) -> None:
        """Looks for new, moved and removed segments; only new files are opened."""
        for left in reversed(range(LOOKS_MAX)):
            try:
                return self._look()
            except StorageError as error:
                if error.code != "file_missing" or not left:
                    raise

    def _look(self) -> None:
        note = read_note(self.places.journal)
        self._oldest = max(note.oldest, 1) if note else 0
        found = [
            self._choose(copies)
            for serial, copies in self.places.by_serial().items()
            if serial >= self._oldest  # what stands below is about to be unlinked
        ]
        headers = {place.serial: header for place, header in found}
        self._headers = {place: header for place, header in found if header}
        last = max(headers, default=0)
        self._segments = {
            place.serial: self._segment(place, headers, last=place.serial == last)
            for place, _ in found
        }
        readable = [header for header in headers.values() if header]
        self.starts = [(header.first_position, header.serial) for header in readable]
        self.newest = readable[-1] if readable else None

    def _choose(self, copies: list[Place]) -> tuple[Place, SegmentHeader | None]:
        """The best copy that has a header. Raises: StorageError unknown_version."""
        newer = False
        for place in copies:
            header = self._headers.get(place) or self.places.header(place)
            if not isinstance(header, Stop):
                return place, header
            newer = newer or header.why == "version"
        if newer:
            name = self.places.name(copies[0])
            reason = f"{name} is of a format version that this release does not know"
            raise StorageError("unknown_version", reason, "use the release that wrote it")
        return copies[0], None

    def _segment(
        self, place: Place, headers: dict[int, SegmentHeader | None], *, last: bool
    ) -> Segment:
        """Its end stands in the header of the next one."""
        serial = place.serial
        header, follower, second = (headers.get(serial + step) for step in range(3))
        end = end_position = None
        if follower is not None:
            end, end_position = follower.previous_end, follower.first_position
        elif header is None and serial + 1 in headers and second is not None:
            end_position = second.first_position
        size, seed = self.places.size(place), header.seed if header else 0
        return Segment(place, size, header, seed, end, end_position, last)

    def end_of(self, generation: int) -> int | None:
        """The position at which a later generation begins; None if there is none."""
        later = (
            head.first_position for head in self._headers.values() if head.generation > generation
        )
        return next(later, None)

    @property
    def first_position(self) -> int:
        """The oldest position that is kept; 1 for an empty log.

        Segment 1 begins there even if nothing in it can be read: what is lost with it is a gap.
        """
        return self.starts[0][0] if self.starts and 1 not in self._segments else 1

    @property
    def missing(self) -> range:
        """Serials that were not removed and are not there: is the archive directory mounted?

        Only the note knows what was removed; without one nothing is missing.
        """
        first = min(self._segments, default=0)
        return range(self._oldest, first) if self._oldest and first else range(0)

    def why_missing(self, serial: int) -> str:
        """Why there is no such segment, for who stands there."""
        return "missing" if self._oldest and serial >= self._oldest else "removed"

    def segment(self, serial: int) -> Segment | None:
        """What is known of a segment; looks again if nothing is, or if a newer one exists.

        Without that a reader would run past the end at which a recovery sealed the segment.
        """
        segment = self._segments.get(serial)
        if segment is None or (segment.last and self.places.exists(serial + 1)):
            self.refresh()
            segment = self._segments.get(serial)
        return segment

    def start(self, position: int) -> Cursor:
        """The start of the segment that holds `position`, or of the oldest one."""
        if not self.starts:
            return Cursor(0, DATA_AT, 1)
        index = bisect_right(self.starts, (position, U63_MAX)) - 1
        if index < 0 and 1 in self._segments:
            return Cursor(1, DATA_AT, 1)  # unreadable: reading makes a gap of it
        first, serial = self.starts[max(index, 0)]
        return Cursor(serial, DATA_AT, first)

    def start_after(self, serial: int) -> Cursor | None:
        """The start of the next readable segment behind that one."""
        index = bisect_right(self.starts, serial, key=_serial)
        if index == len(self.starts):
            return None
        first, found = self.starts[index]
        return Cursor(found, DATA_AT, first)

    def fetch(self, segment: Segment, offset: int, size: int) -> bytes:
        """Bytes of a segment below its end; unreadable pieces are zeros."""
        if segment.end is not None:
            size = min(size, segment.end - offset)
        size = max(size, 0)
        known = self._segments.get(segment.serial, segment)
        try:
            return self.places.read(known.place, offset, size)
        except StorageError as error:
            if error.code != "file_missing":
                raise
        return self._fetch_again(segment.serial, offset, size)

    def _fetch_again(self, serial: int, offset: int, size: int) -> bytes:
        """The copy is gone: it was archived, packed or removed meanwhile."""
        for left in reversed(range(LOOKS_MAX)):
            self.refresh()
            segment = self._segments.get(serial)
            if segment is None:
                break
            try:
                return self.places.read(segment.place, offset, size)
            except StorageError as error:
                if error.code != "file_missing" or not left:
                    raise
        return b""


def _serial(start: tuple[int, int]) -> int:
    return start[1]
