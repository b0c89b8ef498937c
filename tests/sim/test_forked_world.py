"""A generation was closed without a host that had more of it: that is taken again.

ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim import forked_bugs
from tests.sim.forked_world import ForkedWorld
from tests.sim.seeds import must_find, run

SEEDS = seed_count(25, 150)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
PLANTED_SEEDS = 500
KNOWN = {"a generation begins before a closing that waits": 860}  # a seed that finds it


@pytest.mark.timeout(0)
def test_no_history_with_a_fork_breaks_a_promise() -> None:
    forks = 0
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(ForkedWorld, __file__, seed)
        forks += bool(world.forks and world.kept)
    assert forks * 4 >= SEEDS or SEEDS < 20


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", forked_bugs.ALL)
def test_a_planted_bug_of_a_fork_is_found(bug: str) -> None:
    must_find(ForkedWorld, __file__, bug, PLANTED_SEEDS, KNOWN)
