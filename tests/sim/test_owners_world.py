"""Instances with one replicated queue: who owns a message offers it, and every message is done.
ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim import owners_bugs
from tests.sim.owners_world import OwnersWorld
from tests.sim.seeds import must_find, run

SEEDS = seed_count(5, 200)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
PLANTED_SEEDS = 200


@pytest.mark.seed("001-08")
@pytest.mark.timeout(0)
@pytest.mark.seed("000-11")
@pytest.mark.seed("000-17")
def test_no_history_of_a_replicated_queue_breaks_a_promise() -> None:
    faults: set[str] = set()
    sent = flagged = gave = named = 0
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(OwnersWorld, __file__, seed)
        faults.update(world.events)
        sent += sum(world.unflagged.values())
        flagged += sum(world.flagged.values())
        gave += len(world.gave)
        named += world.filters.asked
    if SEEDS >= 50:
        assert "acts for another" in faults
    if SEEDS >= 5:
        assert faults >= {"power cut", "journal killed", "replication killed", "queues killed"}
        assert min(sent, flagged, gave, named) >= SEEDS


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", owners_bugs.ALL)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(OwnersWorld, __file__, bug, PLANTED_SEEDS)


def test_a_history_repeats_from_its_seed() -> None:
    first, second = run(OwnersWorld, __file__, 7), run(OwnersWorld, __file__, 7)
    assert (first.events, first.at.events) == (second.events, second.at.events)
    assert (first.unflagged, first.flagged) == (second.unflagged, second.flagged)
