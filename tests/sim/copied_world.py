"""Logs that are put back from a copy, again and again, beside the world of crashes.

What a client holds names a message by generation and position. Whatever is put back: no such name
that was acknowledged once is ever given to another message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.journal import build
from tests.sim.disk import SimDisk
from tests.sim.journal_world import Kept, World
from zbroker.log.generations import SPREAD, CopyMark, write_mark
from zbroker.log.recovery import Recovered
from zbroker.log.writer import Writer

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


class CopiedWorld(World):
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
        """The clock goes on meanwhile, or is set back; nobody restores twice in the same second."""
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
            named = self.names.get((writer.generation, position))
            self.demand(
                kept is None or named in (None, kept.body),
                f"position {position} of generation {writer.generation} names two messages",
            )

    def round(self, writer: Writer) -> None:
        acked = self.acked
        super().round(writer)
        for position in range(acked, self.acked):
            if position in self.written:
                self.names[writer.generation, position] = self.written[position].body


class CopyUnmarked(CopiedWorld):
    """Puts the files back and says nothing: what nobody can find out."""

    marks = False

    def compare(self, recovered: Recovered) -> None:
        self.copied = False
        World.compare(self, recovered)


class NextNumber(CopiedWorld):
    """Draws the generation that follows, not one by time or chance: two copies draw the same."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.clock.wall_ns = lambda: 0  # type: ignore[method-assign]

    def salt(self) -> int:
        return super().salt() // SPREAD * SPREAD


COPIED: dict[str, Callable[[int], World]] = {
    "a copy that does not say so": CopyUnmarked,
    "the next number as generation": NextNumber,
}
