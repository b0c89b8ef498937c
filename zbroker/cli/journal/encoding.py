"""Writes batches of a log as a new journal, each at the position that it has.

A segment has the size of its content; the last one is the open one for an instance that starts on
it. Missing positions are between two segments: one ends, and the next begins at a higher position.
"""

from __future__ import annotations

from typing import Final

from zbroker.clock import Clock
from zbroker.limits import MIB
from zbroker.log.disk import Buffer, Disk
from zbroker.log.format import (
    DATA_AT,
    GROUP_ALIGN,
    GROUP_LENGTH,
    HEADER_COPY_AT,
    AckedNote,
    Batch,
    GroupHeader,
    SegmentHeader,
    batch_crc,
    encode_batch_header,
    encode_group_header,
    pad,
)
from zbroker.log.segments import NOTE_FILE, NOTE_FILE_BYTES, give_up, random_salt, segment_name

GROUP_BYTES: Final = 1 * MIB  # batches that are written at once
_PAGE: Final = 4096
_PADS: Final = tuple(bytes(size) for size in range(8))


class Output:
    """A new journal in an empty directory.

    position: the next one. serial: of the first segment. segments, bytes: written so far.
    """

    def __init__(self, disk: Disk, instance: int, position: int, serial: int, clock: Clock) -> None:
        self.segments = 0
        self.bytes = 0
        self.position = position
        self._disk = disk
        self._instance = instance
        self._serial = serial
        self._clock = clock
        self._open: _Segment | None = None
        self._previous = (0, 0)  # last position and end offset of the segment before

    def skip_to(self, position: int) -> None:
        """Positions up to this one are missing. Raises: StorageError."""
        self._seal()
        self.position = position

    def add(self, batch: Batch, generation: int, *, begin: bool) -> None:
        """Appends a batch; `begin`: in a new segment. Raises: StorageError."""
        assert batch.position == self.position, "missing positions are skipped"
        if begin or (self._open is not None and self._open.header.generation != generation):
            self._seal()
        segment = self._open or self._begin(generation)
        segment.add(batch)
        self.position = batch.end_position

    def finish(self, generation: int) -> None:
        """Makes all of it durable, with an acked-through note. Raises: StorageError."""
        if self._open is None or self._open.header.generation != generation:
            self._seal()
            self._begin(generation)
        self._seal()
        newest = self._serial + self.segments - 1
        oldest = self._serial if self._serial > 1 else 0
        self._disk.create(NOTE_FILE, NOTE_FILE_BYTES)
        note = AckedNote(0, self._instance, generation, self.position, newest, oldest)
        give_up(self._disk, note)
        self._disk.sync_dir()

    def _begin(self, generation: int) -> _Segment:
        header = SegmentHeader(
            self._instance, generation, self._serial + self.segments, self.position,
            *self._previous, random_salt(), self._clock.wall_ns(), 0,
        )  # fmt: skip
        self.segments += 1
        self._open = _Segment(self._disk, header)
        return self._open

    def _seal(self) -> None:
        if self._open is not None:
            end = self._open.close()
            self._previous = (self.position - 1, end)
            self.bytes += pad(end, _PAGE)
            self._open = None


class _Segment:
    """One file. Its header is written last: without one it is not a segment yet."""

    def __init__(self, disk: Disk, header: SegmentHeader) -> None:
        self.header = header
        self._disk = disk
        self._name = segment_name(header.serial)
        self._end = DATA_AT
        self._crc = 0
        self._group: list[Batch] = []
        self._group_bytes = 0
        disk.create(self._name)

    def add(self, batch: Batch) -> None:
        self._group.append(batch)
        self._group_bytes += batch.body_length
        if self._group_bytes >= GROUP_BYTES:
            self._write()

    def close(self) -> int:
        """Writes the rest and the header, syncs. Returns: the offset after the last group."""
        if self._group:
            self._write()
        size = pad(self._end, _PAGE)
        self._disk.write(self._name, self._end, [bytes(size - self._end)])
        fields = self.header
        header = SegmentHeader(
            fields.instance, fields.generation, fields.serial, fields.first_position,
            fields.previous_last_position, fields.previous_end, fields.salt, fields.created_ns,
            size,
        )  # fmt: skip
        for at in (0, HEADER_COPY_AT):
            self._disk.write(self._name, at, [header.encode()])
        self._disk.sync(self._name)
        return self._end

    def _write(self) -> None:
        """One group of what was added."""
        start = pad(self._end, GROUP_ALIGN)
        offset, seed = start + GROUP_LENGTH, self.header.seed
        crcs: list[int] = []
        buffers: list[Buffer] = [b""]  # the group header's place
        for batch in self._group:
            header = encode_batch_header(batch, offset, seed)
            crcs.append(batch_crc(header))
            padding = _PADS[-batch.body_length % 8]
            buffers += (header, batch.body, padding)
            offset += len(header) + batch.body_length + len(padding)
        first, last = self._group[0], self._group[-1]
        group = GroupHeader(
            start, offset - start, len(crcs), first.position, last.end_position - first.position,
            max(batch.log_time for batch in self._group), first.position, self._crc,
        )  # fmt: skip
        buffers[0], self._crc = encode_group_header(group, crcs, seed)
        self._disk.write(self._name, start, buffers)
        self._end = offset
        self._group, self._group_bytes = [], 0
