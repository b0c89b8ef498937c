"""Histories of instances on which points are set and removed, and planted bugs. ZB_SEEDS says how
many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.points_bugs import BUGS
from tests.sim.points_world import PointsWorld
from tests.sim.seeds import must_find, run

SEEDS = seed_count(3, 100)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
PLANTED_SEEDS = 200


@pytest.mark.seed("003-26")
@pytest.mark.timeout(0)
def test_no_history_of_points_breaks_a_promise() -> None:
    happened: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        happened |= set(run(PointsWorld, __file__, seed).events)
    if SEEDS >= 3:
        assert happened >= {
            "point set", "point removed", "points are left", "journal killed", "queues killed",
        }  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(PointsWorld, __file__, bug, PLANTED_SEEDS)
