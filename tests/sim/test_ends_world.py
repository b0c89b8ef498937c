"""Whole histories of queues with limits, and of queues that end by themselves; and planted bugs.
ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.ends_bugs import BUGS
from tests.sim.ends_world import EndsWorld
from tests.sim.seeds import checks_of, must_find

SEEDS = seed_count(10, 200)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 300  # within so many a planted bug is found
#: looked at first: those before it take seconds and find nothing
SEED_OF_RARE = {
    "bytes are forgotten by the tables": 29,
    "consumers that may come back do not count": 29,
    "other limits of a full queue are not said": 5,
}
#: what must have been looked at in some history; the list may not shrink
CHECKS = {
    "dropped", "dropped beside leased ones", "expired", "full", "left", "max_length", "queue_full",
    "requeued",
}  # fmt: skip


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    checks_of(EndsWorld, __file__, FIRST, SEEDS, CHECKS)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(EndsWorld, __file__, bug, SEEDS_OF_BUG, SEED_OF_RARE)
