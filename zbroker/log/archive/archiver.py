"""Copies a segment from the journal directory to the archive directory, byte for byte.

Bytes behind the segment's end are kept as well: recovery may have set them aside there. Stretches
of zeros become holes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from zbroker.durable_files import sync_directory
from zbroker.errors import StorageError
from zbroker.limits import KIB
from zbroker.log import owner
from zbroker.log.archive.segment_copy import STEP_BYTES, CopyJob, CopyResult, Steps
from zbroker.log.disk import Buffer, Disk, RealDisk
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.segments import FILL_SYNC_BYTES

_PIECE_BYTES: Final = 64 * KIB  # of zeros become a hole
_ZEROS: Final = bytes(_PIECE_BYTES)


def copy(places: SegmentPlaces, serial: int, *, keep_free_bytes: int = 0) -> Steps:
    """Makes a verified copy of a sealed segment in the archive directory.

    Packed ones are copied as they are. A copy that is there already is verified again. The archive
    directory is made if there is none. keep_free_bytes: so much space must be left.
    Raises: ZBrokerError not_found, segment_open, segment_unreadable; StorageError disk_full,
    disk_error, copy_differs, foreign_instance. The original is never touched.
    """
    assert places.archive is not None, "there is no archive directory to copy to"
    if isinstance(places.archive, RealDisk):
        make_directory(places.archive.directory)
    owner.check_apart(places)
    owner.claim(places)
    job = CopyJob(places, serial)
    archived = next((place for place in job.copies if place.archived), None)
    if archived is not None:
        made: CopyResult = yield from job.verify(archived)
        return made
    source = max(job.copies, key=_packed)
    need_space(places.archive, source.file_bytes + keep_free_bytes, "to archive a segment")
    write = partial(_copy, places.disk(source), places.name(source), source.file_bytes)
    made = yield from job.make(source._replace(archived=True), write, source.file_bytes)
    return made


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


def need_space(disk: Disk, size: int, purpose: str) -> None:
    """Raises: StorageError disk_full if there is less."""
    free = disk.free_bytes()
    if free < size:
        raise StorageError("disk_full", f"{purpose} takes {size} bytes, {free} are free")


def make_directory(directory: Path) -> None:
    """Makes a directory durable, with those above it, if there is none. Raises: StorageError."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    try:
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        sync_directory(directory.parent)
    except OSError as error:
        reason = f"make the archive directory {directory}: {error.strerror}"
        raise StorageError("disk_error", reason, "check [journal] archive_directory") from None


def _packed(place: SegmentPlace) -> tuple[bool, bool]:
    return not place.archived, place.packed
