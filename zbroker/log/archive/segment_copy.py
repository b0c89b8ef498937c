"""How a new copy of a segment comes to be: written, verified, durable, then named.

    <name>.part     written in steps and synced; a crash leaves it, tidy throws it away
    compared        past the page cache, byte for byte, with what readers read now; and every
                    batch that they read is checked once
    <name>          a copy that has a name is whole: nothing more is asked before the original goes

Before that name appears the journal directory is synced: only sealed segments are copied, and that
this one is sealed is proved by the next one, which must not vanish when the copy stays.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from zbroker.errors import StorageError, ZBrokerError
from zbroker.limits import MIB
from zbroker.log import owner
from zbroker.log.archive.summaries import Summary, SummaryBuilder, write_summary
from zbroker.log.disk import Disk
from zbroker.log.files import Segment
from zbroker.log.format import DATA_AT
from zbroker.log.packed import Frames, Packed
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.reader import Cursor, Log
from zbroker.log.segments import PART_SUFFIX, discard

STEP_BYTES: Final = 1 * MIB  # a few milliseconds: so long a wish to stop may wait

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


def finish(steps: Steps) -> CopyResult:
    """All steps, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made: CopyResult = stop.value
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
            raise _differs(name, f"it goes on behind offset {self.size}")

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
        reason = f"the header of segment {serial} or of the one behind it is unreadable"
        raise ZBrokerError("segment_unreadable", reason, "repair it first; it stays where it is")
    return segment


def _differs(name: str, where: str) -> StorageError:
    return StorageError(
        "copy_differs",
        f"{name} is not the same as its original: {where}; the original stays",
        "check that disk; if the file has been there for long, move it away",
    )
