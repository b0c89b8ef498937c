"""Whole histories of publishers, ingest and journal; and bugs that must be found in them."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.world import Violation, World

SEEDS = seed_count(50, 1000)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
#: looked at first: those before it take seconds and find nothing
SEED_OF_RARE = {"no answer to strangers": 47}
#: planted bug -> what breaks; each is found within 500 seeds or this simulator proves nothing
BUGS = [
    "ack before sync",
    "dedupe not rebuilt",
    "no hello",
    "no prev check",
    "prev is not filled in",
    "logon answered by ingest",
    "what is kept gets new numbers",
    "staged messages are forgotten",
    "a unit is split",
    "names are not folded",
    "completions are nested",
    "the gate stays open",
    "no answer to strangers",
]

#: the named steps at which the journal must have died in some history; the list may not shrink
STEPS = [
    "create:note",
    "create:spare",
    "read:note",
    "read:segment",
    "read_direct:segment",
    "rename:spare",
    "send:marks",
    "send:opened",
    "send:receipt",
    "sync:note",
    "sync:segment",
    "sync:spare",
    "sync_dir:directory",
    "unlink:spare",
    "write:note",
    "write:segment",
    "write:spare",
]
BOUNDARIES = {f"{when}:{step}" for step in STEPS for when in ("before", "after")}


def run(seed: int, bug: str = "") -> World:
    world = World(seed, bug)
    try:
        world.run()
    except AssertionError as error:
        again = f"ZB_FIRST_SEED={seed} ZB_SEEDS=1 python -m pytest tests/sim/test_world.py"
        raise Violation(f"seed {seed}: {error}\nfaults: {world.faults}\n{again}") from error
    return world


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    faults: set[str] = set()
    visited: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(seed)
        faults |= {fault.split()[-1] for fault in world.faults}
        visited |= world.disk.visited
    if SEEDS >= 200:
        kinds = {"cut", "hung", "killed", "stalled", "stopped"}
        assert faults == kinds, "every kind of fault was injected"
        assert visited >= BOUNDARIES, f"never visited any more: {BOUNDARIES - visited}"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    for seed in (SEED_OF_RARE.get(bug, 0), *range(500)):
        try:
            run(seed, bug)
        except AssertionError:
            return
    pytest.fail(f"{bug!r} was not found in 500 seeds")


def test_a_history_repeats_from_its_seed() -> None:
    worlds = [run(7), run(7)]
    assert (
        len({(world.at.events, world.disk.operations, tuple(world.faults)) for world in worlds})
        == 1
    )
