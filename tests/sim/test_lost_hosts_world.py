"""Instances that lose their disks: none lets publishers in before it has what the others hold.

ZB_SEEDS says how many histories (default 100), ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.sim import lost_hosts_bugs
from tests.sim.lost_hosts_world import LostHostsWorld
from tests.sim.two_nodes import Violation

SEEDS = int(os.environ.get("ZB_SEEDS", "100"))
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
PLANTED_SEEDS = 300


def run(seed: int, bug: str = "") -> LostHostsWorld:
    """One history. A failure says how to see it again."""
    world = LostHostsWorld(seed, bug)
    try:
        world.run()
    except AssertionError as error:
        again = f"ZB_FIRST_SEED={seed} ZB_SEEDS=1 python -m pytest {__file__}"
        raise Violation(f"seed {seed}: {error}\nreplay: {again}") from error
    return world


@pytest.mark.timeout(0)
def test_no_history_with_lost_disks_breaks_a_promise() -> None:
    events: set[str] = set()
    notes: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(seed)
        events.update(world.events)
        notes.update(note.split(": ")[1].split(" ")[0] for note in world.notes)
    if SEEDS >= 100:
        assert events >= {"host replaced", "new disk", "removed"}
        assert "replication.state_taken" in notes


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", lost_hosts_bugs.JOURNALS)
def test_a_planted_bug_of_a_first_start_is_found(bug: str) -> None:
    assert any(_breaks(seed, bug) for seed in range(PLANTED_SEEDS)), "no seed finds it"


def _breaks(seed: int, bug: str) -> bool:
    try:
        run(seed, bug)
    except Violation:
        return True
    return False
