"""What is published after the answer to a bind enters the queue, whatever process dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.exchanges.binding_world import PLANTED, World

SEEDS = 20


def test_nothing_that_is_published_after_the_answer_misses_the_queue() -> None:
    entered = 0
    for seed in range(SEEDS):
        world = World(seed)
        assert world.run() == [], f"seed {seed}"
        entered += len(world.bench.here("bills"))
    assert entered > SEEDS


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: Callable[[Any], None]) -> None:
    assert any(World(seed, bug).run() for seed in range(2 * SEEDS))
