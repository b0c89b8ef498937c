"""Segment files: names, headers, how one comes to be; and the acked-through note.

    0000000007.journal       a segment; the highest serial is the open one, the others are sealed
    0000000007.journal.zst   the same, packed (packed.py); a sealed one may also be in the
                             archive directory (places.py)
    0000000007.idx           a summary of a sealed segment, which can be made again (archive/)
    *.part                   a copy or packed file that is not finished
    next.prepared            the next segment, being filled with zeros; -2 is the one after
    next.allocated           the same in a hurry: space reserved, nothing filled
    acked-through            two slots that say below which position everything was durable

A segment's header is written and synced before the file gets its name, and the name is synced
before the first group: a segment that can be seen is whole, and what lies under one of the `next`
names was never announced, so a file of that name found at a start is thrown away.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final

from zbroker.checksums import crc32c
from zbroker.errors import StorageError
from zbroker.limits import KIB, MIB
from zbroker.log.disk import Disk
from zbroker.log.format import (
    GROUP_ALIGN,
    HEADER_COPY_AT,
    NOTE,
    NOTE_KEPT_AT,
    NOTE_SLOTS,
    SEGMENT,
    AckedNote,
    ParseStop,
    SegmentHeader,
    decode_note,
    decode_segment_header,
    encode_note,
)

SPARE: Final = "next.prepared"
PLAIN: Final = "next.allocated"
NOTE_FILE: Final = "acked-through"
NOTE_FILE_BYTES: Final = NOTE_KEPT_AT + GROUP_ALIGN  # all of it from the start: see give_up
FILL_BYTES: Final = 256 * KIB  # one step of filling; a helper thread's step stays short
FILL_SYNC_BYTES: Final = 4 * MIB  # so that no single sync of the filling keeps the disk busy long
ZEROS: Final = bytes(FILL_BYTES)

PACKED_SUFFIX: Final = ".zst"
PART_SUFFIX: Final = ".part"

SUMMARY_NAME: Final = re.compile(r"(\d{10})\.idx")
_NAME: Final = re.compile(r"(\d{10})\.journal")
_COPY: Final = re.compile(r"(\d{10})\.journal(\.zst)?")

HeaderCopies = tuple[SegmentHeader | ParseStop, SegmentHeader | ParseStop]


def random_salt() -> int:
    """What makes the CRCs of one segment different from those of every other."""
    return secrets.randbits(64)


def segment_name(serial: int) -> str:
    """The file name of a segment."""
    return f"{serial:010d}.journal"


def packed_name(serial: int) -> str:
    """The file name of a packed segment."""
    return segment_name(serial) + PACKED_SUFFIX


def summary_name(serial: int) -> str:
    """The file name of a segment's summary."""
    return f"{serial:010d}.idx"


def spare_names(count: int) -> list[str]:
    """The names of so many segments that are being made ahead."""
    return [SPARE, *(f"{SPARE}-{number}" for number in range(2, count + 1))]


def parse_name(name: str) -> tuple[int, bool] | None:
    """(serial, packed) if this is the name of a segment, packed or not."""
    match = _COPY.fullmatch(name)
    return (int(match[1]), match[2] is not None) if match else None


def list_segments(disk: Disk) -> list[tuple[int, int]]:
    """(serial, size) of every raw segment in one directory, oldest first."""
    found = [(match[1], size) for name, size in disk.list() if (match := _NAME.fullmatch(name))]
    return sorted((int(serial), size) for serial, size in found)


def list_files(disk: Disk) -> list[tuple[str, int]]:
    """(name, size) of every file; empty if the directory is not there."""
    try:
        return disk.list()
    except StorageError as error:
        if error.code != "file_missing":
            raise
        return []  # an archive directory that was not made yet


def headers_by(read: Callable[[int, int], bytes]) -> HeaderCopies:
    """Both copies of a segment's header, as they are; `read` gives its bytes by offset and size."""
    first, second = (decode_segment_header(read(at, SEGMENT.size)) for at in (0, HEADER_COPY_AT))
    return first, second


def intact(copies: HeaderCopies) -> SegmentHeader | ParseStop:
    """The header from an intact copy; Stop "version" if both are of another version."""
    first, second = copies
    if isinstance(first, SegmentHeader):
        return first
    if isinstance(second, SegmentHeader) or first.why == "version":
        return second
    return first


def read_header(disk: Disk, serial: int) -> SegmentHeader | ParseStop:
    """The header of a raw segment from an intact copy."""
    return intact(headers_by(partial(disk.read, segment_name(serial))))


def unknown_version(name: str, hint: str) -> StorageError:
    """The refusal of a file that a newer release wrote."""
    reason = f"{name} is of a format version that this release does not know"
    return StorageError("unknown_version", reason, hint)


def discard(disk: Disk, name: str) -> None:
    """Removes a file that was never announced, if it is there."""
    if disk.exists(name):
        disk.unlink(name)


def replace_file(disk: Disk, name: str, data: bytes) -> None:
    """Writes a small file in place of any of that name; durable when it returns."""
    part = name + PART_SUFFIX
    discard(disk, part)
    disk.create(part)
    disk.write(part, 0, [data])
    disk.sync(part)
    discard(disk, name)
    disk.rename(part, name)
    disk.sync_dir()


def fill_step(disk: Disk, name: str, filled: int, size: int) -> int:
    """Writes the next zeros to a file that shall have `size` bytes; how many it has now.

    All of it is synced when it is full.
    """
    step = min(FILL_BYTES, size - filled)
    disk.write(name, filled, [ZEROS[:step]])
    filled += step
    if filled == size or filled % FILL_SYNC_BYTES == 0:
        disk.sync(name)
    return filled


def make_filled(disk: Disk, name: str, size: int) -> None:
    """A new file of `size` written zeros in place of any of that name."""
    discard(disk, name)
    disk.create(name)
    filled = 0
    while filled < size:
        filled = fill_step(disk, name, filled, size)


def publish(disk: Disk, spare: str, header: SegmentHeader) -> None:
    """Makes the zeros in `spare` a segment: header, sync, name, sync of the directory."""
    data = header.encode()
    disk.write(spare, 0, [data])
    disk.write(spare, HEADER_COPY_AT, [data])
    disk.sync(spare)
    disk.rename(spare, segment_name(header.serial))
    disk.sync_dir()


def read_around(read: Callable[[str, int, int], bytes], name: str, offset: int, size: int) -> bytes:
    """What `read` gives; pieces that the disk cannot read are zeros, which fail their CRCs."""
    try:
        return read(name, offset, size)
    except StorageError as error:
        if error.code == "file_missing":
            raise
    parts: list[bytes] = []
    at, end = offset, offset + size
    while at < end:
        step = min(HEADER_COPY_AT - at % HEADER_COPY_AT, end - at)
        try:
            part = read(name, at, step)
        except StorageError:
            part = bytes(step)
        parts.append(part)
        if len(part) < step:
            break
        at += step
    return b"".join(parts)


def read_note(disk: Disk) -> AckedNote | None:
    """The newest intact slot of the acked-through note; `oldest` is the highest of all slots.

    Raises: StorageError unknown_version.
    """
    if not disk.exists(NOTE_FILE):
        return None
    slots = [disk.read(NOTE_FILE, at, NOTE.size) for at in (*NOTE_SLOTS, NOTE_KEPT_AT)]
    notes = [note for slot in slots if (note := _note_in(slot)) is not None]
    if not notes:
        return None
    newest = max(notes, key=lambda note: (note.generation, note.counter))
    return newest._replace(oldest=max(note.oldest for note in notes))


def _note_in(slot: bytes) -> AckedNote | None:
    """A newer note is none that is damaged: what it proves must not be forgotten."""
    note = decode_note(slot)
    if isinstance(note, AckedNote):
        return note
    if note.why == "version" and slot[-4:] == crc32c(slot[:-4]).to_bytes(4, "little"):
        raise unknown_version(NOTE_FILE, "start the release that wrote it")
    return None


def write_note(disk: Disk, note: AckedNote) -> None:
    """Writes one slot. It needs no sync: an old note is true as well, it only proves less."""
    disk.write(NOTE_FILE, NOTE_SLOTS[note.counter % len(NOTE_SLOTS)], [encode_note(note)])


def give_up(disk: Disk, note: AckedNote) -> int:
    """Notes durably that segments below `note.oldest` are given up: only then may they go.

    One place after the other: whatever a power cut makes of the page that is being written, the
    other one is whole. Needs no space where the file has its full size, so that removing works on
    a full disk, too. Returns: the counter of the newest note.
    """
    disk.sync(NOTE_FILE)  # what the last two syncs of the log wrote there
    for counter in range(note.counter + 1, note.counter + 1 + len(NOTE_SLOTS)):
        note = note._replace(counter=counter)
        write_note(disk, note)
        disk.sync(NOTE_FILE)
    disk.write(NOTE_FILE, NOTE_KEPT_AT, [encode_note(note)])
    disk.sync(NOTE_FILE)
    return note.counter
