"""Whole histories of prepared branches and their manager; and planted bugs. ZB_SEEDS says how many
histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.branches_bugs import BUGS
from tests.sim.branches_world import BranchesWorld
from tests.sim.seeds import checks_of, must_find

SEEDS = seed_count(10, 100)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 200  # within so many a planted bug is found
#: looked at first: those before it take seconds and find nothing
SEED_OF_RARE = {
    "locks are not in the tables": 4,
    "locked messages are acknowledged": 19,
    "tables do not say what is rejected": 19,
    "locked messages are purged": 19,
    "a refused decision unlocks": 4,
    "a branch is decided before its locks were read": 532591,
    "a branch is decided twice": 158,
    "branches are prepared in any epoch": 40,
    "prepared messages are not counted": 12,
}
#: what must have been looked at in some history; the list may not shrink
CHECKS = {
    "prepared", "committed", "rolled_back", "forgotten", "locks compared", "listed",
    "prepare transaction_aborted", "fenced", "snapshot", "rejects of a branch",
    "letters of a transaction",
}  # fmt: skip


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    checks_of(BranchesWorld, __file__, FIRST, SEEDS, CHECKS)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(BranchesWorld, __file__, bug, SEEDS_OF_BUG, SEED_OF_RARE)
