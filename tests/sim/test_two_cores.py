"""Whole histories of two instances, and bugs that must be found in them."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.two_nodes import BUGS, Violation
from tests.sim.two_world import TwoWorld

SEEDS = seed_count(50, 1000)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
#: looked at first: those before it take seconds and find nothing
SEED_OF_RARE = {"undecided, and it writes": 258}


def run(seed: int, bug: str = "") -> TwoWorld:
    world = TwoWorld(seed, bug)
    try:
        world.run()
    except AssertionError as error:
        again = f"ZB_FIRST_SEED={seed} ZB_SEEDS=1 python -m pytest tests/sim/test_two_cores.py"
        raise Violation(f"seed {seed}: {error}\nfaults: {world.faults}\n{again}") from error
    return world


@pytest.mark.timeout(3_600)
def test_two_instances_come_to_hold_the_same() -> None:
    faults: set[str] = set()
    met = {"restored": 0, "removed": 0, "late": 0, "ties": 0, "stated": 0}
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(seed)
        faults |= set(world.faults)
        met["restored"] += world.restored
        met["removed"] += world.removed
        for node in world.nodes.values():
            assert node is not None
            met["late"] += node.core.commit.late
            met["ties"] += len(node.core.commit.sessions.origins.ties)
            met["stated"] += node.core.commit.state_serial > 0
    if SEEDS >= 200:
        assert faults == {"power cut", "crash", "old disk"}, "every kind of fault was injected"
        assert min(met.values()) > 0, f"something never happened: {met}"


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
    assert len({(world.numbers, world.now_s, tuple(world.faults)) for world in worlds}) == 1
