"""A small world around the log: a writer, a disk that fails, and what was promised.

One seed decides everything: what is written, which faults come, at which boundary the process or
the power ends, and whether recovery is interrupted, too. After each start the world compares.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import NamedTuple

from tests.journal import build
from tests.sim.disk import SECTOR, SimCrash, SimDisk, role
from zbroker.errors import StorageError
from zbroker.log.format import DATA_AT, FLAG_UNIT, AckedNote, Batch, SegmentHeader
from zbroker.log.reader import Gap
from zbroker.log.recovery import Recovered
from zbroker.log.scan import BadStretch, ScannedGroup, SegmentScan
from zbroker.log.segments import (
    NOTE_FILE,
    PLAIN,
    SPARE,
    list_segments,
    read_header,
    segment_name,
    write_note,
)
from zbroker.log.writer import Writer

SEGMENT_BYTES = 16 * 1024
LIVES = 4
ROUNDS_MAX = 24
BOUNDARIES_MAX = 160


class Violation(AssertionError):
    """A promise was broken."""


class Kept(NamedTuple):
    """What was written at a position, and where."""

    end: int
    sequence: int
    body: bytes
    serial: int
    offset: int
    end_offset: int


class LogWorld:
    """One seed's history. Planted bugs are subclasses."""

    disk_class: type[SimDisk] = SimDisk
    writer_class: type[Writer] = Writer
    ack_before_sync = False

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = self.disk_class(self.rng)
        self.written: dict[int, Kept] = {}
        self.acked = 1  # positions below are promised
        self.generation = 1
        self.sequence = 0
        self.crashed_at: set[str] = set()  # boundaries
        self.attempted: dict[int, Kept] = {}  # by the last write, which a crash may have kept
        self.units: dict[int, int] = {}  # by position of a batch: of the first one of its unit
        self.damaged: list[tuple[int, int]] = []  # positions whose bytes were damaged on purpose

    def run(self) -> None:
        """Some lives, each ended by a crash, a power cut or a stop; then a last start."""
        for _ in range(self.rng.randint(1, LIVES)):
            recovered = self.start()
            self.live(recovered)
            self.end_of_life()
        self.start()

    # -- starting --

    def start(self) -> Recovered:
        """Recovers, perhaps interrupted again and again, compares, recovers to see the same."""
        for _ in range(self.rng.choice((0, 0, 0, 0, 0, 1, 1, 2, 3))):
            try:
                self.crash_after(self.rng.randint(1, 60))
                self.recover()
            except (SimCrash, StorageError):
                pass
            self.end_of_process()
        recovered = self.recover_or_accept()
        self.compare(recovered)
        if self.rng.random() < 0.5:
            self.end_of_process()
            again = self.recover()
            same = (again.next_position, again.generation) == (
                recovered.next_position,
                recovered.generation,
            )
            self.demand(same, f"recovery of a recovered log differs: {again} after {recovered}")
            self.compare(again)
            return again
        return recovered

    def recover(self, **options: object) -> Recovered:
        """The start as the journal process does it."""
        self.disk.lock()
        self.serials: dict[int, int] = {}
        return build.start(
            self.disk,
            salt=self.salt,
            on_batch=self.see,
            segment_bytes=SEGMENT_BYTES,
            **options,
        )

    def salt(self) -> int:
        return self.rng.getrandbits(64)

    def see(self, batch: Batch, serial: int) -> None:
        self.demand(batch.position not in self.serials, f"position {batch.position} came twice")
        self.serials[batch.position] = serial

    def recover_or_accept(self) -> Recovered:
        try:
            return self.recover()
        except StorageError as error:
            self.demand(bool(self.damaged), f"refused to start without damage: {error}")
            self.demand(error.code == "tail_damaged", f"refused with {error}")
        self.end_of_process(power=False)
        recovered = self.recover(accept_loss=True)
        self.demand(recovered.lost is not None, "a loss was accepted but none is reported")
        first = recovered.lost[0] if recovered.lost else 0
        first_damage = min(self.units.get(first, first) for first, _ in self.damaged)
        self.demand(
            first >= first_damage, f"lost from {first} on, but damage begins at {first_damage}"
        )
        self.demand(recovered.generation > self.generation, "a loss without a new generation")
        self.acked = min(self.acked, first)
        self.generation = recovered.generation
        return recovered

    # -- living --

    def live(self, recovered: Recovered) -> None:
        """Writes and syncs until a crash, a fault or the end of the rounds."""
        self.crash_after(self.rng.randint(1, BOUNDARIES_MAX))
        self.plan_faults()
        try:
            writer = self.writer_class(
                self.disk, recovered.tail, segment_bytes=SEGMENT_BYTES, clock=build.Clock(),
                salt=lambda: self.rng.getrandbits(64),
            )  # fmt: skip
            for _ in range(self.rng.randint(1, ROUNDS_MAX)):
                self.round(writer)
        except (SimCrash, StorageError):
            pass

    def round(self, writer: Writer) -> None:
        """One to three groups, then a sync, then the promise."""
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self.write(writer)
        if self.ack_before_sync:
            self.acked = max(self.acked, writer.position)
        self.acked = max(self.acked, writer.sync())
        for _ in range(self.rng.choice((0, 1, 3))):
            writer.prepare_step()

    def write(self, writer: Writer) -> None:
        batches = self.batches(writer.position)
        try:
            writer.write(batches, batches[-1].log_time)
        except StorageError as error:
            if error.code != "disk_full":
                raise
            self.disk.capacity = 1 << 30  # space was freed
            writer.write(batches, batches[-1].log_time)
        for batch in batches:
            self.written[batch.position] = Kept(
                batch.end_position,
                batch.sequence,
                bytes(batch.body),
                writer.serial,
                batch.offset,
                batch.end_offset,
            )

    def batches(self, position: int) -> list[Batch]:
        made = []
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            count = self.rng.choice((1, 1, 3))
            body = self.rng.randbytes(self.rng.choice((0, 8, 100, 400, 1500)))
            made.append(build.publish(position, body, count, self.sequence + 1))
            self.sequence += count
            position += count
        is_unit = bool(self.sequence % 2)
        for batch in made:
            batch.flags = FLAG_UNIT if is_unit and batch is not made[-1] else 0
            self.units[batch.position] = made[0].position if is_unit else batch.position
        self.attempted = {
            b.position: Kept(b.end_position, b.sequence, b.body, 0, 0, 0) for b in made
        }
        return made

    # -- faults --

    def crash_after(self, boundaries: int) -> None:
        left = boundaries

        def hook(name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.crashed_at.add(name)
                raise SimCrash

        self.disk.hook = hook

    def plan_faults(self) -> None:
        kind = self.rng.random()
        if kind < 0.25:
            self.disk.fail_at = self.disk.operations + self.rng.randint(1, 60)
            self.disk.fail_errno = self.rng.choice((errno.EIO, errno.EIO, errno.ENOSPC))
            self.disk.sticky = self.rng.random() < 0.5
        elif kind < 0.4:
            used = self.disk.capacity - self.disk.free_bytes()
            self.disk.capacity = used + self.rng.randint(0, 2 * SEGMENT_BYTES)

    def end_of_life(self) -> None:
        """Rot comes after a plain crash: else it might hit the only proof of an acknowledgement."""
        rots = self.rng.random() < 0.25
        self.end_of_process(power=False if rots else None)
        if rots:
            self.rot()

    def end_of_process(self, *, power: bool | None = None) -> None:
        self.disk.hook = lambda _boundary: None
        self.disk.capacity = 1 << 30
        if self.rng.random() < 0.6 if power is None else power:
            self.disk.power_cut()
        else:
            self.disk.crash()

    def rot(self) -> None:
        """Something that was promised rots: a bit flips or a sector is zeros.

        That takes days: nothing is unsynced any more.
        """
        self.disk.settle()
        places = [
            kept
            for kept in self.written.values()
            if kept.end <= self.acked and self.disk.exists(segment_name(kept.serial))
        ]
        if not places:
            return
        kept = self.rng.choice(places[-self.rng.choice((1, 12)) :])
        name, start = (
            segment_name(kept.serial),
            self.rng.randrange(kept.offset - 64, kept.end_offset),
        )
        end = start + 1
        if self.rng.random() < 0.3:
            start = start // SECTOR * SECTOR
            end = start + SECTOR
            self.disk.damage(name, start, bytes(SECTOR))
        else:
            self.disk.flip(name, start, self.rng.randrange(8))
        for position, other in self.written.items():
            if other.serial == kept.serial and other.offset < end and start < other.end_offset:
                self.damaged.append((position, other.end))

    # -- comparing --

    def compare(self, recovered: Recovered) -> None:
        """Every promise, against what is read back."""
        end = recovered.next_position
        self.demand(end >= self.acked, f"acked up to {self.acked}, recovered up to {end}")
        self.demand(recovered.generation == self.generation, "the generation rose without a loss")
        at = recovered.log_start
        self.check_log_start(at)
        item: Batch | Gap | None = None
        for item in build.read_all(self.disk, end):
            first = item.first if isinstance(item, Gap) else item.position
            self.demand(first == at, f"position {first} is where {at} belongs")
            at = self.check_gap(item) if isinstance(item, Gap) else self.check_batch(item)
        self.demand(at == end, f"read up to {at} of {end}")
        inside = isinstance(item, Batch) and item.flags & FLAG_UNIT
        self.demand(not inside, f"the log ends at {end}, inside a unit")
        self.written = {p: kept for p, kept in self.written.items() if p < end}
        self.acked = max(self.acked, end)

    def check_log_start(self, log_start: int) -> None:
        self.demand(log_start == 1, f"the log start is {log_start}")

    def check_gap(self, gap: Gap) -> int:
        """Only what was damaged; or what was never promised and torn right beside damage."""
        for position in range(gap.first, gap.end):
            known = any(first <= position < end for first, end in self.damaged)
            torn = bool(self.damaged) and position >= self.acked
            self.demand(known or torn, f"{gap}, but position {position} was not damaged")
        self.damaged.append((gap.first, gap.end))
        return gap.end

    def check_batch(self, batch: Batch) -> int:
        """A batch is what was written there, or what a crash kept of the last attempt."""
        expected = self.written.get(batch.position)
        if expected is None or expected.sequence != batch.sequence:
            expected = self.attempted.get(batch.position)
        found = (batch.end_position, batch.sequence, batch.body)
        same = expected is not None and (expected.end, expected.sequence, expected.body) == found
        self.demand(same, f"position {batch.position} is not what was written there")
        serial = self.serials.get(batch.position, 0)
        self.demand(serial > 0, f"position {batch.position} was not shown to on_batch")
        self.written[batch.position] = Kept(*found, serial, batch.offset, batch.end_offset)
        return batch.end_position

    def demand(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Violation(otherwise)


# -- planted bugs: each must be found --


class AckBeforeSync(LogWorld):
    """Acknowledges when the group is written."""

    ack_before_sync = True


class NoDirectorySync(LogWorld):
    """Forgets that names need a sync of their own."""

    class disk_class(SimDisk):  # noqa: N801 - stands in for the attribute
        def sync_dir(self) -> None:
            self._boundary("before:sync_dir:directory")


class SyncRetried(LogWorld):
    """Takes the second sync's word for it."""

    class disk_class(SimDisk):  # noqa: N801 - stands in for the attribute
        def sync(self, name: str) -> None:
            try:
                super().sync(name)
            except StorageError:
                super().sync(name)


class NameBeforeContent(LogWorld):
    """Gives a segment its name before its header is durable."""

    class disk_class(SimDisk):  # noqa: N801 - stands in for the attribute
        def sync(self, name: str) -> None:
            if name not in (SPARE, PLAIN):
                super().sync(name)


class PageCacheBelieved(LogWorld):
    """Recovery takes for durable what the page cache shows."""

    class disk_class(SimDisk):  # noqa: N801 - stands in for the attribute
        def read_direct(self, name: str, offset: int, size: int) -> bytes:
            return self.read(name, offset, size)


class UnsyncedRecovery(LogWorld):
    """Recovery announces what it read without making it durable."""

    class disk_class(SimDisk):  # noqa: N801 - stands in for the attribute
        recovering = False

        def sync(self, name: str) -> None:
            if not (self.recovering and role(name) == "segment"):
                super().sync(name)

        def read_direct(self, name: str, offset: int, size: int) -> bytes:
            return self.read(name, offset, size) if self.recovering else b""

    def recover(self, **options: object) -> Recovered:
        self.disk.recovering = True  # type: ignore[attr-defined]
        try:
            return super().recover(**options)
        finally:
            self.disk.recovering = False  # type: ignore[attr-defined]


class NoteBeforeSync(LogWorld):
    """Says in the note that positions are durable before they are."""

    class writer_class(Writer):  # noqa: N801 - stands in for the attribute
        def sync(self) -> int:
            head, self._notes = self.header, self._notes + 1
            note = AckedNote(
                self._notes, head.instance, head.generation, self.position, head.serial
            )
            write_note(self._disk, note)
            return super().sync()


class CutAtFirstBadChecksum(LogWorld):
    """Truncates the newest segment at the first bad group, whatever the evidence says."""

    def recover(self, **options: object) -> Recovered:
        cut_at_first_bad(self.disk)
        return super().recover(**options)


def cut_at_first_bad(disk: SimDisk) -> None:
    """What a naive recovery does; the note that would give it away is forgotten, too."""
    segments = list_segments(disk)
    header = read_header(disk, segments[-1][0]) if segments else None
    if not isinstance(header, SegmentHeader):
        return
    name, size = segment_name(header.serial), segments[-1][1]
    for item in SegmentScan(disk, header, size).items():
        bad = (
            item.start if isinstance(item, BadStretch) else item.header.offset if item.bad else None
        )
        if isinstance(item, ScannedGroup) and bad is None:
            continue
        disk.damage(name, bad or DATA_AT, bytes(size - (bad or DATA_AT)))
        if any(found == NOTE_FILE for found, _ in disk.list()):
            disk.damage(NOTE_FILE, 0, bytes(576))
        return


PLANTED: dict[str, Callable[[int], LogWorld]] = {
    "ack before sync": AckBeforeSync,
    "no directory sync": NoDirectorySync,
    "sync retried after an error": SyncRetried,
    "cut at the first bad checksum": CutAtFirstBadChecksum,
    "a name before its content": NameBeforeContent,
    "the page cache believed": PageCacheBelieved,
    "recovery does not sync": UnsyncedRecovery,
    "the note before the sync": NoteBeforeSync,
}
