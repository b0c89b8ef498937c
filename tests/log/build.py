"""Logs in two simulated directories, whose segments are moved and packed."""

from __future__ import annotations

import random

from tests.journal.build import history
from tests.sim.disk import SimDisk
from zbroker.log import archive
from zbroker.log.format import Batch
from zbroker.log.owner import OWNER
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Gap, Log
from zbroker.log.writer import Writer


def log_of(groups: int = 40) -> tuple[SegmentPlaces, Writer]:
    """A log of synced groups of two messages, all raw in the journal directory."""
    disk, to, _ = history(groups)
    return SegmentPlaces(disk, SimDisk(random.Random(2))), to


def sim(places: SegmentPlaces) -> tuple[SimDisk, SimDisk]:
    """The two simulated disks."""
    assert isinstance(places.journal, SimDisk)
    assert isinstance(places.archive, SimDisk)
    return places.journal, places.archive


def retire(places: SegmentPlaces, serial: int, *, archived: bool, packed: bool) -> None:
    """Unlinks that copy, as the journal does."""
    for place in places.by_serial()[serial]:
        if (place.archived, place.packed) == (archived, packed):
            places.unlink(place)
            places.disk(place).sync_dir()


def move(places: SegmentPlaces, serial: int) -> None:
    """To the archive directory, whatever it is."""
    made = finish(archive.copy(places, serial))
    retire(places, serial, archived=False, packed=made.place.packed)


def squeeze(places: SegmentPlaces, serial: int) -> None:
    """Packs it where it is."""
    made = finish(archive.pack(places, serial))
    retire(places, serial, archived=made.place.archived, packed=False)


def everything(places: SegmentPlaces, limit: int) -> list[Batch | Gap]:
    """All below `limit`, by a reader that begins now."""
    log = Log(places=SegmentPlaces(places.journal, places.archive))
    cursor, found = log.seek(log.first_position), []
    while cursor.position < limit:
        items, cursor = log.read(cursor, limit, 4096)
        assert items, "the log must go on up to the limit"
        found += items
    return found


def names(disk: SimDisk) -> list[str]:
    """What is in a directory, besides the file that says whose it is, whole or not yet."""
    return sorted(name for name, _ in disk.list() if not name.startswith(OWNER))


def finish(steps: archive.Steps) -> archive.CopyResult:
    """All steps of a copy, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made: archive.CopyResult = stop.value
            return made
