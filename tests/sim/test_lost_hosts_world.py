"""Instances that lose their disks: none lets publishers in before it has what the others hold.

ZB_SEEDS says how many histories (default 60), ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.sim import lost_hosts_bugs
from tests.sim.lost_hosts_world import LostHostsWorld
from tests.sim.seeds import must_find, run

SEEDS = int(os.environ.get("ZB_SEEDS", "60"))
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
PLANTED_SEEDS = 300


@pytest.mark.timeout(0)
def test_no_history_with_lost_disks_breaks_a_promise() -> None:
    events: set[str] = set()
    notes: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(LostHostsWorld, __file__, seed)
        events.update(world.events)
        notes.update(note.split(": ")[1].split(" ")[0] for note in world.notes)
    if SEEDS >= 60:
        assert events >= {"host replaced", "new disk", "removed"}
        assert "replication.state_taken" in notes


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", lost_hosts_bugs.ALL)
def test_a_planted_bug_of_a_first_start_is_found(bug: str) -> None:
    must_find(LostHostsWorld, __file__, bug, PLANTED_SEEDS)
