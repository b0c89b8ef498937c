"""What is in a sealed segment, in a small file beside it: `<serial>.idx`.

    magic "zbSM", version u32, length u32, CRC-32C u32, then `length` bytes of msgpack

Nothing depends on it: one that is missing, damaged, of another version or of another segment is
made anew by a walk over the headers.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from typing import Final

from google_crc32c import value as crc32c
from msgspec import DecodeError, Struct, msgpack

from zbroker.errors import StorageError
from zbroker.limits import KIB
from zbroker.log import owner
from zbroker.log.disk import Disk
from zbroker.log.files import (
    SUMMARY_HEAD,
    SUMMARY_MAGIC,
    SUMMARY_MAX_BYTES,
    SUMMARY_VERSION,
    Segment,
    summary_content,
)
from zbroker.log.format import DATA_AT, KIND_PUBLISH, Batch, SegmentHeader
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.reader import Cursor, Gap, Log, first_time, last_time
from zbroker.log.segments import PART_SUFFIX, discard, summary_name

TOPICS_MAX: Final = 1_000  # names kept; a log with more of them is not searched by topic
MARK_BYTES: Final = 64 * KIB  # of the segment from one mark to the next


class Summary(Struct, frozen=True):
    """Of one sealed segment, which has positions [first, end).

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
        index = bisect_right(self.marks, position, key=_position)
        return self.marks[index - 1][0] if index else DATA_AT


def summary(source: Log | SegmentPlaces, serial: int, *, keep: bool = False) -> Summary | None:
    """The one that is kept, or one made now; None for the open segment or one without a header.

    keep: what had to be made is kept beside the segment, if that can be written.
    Raises: StorageError.
    """
    found = _kept(source, serial) if isinstance(source, SegmentPlaces) else None
    if found is not None:
        return found
    log = Log(places=source) if isinstance(source, SegmentPlaces) else source
    segment = log.segment(serial)
    if segment is None or segment.header is None or segment.end_position is None:
        return None
    found = read_summary(log.places, segment.header)
    if found is not None:
        return found
    made = _walk(log, segment, segment.header, segment.end_position)
    if keep:
        write_summary(log.places, segment.place, made)
    return made


def _kept(places: SegmentPlaces, serial: int) -> Summary | None:
    """Without a look at the other segments."""
    place = places.find(serial)
    header = places.header(place) if place is not None else None
    return read_summary(places, header) if isinstance(header, SegmentHeader) else None


def _walk(log: Log, segment: Segment, header: SegmentHeader, end: int) -> Summary:
    maker = SummaryBuilder(header, segment)
    for item in log.headers(Cursor(segment.serial, DATA_AT, header.first_position), end):
        maker.take(item if isinstance(item, Gap) else item[0])
    return maker.summary()


class SummaryBuilder:
    """Takes everything that stands in a segment, in order."""

    def __init__(self, header: SegmentHeader, segment: Segment) -> None:
        self._header = header
        self._segment = segment
        self._batches = self._messages = self._control = self._missing = self._bytes = 0
        self._first_time: int | None = None
        self._last_time: int | None = None
        self._topics: set[str] = set()
        self._known: list[str] = []  # the topics of the batch before: mostly the same object
        self._marks: list[tuple[int, int]] = []
        self._next_mark = DATA_AT

    def take(self, item: Batch | Gap) -> None:
        """The next one."""
        if isinstance(item, Gap):
            self._missing += item.end - item.first
            return
        self._batches += 1
        self._bytes += item.body_length
        if item.offset >= self._next_mark:
            self._marks.append((item.offset, item.position))
            self._next_mark = item.offset + MARK_BYTES
        if item.kind != KIND_PUBLISH:
            self._control += item.taken
            return
        self._messages += item.taken
        self._last_time = last_time(item)
        if self._first_time is None:
            self._first_time = first_time(item)
        if item.topics is not self._known and len(self._topics) <= TOPICS_MAX:
            self._known = item.topics
            self._topics.update(item.topics)

    def summary(self) -> Summary:
        """Of what was taken."""
        header, segment, topics = self._header, self._segment, sorted(self._topics)
        return Summary(
            header.instance, header.serial, header.salt, header.generation, header.first_position,
            segment.end_position or 0, segment.end or 0, segment.size, self._batches,
            self._messages, self._control, self._missing, self._bytes, self._first_time,
            self._last_time, topics[:TOPICS_MAX], len(topics) > TOPICS_MAX, self._marks,
        )  # fmt: skip


# -- the file ---------------------------------------------------------------------------------


def encode(made: Summary) -> bytes:
    """The content of the file."""
    body = msgpack.encode(made)
    return SUMMARY_HEAD.pack(SUMMARY_MAGIC, SUMMARY_VERSION, len(body), crc32c(body)) + body


def decode(data: bytes, header: SegmentHeader) -> Summary | None:
    """The summary of the segment with this header; None if it is none."""
    body = summary_content(data)
    if body is None:
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
    for disk in (places.journal, places.archive):
        if disk is not None and disk.exists(name):
            with suppress(StorageError):  # it can be made anew
                found = decode(disk.read(name, 0, SUMMARY_MAX_BYTES), header)
                if found is not None:
                    return found
    return None


def write_summary(places: SegmentPlaces, place: SegmentPlace, made: Summary) -> None:
    """Keeps it beside the segment. Losing it is fine: it can be made anew."""
    with suppress(StorageError):
        owner.check(places)
        _write(places.disk(place), summary_name(place.serial), encode(made))


def _write(disk: Disk, name: str, data: bytes) -> None:
    part = name + PART_SUFFIX
    discard(disk, part)
    disk.create(part)
    disk.write(part, 0, [data])
    discard(disk, name)
    disk.rename(part, name)


def _position(mark: tuple[int, int]) -> int:
    return mark[1]


_DECODER: Final = msgpack.Decoder(Summary)
