"""Histories of several instances whose sessions time out, and a planted bug.
ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.kept_sessions_world import BUGS, KeptSessionsWorld
from tests.sim.seeds import must_find, run

SEEDS = seed_count(3, 40)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 100


@pytest.mark.timeout(0)
def test_no_history_of_time_outs_on_several_instances_breaks_a_promise() -> None:
    happened: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        happened |= {*run(KeptSessionsWorld, __file__, seed).events}
    if SEEDS >= 3:
        assert happened >= {"session timed out", "session over", "session handed over"}
    if SEEDS >= 100:  # most are handed over
        assert "session forced" in happened


@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(KeptSessionsWorld, __file__, bug, SEEDS_OF_BUG)
