"""Whatever crashes while segments are copied, packed and retired: every message is still read.

And nothing is left that tidy and doing it again do not finish or undo. ZB_SEEDS says how many power
cuts are tried at each boundary (default 1).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.journal.build import append, history, start, writer
from tests.log.build import everything, finish, names, retire, sim
from tests.sim.disk import CrashAt, SimCrash, SimDisk
from zbroker.errors import StorageError
from zbroker.log import archive
from zbroker.log.format import Batch
from zbroker.log.places import SegmentPlaces

CUTS = int(os.environ.get("ZB_SEEDS", "1"))
Content = list[tuple[int, bytes | memoryview]]


class Case(NamedTuple):
    """Two directories, and what was promised."""

    places: SegmentPlaces
    end: int
    content: Content


def case(disks: type[SimDisk] = SimDisk) -> Case:
    journal, to, made = history(30)
    journal.settle()
    other = disks(random.Random(1))
    rest = {name: value for name, value in vars(journal).items() if name in vars(other)}
    vars(other).update(rest)
    content: Content = [(batch.position, batch.body) for group in made for batch in group]
    return Case(SegmentPlaces(other, disks(random.Random(2))), to.position, content)


def whole(places: SegmentPlaces) -> None:
    """Archives the first segment raw, the second one packed, then packs the first one there."""
    archive.tidy(places)
    steps: list[Callable[[], object]] = [
        lambda: finish(archive.copy(places, 1)),
        lambda: retire(places, 1, archived=False, packed=False),
        lambda: finish(archive.pack(places, 2)),
        lambda: retire(places, 2, archived=False, packed=False),
        lambda: finish(archive.copy(places, 2)),
        lambda: retire(places, 2, archived=False, packed=True),
        lambda: finish(archive.pack(places, 1)),
        lambda: retire(places, 1, archived=True, packed=False),
    ]
    for step in steps:
        step()


def again(places: SegmentPlaces) -> None:
    """What the admin does after a start: finishes by what it finds, in any state."""
    archive.tidy(places)
    for serial in (1, 2):
        finish(archive.pack(places, serial))
        retire(places, serial, archived=False, packed=False)
        retire(places, serial, archived=True, packed=False)
        finish(archive.copy(places, serial))
        retire(places, serial, archived=False, packed=True)


def hooked(places: SegmentPlaces, hook: Callable[[str], None]) -> None:
    for disk in sim(places):
        disk.hook = hook


def boundaries(disks: type[SimDisk] = SimDisk) -> list[str]:
    """All of one run, in order."""
    seen: list[str] = []
    places = case(disks).places
    hooked(places, seen.append)
    whole(places)
    return seen


def crashed_at(number: int, made: Case) -> None:
    """The process ends at that boundary."""
    hooked(made.places, CrashAt(number - 1))
    with pytest.raises(SimCrash):
        whole(made.places)
    hooked(made.places, lambda _name: None)


def ends(made: Case, number: int, seed: int) -> None:
    """seed 0: the process was killed; else the power went."""
    for which, disk in enumerate(sim(made.places)):
        disk.rng = random.Random(f"{number} {seed} {which}")
        disk.power_cut() if seed else disk.crash()


def check(made: Case) -> None:
    found = everything(made.places, made.end)
    assert [(b.position, b.body) for b in found if isinstance(b, Batch)] == made.content
    assert len(found) == len(made.content)


def starts(made: Case) -> None:
    journal, away = sim(made.places)
    recovered = start(journal, archive=away)
    assert (recovered.next_position, recovered.findings) == (made.end, [])
    journal.close()


NAMED = {
    f"{when}:{operation}"
    for when in ("before", "after")
    for operation in (
        "create:part", "write:part", "sync:part", "read_direct:part", "rename:part", "read:segment",
        "read:packed", "sync_dir:directory", "unlink:segment", "unlink:packed",
    )
}  # fmt: skip


def test_every_message_is_read_whatever_crashes() -> None:
    seen = boundaries()
    assert set(seen) >= NAMED
    for number, name in enumerate(seen):
        for seed in range(CUTS + 1):
            made = case()
            crashed_at(number + 1, made)
            ends(made, number, seed)
            starts(made)
            check(made)
            again(SegmentPlaces(*sim(made.places)))
            check(made)
            left = {name for disk in sim(made.places) for name in names(disk)}
            assert not any(name.endswith(".part") for name in left), name
            for place in SegmentPlaces(*sim(made.places)).copies():
                assert place.archived == place.packed == (place.serial <= 2)


def test_who_was_interrupted_goes_on_appending() -> None:
    for number in range(1, len(boundaries()), 17):
        made = case()
        crashed_at(number, made)
        ends(made, number, number % 3)
        journal, away = sim(made.places)
        to = writer(journal, start(journal, archive=away))
        (batch,) = append(to, b"goes on")
        everything(made.places, to.position)
        assert batch.position == made.end


class NoDirectorySync(SimDisk):
    """Forgets that names need a sync of their own."""

    def sync_dir(self) -> None:
        self._boundary("before:sync_dir:directory")


class NoSync(SimDisk):
    """Forgets that the new file has to be durable before the old one goes."""

    def sync(self, name: str) -> None:
        if not name.endswith(".part"):
            super().sync(name)

    def read_direct(self, name: str, offset: int, size: int) -> bytes:
        return self.read(name, offset, size)


@pytest.mark.parametrize("bug", [NoDirectorySync, NoSync])
def test_a_planted_bug_is_found(bug: type[SimDisk]) -> None:
    """Or else these tests prove nothing."""
    count = len(boundaries(bug))
    assert any(_loses(bug, number, seed) for seed in range(1, 9) for number in range(1, count, 3))


def _loses(bug: type[SimDisk], number: int, seed: int) -> bool:
    made = case(bug)
    try:
        crashed_at(number, made)
        ends(made, number, seed)
        starts(made)
        check(made)
    except (AssertionError, StorageError):
        return True
    return False
