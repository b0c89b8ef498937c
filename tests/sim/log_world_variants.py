"""The world of log_world.py with removal, with a disk that lies, and with logs put back as copies.

Removal: the order is the product's: the note in both slots, then the files, oldest first; a start
finishes what was interrupted. What is below the log start may be gone, nothing else, and no start
is refused.

A disk that breaks the assumptions of docs/explanation/disk-assumptions.md: acknowledged data can be
lost. What must hold all the same: nothing is served that was never written there, and a loss that
the note proves is reported: it is a gap, or the start is refused.

Copies: logs are put back from one, again and again. A client names a message by generation and
position. Whatever is put back: no such name that was acknowledged once is given to another message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.journal import build
from tests.sim.disk import SECTOR, SimDisk
from tests.sim.log_world import Kept, LogWorld
from zbroker.errors import StorageError
from zbroker.log.format import Batch, SegmentHeader
from zbroker.log.generations import SPREAD, CopyMark, write_mark
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Gap, Log
from zbroker.log.recovery import Recovered
from zbroker.log.segments import list_segments, read_header, read_note, segment_name
from zbroker.log.writer import Writer


class RemovingWorld(LogWorld):
    """`oldest` was given up for certain; `going` perhaps, if a crash came in between."""

    note_first = True  # False: a planted bug, files go before the note says so

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.oldest = 1
        self.going = 1
        self.removed = 0

    def round(self, writer: Writer) -> None:
        super().round(writer)
        if writer.serial - self.oldest >= 1 and self.rng.random() < 0.15:
            self.remove(writer)

    def remove(self, writer: Writer) -> None:
        self.going = self.rng.randint(self.oldest + 1, writer.serial)
        if self.note_first:
            writer.keep_from(self.going)
        for serial, _ in list_segments(self.disk):
            if serial < self.going:
                self.disk.unlink(segment_name(serial))
                self.removed += 1
        self.disk.sync_dir()
        if not self.note_first:
            writer.keep_from(self.going)
        self.forget(self.going)

    def forget(self, oldest: int) -> None:
        self.oldest = self.going = oldest
        gone = [position for position, kept in self.written.items() if kept.serial < oldest]
        for position in gone:
            del self.written[position]

    def recover(self, **options: object) -> Recovered:
        """Also finishes an interrupted removal, as the process does."""
        recovered = super().recover(**options)
        places = SegmentPlaces(self.disk)
        for place in recovered.leftovers:
            places.unlink(place)
        return recovered

    def compare(self, recovered: Recovered) -> None:
        kept = max(recovered.oldest, 1)
        self.demand(kept in (self.oldest, self.going), f"kept from {kept}, not {self.going}")
        self.forget(kept)
        super().compare(recovered)

    def check_log_start(self, log_start: int) -> None:
        header = read_header(self.disk, self.oldest)
        assert isinstance(header, SegmentHeader), "nothing rots in headers here"
        self.demand(log_start == header.first_position, f"the log start is {log_start}")


class FilesBeforeNote(RemovingWorld):
    """Unlinks segments before the note says that they are given up."""

    note_first = False


REMOVING: dict[str, Callable[[int], LogWorld]] = {"files go before the note": FilesBeforeNote}


class LyingWorld(LogWorld):
    """Loses syncs or sectors at power cuts. Loss must be reported where the note proves it."""

    silent = False  # a planted bug: losses are not reported

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        if self.rng.random() < 0.6:
            self.disk.lost_syncs = self.rng.choice((0.1, 0.5, 1.0))
        self.disk.stale_sectors = self.rng.choice((0, 1, 1, 4))
        self.stale: set[tuple[str, int]] = set()
        self.refusals: dict[str, int] = {}
        self.ever: dict[int, list[Kept]] = {}  # each thing that was written at a position

    def end_of_process(self, *, power: bool | None = None) -> None:
        self.disk.went_stale = []
        super().end_of_process(power=power)
        self.stale |= set(self.disk.went_stale)

    def rot(self) -> None:
        """Only the lies."""

    def batches(self, position: int) -> list[Batch]:
        made = super().batches(position)
        for first, kept in self.attempted.items():
            self.ever.setdefault(first, []).append(kept)
        return made

    def check_batch(self, batch: Batch) -> int:
        """Where the newest segment is lost, what it had set aside of the one before comes back."""
        found = (batch.end_position, batch.sequence, batch.body)
        known = (kept[:3] for kept in self.ever.get(batch.position, []))
        self.demand(found in known, f"position {batch.position} was never written like this")
        serial = self.serials[batch.position]
        self.written[batch.position] = Kept(*found, serial, batch.offset, batch.end_offset)
        return batch.end_position

    def recover_or_accept(self) -> Recovered:
        """A refusal is an answer: then a human puts the files back, or accepts the loss."""
        try:
            return self.recover()
        except StorageError as error:
            self.refusals[error.code] = self.refusals.get(error.code, 0) + 1
            if error.code != "tail_damaged":
                raise Refused(error.code) from None
        self.end_of_process(power=False)
        return self.recover(accept_loss=True)

    def start(self) -> Recovered:
        """Once: what a lying disk shows is another log after each power cut."""
        recovered = self.recover_or_accept()
        self.compare(recovered)
        return recovered

    def run(self) -> None:
        """Ends early where nothing but a backup helps."""
        try:
            super().run()
        except Refused:
            return

    def compare(self, recovered: Recovered) -> None:
        end = recovered.next_position
        note = read_note(self.disk)
        assert note is not None, "recovery writes one"
        if end < self.acked and not recovered.lost:
            self.demand(end >= self.proved, f"lost {end} to {self.acked}, and the note proved it")
        self.generation = recovered.generation
        self.written = {p: kept for p, kept in self.written.items() if p < end}
        self.acked = end
        at = recovered.log_start
        for item in build.read_all(self.disk, end):
            first = item.first if isinstance(item, Gap) else item.position
            self.demand(first == at, f"position {first} is where {at} belongs")
            at = item.end if isinstance(item, Gap) else self.check_batch(item)
        self.demand(at == end, f"read up to {at} of {end}")

    def recover(self, **options: object) -> Recovered:
        note = read_note(self.disk)
        self.proved = note.position if note and note.generation == self.generation else 0
        if self.silent:
            for name, size in self.disk.list():
                if name == "acked-through":
                    self.disk.damage(name, 0, bytes(size))
        return super().recover(**options)


class Refused(Exception):
    """Only a backup helps."""


class RotWithCut(LogWorld):
    """The power fails and something rots in the same moment: the note may be gone with it.

    It cannot be told from a torn tail then. So it may cost what the last sync covered, no more.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.before_last_sync = 1
        self.lost_quietly = 0

    def round(self, writer: Writer) -> None:
        before = self.acked
        super().round(writer)
        self.before_last_sync = before

    def end_of_life(self) -> None:
        self.end_of_process(power=True)
        if self.rng.random() < 0.7:
            self.rot()

    def rot(self) -> None:
        places = [kept for kept in self.written.values() if kept.end <= self.acked]
        held = dict(self.disk.list())
        places = [kept for kept in places if segment_name(kept.serial) in held]
        if not places:
            return
        kept = places[-1]
        name, start = segment_name(kept.serial), kept.offset // SECTOR * SECTOR
        self.disk.damage(name, start, bytes(SECTOR))
        for position, other in self.written.items():
            hit = other.offset < start + SECTOR and start < other.end_offset
            if hit and other.serial == kept.serial:
                self.damaged.append((position, other.end))

    def compare(self, recovered: Recovered) -> None:
        end = recovered.next_position
        if end < self.acked:
            least = min([self.before_last_sync, *(first for first, _ in self.damaged)])
            self.demand(end >= least, f"lost {end} to {self.acked}, more than the last sync")
            self.lost_quietly += 1
            self.acked = end
        super().compare(recovered)


class NotesIgnored(LyingWorld):
    """A planted bug: recovery does not look at the note."""

    silent = True


LYING: dict[str, Callable[[int], LogWorld]] = {"the note is ignored": NotesIgnored}


BACKUPS_MAX = 4


class Clock:
    """A wall clock that goes on by a minute with each look, unless it is set back."""

    def __init__(self) -> None:
        self._now_s = 1_700_000_000
        self.set_back = False

    def wall_ns(self) -> int:
        self._now_s += 60
        return 0 if self.set_back else self._now_s * 1_000_000_000

    def mono_ms(self) -> int:
        return 0


@dataclass
class Backup:
    """A copy of the directory, and what had been promised then."""

    files: dict[str, bytes]
    written: dict[int, Kept]
    attempted: dict[int, Kept]
    acked: int
    generation: int


class CopiedWorld(LogWorld):
    """Its disk is lost at times, and an older copy is put in its place."""

    marks = True  # who puts a copy back says so

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.clock, self.clocks = Clock(), random.Random(seed)
        self.backups: list[Backup] = []
        self.copied = False
        self.put_back = 0  # how often
        self.known = (0, 0)  # what an index knows, which survived the disk
        self.names: dict[tuple[int, int], bytes] = {}  # acknowledged, in all histories

    def recover(self, **options: object) -> Recovered:
        evidence = [self.known] if self.copied else []
        return super().recover(clock=self.clock, evidence=evidence, **options)

    def rot(self) -> None:
        """Not here: what rot costs is the other worlds' matter. The disk is copied, or lost."""
        self.disk.settle()
        files = {name: self.disk.content(name) for name, _ in self.disk.list()}
        made = Backup(files, dict(self.written), self.attempted, self.acked, self.generation)
        self.backups = [*self.backups[-BACKUPS_MAX:], made]
        if self.rng.random() < 0.6 and not self.copied:
            self.lose_the_disk(self.rng.choice(self.backups))

    def lose_the_disk(self, backup: Backup) -> None:
        """The clock goes on meanwhile, or is set back; no one restores twice in the same second."""
        self.clock.set_back = self.clocks.random() < 0.3
        knows = self.rng.random() < 0.5
        self.known = (self.generation, self.acked) if knows else (0, 0)
        self.disk = SimDisk(self.rng)
        for name, content in backup.files.items():
            self.disk.plant(name, content)
        self.written, self.attempted = dict(backup.written), backup.attempted
        self.acked, self.generation = backup.acked, backup.generation
        self.copied, self.put_back = True, self.put_back + 1
        if self.marks:
            write_mark(self.disk, CopyMark(build.INSTANCE, backup.generation))

    def compare(self, recovered: Recovered) -> None:
        if self.copied:
            self.demand(recovered.generation > self.generation, "a copy keeps its generation")
            self.generation, self.copied = recovered.generation, False
        super().compare(recovered)

    def write(self, writer: Writer) -> None:
        first = writer.position
        super().write(writer)
        for position in range(first, writer.position):
            kept = self.written.get(position)
            named = self.names.get((writer.header.generation, position))
            self.demand(
                kept is None or named in (None, kept.body),
                f"position {position} of generation {writer.header.generation} names two messages",
            )

    def round(self, writer: Writer) -> None:
        acked = self.acked
        super().round(writer)
        for position in range(acked, self.acked):
            if position in self.written:
                self.names[writer.header.generation, position] = self.written[position].body


class CopyUnmarked(CopiedWorld):
    """Puts the files back and says nothing: what no one can find out."""

    marks = False

    def compare(self, recovered: Recovered) -> None:
        self.copied = False
        LogWorld.compare(self, recovered)


class NextNumber(CopiedWorld):
    """Draws the generation that follows, not one by time or chance: two copies draw the same."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.clock.wall_ns = lambda: 0  # type: ignore[method-assign]

    def salt(self) -> int:
        return super().salt() // SPREAD * SPREAD


COPIED: dict[str, Callable[[int], LogWorld]] = {
    "a copy that does not say so": CopyUnmarked,
    "the next number as generation": NextNumber,
}


# -- generations that begin while the log is written ----------------------------------------------


class RaisingWorld(LogWorld):
    """Between two groups a new generation begins now and then, also on a full disk."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.raised = 0
        self.begun = {1: 1}  # first position of each generation that the writer said it began
        self.trying = 0

    def round(self, writer: Writer) -> None:
        if self.rng.random() < 0.2:
            self.trying = max(self.generation, self.trying) + self.rng.randint(1, 9)
            try:
                writer.begin_generation(self.trying)
            except StorageError as error:
                if error.code != "disk_full":
                    raise
                self.disk.capacity = 1 << 30  # space was freed
                writer.begin_generation(self.trying)
            self.generation, self.raised = self.trying, self.raised + 1
            self.begun[self.trying] = writer.position
        super().round(writer)

    def compare(self, recovered: Recovered) -> None:
        """One that was being begun may be there or not; one that had begun is."""
        if recovered.generation == self.trying > self.generation:
            self.generation = self.trying
            self.begun[self.trying] = Log(disk=self.disk).starts[-1].position
        super().compare(recovered)
        history = Log(disk=self.disk).history
        for generation, first in self.begun.items():
            found = dict(history.begins).get(generation)
            self.demand(found == first, f"{generation} began at {first}, found at {found}")


class GenerationWithoutName(RaisingWorld):
    """The name of the segment that begins a generation is not made durable."""

    class disk_class(SimDisk):  # noqa: N801 - stands in for the attribute
        beginning = False

        def sync_dir(self) -> None:
            if not self.beginning:
                super().sync_dir()

    class writer_class(Writer):  # noqa: N801 - stands in for the attribute
        def begin_generation(self, generation: int) -> None:
            self._disk.beginning = True  # type: ignore[attr-defined]
            try:
                super().begin_generation(generation)
            finally:
                self._disk.beginning = False  # type: ignore[attr-defined]


class GenerationInPlace(RaisingWorld):
    """The old segment goes on: where its generation ended is not known any more."""

    class writer_class(Writer):  # noqa: N801 - stands in for the attribute
        def begin_generation(self, generation: int) -> None:
            self.header = self.header._replace(generation=generation)


RAISING: dict[str, Callable[[int], LogWorld]] = {
    "the segment of a generation has no durable name": GenerationWithoutName,
    "a generation begins within a segment": GenerationInPlace,
}
