"""What `zbroker-admin journal verify` finds out.

Twice over the log: as every reader gets it (batches, bodies, packed counts, gaps, holes), and as it
stands on the medium past the page cache (groups and their chain, stretches that are none). What
stands behind the end of the log (set aside by recovery, or written by a running instance since the
end was looked for) is counted as bytes_behind_end and not judged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from zbroker.cli.journal_dump import BODY_MAX_BYTES, READ_BYTES
from zbroker.clock import format_time
from zbroker.errors import ClientError
from zbroker.journal import format as f
from zbroker.journal.disk import RealDisk
from zbroker.journal.reader import Gap, Log, first_time, last_time
from zbroker.journal.scan import Group, Scan, Stretch
from zbroker.journal.segments import list_segments, read_header, read_note
from zbroker.wire import bodies

FIRST_SHOWN: Final = 10  # of gaps, holes and damaged places in the text; JSON has them all

Progress = Callable[[str, int, int], None]  # what is done, how much, of how much


class Damaged(NamedTuple):
    """Bytes [start, end) of one segment whose checksums are wrong."""

    serial: int
    start: int
    end: int
    why: str


class Hole(NamedTuple):
    """Sequences `first` to `last` of a publisher that were recorded or issued, but are not here."""

    publisher: int
    first: int
    last: int


@dataclass
class Report:
    """What was found. Positions are [first_position, end_position)."""

    instance: int = 0
    generation: int = 0
    first_position: int = 1
    end_position: int = 1
    first_time: int | None = None
    last_time: int | None = None
    messages: int = 0
    control_records: int = 0
    batches: int = 0
    groups: int = 0
    segments: int = 0
    bytes: int = 0
    bytes_behind_end: int = 0
    high: dict[int, int] = field(default_factory=dict)  # publisher -> its highest sequence so far
    holes: list[Hole] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if every byte is as it was written."""
        return not self.gaps and not self.damaged

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        return {
            "ok": self.ok,
            "instance": f"{self.instance:016x}",
            "generation": self.generation,
            **{name: getattr(self, name) for name in _COUNTS},
            "publishers": len(self.high),
            "first_time": format_time(self.first_time) if self.first_time is not None else None,
            "last_time": format_time(self.last_time) if self.last_time is not None else None,
            "missing_sequences": sum(hole.last - hole.first + 1 for hole in self.holes),
            "holes": [hole._asdict() for hole in self.holes],
            "gaps": [gap._asdict() for gap in self.gaps],
            "damaged": [place._asdict() for place in self.damaged],
        }

    def lines(self) -> list[str]:
        """As text: counts, then the first of everything that is wrong, then the verdict."""
        found = self.as_dict()
        lists = {name: found.pop(name) for name in ("holes", "gaps", "damaged")}
        del found["ok"]
        text = [f"{name:18} {value}" for name, value in found.items()]
        for name, items in lists.items():
            text.append(f"{name:18} {len(items)}")
            shown = (" ".join(f"{k}={v}" for k, v in item.items()) for item in items[:FIRST_SHOWN])
            text += (f"  {item}" for item in shown)
            if len(items) > FIRST_SHOWN:
                text.append(f"  and {len(items) - FIRST_SHOWN} more: --json shows all")
        text.append("ok: every byte is as it was written" if self.ok else "DAMAGED: see above")
        return text


_COUNTS: Final = (
    "first_position", "end_position", "messages", "control_records", "batches", "groups",
    "segments", "bytes", "bytes_behind_end",
)  # fmt: skip


def verify(directory: Path, progress: Progress) -> Report:
    """Reads the whole journal in `directory`."""
    report = Report()
    with closing(RealDisk(directory, read_only=True)) as disk:
        log = Log(disk=disk)
        note = read_note(disk)
        end = log.end()
        if note is not None and note.generation >= log.generation:
            end = max(end, note.position)  # what was acknowledged and is not there is a gap
        report.instance, report.generation = log.instance, log.generation
        report.first_position, report.end_position = log.first_position, end
        _read(log, report, progress)
        _scan(disk, report, progress)
    return report


# -- as readers get it ------------------------------------------------------------------------


def _read(log: Log, report: Report, progress: Progress) -> None:
    first, end = report.first_position, report.end_position
    cursor = log.seek(first)
    while cursor.position < end:
        items, cursor = log.read(cursor, end, READ_BYTES)
        for item in items:
            _take(item, report)
        progress("messages", cursor.position - first, end - first)
        if not items:
            report.gaps.append(Gap(cursor.position, end, "missing"))
            return


def _take(item: f.Batch | Gap, report: Report) -> None:
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
        bodies.check_packed(item.body, item.count, codec, BODY_MAX_BYTES)
    except ClientError as error:
        report.gaps.append(Gap(item.position, item.end_position, error.reason))


def _sequences(batch: f.Batch, report: Report) -> None:
    """`prev` is what this publisher issued before: numbers that it never used are no hole."""
    last = batch.sequence + batch.taken - 1
    high = report.high.get(batch.publisher)
    if high is not None and batch.prev > high:
        report.holes.append(Hole(batch.publisher, high + 1, batch.prev))
    if batch.flags & f.FLAG_LATE:
        report.holes = [part for hole in report.holes for part in _without(hole, batch)]
    report.high[batch.publisher] = max(last, high or 0)


def _without(hole: Hole, batch: f.Batch) -> list[Hole]:
    """What is left of a hole when a late batch came."""
    first, last = batch.sequence, batch.sequence + batch.taken - 1
    if hole.publisher != batch.publisher or last < hole.first or hole.last < first:
        return [hole]
    parts = (hole._replace(last=first - 1), hole._replace(first=last + 1))
    return [part for part in parts if part.first <= part.last]


# -- as it stands on the medium ---------------------------------------------------------------


def _scan(disk: RealDisk, report: Report, progress: Progress) -> None:
    segments = list_segments(disk)
    total, done = sum(size for _, size in segments), 0
    headers = {serial: read_header(disk, serial) for serial, _ in segments}
    for serial, size in segments:
        header, follower = headers[serial], headers.get(serial + 1)
        end = follower.previous_end if isinstance(follower, f.SegmentHeader) else None
        if isinstance(header, f.SegmentHeader):
            _scan_segment(Scan(disk, header, size), end, report)
        else:
            report.damaged.append(Damaged(serial, 0, f.DATA_AT, f"header: {header.why}"))
        report.segments += 1
        report.bytes += size
        done += size
        progress("files", done, total)


def _scan_segment(scan: Scan, end: int | None, report: Report) -> None:
    """`end`: behind a sealed segment's data; None for the open one, which may be written now.

    A stretch in the open one is damage if a group of the log stands behind it, or should.
    """
    serial, position, held = scan.header.serial, scan.header.first_position, list[Stretch]()
    for item in scan.items():
        if isinstance(item, Stretch):
            held.append(item)
        elif _counts(item, end, report):
            report.damaged += (Damaged(serial, s.start, s.end, "group") for s in held)
            report.damaged += (Damaged(serial, b.offset, b.end_offset, "body") for b in item.bad)
            report.groups += 1
            position = item.header.first_position + item.header.positions
            held.clear()
        else:
            report.bytes_behind_end += item.header.length
    for rest in held:
        if position < report.end_position if end is None else rest.start < end:
            upto = rest.end if end is None else min(rest.end, end)
            report.damaged.append(Damaged(serial, rest.start, upto, "group"))
        elif not rest.blank:
            report.bytes_behind_end += rest.end - rest.start


def _counts(group: Group, end: int | None, report: Report) -> bool:
    header = group.header
    return header.first_position < report.end_position and (end is None or header.offset < end)


# -- on a terminal ----------------------------------------------------------------------------


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Shows on stderr how far it is, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("journal")
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )
