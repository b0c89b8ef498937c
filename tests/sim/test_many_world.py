"""Two to five instances that send to one another: nothing acknowledged is lost, and all come to
hold the same. ZB_SEEDS says how many histories (default 200), ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.sim import many_bugs
from tests.sim.many_world import ManyWorld
from tests.sim.two_nodes import Violation

SEEDS = int(os.environ.get("ZB_SEEDS", "200"))
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
PLANTED_SEEDS = 500


def run(seed: int, bug: str = "") -> ManyWorld:
    """One history. A failure says how to see it again."""
    world = ManyWorld(seed, bug)
    try:
        world.run()
    except AssertionError as error:
        again = f"ZB_FIRST_SEED={seed} ZB_SEEDS=1 python -m pytest tests/sim/test_many_world.py"
        raise Violation(f"seed {seed}: {error}\nreplay: {again}") from error
    return world


@pytest.mark.timeout(0)
def test_no_history_of_many_instances_breaks_a_promise() -> None:
    faults: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        faults.update(run(seed).events)
    if SEEDS >= 100:
        killed = {"power cut", "journal killed", "replication killed"}
        assert faults >= {*killed, "old disk", "new disk"}


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", many_bugs.ALL)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert any(_breaks(seed, bug) for seed in range(PLANTED_SEEDS)), "no seed finds it"


def _breaks(seed: int, bug: str) -> bool:
    try:
        run(seed, bug)
    except Violation:
        return True
    return False


def test_a_history_repeats_from_its_seed() -> None:
    first, second = run(7), run(7)
    assert (first.events, first.at.events) == (second.events, second.at.events)
    assert [i.held() for i in first.instances.values()] == [
        i.held() for i in second.instances.values()
    ]
