"""Copies, packs and summarizes sealed segments, and throws away what such work left unfinished.

A library for the admin process and the tools: everything here makes new files and verifies them.
The journal process alone unlinks what became redundant, when it is asked to.

    for done_bytes in archive.pack(places, serial):  # in short steps, at the caller's pace
        ...                                          # closing it gives up and leaves nothing
    archive.tidy(places)                             # at a start: what a crash left unfinished
    archive.summary(log, serial)                     # the content of a sealed segment in short

How a new copy is made:

    <name>.part     written in steps and synced; a crash leaves it, tidy throws it away
    compared        past the page cache, byte for byte, with the bytes that readers get now; and
                    every batch that they read is checked once
    <name>          a copy that has a name is whole: no other check comes before the original goes

Before that name appears the journal directory is synced: only sealed segments are copied, and that
this one is sealed is proved by the next one, which must not vanish when the copy stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from zbroker.durable_files import sync_directory
from zbroker.errors import StorageError, ZBrokerError
from zbroker.limits import KIB, MIB
from zbroker.log import owner
from zbroker.log.disk import Buffer, Disk, RealDisk
from zbroker.log.files import Segment
from zbroker.log.format import DATA_AT, KIND_PUBLISH, Batch, SegmentHeader
from zbroker.log.packed import (
    Frames,
    Packed,
    PackedHeader,
    compressor,
    cuts,
    encode_head,
    encode_table,
    frames_at,
)
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.reader import Cursor, Gap, Log, first_time, last_time
from zbroker.log.segments import (
    FILL_SYNC_BYTES,
    PART_SUFFIX,
    SUMMARY_NAME,
    discard,
    list_files,
    segment_name,
)
from zbroker.log.summaries import MARK_BYTES, TOPICS_MAX, Summary, read_summary, write_summary

__all__ = ["CopyJob", "CopyResult", "Steps", "Summary", "copy", "pack", "summary", "tidy"]

STEP_BYTES: Final = 1 * MIB  # a few milliseconds: so long a wish to stop may wait
_PIECE_BYTES: Final = 64 * KIB  # of zeros become a hole
_ZEROS: Final = bytes(_PIECE_BYTES)
_PART: Final = re.compile(r"\d{10}\.(journal|journal\.zst|idx)\.part")

Write = Callable[[Disk, str], Iterator[int]]  # fills the empty file of this name; sizes of steps
Read = Callable[[int, int], bytes]  # offset, size -> bytes of the segment


class CopyResult(NamedTuple):
    """A whole copy of a segment. new: False if it was there already; verified all the same.

    summary: of the segment. Its `missing` positions are damaged in the original, too.
    """

    place: SegmentPlace
    new: bool
    summary: Summary


Steps = Generator[int, None, CopyResult]  # after each step, how many bytes of the segment are done


def copy(places: SegmentPlaces, serial: int, *, keep_free_bytes: int = 0) -> Steps:
    """Makes a verified copy of a sealed segment in the archive directory, byte for byte.

    Bytes after the segment's end are kept as well: recovery may have set them aside there. Packed
    ones are copied as they are. A copy that is there already is verified again. The archive
    directory is made if there is none. keep_free_bytes: so much space must be left.
    Raises: ZBrokerError not_found, segment_open, segment_unreadable; StorageError disk_full,
    disk_error, copy_differs, foreign_instance. The original is never touched.
    """
    assert places.archive is not None, "there is no archive directory to copy to"
    if isinstance(places.archive, RealDisk):
        _make_directory(places.archive.directory)
    owner.check_apart(places)
    owner.claim(places)
    job = CopyJob(places, serial)
    archived = next((place for place in job.copies if place.archived), None)
    if archived is not None:
        return (yield from job.verify(archived))
    source = max(job.copies, key=lambda place: (not place.archived, place.packed))
    _need_space(places.archive, source.file_bytes + keep_free_bytes, "to archive a segment")
    write = partial(_copy, places.disk(source), places.name(source), source.file_bytes)
    return (yield from job.make(source._replace(archived=True), write, source.file_bytes))


def pack(places: SegmentPlaces, serial: int, *, keep_free_bytes: int = 0) -> Steps:
    """Makes a verified packed copy of a sealed segment, in the directory of the raw one.

    packed.py has the file format. One that is there already is verified again. Needs up to as
    much space as the raw file, and leaves `keep_free_bytes`.
    Raises: ZBrokerError not_found, segment_open, segment_unreadable; StorageError disk_full,
    disk_error, copy_differs. The original is never touched.
    """
    job = CopyJob(places, serial)
    packed = next((place for place in job.copies if place.packed), None)
    if packed is not None:
        return (yield from job.verify(packed))
    source = job.segment.place
    disk, size = places.disk(source), source.file_bytes
    _need_space(disk, size + keep_free_bytes, "to pack a segment")
    assert job.segment.header is not None, "a CopyJob is of a segment with a header"
    head = PackedHeader(job.segment.header.instance, serial, size)
    write = partial(_pack, segment_name(serial), head)
    return (yield from job.make(source._replace(packed=True), write, size))


def tidy(places: SegmentPlaces) -> list[str]:
    """Throws away unfinished files, and summaries of segments that are gone; their names.

    Not while anything is copied or packed. Raises: StorageError, also foreign_instance.
    """
    owner.check(places)
    serials = set(places.by_serial())
    thrown: list[str] = []
    for disk in places.disks:
        names = [name for name, _ in list_files(disk) if _is_rubbish(name, serials)]
        for name in names:
            disk.unlink(name)
        thrown += names
    return thrown


def _is_rubbish(name: str, serials: set[int]) -> bool:
    summary_of = SUMMARY_NAME.fullmatch(name)
    return bool(_PART.fullmatch(name)) or (
        summary_of is not None and int(summary_of[1]) not in serials
    )


def summary(log: Log, serial: int, *, keep: bool = False) -> Summary | None:
    """The summary that is kept, or else one made now; None for the open segment and one without
    a header.

    keep: one that had to be made is kept beside the segment, if that can be written.
    Raises: StorageError.
    """
    segment = log.segment(serial)
    if segment is None or segment.header is None or segment.end_position is None:
        return None
    found = read_summary(log.places, segment.header)
    if found is not None:
        return found
    maker = SummaryBuilder(segment.header, segment)
    start = Cursor(serial, DATA_AT, segment.header.first_position)
    for item in log.headers(start, segment.end_position):
        maker.take(item if isinstance(item, Gap) else item[0])
    made = maker.summary()
    if keep:
        write_summary(log.places, segment.place, made)
    return made


class CopyJob:
    """One sealed segment that gets a new copy.

    Raises: ZBrokerError not_found, segment_open, segment_unreadable; StorageError foreign_instance.
    """

    def __init__(self, places: SegmentPlaces, serial: int) -> None:
        owner.check(places)
        self.places = places
        self.log = Log(places=places)
        self.segment = _sealed(self.log, serial)
        self.size = self.segment.size
        self.copies = places.by_serial()[serial]
        self._done = self._work = 0

    def make(self, target: SegmentPlace, write: Write, write_bytes: int) -> Steps:
        """The new copy. `write_bytes`: the sum of the steps of `write`.

        Raises: StorageError disk_full, disk_error, copy_differs; there is no new file then.
        """
        disk, name = self.places.disk(target), self.places.name(target)
        part = name + PART_SUFFIX
        self._work = write_bytes + 2 * self.size
        discard(disk, part)
        disk.create(part)
        try:
            for size in write(disk, part):
                yield self._step(size)
            disk.sync(part)
            made = yield from self._verified(disk, part, target)
        except (GeneratorExit, ZBrokerError):
            with suppress(StorageError):  # else tidy throws it away
                discard(disk, part)
            raise
        self.places.journal.sync_dir()
        disk.rename(part, name)
        disk.sync_dir()
        write_summary(self.places, made.place, made.summary)
        return made

    def verify(self, place: SegmentPlace) -> Steps:
        """A copy that is there already, as if it had just been made.

        Raises: StorageError copy_differs, disk_error.
        """
        self._work = 2 * self.size
        disk = self.places.disk(place)
        made = yield from self._verified(disk, self.places.name(place), place)
        disk.sync_dir()  # a kill may have come between its rename and that sync
        return made._replace(new=False)

    def _verified(self, disk: Disk, name: str, place: SegmentPlace) -> Steps:
        file_bytes = dict(disk.list())[name]
        read: Read = partial(disk.read_direct, name)
        if place.packed:
            packed = Packed(name, read, file_bytes, Frames())
            if not packed.consistent():
                raise _differs(name, "its two lists of frames are not the same")
            read = packed.read
        yield from self._compare(name, read)
        summary = yield from self._check()
        return CopyResult(place._replace(file_bytes=file_bytes), True, summary)

    def _compare(self, name: str, read: Read) -> Iterator[int]:
        """Every byte, with what readers get now."""
        for offset in range(0, self.size, STEP_BYTES):
            expected = self.places.read(self.segment.place, offset, STEP_BYTES)
            if read(offset, STEP_BYTES) != expected:
                raise _differs(name, f"between offset {offset} and {offset + len(expected)}")
            yield self._step(len(expected))
        if read(self.size, 1):
            raise _differs(name, f"it goes on after offset {self.size}")

    def _check(self) -> Generator[int, None, Summary]:
        """Every batch and its body, as readers get them now."""
        header, end = self.segment.header, self.segment.end_position
        assert header is not None, "_sealed saw it"
        assert end is not None, "_sealed saw it"
        maker = SummaryBuilder(header, self.segment)
        cursor = Cursor(self.segment.serial, DATA_AT, header.first_position)
        while cursor.position < end:
            before = cursor.offset
            items, cursor = self.log.read(cursor, end, STEP_BYTES, stored=True)
            for item in items:
                maker.take(item)
            yield self._step(max(cursor.offset - before, 0))
            if not items:
                break
        return maker.summary()

    def _step(self, size: int) -> int:
        """Bytes of the segment that are done, when each of them is touched more than once."""
        self._done = min(self._done + size, self._work)
        return self._done * self.size // max(self._work, 1)


def _sealed(log: Log, serial: int) -> Segment:
    segment = log.segment(serial)
    if segment is None:
        raise ZBrokerError("not_found", f"there is no segment {serial}", "see the list of segments")
    if segment.last:
        reason = f"segment {serial} has the write head"
        raise ZBrokerError("segment_open", reason, "it can be moved when the next one is begun")
    if segment.header is None or segment.end_position is None:
        reason = f"the header of segment {serial} or of the one after it is unreadable"
        raise ZBrokerError("segment_unreadable", reason, "repair it first; it stays where it is")
    return segment


def _differs(name: str, where: str) -> StorageError:
    return StorageError(
        "copy_differs",
        f"{name} is not the same as its original: {where}; the original stays",
        "check that disk; if the file has been there for long, move it away",
    )


class SummaryBuilder:
    """Takes all items of a segment, in order."""

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
        """The summary of the items that were taken."""
        header, segment, topics = self._header, self._segment, sorted(self._topics)
        return Summary(
            header.instance, header.serial, header.salt, header.generation, header.first_position,
            segment.end_position or 0, segment.end or 0, segment.size, self._batches,
            self._messages, self._control, self._missing, self._bytes, self._first_time,
            self._last_time, topics[:TOPICS_MAX], len(topics) > TOPICS_MAX, self._marks,
        )  # fmt: skip


def _copy(source: Disk, name: str, size: int, target: Disk, part: str) -> Iterator[int]:
    unsynced = 0
    for offset in range(0, size, STEP_BYTES):
        data = source.read(name, offset, STEP_BYTES)
        unsynced += _write_filled(target, part, offset, data)
        if unsynced >= FILL_SYNC_BYTES:  # so that no single sync keeps the disk busy long
            target.sync(part)
            unsynced = 0
        yield len(data)
    if size:  # a hole at the end would make the file shorter
        target.write(part, size - 1, [source.read(name, size - 1, 1)])


def _write_filled(disk: Disk, name: str, offset: int, data: bytes) -> int:
    """Writes what is not zeros; how many bytes that is."""
    view, written, run = memoryview(data), 0, list[Buffer]()
    for at in range(0, len(data) + _PIECE_BYTES, _PIECE_BYTES):
        piece = view[at : at + _PIECE_BYTES]
        if len(piece) and piece != _ZEROS[: len(piece)]:
            run.append(piece)
        elif run:
            size = sum(map(len, run))
            disk.write(name, offset + min(at, len(data)) - size, run)
            written, run = written + size, []
    return written


def _pack(name: str, head: PackedHeader, disk: Disk, part: str) -> Iterator[int]:
    """The frames, the table, then the head, whose place was left free."""
    zstd, lengths, offset = compressor(), list[int](), frames_at(head.size)
    frames: list[Buffer] = []
    taken = unsynced = waiting = 0
    for at, length in cuts(head.size):
        frame = zstd.compress(disk.read(name, at, length))
        lengths.append(len(frame))
        frames.append(frame)
        taken, waiting = taken + length, waiting + len(frame)
        if taken < STEP_BYTES and at + length < head.size:
            continue
        disk.write(part, offset, frames)
        offset, unsynced, waiting, frames = offset + waiting, unsynced + waiting, 0, []
        if unsynced >= FILL_SYNC_BYTES:
            disk.sync(part)
            unsynced = 0
        yield taken
        taken = 0
    disk.write(part, offset, [encode_table(frames_at(head.size), head.size, lengths)])
    disk.write(part, 0, [encode_head(head, lengths)])


def _need_space(disk: Disk, size: int, purpose: str) -> None:
    """Raises: StorageError disk_full if there is less."""
    free = disk.free_bytes()
    if free < size:
        raise StorageError("disk_full", f"{purpose} takes {size} bytes, {free} are free")


def _make_directory(directory: Path) -> None:
    """Makes a directory durable, with those above it, if there is none. Raises: StorageError."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    try:
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        sync_directory(directory.parent)
    except OSError as error:
        reason = f"make the archive directory {directory}: {error.strerror}"
        raise StorageError("disk_error", reason, "check [journal] archive_directory") from None
