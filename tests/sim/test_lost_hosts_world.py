"""Instances that lose their disks: none lets publishers in before it has what the others hold.

ZB_SEEDS says how many histories, ZB_FIRST_SEED where they begin."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.seed_counts import seed_count
from tests.sim import lost_hosts_bugs
from tests.sim.lost_hosts_world import (
    LosingInstance,
    LostHostsWorld,
    MemoryPublisher,
    Violation,
)
from tests.sim.many_publishers import Publisher
from tests.sim.many_world import HEAL_MS, Instance
from tests.sim.seeds import must_find, run
from zbroker.ids import Origin
from zbroker.journal.first_start import FirstPhase
from zbroker.log.format import KIND_TIE, Batch

SEEDS = seed_count(25, 200)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))
PLANTED_SEEDS = 300
LIMIT_MS = 30_000  # of the simulated time


@pytest.mark.timeout(0)
def test_no_history_with_lost_disks_breaks_a_promise() -> None:
    events: set[str] = set()
    notes: set[str] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        world = run(LostHostsWorld, __file__, seed)
        events.update(world.events)
        notes.update(note.split(": ")[1].split(" ")[0] for note in world.notes)
    if SEEDS >= 25:
        assert events >= {"host replaced", "new disk", "removed"}
        assert "replication.state_taken" in notes


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("bug", lost_hosts_bugs.ALL)
def test_a_planted_bug_of_a_first_start_is_found(bug: str) -> None:
    must_find(LostHostsWorld, __file__, bug, PLANTED_SEEDS)


def test_what_is_only_known_from_a_state_is_not_acknowledged_while_a_destination_lacks_it() -> None:
    messages_known_from_a_state()


@pytest.mark.parametrize("bug", lost_hosts_bugs.WRITTEN_DOWN)
def test_a_planted_bug_of_a_link_is_found(bug: str) -> None:
    with pytest.raises(Violation, match="acknowledged at a, held by"):
        messages_known_from_a_state(bug)


def messages_known_from_a_state(bug: str = "") -> None:
    """An instance on a new disk begins with the state of b, which has removed the messages by
    then; c never got them. The program sends them again, and they are duplicates."""
    world = star(bug)
    a, b, c = world.instances.values()
    program = Publisher("program", says_prev=True)
    world.publishers = [program]
    until(world, lambda: all(is_open(one) for one in (a, b, c)))
    a.open(program)
    until(world, lambda: program.session)
    world.cuts |= {("a", "c"), ("c", "a")}
    world.publish(program)
    until(world, lambda: len(b.held()) == len(program.unacked))
    remove_all(world, b)
    a.lose_disk(new_id=True)
    world.cuts.clear()
    until(world, lambda: is_open(a) and "replication.state_taken" in " ".join(world.notes))
    a.open(program)
    world.at.run_until(world.at.now_ms + 5_000)
    assert program.session
    assert not program.acked
    world.give_up()
    until(world, lambda: not program.unacked)


def test_a_program_without_a_store_goes_on_after_what_only_a_state_knows() -> None:
    program_after_a_state()


def test_a_planted_bug_of_the_highs_in_a_state_is_found() -> None:
    with pytest.raises(AssertionError, match="b lacks"):
        program_after_a_state(lost_hosts_bugs.WITHOUT_HIGHS)


def program_after_a_state(bug: str = "") -> None:
    """All have its messages and remove them; then a begins on a new disk, with a state, and the
    program is started again."""
    world = star(bug)
    a, b, c = world.instances.values()
    program = MemoryPublisher("program", says_prev=True)
    begin(world, program, b)
    world.publish(program)
    until(world, lambda: not program.unacked)
    remove_all(world, b)
    remove_all(world, c)
    program.restart()
    a.lose_disk(new_id=True)
    until(world, lambda: is_open(a) and "replication.state_taken" in " ".join(world.notes))
    a.open(program)
    until(world, lambda: program.session)
    world.publish(program)
    new = {(program.id, sequence) for sequence, _ in program.unacked}
    until(world, lambda: not program.unacked)
    lacks = new - b.held().keys()
    assert not lacks, f"b lacks {lacks}"


def test_a_log_that_begins_with_a_state_says_what_it_lacks() -> None:
    rows_of_a_state()


def test_a_planted_bug_of_the_rows_in_a_state_is_found() -> None:
    with pytest.raises(AssertionError, match="a lacks"):
        rows_of_a_state(lost_hosts_bugs.WITHOUT_BEGINS)


def rows_of_a_state(bug: str = "") -> None:
    """An instance on a new disk begins with the state of b, which has removed the messages that c
    still has."""
    world = star(bug, 5)  # in others a hears of c first, and needs no state
    a, b, c = world.instances.values()
    program = Publisher("program", says_prev=True)
    begin(world, program, b)
    world.publish(program)
    until(world, lambda: has_all(c, program))
    remove_all(world, b)
    a.lose_disk(new_id=True)
    until(world, lambda: is_open(a))
    assert "replication.state_taken" in " ".join(world.notes)
    lacks = world.lacks(a, c)
    assert not lacks, f"a lacks {lacks}"
    world.check_missing(a)


def test_a_log_that_has_records_takes_no_state() -> None:
    state_for_a_log_that_has_records()


def test_a_planted_bug_of_the_log_that_a_state_is_for_is_found() -> None:
    with pytest.raises(Violation, match="are here, and missing by"):
        state_for_a_log_that_has_records(lost_hosts_bugs.INTO_ANY_LOG)


def state_for_a_log_that_has_records(bug: str = "") -> None:
    """c is set back to an older disk, and a has removed what came since then: c still has what was
    before that."""
    world = star(bug)
    a, b, c = world.instances.values()
    program = Publisher("program", says_prev=True)
    begin(world, program, b)
    world.publish(program)
    until(world, lambda: has_all(c, program))
    before = set(c.held())
    c.keep_image()
    world.publish(program)
    until(world, lambda: has_all(c, program))
    remove_all(world, a)
    c.restore(empty=False)
    assert set(c.held()) == before
    until(world, lambda: is_open(c))
    world.give_up()
    world.at.run_until(world.at.now_ms + HEAL_MS // 2)
    assert c.missing, "what a removed is declared missing"
    world.check_missing(c)


def test_an_instance_begins_above_generations_that_only_a_state_has_named() -> None:
    """a begins with the state of b, which names a generation of b with nothing in it. Then b loses
    its disk, and a has the only state for it; it is not taken if b does not hear of that one."""
    world = star("")
    a, b, _ = world.instances.values()
    program = Publisher("program", says_prev=True)
    begin(world, program, a)
    world.publish(program)
    until(world, lambda: not program.unacked)
    remove_all(world, b)
    world.cuts |= {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    before = generation(b)
    b.skew_s += 3_600  # the clock is ahead
    world.new_segment(b)
    until(world, lambda: generation(b) > before)
    b.skew_s -= 3_600
    empty = generation(b)
    a.lose_disk(new_id=True)
    world.cuts -= {("a", "b"), ("b", "a")}
    until(world, lambda: is_open(a) and "replication.state_taken" in " ".join(world.notes))
    assert ends(a)[Origin(b.id, empty)] == 0
    world.cuts.clear()
    b.lose_disk(new_id=False)
    until(world, lambda: is_open(b))
    assert generation(b) > empty


def generation(instance: Instance) -> int:
    assert instance.journal is not None
    return instance.journal.core.commit.generation


def begin(world: LostHostsWorld, program: Publisher, at: LosingInstance) -> None:
    """All instances are open, and the only program has a session at one of them."""
    world.publishers = [program]
    until(world, lambda: all(map(is_open, world.instances.values())))
    at.open(program)
    until(world, lambda: program.session)


def remove_all(world: LostHostsWorld, instance: LosingInstance) -> None:
    """Retention removes every message there."""
    while instance.held():
        world.new_segment(instance)
        world.at.run_until(world.at.now_ms + 1_000)
        instance.remove_old()


def test_a_tie_of_messages_that_no_log_has_any_more_can_be_given_up() -> None:
    tie_of_removed_messages()


@pytest.mark.parametrize("bug", lost_hosts_bugs.TIES)
def test_a_planted_bug_of_refused_ties_is_found(bug: str) -> None:
    with pytest.raises(AssertionError):
        tie_of_removed_messages(bug)


def tie_of_removed_messages(bug: str = "") -> None:
    """a and c take the same messages, which b never gets; c removes them. Then a begins on a new
    disk with the state of c, and gets c's tie of them, which goes to b."""
    world = star(bug)
    a, b, c = world.instances.values()
    program = Publisher("program", says_prev=True)
    begin(world, program, c)
    world.cuts |= {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}
    world.publish(program)
    until(world, lambda: len(c.held()) == len(program.unacked))
    world.new_segment(c)
    a.open(program)
    until(world, lambda: len(a.held()) == len(program.unacked))
    world.cuts -= {("a", "c"), ("c", "a")}
    until(world, lambda: ties(c))
    (tied,) = {one.origin for one in ties(c)}
    remove_all(world, c)
    assert ties(c), "they are in a segment that stays"
    a.lose_disk(new_id=True)
    world.cuts.clear()
    until(world, lambda: is_open(a) and ties(a))
    link = a.replication.core.outgoing["b"].selection
    until(world, lambda: link.missing)
    world.at.run_until(world.at.now_ms + 5_000)
    assert tied not in link.missing, "b may have the messages"
    world.give_up()
    until(world, lambda: tied in link.missing)
    assert link.stopped[tied] == "expired"
    world.at.run_until(world.at.now_ms + HEAL_MS // 2)
    assert ends(b)[tied] == ends(a)[tied] > 0
    assert not link.stopped
    a.open(program)
    until(world, lambda: not program.unacked)


def ties(instance: Instance) -> list[Batch]:
    return [one for one in instance.batches() if one.kind == KIND_TIE]


def ends(instance: Instance) -> dict[Origin, int]:
    """How far each origin is in its log."""
    return instance.journal.core.commit.sessions.origins.vector if instance.journal else {}


def test_an_instance_waits_for_a_peer_that_gets_its_own_data_back() -> None:
    """The disks of two hosts are new. The one asks the other one only, which has nothing yet. If it
    opened as a new log, the program without a store would give sequences again that c has."""
    world = star("")
    a, b, c = world.instances.values()
    world.sync_needed = 1
    program = Publisher("program", says_prev=True)
    begin(world, program, b)
    world.publish(program)
    until(world, lambda: not program.unacked and len(c.held()) == len(b.held()))
    a.lose_disk(new_id=True)
    a.disk_nearly_full = True
    until(world, lambda: phase(a) is FirstPhase.FILLING)
    b.restore(empty=True)
    until(world, lambda: "is getting what other instances hold" in waits(b))
    world.at.run_until(world.at.now_ms + 5_000)
    assert not is_open(b)
    a.disk_nearly_full = False
    until(world, lambda: is_open(a) and is_open(b))
    assert b.held() == c.held()


def test_two_new_disks_wait_for_a_third_host_that_one_of_them_has_not_heard() -> None:
    two_new_disks()


@pytest.mark.parametrize("bug", lost_hosts_bugs.ASKING)
def test_a_planted_bug_of_instances_that_ask_is_found(bug: str) -> None:
    with pytest.raises(AssertionError):
        two_new_disks(bug)


def two_new_disks(bug: str = "") -> None:
    """b asks a only, which has nothing; a has not heard of c, which has what both lost."""
    world = star(bug)
    a, b, c = world.instances.values()
    world.sync_needed = 1
    program = Publisher("program", says_prev=True)
    begin(world, program, b)
    world.publish(program)
    until(world, lambda: not program.unacked and len(c.held()) == len(b.held()) > 0)
    world.cuts |= {("a", "c"), ("c", "a")}
    for one in (a, b):
        one.restore(empty=True)
    until(world, lambda: "waits to hear of them" in waits(b))
    world.at.run_until(world.at.now_ms + 5_000)
    assert not is_open(a)
    assert not is_open(b)
    world.cuts.clear()
    until(world, lambda: is_open(a) and is_open(b))
    assert a.held() == b.held() == c.held()


def phase(instance: Instance) -> FirstPhase | None:
    return instance.journal.core.first.phase if instance.journal is not None else None


def waits(instance: Instance) -> str:
    return instance.journal.core.commit.waits if instance.journal is not None else ""


def star(bug: str, seed: int = 1) -> LostHostsWorld:
    """Three instances, of which the first one sends to both others, and they to it."""
    world = LostHostsWorld(seed, bug)
    assert len(world.instances) == 3
    world.written = True
    first, *others = world.instances.values()
    first.destinations = [one.name for one in others]
    for one in others:
        one.destinations = [first.name]
    for one in world.instances.values():
        one.start()
    return world


def has_all(instance: Instance, program: Publisher) -> bool:
    """Its sequences have gaps."""
    return {n for _, n in instance.held()} == {*program.acked, *(n for n, _ in program.unacked)}


def is_open(instance: Instance) -> bool:
    return instance.journal is not None and instance.journal.core.first.is_open


def until(world: LostHostsWorld, holds: Callable[[], object]) -> None:
    end_ms = world.at.now_ms + LIMIT_MS
    while not holds():
        assert world.at.now_ms < end_ms, world.notes
        world.at.run_until(world.at.now_ms + 10)
