"""`zbroker-admin journal export --output DIR`: a consistent copy of the log, while it is written.

Reads the files; a running instance is asked to remove nothing meanwhile (POST /journal/hold). DIR
becomes a data directory: these tools can look at it, and an instance can be started on it. It
appears when it is complete and durable; until then it is DIR.part. Answer: a summary of the copy.

    note read --> sealed segments, as their files are --> the last one, up to what the note proves

The note is read first: everything below its position was durable by then, so the segments that are
copied after it have at least that. Groups that came later are left out, so the copy ends where
the log was durable at one moment, and the note of the copy says so.

    zbroker-admin --data-dir /var/lib/zbroker journal export --output /mnt/backup/2026-08-01
    zbroker-admin --json journal export --output /tmp/day --from 20260801T000000Z
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from zbroker.cli import progress, show
from zbroker.cli.group import EX_ERROR, AdminCommand
from zbroker.cli.journal import opened, points, verify
from zbroker.cli.journal.description import newest_snapshot
from zbroker.cli.journal.holders import Renew, hold
from zbroker.cli.journal.new_journal import fresh
from zbroker.cli.journal.verify import Unpacked
from zbroker.cli.options import flag_option, output_option
from zbroker.control.target import Target
from zbroker.errors import StorageError, ZBrokerError
from zbroker.limits import MIB, U63_MAX
from zbroker.log.disk import RealDisk
from zbroker.log.format import DATA_AT, AckedNote, SegmentHeader
from zbroker.log.generations import CopyMark, write_mark
from zbroker.log.places import LOOKS_MAX, SegmentPlace, SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.scan import BadStretch, SegmentScan
from zbroker.log.segments import NOTE_FILE, NOTE_FILE_BYTES, give_up, read_note, segment_name

CHUNK_BYTES: Final = 4 * MIB

Copied = Callable[[int], None]  # bytes that were copied just now


@click.command(cls=AdminCommand)
@output_option
@click.option(
    "--from", "first", metavar="POINT", help="From the segment with this position or time."
)
@click.option("--to", "end", metavar="POINT", help="Only messages before this position or time.")
@flag_option("--no-verify", "Do not read the copy again and check every byte.")
def export(
    target: Target,
    output: Path,
    first: str | None,
    end: str | None,
    no_verify: bool,
) -> None:
    """Copy the log, consistently, also while the instance runs and writes.

    DIR holds everything that was durable when the copy began. Segments are copied as they are,
    archived and compressed ones too. A part of the log begins at the start of a segment.

    Example: zbroker-admin journal export --output /mnt/backup/2026-08-01
    """
    admin, began = target.running(), time.monotonic()
    with opened.log(target) as log, progress.bar("bytes") as step:
        if admin is None:
            log.places.journal.lock()  # else a writer might start meanwhile
        begin = points.edge(log, first) if first else log.first_position
        stop = points.edge(log, end) if end else None
        with hold(admin, f"export to {output}", max(begin, log.first_position)) as renew:
            plan = plan_copy(log.places, begin, stop, live=admin is not None)
            done = _copy(log, output, plan, renew, step)
    _look_at(done, output, check=not no_verify)
    done.took_s = time.monotonic() - began
    show.answer(target.as_json, done.as_dict(), sizes=("bytes",))
    _end(done)


def _copy(log: Log, output: Path, plan: CopyPlan, renew: Renew, step: progress.Step) -> Exported:
    done = Exported(
        str(output.absolute()), log.instance, plan.note.generation, plan.segments[0].first,
        plan.note.position, plan.below is not None,
    )  # fmt: skip

    def copied(count: int) -> None:
        done.bytes += count
        step("copying", done.bytes, plan.bytes)
        renew()

    with fresh(output, log.instance, plan.bytes) as journal, closing(RealDisk(journal)) as disk:
        for one in plan.segments[:-1]:
            done.packed += copy_file(log.places, one.serial, disk, copied).packed
        position = copy_last(log.places, plan.segments[-1].serial, disk, plan.below, copied)
        done.end_position = max(position, plan.note.position)
        write_notes(disk, plan.note._replace(position=done.end_position))
    done.segments = len(plan.segments)
    return done


def _look_at(done: Exported, output: Path, *, check: bool) -> None:
    """The copy as it is read back."""
    journal = output / "journal"
    with closing(Log(journal)) as log:
        done.snapshot = newest_snapshot(log, done.end_position)
    if check:
        with progress.bar() as step:
            done.verified = verify.verify(journal, step).ok


def _end(done: Exported) -> None:
    if done.snapshot is None and done.first_position > 1:
        show.warn("no state snapshot is in the copy: an instance that is started on it does not")
        show.warn("know what its publishers wrote before; reading and replaying it is fine")
    if done.verified is False:
        show.warn(
            f"damaged or incomplete: see `zbroker-admin --data-dir {done.output} journal verify`"
        )
        sys.exit(EX_ERROR)


class SegmentBounds(NamedTuple):
    """A segment with positions [first, end); end None: it is the open one, or unknown."""

    serial: int
    first: int
    end: int | None
    generation: int


@dataclass(slots=True)
class Exported:
    """The result of a copy. Positions are [first_position, end_position)."""

    output: str
    instance: int
    generation: int
    first_position: int
    end_position: int
    live: bool
    segments: int = 0
    packed: int = 0
    bytes: int = 0
    took_s: float = 0.0
    snapshot: int | None = None
    verified: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        found = asdict(self) | {"instance": f"{self.instance:016x}"}
        return found | {"took_s": round(self.took_s, 3)}


class CopyPlan(NamedTuple):
    """What to copy: segments, the last one up to `below` (None: all of it), and the note."""

    segments: list[SegmentBounds]
    below: int | None
    note: AckedNote
    bytes: int


def plan_copy(places: SegmentPlaces, first: int, end: int | None, *, live: bool) -> CopyPlan:
    """What a copy of positions [first, end) consists of; end None: of all that is durable.

    live: an instance writes, so only what its note proves is taken. Raises: ZBrokerError.
    """
    note, segments = read_note(places.journal), bounds(places)
    if note is None or not segments:
        reason = f"there is no log with an acked-through note in {_where(places)}"
        raise ZBrokerError("not_found", reason, "see --data-dir; start the instance once")
    if end is not None and end <= first:
        raise ZBrokerError("not_found", f"positions {first} to {end} are not a range", "see --from")
    if live:
        segments = [one for one in segments if one.serial <= note.serial]
    below = note.position if live else None
    if end is not None:
        below = min(end, below or end)
    picked = chosen(segments, first, U63_MAX if below is None else max(below, first + 1))
    oldest = picked[0].serial if picked[0].serial > 1 else 0
    note = note._replace(
        serial=picked[-1].serial, generation=picked[-1].generation, oldest=oldest,
        position=min(note.position, end or U63_MAX),
    )  # fmt: skip
    found = {place.serial: place for place in places.list()}
    sizes = [found[one.serial].file_bytes for one in picked[:-1] if one.serial in found]
    return CopyPlan(picked, below, note, sum(sizes) + places.size(found[picked[-1].serial]))


def _where(places: SegmentPlaces) -> str:
    disk = places.journal
    return str(disk.directory) if isinstance(disk, RealDisk) else "this directory"


def bounds(places: SegmentPlaces) -> list[SegmentBounds]:
    """Where each segment begins and ends; an unreadable one is taken to hold what is around it."""
    found: list[SegmentBounds] = []
    for place in places.list():
        header = places.header(place)
        if isinstance(header, SegmentHeader):
            first = header.first_position
            if found:
                found[-1] = found[-1]._replace(end=first)
            found.append(SegmentBounds(place.serial, first, None, header.generation))
        else:
            before = found[-1] if found else SegmentBounds(0, 0, None, 0)
            found.append(before._replace(serial=place.serial, end=None))
    return found


def chosen(segments: list[SegmentBounds], first: int, end: int) -> list[SegmentBounds]:
    """The segments that hold anything of [first, end). Raises: ZBrokerError not_found."""
    found = [one for one in segments if (one.end is None or one.end > first) and one.first < end]
    if not found:
        reason = f"no segment holds anything of positions {first} to {end - 1}"
        raise ZBrokerError("not_found", reason, "see `journal ls`")
    return found


def copy_file(places: SegmentPlaces, serial: int, target: RealDisk, copied: Copied) -> SegmentPlace:
    """Copies a sealed segment as its best file is; which one that was. Raises: StorageError."""
    for left in reversed(range(LOOKS_MAX)):
        place = places.find(serial)
        if place is None:
            raise StorageError("file_missing", f"segment {serial} was removed meanwhile")
        name, size = places.name(place), place.file_bytes
        try:
            _write(target, name, size, _chunks(places.disk(place).read, name, size), copied)
        except StorageError as error:
            if error.code != "file_missing" or not left:
                raise
            if target.exists(name):  # it was archived or packed meanwhile
                target.unlink(name)
            continue
        return place
    raise AssertionError("the last look raises")


def _chunks(
    read: Callable[[str, int, int], bytes], name: str, size: int
) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < size:
        data = read(name, offset, min(CHUNK_BYTES, size - offset))
        if not data:
            raise StorageError("disk_error", f"{name} became shorter while it was read")
        yield offset, data
        offset += len(data)


def copy_last(
    places: SegmentPlaces, serial: int, target: RealDisk, below: int | None, copied: Copied
) -> int:
    """Copies the newest segment of the copy, raw. Returns: the position after its last one.

    below: groups from this position on are left out; None: nothing is.
    """
    place = places.find(serial)
    header = places.header(place) if place is not None else None
    if place is None or not isinstance(header, SegmentHeader):
        raise StorageError("file_missing", f"segment {serial} was removed meanwhile")
    size, unpacked = places.size(place), Unpacked(places, place)
    used, position = _used(SegmentScan(unpacked, header, size), below)
    name = segment_name(serial)
    _write(target, name, size, _chunks(unpacked.read, name, min(used, size)), copied)
    return position


def _used(scan: SegmentScan, below: int | None) -> tuple[int, int]:
    """The number of bytes of a segment to copy, and the position after the groups in them.

    Damaged places below the end are copied as they are; bytes after it may be half written.
    """
    position, groups_end, data_end = scan.header.first_position, DATA_AT, DATA_AT
    for item in scan.items():
        if isinstance(item, BadStretch):
            data_end = data_end if item.blank else item.end
            continue
        if below is not None and item.header.first_position >= below:
            break
        groups_end = data_end = item.header.offset + item.header.length
        position = item.header.first_position + item.header.positions
    complete = below is not None and position >= below
    return (groups_end if complete else data_end), position


def _write(
    disk: RealDisk, name: str, size: int, chunks: Iterator[tuple[int, bytes]], copied: Copied
) -> None:
    """A new file of `size` bytes, zeros where there is no chunk; durable when it returns."""
    disk.create(name)
    for offset, data in chunks:
        disk.write(name, offset, [data])
        copied(len(data))
    os.truncate(disk.directory / name, size)  # its zeros take no space
    disk.sync(name)


def write_notes(disk: RealDisk, note: AckedNote) -> None:
    """The acked-through note of the copy, in all its places, and that it is a copy; durable."""
    disk.create(NOTE_FILE, NOTE_FILE_BYTES)
    give_up(disk, note._replace(counter=0))
    write_mark(disk, CopyMark(note.instance, note.generation))
