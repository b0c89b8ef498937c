"""What `journal repair` does: reads one damaged log, and other copies of it, and writes a new one.

    damaged log --+--> every intact batch at its own position --> DIR.part --> DIR
    other copies -+    what is intact nowhere: a gap between two segments

A gap is where one segment ends and the next one begins at a higher position: every byte of the
new files is good, and readers report exactly the positions that are missing. Positions do not
change, so bookmarks, vectors and the order of everything stay as they were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zbroker.checksums import crc32c
from zbroker.cli.journal.new_journal import Output
from zbroker.cli.journal.rows import READ_BYTES
from zbroker.cli.progress import Step
from zbroker.clock import SystemClock
from zbroker.errors import StorageError, ZBrokerError
from zbroker.journal import snapshot
from zbroker.journal.fold import LogFold
from zbroker.limits import U63_MAX
from zbroker.log.format import KIND_PUBLISH, KIND_STATE, Batch, SegmentHeader
from zbroker.log.generations import drawn
from zbroker.log.reader import Gap, Log, last_time
from zbroker.log.scan import ScannedGroup, SegmentScan
from zbroker.log.segments import random_salt, read_note


class Filled(NamedTuple):
    """Positions [first, end) that came from another copy."""

    first: int
    end: int
    source: str


@dataclass
class Repaired:
    """The saved and the lost positions. Positions are [first_position, end_position)."""

    instance: int = 0
    generation: int = 0
    first_position: int = 1
    end_position: int = 1
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    messages: int = 0
    lost_positions: int = 0
    lost: list[Gap] = field(default_factory=list)
    filled: list[Filled] = field(default_factory=list)
    mended_headers: list[int] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        return {
            "ok": not self.lost,
            **vars(self),
            "instance": f"{self.instance:016x}",
            "lost": [gap._asdict() for gap in self.lost],
            "filled": [part._asdict() for part in self.filled],
        }

    def lines(self) -> list[str]:
        """As text."""
        found = self.as_dict()
        lost = found.pop("lost")
        del found["ok"], found["filled"]
        found["mended_headers"] = ", ".join(map(str, self.mended_headers)) or "none"
        text = [f"{name:18} {value}" for name, value in found.items()]
        text += [f"lost: positions {g['first']} to {g['end'] - 1}, {g['why']}" for g in lost]
        text += [f"filled: positions {p.first} to {p.end - 1} from {p.source}" for p in self.filled]
        return text


class RepairSource:
    """One copy of the log. headers: of the segments that have a readable one."""

    def __init__(self, name: str, log: Log) -> None:
        self.name = name
        self.log = log
        headers = (log.places.header(place) for place in log.places.list())
        self.headers = [header for header in headers if isinstance(header, SegmentHeader)]
        self.starts = [header.first_position for header in self.headers]
        self.end = _end(log)

    def generation(self, position: int) -> int:
        """The generation of this position, or of the segment that would have it."""
        index = bisect_right(self.starts, position) - 1
        return self.headers[max(index, 0)].generation if self.headers else 0

    def items(self, first: int, end: int) -> Iterator[Batch | Gap]:
        """Whole batches within [first, end), and gaps where there are none."""
        cursor = self.log.seek(min(first, self.end))
        position = first
        while cursor.position < min(end, self.end):
            items, cursor = self.log.read(cursor, min(end, self.end), READ_BYTES, stored=True)
            for item in items:
                start, after = _bounds(item)
                if after <= position:
                    continue
                if isinstance(item, Batch) and start >= position and after <= end:
                    if start > position:
                        yield Gap(position, start, "missing")
                    yield item
                    position = after
                elif isinstance(item, Gap):
                    yield Gap(position, min(after, end), item.why)
                    position = min(after, end)
            if not items:
                break
        if position < end:
            yield Gap(position, end, "missing")


class RepairRange(NamedTuple):
    """The part to repair: positions [first, end), from the segment with this serial on.

    whole: up to the end of the log.
    """

    first: int
    end: int
    serial: int
    whole: bool


def span_of(main: RepairSource, segment: int | None) -> RepairRange:
    """All of the log, or one sealed segment. Raises: ZBrokerError not_found, StorageError."""
    places = main.log.places
    serials = list(places.by_serial())
    if not main.log.instance:
        raise StorageError(
            "unreadable", "no segment has a readable header", "give a backup in place of this log"
        )
    if segment is None:
        note = read_note(places.journal)
        kept_all = note is None or note.oldest <= 1
        first = 1 if kept_all else main.log.first_position
        return RepairRange(first, main.end, serials[0], whole=True)
    if segment not in serials[:-1]:
        raise ZBrokerError("not_found", f"there is no sealed segment {segment}", "see `journal ls`")
    bounds = [header for header in main.headers if header.serial in (segment, segment + 1)]
    if len(bounds) < 2:
        reason = f"where segment {segment} begins or ends is not known: a header is damaged"
        raise StorageError("damaged", reason, "stop the instance and repair the whole log")
    first, end = (header.first_position for header in bounds)
    return RepairRange(first, end, segment, whole=False)


def repair_log(
    sources: Sequence[RepairSource], output: Output, span: RepairRange, step: Step
) -> Repaired:
    """Writes what is intact of `span` in any of the `sources`; the first is the one to mend.

    Raises: StorageError.
    """
    main, (first, end, _, whole) = sources[0], span
    for other in sources[1:]:
        if other.log.instance != main.log.instance:
            reason = f"{other.name}: it is a copy of another log"
            raise StorageError("foreign_instance", reason, "leave it out")
    report = Repaired(main.log.instance, main.log.generation, first, end)
    starts, known = {*main.starts}, _KnownState(main)
    for item in _filled(sources, first, end, report):
        start, after = _bounds(item)
        if isinstance(item, Gap):
            report.lost.append(item)
            known.lose(item)
            output.skip_to(after)
        else:
            known.fold(item)
            output.add(item, main.generation(start), begin=start in starts)
            report.batches += 1
            report.messages += item.taken if item.kind == KIND_PUBLISH else 0
        step("saving", after - first, end - first)
    report.lost = _joined(report.lost)
    report.lost_positions = sum(gap.end - gap.first for gap in report.lost)
    report.generation = main.log.generation if whole else main.generation(first)
    if whole and report.lost:
        if report.lost[-1].end == end:  # the tail, whose positions are not used again
            now_ns = SystemClock().wall_ns()
            report.generation = drawn(now_ns, report.generation, chance=random_salt)
        known.write(output, report.generation)
        report.end_position = output.position
    output.finish(report.generation)
    report.segments, report.bytes = output.segments, output.bytes
    return report


class _KnownState:
    """What a start would know of publishers and origins, also of those whose messages are lost.

    It is written after the end as a state snapshot: otherwise a publisher whose last messages are
    lost would get a lower number than was acknowledged, and stop.
    """

    def __init__(self, main: RepairSource) -> None:
        self._log = main.log
        self._fold = LogFold(main.log.instance)
        self._log_time = 0

    def fold(self, batch: Batch) -> None:
        """Takes a batch that is intact."""
        self._log_time = max(self._log_time, last_time(batch))
        self._fold(batch, 0)

    def lose(self, gap: Gap) -> None:
        """Takes what headers still tell of a gap."""
        for item in self._log.headers(self._log.seek(gap.first), gap.end):
            if not isinstance(item, Gap) and item[0].kind == KIND_PUBLISH:
                self.fold(item[0])

    def write(self, output: Output, generation: int) -> None:
        """Appends the snapshot. Raises: StorageError."""
        folds = snapshot.folds(self._fold.sessions)
        cutter = snapshot.Cutter(folds, output.position)
        while not cutter.done:
            body, position = cutter.cut(), output.position
            batch = Batch(
                KIND_STATE, position, 0, 0, 0, 0, 1, self._log_time, [], body, crc32c(body),
                len(body), origin_instance=self._log.instance, origin_generation=generation,
                origin_position=position,
            )  # fmt: skip
            output.add(batch, generation, begin=position == cutter.through)


def _filled(
    sources: Sequence[RepairSource], first: int, end: int, report: Repaired
) -> Iterator[Batch | Gap]:
    """What the first source has; its gaps from the others, if they are of the same generation."""
    main, others = sources[0], sources[1:]
    for item in main.items(first, end):
        if not isinstance(item, Gap) or not others:
            yield item
            continue
        for found in _filled(others, item.first, item.end, report):
            start, after = _bounds(found)
            same = others[0].generation(start) == main.generation(start)
            if isinstance(found, Batch) and same:
                _note_filled(report, found, others[0].name)
                yield found
            else:
                yield Gap(start, after, item.why)


def _note_filled(report: Repaired, batch: Batch, name: str) -> None:
    last = report.filled[-1] if report.filled else None
    if last is not None and last.end == batch.position and last.source == name:
        report.filled[-1] = last._replace(end=batch.end_position)
    elif last is None or last.end <= batch.position:
        report.filled.append(Filled(batch.position, batch.end_position, name))


def _bounds(item: Batch | Gap) -> tuple[int, int]:
    if isinstance(item, Gap):
        return item.first, item.end
    return item.position, item.end_position


def _joined(gaps: list[Gap]) -> list[Gap]:
    """Neighbours in one."""
    found: list[Gap] = []
    for gap in gaps:
        if found and found[-1].end == gap.first:
            found[-1] = found[-1]._replace(end=gap.end)
        else:
            found.append(gap)
    return found


def _end(log: Log) -> int:
    """The end of everything that provably was durable: by the batches, note and groups."""
    end, generation = log.end(), log.generation
    note = read_note(log.places.journal)
    if note is not None and note.generation >= generation:
        end = max(end, note.position)
    for place in log.places.list()[-1:]:  # the newest
        header = log.places.header(place)
        if isinstance(header, SegmentHeader) and not place.packed:
            scan = SegmentScan(log.places.disk(place), header, place.file_bytes)
            groups = (item.header for item in scan.items() if isinstance(item, ScannedGroup))
            end = max([end, *(group.synced_through for group in groups)])
    return min(end, U63_MAX)
