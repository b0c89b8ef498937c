"""The journal's world with removal: segments go while everything else goes wrong, too.

The order is the product's: the note in both slots, then the files, oldest first; a start finishes
what was interrupted. What is below the floor may be gone, nothing else, and no start is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.journal_world import World
from zbroker.log.format import SegmentHeader
from zbroker.log.places import SegmentPlaces
from zbroker.log.recovery import Recovered
from zbroker.log.segments import list_segments, read_header, segment_name
from zbroker.log.writer import Writer


class RemovingWorld(World):
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

    def check_floor(self, floor: int) -> None:
        header = read_header(self.disk, self.oldest)
        assert isinstance(header, SegmentHeader), "nothing rots in headers here"
        self.demand(floor == header.first_position, f"the floor is {floor}")


class FilesBeforeNote(RemovingWorld):
    """Unlinks segments before the note says that they are given up."""

    note_first = False


REMOVING: dict[str, Callable[[int], World]] = {"files go before the note": FilesBeforeNote}
