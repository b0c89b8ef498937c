"""Whole histories of prepared branches and their manager; and planted bugs. ZB_SEEDS says how many
histories (default 25), ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.sim.branches_bugs import BUGS
from tests.sim.branches_world import BranchesWorld
from tests.sim.seeds import must_find, run

SEEDS = int(os.environ.get("ZB_SEEDS", "25"))
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 200  # within so many a planted bug is found
#: what must have been looked at in some history; the list may not shrink
CHECKS = {
    "prepared", "committed", "rolled_back", "forgotten", "locks compared", "listed",
    "prepare transaction_aborted", "fenced", "snapshot",
}  # fmt: skip


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    checks: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        checks |= set(run(BranchesWorld, __file__, seed).checks)
    if SEEDS >= 25:
        assert checks >= CHECKS, f"never looked at any more: {CHECKS - checks}"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(BranchesWorld, __file__, bug, SEEDS_OF_BUG)
