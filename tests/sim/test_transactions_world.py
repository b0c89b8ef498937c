"""Whole histories of workers whose transactions take jobs and make results; and planted bugs.
ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.seeds import must_find, run
from tests.sim.transactions_bugs import BUGS
from tests.sim.transactions_world import TransactionsWorld

SEEDS = seed_count(10, 100)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 200  # within so many a planted bug is found
#: looked at first: those before it take seconds and find nothing
SEED_OF_RARE = {
    "a refused commit is not undone": 9,
    "a commit in doubt is answered as aborted": 25,
    "a commit that landed is sent again": 25,
    "epochs of commits are not compared": 13,
    "a refused commit lands after later ones": 10,
}
FAULTS = {
    "clock jumped", "connection cut", "consumer frozen", "consumer killed", "disk full",
    "journal killed", "late hello", "log removed", "reads failed", "room killed", "room slow",
    "room stopped", "tables deleted", "types changed", "worker hangs", "worker restarted",
}  # fmt: skip
#: what must have been looked at in some history; the lists may not shrink
CHECKS = {
    "acked", "aged", "answered", "attached", "committed", "compared", "failed", "fenced",
    "fenced stage", "flagged", "found aborted", "found committed", "grouped",
    "letters of a transaction", "ordered", "purged", "refused session_fenced", "refused too_large",
    "refused transaction_aborted", "rejected", "rejected without a topic", "sent",
    "settled Release", "settled Settle", "snapshot", "time_limit", "told of a commit", "two queues",
}  # fmt: skip
RARE = {"attach session_fenced", "letters", "max_deliveries", "refused for now"}


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    faults: set[str] = set()
    checks: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(TransactionsWorld, __file__, seed)
        faults |= set(world.faults)
        checks |= set(world.checks)
    if SEEDS >= 25:
        assert checks >= CHECKS, f"never looked at any more: {CHECKS - checks}"
    if SEEDS >= 1_000:
        assert checks >= RARE, f"never looked at any more: {RARE - checks}"
    if SEEDS >= 100:
        assert faults >= FAULTS, f"never injected any more: {FAULTS - faults}"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(TransactionsWorld, __file__, bug, SEEDS_OF_BUG, SEED_OF_RARE)


def test_a_history_repeats_from_its_seed() -> None:
    worlds = [run(TransactionsWorld, __file__, 7) for _ in range(2)]
    reported = {(world.at.events, world.judge.end, tuple(world.faults)) for world in worlds}
    assert len(reported) == 1
