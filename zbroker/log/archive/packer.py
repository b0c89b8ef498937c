"""Packs a segment in the directory in which it stands; what is in the file: log/packed.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from zbroker.log.archive.archiver import need_space
from zbroker.log.archive.segment_copy import STEP_BYTES, CopyJob, CopyResult, Steps
from zbroker.log.disk import Buffer, Disk
from zbroker.log.packed import PackedHeader, compressor, cuts, encode_head, encode_table, frames_at
from zbroker.log.places import SegmentPlaces
from zbroker.log.segments import FILL_SYNC_BYTES, segment_name


def pack(places: SegmentPlaces, serial: int, *, keep_free_bytes: int = 0) -> Steps:
    """Makes a verified packed copy of a sealed segment, where the raw one stands.

    One that is there already is verified again. Needs up to as much space as the raw file, and
    leaves `keep_free_bytes`.
    Raises: ZBrokerError not_found, segment_open, segment_unreadable; StorageError disk_full,
    disk_error, copy_differs. The original is never touched.
    """
    job = CopyJob(places, serial)
    packed = next((place for place in job.copies if place.packed), None)
    if packed is not None:
        made: CopyResult = yield from job.verify(packed)
        return made
    source = job.segment.place
    disk, size = places.disk(source), source.file_bytes
    need_space(disk, size + keep_free_bytes, "to pack a segment")
    assert job.segment.header is not None, "a Job is of a segment with a header"
    head = PackedHeader(job.segment.header.instance, serial, size)
    write = partial(_pack, segment_name(serial), head)
    made = yield from job.make(source._replace(packed=True), write, size)
    return made


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
