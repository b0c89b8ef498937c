"""Whole histories of exclusive queues, of connections and of sessions; and planted bugs.
ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.exclusive_bugs import BUGS
from tests.sim.exclusive_world import ExclusiveWorld
from tests.sim.seeds import checks_of, must_find

SEEDS = seed_count(10, 100)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 200  # within so many a planted bug is found
#: what must have been looked at in some history; the list may not shrink
CHECKS = {"ended", "locked out", "of a connection", "of a session", "sent to the owner"}


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    checks_of(ExclusiveWorld, __file__, FIRST, SEEDS, CHECKS)


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(ExclusiveWorld, __file__, bug, SEEDS_OF_BUG)
