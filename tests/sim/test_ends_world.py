"""Whole histories of queues with limits, and of queues that end by themselves; and planted bugs.
ZB_SEEDS says how many histories (default 40), ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.sim.ends_bugs import BUGS
from tests.sim.ends_world import EndsWorld
from tests.sim.seeds import checks_of, must_find

SEEDS = int(os.environ.get("ZB_SEEDS", "40"))
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 300  # within so many a planted bug is found
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
    must_find(EndsWorld, __file__, bug, SEEDS_OF_BUG)
