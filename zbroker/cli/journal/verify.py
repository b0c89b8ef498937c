"""`zbroker-admin journal verify`: reads and checks every byte of the log.

Reads the files of both directories past the page cache, also while the instance runs, and changes
nothing. Answer: counts, holes, gaps, damaged places, the verdict. Exit code 0 only if nothing is
damaged and nothing is missing.

It goes twice over the log: as every reader gets it (batches, bodies, packed counts, gaps, holes),
and over every copy of every segment as it is on the medium (groups and their chain, stretches that
are none). Bytes after the end of the log (cut off by recovery, or written by a running instance
since the end was searched) are counted as bytes_behind_end and not judged.

    zbroker-admin --data-dir /var/lib/zbroker journal verify
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from zbroker.cli import progress, show
from zbroker.cli.group import EX_ERROR, AdminCommand
from zbroker.cli.journal import opened
from zbroker.cli.journal.description import newest_snapshot, time_text
from zbroker.cli.journal.rows import READ_BYTES
from zbroker.cli.progress import Step
from zbroker.control.target import Target
from zbroker.errors import ClientError, StorageError
from zbroker.limits import STORED_MAX_BYTES
from zbroker.log import format as f
from zbroker.log.disk import RealDisk
from zbroker.log.packed import read_head, read_seek_table
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.reader import Gap, Log, first_time, last_time
from zbroker.log.scan import BadStretch, ScannedGroup, SegmentScan
from zbroker.log.segments import read_note
from zbroker.wire import bodies

STATE_MISSING: Final = (
    "no state snapshot: a start does not know publishers whose messages were all removed"
)
FIRST_SHOWN: Final = 10  # of gaps, holes and damaged places in the text; JSON has them all


@click.command("verify", cls=AdminCommand)
def verify_command(target: Target) -> None:
    """Read and check every byte; exit code 0 only if nothing is damaged or missing.

    Holes are sequences of a publisher that are missing; gaps are positions that cannot be served;
    damaged are places in the files whose checksums are wrong.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal verify
    """
    paths = opened.find(target)
    with progress.bar() as step:
        report = verify(paths.journal, step, paths.archive)
    show.answer(target.as_json, report.as_dict(), "\n".join(report.lines()))
    if not report.ok:
        sys.exit(EX_ERROR)


class Damaged(NamedTuple):
    """Bytes [start, end) of one copy of a segment whose checksums are wrong."""

    serial: int
    start: int
    end: int
    why: str
    file: str


class MissingSequences(NamedTuple):
    """Sequences `first` to `last` of a publisher that were recorded or issued, but are not here."""

    publisher: int
    first: int
    last: int

    def as_row(self) -> dict[str, Any]:
        """For JSON: the id of a publisher may be above 2**53."""
        return self._asdict() | {"publisher": str(self.publisher)}


@dataclass
class VerifyReport:
    """The findings. Positions are [first_position, end_position)."""

    instance: int = 0
    generation: int = 0
    first_position: int = 1
    end_position: int = 1
    messages: int = 0
    control_records: int = 0
    batches: int = 0
    groups: int = 0
    segments: int = 0
    archived: int = 0
    packed: int = 0
    bytes: int = 0
    bytes_behind_end: int = 0
    publishers: dict[int, int] = field(default_factory=dict)  # to the highest sequence so far
    first_time: int | None = None
    last_time: int | None = None
    missing_sequences: int = 0  # of all holes
    holes: list[MissingSequences] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    missing_segments: list[int] = field(default_factory=list)  # serials that are not there
    snapshot: int | None = None  # newest segment with a complete state snapshot

    @property
    def ok(self) -> bool:
        """True if every byte is as it was written, and nothing is missing."""
        return not self.gaps and not self.damaged and not self.missing_segments

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        return {
            "ok": self.ok,
            **vars(self),
            "instance": f"{self.instance:016x}",
            "publishers": len(self.publishers),
            "first_time": time_text(self.first_time),
            "last_time": time_text(self.last_time),
            "holes": [hole.as_row() for hole in self.holes],
            "gaps": [gap._asdict() for gap in self.gaps],
            "damaged": [place._asdict() for place in self.damaged],
        }

    def lines(self) -> list[str]:
        """As text: counts, then the first of everything that is wrong, then the verdict."""
        found = self.as_dict()
        lists = {name: found.pop(name) for name in ("holes", "gaps", "damaged")}
        del found["ok"]
        found["missing_segments"] = ", ".join(map(str, self.missing_segments)) or "none"
        text = [f"{name:18} {value}" for name, value in found.items()]
        for name, items in lists.items():
            text.append(f"{name:18} {len(items)}")
            shown = (" ".join(f"{k}={v}" for k, v in item.items()) for item in items[:FIRST_SHOWN])
            text += (f"  {item}" for item in shown)
            if len(items) > FIRST_SHOWN:
                text.append(f"  and {len(items) - FIRST_SHOWN} more: --json shows all")
        if self.snapshot is None and self.first_position > 1:
            text.append(STATE_MISSING)
        return [*text, self._verdict()]

    def _verdict(self) -> str:
        if self.ok:
            return "ok: every byte is as it was written"
        if self.damaged:
            return "DAMAGED: see above; `journal repair` saves what is intact"
        return "INCOMPLETE: the rest is as it was written, but see gaps and missing segments"


def verify(directory: Path, step: Step, archive: Path | None = None) -> VerifyReport:
    """Reads the whole journal in `directory` and its archive."""
    archived = Direct(archive) if archive is not None else None
    with closing(SegmentPlaces(Direct(directory), archived)) as places:
        log = Log(places=places)
        note = read_note(places.journal)
        end = log.end()
        if note is not None and note.generation >= log.generation:
            end = max(end, note.position)  # acknowledged positions that are not there are a gap
        report = VerifyReport(log.instance, log.generation, log.first_position, end)
        report.missing_segments = list(log.missing)
        report.snapshot = newest_snapshot(log, end)
        _read(log, report, step)
        report.missing_sequences = sum(hole.last - hole.first + 1 for hole in report.holes)
        _scan(places, report, step)
    return report


class Direct(RealDisk):
    """A directory, read only, of which everything is read past the page cache."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, read_only=True)

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self.read_direct(name, offset, size)


class Unpacked(Direct):
    """One copy of a segment as a directory of its own, for code that reads raw files by name."""

    def __init__(self, places: SegmentPlaces, place: SegmentPlace) -> None:
        disk = places.disk(place)
        assert isinstance(disk, RealDisk), "files are read past the cache of a real disk"
        super().__init__(disk.directory)
        self._places = places
        self._place = place

    def read_direct(self, name: str, offset: int, size: int) -> bytes:
        return self._places.read(self._place, offset, size)


# -- as readers get it ------------------------------------------------------------------------


def _read(log: Log, report: VerifyReport, step: Step) -> None:
    first, end = report.first_position, report.end_position
    cursor = log.seek(first)
    while cursor.position < end:
        items, cursor = log.read(cursor, end, READ_BYTES)
        for item in items:
            _take(item, report)
        step("messages", cursor.position - first, end - first)
        if not items:
            report.gaps.append(Gap(cursor.position, end, "missing"))
            return


def _take(item: f.Batch | Gap, report: VerifyReport) -> None:
    if isinstance(item, Gap):
        report.gaps.append(item)
        return
    report.batches += 1
    if item.kind != f.KIND_PUBLISH:
        report.control_records += item.taken
        return
    report.last_time = last_time(item)
    if report.first_time is None:
        report.first_time = first_time(item)
    report.messages += item.taken
    _sequences(item, report)
    try:
        codec = bodies.CODEC_ZSTD if item.flags & f.FLAG_ZSTD else None
        bodies.check_packed(item.body, item.count, codec, STORED_MAX_BYTES)
    except ClientError as error:
        report.gaps.append(Gap(item.position, item.end_position, error.reason))


def _sequences(batch: f.Batch, report: VerifyReport) -> None:
    """`prev` is what this publisher issued before: numbers that it never used are not a hole."""
    last = batch.sequence + batch.taken - 1
    high = report.publishers.get(batch.publisher)
    if high is not None and batch.prev > high:
        report.holes.append(MissingSequences(batch.publisher, high + 1, batch.prev))
    if batch.flags & f.FLAG_LATE:
        report.holes = [part for hole in report.holes for part in _without(hole, batch)]
    report.publishers[batch.publisher] = max(last, high or 0)


def _without(hole: MissingSequences, batch: f.Batch) -> list[MissingSequences]:
    """The rest of a hole after a late batch came."""
    first, last = batch.sequence, batch.sequence + batch.taken - 1
    if hole.publisher != batch.publisher or last < hole.first or hole.last < first:
        return [hole]
    parts = (hole._replace(last=first - 1), hole._replace(first=last + 1))
    return [part for part in parts if part.first <= part.last]


# -- as it is on the medium -------------------------------------------------------------------


def _scan(places: SegmentPlaces, report: VerifyReport, step: Step) -> None:
    by_serial = places.by_serial()
    total, done = sum(place.file_bytes for place in places.copies()), 0
    for serial, copies in by_serial.items():
        end = _end_of(places, by_serial.get(serial + 1))
        before = report.groups
        for place in copies:
            report.groups = before  # copies hold the same groups
            try:
                _scan_copy(places, place, end, report)
            except StorageError as error:
                if error.code != "file_missing":
                    raise
                moved = places.find(serial)  # archived, compressed or removed meanwhile
                if moved is not None:
                    _scan_copy(places, moved, end, report)
            report.bytes += place.file_bytes
            done += place.file_bytes
            step("files", done, total)
        report.segments += 1
        report.archived += copies[0].archived
        report.packed += copies[0].packed


class _DataEnd(NamedTuple):
    """Where a segment's data ends: offset None for the open one, and if it is unknown."""

    offset: int | None
    is_open: bool


def _end_of(places: SegmentPlaces, follower: list[SegmentPlace] | None) -> _DataEnd:
    """The next one's header knows."""
    headers = (places.header(place) for place in follower or ())
    found = (head.previous_end for head in headers if isinstance(head, f.SegmentHeader))
    return _DataEnd(next(found, None), is_open=follower is None)


def _scan_copy(
    places: SegmentPlaces, place: SegmentPlace, end: _DataEnd, report: VerifyReport
) -> None:
    file = f"{'archive' if place.archived else 'journal'}/{places.name(place)}"
    header = places.header(place)
    if not isinstance(header, f.SegmentHeader):
        report.damaged.append(Damaged(place.serial, 0, f.DATA_AT, f"header: {header.why}", file))
        return
    if place.packed:
        report.damaged += (
            Damaged(place.serial, 0, 0, why, file) for why in _bad_lists(places, place)
        )
    scan = SegmentScan(Unpacked(places, place), header, places.size(place))
    _scan_segment(scan, end, report, file)


def _bad_lists(places: SegmentPlaces, place: SegmentPlace) -> list[str]:
    """A packed file has two lists of its frames: one is enough to read it, but both should be."""
    disk, name = places.disk(place), places.name(place)

    def read(offset: int, size: int) -> bytes:
        return disk.read(name, offset, size)

    head = read_head(name, read, place.file_bytes)[1]
    listed = read_seek_table(read, place.file_bytes)
    if head is None:
        return ["head of the packed file"]
    # the seek table lists the head, too, which gives nothing
    same = listed is not None and (head.at, head.base) == (listed.at[1:], listed.base[1:])
    return [] if same else ["seek table of the packed file"]


def _scan_segment(scan: SegmentScan, upto: _DataEnd, report: VerifyReport, file: str) -> None:
    """A stretch in the open one is damage if a group of the log follows it, or should."""
    end = upto.offset
    serial, position, held = scan.header.serial, scan.header.first_position, list[BadStretch]()
    for item in scan.items():
        if isinstance(item, BadStretch):
            held.append(item)
        elif _counts(item, end, report):
            report.damaged += (Damaged(serial, s.start, s.end, "group", file) for s in held)
            report.damaged += (
                Damaged(serial, b.offset, b.end_offset, "body", file) for b in item.bad
            )
            report.groups += 1
            position = item.header.first_position + item.header.positions
            held.clear()
        else:
            report.bytes_behind_end += item.header.length
    for rest in held:
        should = upto.is_open and position < report.end_position
        if should if end is None else rest.start < end:
            until = rest.end if end is None else min(rest.end, end)
            report.damaged.append(Damaged(serial, rest.start, until, "group", file))
        elif not rest.blank:
            report.bytes_behind_end += rest.end - rest.start


def _counts(group: ScannedGroup, end: int | None, report: VerifyReport) -> bool:
    header = group.header
    return header.first_position < report.end_position and (end is None or header.offset < end)
