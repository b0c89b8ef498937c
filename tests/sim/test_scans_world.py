"""Whole histories of subscriptions that share scans; and bugs that must be found in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.delivery.world import World
from tests.seed_counts import seed_count
from tests.sim.queues_bugs import TURNS
from tests.sim.scans_world import ScansWorld
from zbroker.blocks.frame_builder import Block, item_end
from zbroker.delivery import scans
from zbroker.delivery.replay import Replay
from zbroker.delivery.scans import SharedScan
from zbroker.delivery.turns import ReadTurns

SEEDS = seed_count(12, 100)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS_OF_BUG = 200  # within so many a planted bug is found

_add, _find, _look = SharedScan.add, SharedScan.find, ReadTurns._look


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few members are enough to fill a turn, and so few batches to be dense."""
    monkeypatch.setattr(scans, "SERVED_MAX", 3)
    monkeypatch.setattr(scans, "DENSE_MIN", 2)


def run(seed: int) -> ScansWorld:
    world = ScansWorld(seed)
    try:
        world.run()
    except Exception as error:
        again = f"ZB_FIRST_SEED={seed} ZB_SEEDS=1 python -m pytest {__file__}"
        raise AssertionError(f"seed {seed}: {error!r}\n{again}") from error
    return world


@pytest.mark.timeout(3_600)
def test_each_subscription_gets_what_it_wants_once_in_the_order_of_the_log() -> None:
    seen: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        seen |= run(seed).seen
    if SEEDS >= 100:
        assert seen == {
            "failed", "gap", "replaced", "restarted", "shared", "shared at the end",
        }  # fmt: skip


def _keeps_its_names(self: SharedScan, replay: Replay) -> None:
    """A joiner misses the block that it joined in: what it wants is not read."""
    names = self._names
    _add(self, replay)
    self._names = names


def _all_pass(self: SharedScan, block: Block, limit: int) -> Any:
    found = _find(self, block, limit)
    if len(found.wanted) < scans.SERVED_MAX:
        return found
    ends = (item_end(item) for item in block.items if item_end(item) > found.end)
    return found._replace(end=next(ends, found.end))


def _stays_without_credit(self: ReadTurns, replay: Replay) -> Any:
    return [] if replay.members[0].credit <= 0 else _look(self, replay)


def _never_reached(self: SharedScan, end: int) -> list[Replay]:
    return []


def _no_gap(self: SharedScan, block: Block, limit: int) -> Any:
    found = _find(self, block, limit)
    if not found.gap:
        return found
    end = next(item_end(item) for item in block.items if item_end(item) > self.position)
    return found._replace(gap=False, end=end)


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        pytest.param(SharedScan, "add", _keeps_its_names, id="a joiner's topic is not read"),
        pytest.param(
            SharedScan, "find", _all_pass, id="a full turn passes over those that it left"
        ),
        pytest.param(ReadTurns, "_look", _stays_without_credit, id="no credit, still a member"),
        pytest.param(SharedScan, "reached", _never_reached, id="ends are passed"),
        pytest.param(SharedScan, "find", _no_gap, id="gaps are passed"),
        *(pytest.param(World, "turn_class", turn, id=bug) for bug, turn in TURNS.items()),
    ],
)
def test_a_planted_bug_is_found(
    owner: type, name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    monkeypatch.setattr(World, "checks", False)  # what subscribers get has to be enough
    monkeypatch.setattr("tests.sim.scans_world.TURNS_MAX", 5_000)
    for seed in range(SEEDS_OF_BUG):
        try:
            run(seed)
        except AssertionError:
            return
    pytest.fail("no history found it")
