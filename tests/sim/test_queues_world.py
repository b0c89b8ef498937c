"""Whole histories of the queues process, its journal and its consumers; and bugs found in them."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.queues_bugs import BUGS
from tests.sim.queues_world import World
from tests.sim.seeds import run
from tests.sim.two_nodes import Violation

SEEDS = seed_count(25, 1000)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 500  # within so many a planted bug is found
#: looked at first: those before it take seconds and find nothing
SEED_OF_RARE = {
    "what is sent is noted later": 133,
    "definitions that landed are sent again": 128,
    "purges are not noticed by consumers": 86,
    "what was refused lands after later units": 35,
    "the horizon is not waited for": 71,
    "units that landed are sent again": 17,
    "tables from before the log start are used": 61,
}

FAULTS = {
    "clock jumped", "connection cut", "consumer frozen", "consumer killed", "disk full",
    "journal killed", "late hello", "log removed", "reads failed", "room killed", "room slow",
    "room stopped", "tables deleted", "types changed",
}  # fmt: skip
#: what must have been looked at in some history; the list may not shrink
CHECKS = {
    "acked", "barrier", "bounded", "compared", "failed", "flagged", "grouped", "grown", "holds",
    "kept", "letters", "max_cancels", "max_deliveries", "ordered", "purged", "purged places",
    "rejected", "replayed", "requeued", "sent", "settled Extend", "settled RejectMessages",
    "settled Release", "settled Settle", "time_limit",
}  # fmt: skip


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    faults: set[str] = set()
    checks: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(World, __file__, seed)
        faults |= set(world.faults)
        checks |= set(world.checks)
    if SEEDS >= 25:
        assert faults == FAULTS, "every kind of fault was injected"
    if SEEDS >= 1_000:  # some are rare
        assert checks >= CHECKS, f"never looked at any more: {CHECKS - checks}"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    for seed in (SEED_OF_RARE.get(bug, 0), *range(SEEDS_OF_BUG)):
        try:
            run(World, __file__, seed, bug)
        except Violation as found:
            if isinstance(found.__cause__, TypeError | AttributeError):
                raise  # the planted bug itself is broken
            return
    pytest.fail(f"{bug!r} was not found in {SEEDS_OF_BUG} seeds")


def test_a_history_repeats_from_its_seed() -> None:
    worlds = [run(World, __file__, 7) for _ in range(2)]
    reported = {(world.at.events, world.judge.end, tuple(world.faults)) for world in worlds}
    assert len(reported) == 1
