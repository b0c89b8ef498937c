"""A reboot a day with a host away: nothing grows, and what was kept of days before stays good."""

from __future__ import annotations

import pytest

from tests.sim import many_generation_bugs
from tests.sim.reboots_world import AWAY_DAYS, RebootsWorld, Sizes
from tests.sim.two_nodes import Violation

#: two instances that stay begin a generation a day while the third is away, and so does that one
MOST = Sizes(rows=3 * (AWAY_DAYS + 10), said=3 * (64 + AWAY_DAYS + 10), vector=3 * 40, read=400)


def run(seed: int, days: int, *, comes_back: bool = True, bug: str = "") -> RebootsWorld:
    world = RebootsWorld(seed, bug, comes_back=comes_back)
    world.run_days(days)
    assert all(found <= most for found, most in zip(world.most, MOST, strict=True)), world.most
    return world


@pytest.mark.timeout(0)
@pytest.mark.parametrize("comes_back", [pytest.param(True, marks=pytest.mark.long), False])
def test_two_months_of_reboots_leave_nothing_behind(*, comes_back: bool) -> None:
    world = run(1, 60, comes_back=comes_back)
    assert world.bookmarks


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_year_of_reboots_leaves_nothing_behind(*, comes_back: bool) -> None:
    run(2, 365, comes_back=comes_back)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", many_generation_bugs.OF_REBOOTS)
def test_a_planted_bug_is_found(bug: str) -> None:
    days, comes_back = many_generation_bugs.OF_REBOOTS[bug]
    with pytest.raises((Violation, AssertionError)):
        run(1, days, comes_back=comes_back, bug=bug)
