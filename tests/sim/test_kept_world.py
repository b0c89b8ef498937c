"""Whole histories of workers whose sessions have a time-out; and planted bugs.
ZB_SEEDS says how many histories (default 25), ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.sim.kept_bugs import BUGS
from tests.sim.kept_world import KeptWorld
from tests.sim.seeds import checks_of, must_find

SEEDS = int(os.environ.get("ZB_SEEDS", "25"))
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 200  # within so many a planted bug is found
#: what must have been looked at in some history; the lists may not shrink
CHECKS = {
    "committed", "detached", "exception", "fenced", "given after an end", "kept",
    "kept by a session", "restated", "timed out", "went on",
}  # fmt: skip


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    checks_of(KeptWorld, __file__, FIRST, SEEDS, CHECKS)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(KeptWorld, __file__, bug, SEEDS_OF_BUG)
