"""Whole histories of workers whose sessions have a time-out; and planted bugs.
ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.kept_bugs import BUGS
from tests.sim.kept_world import KeptWorld
from tests.sim.seeds import checks_of, must_find

SEEDS = seed_count(10, 100)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 200  # within so many a planted bug is found
#: looked at first: those before it take seconds and find nothing
SEED_OF_RARE = {
    "a lost consumer of a session is waited for one lease": 72,
}
#: what must have been looked at in some history; the lists may not shrink
CHECKS = {
    "committed", "detached", "exception", "fenced", "given after an end", "kept",
    "kept by a session", "restated", "timed out", "went on",
}  # fmt: skip


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    checks_of(KeptWorld, __file__, FIRST, SEEDS, CHECKS)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(KeptWorld, __file__, bug, SEEDS_OF_BUG, SEED_OF_RARE)
