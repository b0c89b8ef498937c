"""Histories of instances whose workers commit transactions, and planted bugs.
ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.seeds import must_find, run
from tests.sim.sessions_bugs import BUGS
from tests.sim.sessions_world import SessionsWorld

SEEDS = seed_count(3, 40)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
PLANTED_SEEDS = 200


@pytest.mark.timeout(0)
def test_no_history_of_transactions_on_several_instances_breaks_a_promise() -> None:
    happened: set[str] = set()
    committed = aborted = 0
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(SessionsWorld, __file__, seed)
        happened |= {*world.events}
        committed += sum(world.heard.values())
        aborted += len(world.heard) - sum(world.heard.values())
    if SEEDS >= 3:
        assert min(committed, aborted) > SEEDS
        assert happened >= {"journal killed", "power cut", "queues killed"}
    if SEEDS >= 25:  # in a third of them
        assert "session handed over" in happened
    if SEEDS >= 100:
        assert happened >= {"session forced", "found committed", "found aborted"}


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(SessionsWorld, __file__, bug, PLANTED_SEEDS)


def test_a_history_repeats_from_its_seed() -> None:
    first, second = run(SessionsWorld, __file__, 3), run(SessionsWorld, __file__, 3)
    assert (first.events, first.at.events) == (second.events, second.at.events)
    assert first.heard == second.heard
