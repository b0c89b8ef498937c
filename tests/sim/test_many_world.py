"""Two to five instances that send to one another: nothing acknowledged is lost, and all come to
hold the same. ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os

import pytest

from tests.seed_counts import seed_count
from tests.sim import many_bugs, topics_bugs
from tests.sim.many_world import HEAL_MS, RUN_MS, Instance, ManyWorld
from tests.sim.seeds import must_find, run
from tests.sim.topics_world import TopicsWorld
from tests.sim.two_nodes import Held, Violation
from zbroker.ids import Origin
from zbroker.log.generations import EPOCH_S, drawn

SEEDS = seed_count(100, 400)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
TOPICS_SEEDS = max(1, SEEDS // 3)  # histories of another kind: each takes as long
PLANTED_SEEDS = 500


@pytest.mark.timeout(0)
def test_no_history_of_many_instances_breaks_a_promise() -> None:
    faults: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        faults.update(run(ManyWorld, __file__, seed).events)
    if SEEDS >= 80:
        killed = {"power cut", "journal killed", "replication killed"}
        assert faults >= {*killed, "old disk", "new disk"}


@pytest.mark.timeout(0)
def test_no_history_with_a_copy_under_topics_breaks_a_promise() -> None:
    faults: set[str] = set()
    for seed in range(FIRST, FIRST + TOPICS_SEEDS):
        faults.update(run(TopicsWorld, __file__, seed).events)
    if TOPICS_SEEDS >= 25:
        assert faults >= {"power cut", "old disk", "new disk", "topics changed", "filter changed"}


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", topics_bugs.ALL)
def test_a_planted_bug_of_topics_is_found(bug: str) -> None:
    must_find(TopicsWorld, __file__, bug, PLANTED_SEEDS, topics_bugs.SEED_OF_RARE)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", many_bugs.ALL)
def test_a_planted_bug_is_found(bug: str) -> None:
    must_find(ManyWorld, __file__, bug, PLANTED_SEEDS)


def test_a_host_that_is_set_back_twice_begins_two_generations() -> None:
    """Neither the older disk nor another instance knows the first of them."""
    world = ManyWorld(1, instances=2)
    victim = world.victim
    victim.start()
    victim.keep_image()
    numbers = set[int]()
    for _ in range(2):
        victim.restore(empty=False)
        for instance in world.instances.values():
            instance.start()
        world.at.run_until(world.at.now_ms + 300)
        assert victim.journal is not None
        assert not victim.journal.core.question.open, "it has decided, in the same second"
        numbers.add(victim.journal.core.commit.generation)
        for other in world.instances.values():
            if other is not victim:
                other.kill_journal(power=True)
    assert len(numbers) == 2


def test_a_generation_by_chance_does_not_have_a_number_of_the_next_seconds() -> None:
    """An instance with a new disk that does not hear of it takes such a number from its clock."""
    world = ManyWorld(1, instances=2)
    victim = world.victim
    now_s = victim.wall_ns() // 1_000_000_000 - EPOCH_S
    history_s = (RUN_MS + HEAL_MS) // 1_000
    for _ in range(3):
        victim.start()
        assert number_by_chance(victim, now_s) > now_s + history_s
        victim.kill_journal(power=False)


def number_by_chance(instance: Instance, known: int) -> int:
    """Of the next generation of an instance that has begun one with the number of this second."""
    assert instance.journal is not None
    settings = instance.journal.core.commit.settings
    return drawn(instance.wall_ns(), known, chance=lambda: settings.incarnation)


def test_a_position_that_is_given_twice_is_noticed() -> None:
    world = ManyWorld(1, instances=2)
    held = Held(b"", Origin(0xA0, 5), 3, late=False)
    world.note_given("a", {(1, 1): held})
    world.note_given("b", {(1, 1): held, (1, 2): held._replace(position=4)})
    with pytest.raises(Violation, match="was given twice"):
        world.note_given("b", {(1, 3): held})


def test_a_history_repeats_from_its_seed() -> None:
    first, second = run(ManyWorld, __file__, 7), run(ManyWorld, __file__, 7)
    assert (first.events, first.at.events) == (second.events, second.at.events)
    assert [i.held() for i in first.instances.values()] == [
        i.held() for i in second.instances.values()
    ]
