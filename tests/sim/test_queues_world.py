"""Whole histories of the queues room, and bugs that must be found in them."""

from __future__ import annotations

import os

import pytest

from tests.sim.queues_bugs import BUGS
from tests.sim.queues_judge import Violation
from tests.sim.queues_world import World

SEEDS = int(os.environ.get("ZB_SEEDS", "80"))
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
FOUND_WITHIN = 400  # seeds; the rarest takes 196


def run(seed: int, bug: str = "") -> World:
    world = World(seed, bug)
    try:
        world.run()
    except AssertionError as error:
        again = f"ZB_FIRST_SEED={seed} ZB_SEEDS=1 python -m pytest tests/sim/test_queues_world.py"
        raise Violation(f"seed {seed}: {error}\nfaults: {world.faults}\n{again}") from error
    return world


@pytest.mark.timeout(14_400)
def test_no_history_breaks_a_promise_of_queues() -> None:
    for seed in range(FIRST, FIRST + SEEDS):
        run(seed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_of_queues_is_found(bug: str) -> None:
    for seed in range(FOUND_WITHIN):
        try:
            run(seed, bug)
        except Violation:
            return
    pytest.fail(f"{bug!r} was not found within {FOUND_WITHIN} seeds")
