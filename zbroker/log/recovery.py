"""What to believe of the files found at a start: the table in docs/reference/journal.md.

Evidence proves that positions were durable and may have been acknowledged: the acked-through note,
`synced_through` of any valid group, the index's stamp. A bad place beyond all evidence is a torn
tail: the segment is sealed before it and a new one opened. A bad place below is damage: exactly
that range is a gap. A damaged end below the evidence stops the start, until a human accepts the
loss; then a new generation begins. So it does where the log is known to be a copy (generations.py):
what else is known of a later end is then what the copy lacks. Nothing is ever removed, cut short or
overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct, field

from zbroker.clock import Clock, SystemClock
from zbroker.errors import StorageError
from zbroker.known_log import KnownLog
from zbroker.limits import SEGMENT_BYTES, SEGMENT_FIRST_BYTES
from zbroker.log.disk import Disk
from zbroker.log.format import DATA_AT, FLAG_SHOWS, SEQUENCED, AckedNote, Batch, SegmentHeader
from zbroker.log.generations import CopyMark, drawn, forget_mark, read_mark
from zbroker.log.inventory import Inventory, RecoveryFinding
from zbroker.log.places import SegmentPlace, SegmentPlaces, foreign
from zbroker.log.reader import Cursor, Gap, Log, last_time
from zbroker.log.scan import BadStretch, ScannedGroup, SegmentScan
from zbroker.log.segments import (
    NOTE_FILE,
    NOTE_FILE_BYTES,
    give_up,
    random_salt,
    read_note,
    segment_name,
    write_note,
)
from zbroker.log.writer import LogTail

ACCEPT: Final = "`zbroker start --accept-tail-loss` goes on without them; a backup may have them"


class Recovered(Struct):
    """The log after a start. Everything below `next_position` is durable.

    oldest: serial below which segments were removed; 0 if none ever was. leftovers: files of those,
    which a crash kept from being unlinked: to be unlinked now. last, before: the position after
    the newest group that was found and after the one before it, each with the group's CRC.
    """

    tail: LogTail
    generation: int
    log_start: int
    next_position: int
    last_log_time: int
    findings: list[RecoveryFinding]
    lost: tuple[int, int] | None  # positions [first, end) given up with `accept_loss`
    oldest: int = 0
    leftovers: list[SegmentPlace] = field(default_factory=list)
    last: tuple[int, int] = (1, 0)
    before: tuple[int, int] = (0, 0)


class _End(Struct):
    """Where the log ends in the newest segment."""

    offset: int
    position: int
    group_crc: int = 0
    log_time: int = 0
    before: tuple[int, int] = (0, 0)
    seal: bool = False  # what follows is set aside, the log goes on in a new segment


def recover(  # noqa: PLR0913 - each is one thing that a start knows
    disk: Disk,
    instance: int,
    *,
    archive: Disk | None = None,
    evidence: Iterable[tuple[int, int]] = (),
    accept_loss: bool = False,
    accept_missing: bool = False,
    on_batch: OnBatch | None = None,
    begin: Begin | None = None,
    progress: Callable[[str], None] | None = None,
    clock: Clock | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    salt: Callable[[], int] = random_salt,
) -> Recovered:
    """Finds the end of the log, makes it durable, and shows every batch header to `on_batch`.

    `evidence`: (generation, position) of the index's stamp and of what else is known. `on_batch`
    gets (batch, serial) in log order from where `begin` says on; only control records have their
    bodies, if these are good.
    Raises: StorageError foreign_instance, segments_missing, serial_gap, unknown_version,
    tail_damaged, disk_error.
    """
    size, clock = min(segment_bytes, SEGMENT_FIRST_BYTES), clock or SystemClock()
    files = Inventory(SegmentPlaces(disk, archive), instance, size, clock, salt)
    known = [KnownLog(*each) for each in evidence]
    recovery = _Recovery(files, known, accept_loss, progress or (lambda _: None))
    walk = begin or _from_the_oldest, on_batch or (lambda _batch, _serial: None)
    return recovery.run(*walk, accept_missing=accept_missing)


#: Given the log and its end: where to begin, and what that leaves out that will be missed, or "".
Begin = Callable[[Log, int], tuple[Cursor, str]]
OnBatch = Callable[[Batch, int], None]


def _from_the_oldest(log: Log, _limit: int) -> tuple[Cursor, str]:
    return next(iter(log.starts), Cursor(1, DATA_AT, log.first_position)), ""


class _Recovery:
    def __init__(
        self,
        files: Inventory,
        known: list[KnownLog],
        accept_loss: bool,
        progress: Callable[[str], None],
    ) -> None:
        self._files = files
        self._disk = files.disk
        self._known = known
        self._accept_loss = accept_loss
        self._progress = progress
        self._report = files.report
        self._lost: tuple[int, int] | None = None
        self._last = (1, 0), (0, 0)

    def run(self, begin: Begin, on_batch: OnBatch, *, accept_missing: bool) -> Recovered:
        note = self._note()
        oldest = note.oldest if note else 0
        self._files.look(oldest, accept_missing=accept_missing)
        self._disk.sync_dir()  # a kill may have come between a rename and its sync
        self._refuse_unreadable_newest()
        header, end = self._newest(note)
        counter = self._write_note(
            AckedNote(
                (note.counter if note else 0) + 1, header.instance, header.generation,
                end.position, header.serial, oldest,
            )
        )  # fmt: skip
        forget_mark(self._disk)
        log_time = max(end.log_time, self._walk(end.position, begin, on_batch))
        log_start = Log(places=self._files.places).first_position
        tail = LogTail(header, end.offset, end.position, end.group_crc, counter, oldest)
        return Recovered(
            tail, header.generation, log_start, end.position, log_time, self._files.findings,
            self._lost, oldest, self._files.leftovers, *self._last,
        )  # fmt: skip

    def _note(self) -> AckedNote | None:
        note = read_note(self._disk)
        if note is not None and note.instance != self._files.instance:
            raise foreign(NOTE_FILE, note.instance, self._files.instance)
        return note

    def _write_note(self, note: AckedNote) -> int:
        """This one is synced: the generation and the serial must not be forgotten.

        Segments that were given up are noted everywhere again: that may have been interrupted.
        Returns: the counter of the newest note.
        """
        if not self._disk.exists(NOTE_FILE):
            self._disk.create(NOTE_FILE, NOTE_FILE_BYTES)
        write_note(self._disk, note)
        self._disk.sync(NOTE_FILE)
        self._disk.sync_dir()
        return give_up(self._disk, note) if note.oldest else note.counter

    def _refuse_unreadable_newest(self) -> None:
        headers = self._files.headers
        while headers and headers[serial := max(headers)] is None:
            name = segment_name(serial)
            self._tail_is_damaged(
                f"both copies of the header of {name}, the newest segment, are bad"
            )
            self._files.set_aside(serial)
            self._lost = self._lost or (0, 0)

    def _newest(self, note: AckedNote | None) -> tuple[SegmentHeader, _End]:
        """Finds the end; the open segment's header and the end in it, after sealing if need be."""
        header = next(reversed(self._files.headers.values()), None)
        generation = header.generation if header else 0
        copied = read_mark(self._disk, generation) if header else None
        proofs = [KnownLog(note.generation, note.position)] if note else []
        if copied is None:
            proofs += self._known
        proofs.append(KnownLog(0, 0))
        evidence = max((p.position for p in proofs if p.generation >= generation), default=0)
        known = max(p.generation for p in proofs)
        serial = header.serial if header else 0
        newest = note.serial if note and note.generation >= generation else serial
        missing = newest > serial or known > generation
        if header is None:
            end = _End(0, 1, seal=True)
        elif not self._files.is_open(serial):
            end, missing = self._sealed_end(), True  # somebody saw the segment after it
        else:
            self._disk.sync(segment_name(serial))
            end, evidence = self._judge(
                SegmentScan(self._disk, header, self._files.sizes[serial]), evidence
            )
        self._last = (end.position, end.group_crc), end.before
        if end.position < evidence or missing or self._lost:
            end = self._give_up(end, evidence, serial)
        elif copied is not None:
            self._tell_copied(end, generation)
        if header is not None and not end.seal:
            return header, end
        if header is None:
            end.position, end.offset, serial = max(evidence, 1), 0, newest
            self._files.accept(note.oldest if note else 0, serial)
        if self._lost or copied is not None:
            generation = self._drawn(generation, known, copied)
        generation = max(generation, 1)
        header = self._files.open_segment(generation, serial + 1, end.position, end.offset)
        return header, _End(DATA_AT, end.position, 0, end.log_time)

    def _drawn(self, generation: int, noted: int, copied: CopyMark | None) -> int:
        """A number above every one that is known, also by evidence that counts for nothing."""
        others = [each.generation for each in self._known]
        if copied is not None:
            others.append(copied.generation)
        clock, salt = self._files.clock, self._files.salt
        return drawn(clock.wall_ns(), generation, noted, *others, chance=salt)

    def _tell_copied(self, end: _End, generation: int) -> None:
        """The log was put back: positions known beyond its end are what the copy lacks."""
        end.seal = True
        lacks = max((p.position for p in self._known if p.generation >= generation), default=0)
        means = f"the log is a copy that ends at position {end.position - 1}"
        if lacks > end.position:
            means += f"; positions {end.position} to {lacks - 1} were here once and are not in it"
        self._report("journal.copied", means, "a new generation begins after it")

    def _sealed_end(self) -> _End:
        """The end of the newest segment that is there, when it was sealed already."""
        cursor = Log(places=self._files.places).end_cursor()
        return _End(cursor.offset, cursor.position, seal=True)

    def _give_up(self, end: _End, evidence: int, serial: int) -> _End:
        lost = f"positions {end.position} to {evidence - 1} were acknowledged and cannot be read"
        if end.position >= evidence:
            lost = (
                f"the segment after {segment_name(serial)} is missing"
                if serial
                else "no segment is left"
            )
        self._tail_is_damaged(lost)
        first, last = end.position, max(end.position, evidence)
        self._lost = (first, last)
        self._report("journal.tail_given_up", lost, "a new generation begins", first, last)
        end.seal = True
        return end

    def _tail_is_damaged(self, reason: str) -> None:
        if not self._accept_loss:
            raise StorageError("tail_damaged", reason, ACCEPT)

    def _judge(self, scan: SegmentScan, evidence: int) -> tuple[_End, int]:
        """The end of the log in the open segment, and all the evidence."""
        self._progress(f"verifying {segment_name(scan.header.serial)}")
        end = _End(DATA_AT, scan.header.first_position)
        items = scan.items()
        for item in items:
            if isinstance(item, BadStretch) or item.bad:
                rest = [item, *items]
                groups = (one.header for one in rest if isinstance(one, ScannedGroup))
                evidence = max([evidence, *(header.synced_through for header in groups)])
                return self._judge_rest(scan, end, evidence, rest), evidence
            evidence = max(evidence, item.header.synced_through)
            _advance(end, item)
        return end, evidence

    def _judge_rest(
        self, scan: SegmentScan, end: _End, evidence: int, rest: list[ScannedGroup | BadStretch]
    ) -> _End:
        """Goes on from the first thing that is not a good group."""
        for item in rest:
            if isinstance(item, ScannedGroup):
                if item.bad and item.header.first_position >= evidence:
                    return self._torn(scan, end)
                self._condemn(item)
                end.seal = end.seal or bool(item.bad)
                _advance(end, item)
                continue
            if item.blank and item.end == scan.size and end.position >= evidence:
                return end if scan.cache_is_blank(item.start) else self._torn(scan, end)
            offset, position = scan.salvage(item, end.position, evidence)
            end.seal = True
            if position > end.position:
                end.offset, end.position = offset, position
            if position >= evidence:
                return self._torn(scan, end)
        return end

    def _torn(self, scan: SegmentScan, end: _End) -> _End:
        name = segment_name(scan.header.serial)
        where = f"offset {end.offset}, position {end.position}"
        means = f"{name} ends at {where}; nothing after it was acknowledged"
        self._report("journal.torn_tail_cut", means, "a new segment was begun")
        end.seal = True
        return end

    def _condemn(self, group: ScannedGroup) -> None:
        for batch in group.bad:
            first, end = batch.position, batch.end_position
            means = f"the body of the batch at position {first} is damaged and is not served"
            self._report("journal.damaged_batch", means, "replays report a gap", first, end)

    def _walk(self, limit: int, begin: Begin, on_batch: OnBatch) -> int:
        """Shows batch headers to `on_batch`, control records with bodies; the last log time."""
        log = Log(places=self._files.places)
        log_time, current, newest = 0, 0, max(self._files.sizes, default=1)
        start, missed = begin(log, limit)
        if missed:
            self._report("journal.state_missing", missed, "a backup of older segments has them")
        for item in log.headers(start, limit):
            if isinstance(item, Gap):
                first, end, _ = item
                means = f"positions {first} to {end - 1} are damaged and are not served"
                self._report("journal.damaged_range", means, "replays report a gap", first, end)
                continue
            batch, cursor = item
            if cursor.serial != current:
                current = cursor.serial
                self._progress(f"reading segment {current} of {newest}")
            log_time = max(log_time, last_time(batch))
            if batch.body_length and (batch.kind not in SEQUENCED or batch.flags & FLAG_SHOWS):
                batch.body = log.body(batch, cursor) or b""
            on_batch(batch, current)
        return log_time


def _advance(end: _End, group: ScannedGroup) -> None:
    header = group.header
    end.before = header.first_position, header.previous_crc
    end.offset, end.group_crc = header.offset + header.length, header.crc
    end.position = header.first_position + header.positions
    end.log_time = max(end.log_time, header.log_time)
