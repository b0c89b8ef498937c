"""Histories of instances with prepared branches, and planted bugs. ZB_SEEDS says how many,
ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.branches_owners_bugs import BUGS
from tests.sim.branches_owners_world import BranchesOwnersWorld
from tests.sim.seeds import must_find, run

SEEDS = seed_count(4, 40)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
PLANTED_SEEDS = 200
KNOWN = {  # looked at first
    "a branch that is over locks": 10,
    "a failure unlocks": 560024,
    "the first lock wins": 4,
}


@pytest.mark.timeout(0)
def test_no_history_of_branches_on_several_instances_breaks_a_promise() -> None:
    happened: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        happened |= set(run(BranchesOwnersWorld, __file__, seed).events)
    if SEEDS >= 4:
        assert happened >= {
            "prepared", "decided to commit", "decided to roll back", "journal killed",
            "queues killed", "branch of another instance", "rolled back by force",
        }  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(BranchesOwnersWorld, __file__, bug, PLANTED_SEEDS, KNOWN)
