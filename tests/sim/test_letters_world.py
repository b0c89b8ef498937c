"""Whole histories of dead letters that go to exchanges; and planted bugs.
ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim.letters_bugs import BUGS
from tests.sim.letters_world import LettersWorld
from tests.sim.seeds import checks_of, must_find

SEEDS = seed_count(10, 100)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 200  # within so many a planted bug is found
#: what must have been looked at in some history; the list may not shrink
CHECKS = {
    "bind answered", "delete answered", "letter max_cancels", "letter max_deliveries",
    "letter max_length", "letter rejected", "letter time_limit", "letters of a change",
    "letters of a transaction", "rounds", "routed", "unbind answered",
}  # fmt: skip


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    checks_of(LettersWorld, __file__, FIRST, SEEDS, CHECKS)


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(LettersWorld, __file__, bug, SEEDS_OF_BUG)
