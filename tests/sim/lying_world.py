"""Worlds whose disk breaks what docs/explanation/disk-assumptions.md assumes of it.

Then acknowledged data can be lost. What must hold all the same: nothing is served that was never
written there, and a loss that the note proves is told: it is a gap, or the start is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.journal import build
from tests.sim.disk import SECTOR
from tests.sim.journal_world import Kept, World
from zbroker.errors import StorageError
from zbroker.log.format import Batch
from zbroker.log.reader import Gap
from zbroker.log.recovery import Recovered
from zbroker.log.segments import read_note, segment_name
from zbroker.log.writer import Writer


class LyingWorld(World):
    """Loses syncs or sectors at power cuts. Loss must be told where the note proves it."""

    silent = False  # a planted bug: losses are not told

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
        at = recovered.floor
        for item in build.read_all(self.disk, end):
            first = item.first if isinstance(item, Gap) else item.position
            self.demand(first == at, f"position {first} stands where {at} belongs")
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


class RotWithCut(World):
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


LYING: dict[str, Callable[[int], World]] = {"the note is ignored": NotesIgnored}
