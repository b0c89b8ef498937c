"""Whatever crashes, wherever: nothing acknowledged is lost, changed or served twice.

And where the disk itself lies: nothing wrong is served, and what is provably lost is reported.

ZB_SEEDS says how many seeds; ZB_SEED=<n> replays one.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.seed_counts import seed_count
from tests.sim.log_world import PLANTED, LogWorld, Violation
from tests.sim.log_world_variants import (
    COPIED,
    LYING,
    RAISING,
    REMOVING,
    CopiedWorld,
    LyingWorld,
    RaisingWorld,
    RemovingWorld,
    RotWithCut,
)
from zbroker.errors import StorageError

SEEDS = seed_count(250, 2500)
ONLY = os.environ.get("ZB_SEED")
PLANTED_SEEDS = 500
FEWER = SEEDS if SEEDS > PLANTED_SEEDS else SEEDS // 4  # of each special world in scripts/test
ALL_PLANTED = {**PLANTED, **LYING, **REMOVING, **COPIED, **RAISING}

#: Boundaries at which a process or the power was ended. The list may grow, never shrink.
STEPS = (
    "create:note", "create:spare", "read:note", "read:segment", "read_direct:segment",
    "rename:spare", "sync:note", "sync:segment", "sync:spare", "sync_dir:directory",
    "unlink:spare", "write:note", "write:segment", "write:spare",
)  # fmt: skip
BOUNDARIES = {f"{when}:{step}" for when in ("before", "after") for step in STEPS}
CRASHED_MIN = 28


_TESTS = {
    LyingWorld: "lies",
    RotWithCut: "rot",
    RemovingWorld: "removals",
    CopiedWorld: "copies",
    RaisingWorld: "generation_begins",
}


def run(make: Callable[[int], LogWorld], seed: int) -> LogWorld:
    """One history. A failure says how to see it again."""
    world = make(seed)
    try:
        world.run()
    except (Violation, StorageError) as error:
        test = f"tests/sim/test_crash_points.py -k {_TESTS.get(type(world), 'nothing')}"
        again = f"ZB_SEED={seed} python -m pytest {test}"
        raise Violation(f"seed {seed}: {error}\nreplay: {again}") from error
    return world


def test_nothing_acknowledged_is_ever_lost() -> None:
    seeds = [int(ONLY)] if ONLY else range(SEEDS)
    crashed: set[str] = set()
    for seed in seeds:
        crashed |= run(LogWorld, seed).crashed_at
    if len(seeds) >= PLANTED_SEEDS:
        assert crashed >= BOUNDARIES, f"no crash at {sorted(BOUNDARIES - crashed)}"


def test_a_disk_that_lies_makes_nothing_wrong_be_served() -> None:
    refused = 0
    for seed in [int(ONLY)] if ONLY else range(FEWER):
        world = run(LyingWorld, seed)
        refused += sum(world.refusals.values())  # type: ignore[attr-defined]
    assert ONLY or refused, "no loss was ever reported"


def test_rot_in_the_moment_of_a_power_cut_costs_at_most_the_last_sync() -> None:
    """The note may be gone with it; then a rotten last group looks like a torn one."""
    quietly = 0
    for seed in [int(ONLY)] if ONLY else range(FEWER):
        world = run(RotWithCut, seed)
        quietly += world.lost_quietly  # type: ignore[attr-defined]
    assert ONLY or quietly, "the worst case never happened"


def test_removals_lose_nothing_else_and_never_keep_a_start_from_working() -> None:
    removed = 0
    for seed in [int(ONLY)] if ONLY else range(FEWER):
        world = run(RemovingWorld, seed)
        removed += world.removed  # type: ignore[attr-defined]
    assert ONLY or removed > FEWER // 2, "too little was removed"


def test_copies_that_are_put_back_give_no_acknowledged_name_twice() -> None:
    put_back = 0
    for seed in [int(ONLY)] if ONLY else range(FEWER):
        world = run(CopiedWorld, seed)
        put_back += world.put_back  # type: ignore[attr-defined]
    assert ONLY or put_back > FEWER // 4, "too little was put back"


def test_a_generation_begins_whole_or_not_at_all_wherever_it_is_interrupted() -> None:
    raised = 0
    crashed: set[str] = set()
    for seed in [int(ONLY)] if ONLY else range(FEWER):
        world = run(RaisingWorld, seed)
        raised += world.raised  # type: ignore[attr-defined]
        crashed |= world.crashed_at
    assert ONLY or raised > FEWER, "too few began"


def test_the_list_of_boundaries_does_not_shrink() -> None:
    assert len(BOUNDARIES) >= CRASHED_MIN


@pytest.mark.parametrize("bug", ALL_PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    """Or else the simulation proves nothing."""
    make = ALL_PLANTED[bug]
    for seed in range(PLANTED_SEEDS):
        try:
            run(make, seed)
        except Violation:
            return
    pytest.fail(f"{bug!r} was not found within {PLANTED_SEEDS} seeds")


def test_a_failure_names_its_seed_and_how_to_replay_it() -> None:
    bug = PLANTED["ack before sync"]
    with pytest.raises(Violation, match=r"seed \d+: [^\n]+\nreplay: ZB_SEED=\d+ python -m pytest"):
        any(run(bug, seed) is None for seed in range(PLANTED_SEEDS))
