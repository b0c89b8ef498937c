"""When a new generation begins, and with which number."""

from __future__ import annotations

import random

import pytest

from tests.journal.build import (
    DRAWN,
    INSTANCE,
    Clock,
    append,
    history,
    positions,
    read_all,
    start,
    writer,
)
from tests.sim.disk import CrashAt, SimCrash, SimDisk
from zbroker.errors import StorageError
from zbroker.limits import U63_MAX
from zbroker.log.generations import (
    EPOCH_S,
    NEW_GENERATION,
    NUMBER_MAX,
    SPREAD,
    CopyMark,
    Generations,
    drawn,
    forget_mark,
    read_mark,
    write_mark,
)
from zbroker.log.recovery import Recovered

S = 1_000_000_000
MARK = CopyMark(INSTANCE, 1)


class SetBack(Clock):
    def wall_ns(self) -> int:
        return 0


# -- the number -------------------------------------------------------------------------------


def test_the_number_is_the_time_in_seconds_since_2020() -> None:
    assert drawn((EPOCH_S + 200_000_000) * S, 1, chance=lambda: 7) == 200_000_000


@pytest.mark.parametrize("chance", [0, 5, SPREAD - 1, 1 << 63])
def test_it_is_higher_than_every_one_that_is_known_whatever_the_clock_says(chance: int) -> None:
    step = 1 + chance % SPREAD
    assert drawn((EPOCH_S + 5) * S, 1, 9, 4, chance=lambda: chance) == 9 + step
    assert drawn(0, 7, chance=lambda: chance) == 7 + step, "a clock before 2020"
    assert drawn(10**20, 7, chance=lambda: chance) == 7 + step, "a clock beyond the numbers"
    last = drawn(0, NUMBER_MAX - 1, chance=lambda: chance)
    assert last == NUMBER_MAX, "one that the header has room for"


def test_two_restores_of_one_copy_differ_although_the_clock_was_set_back() -> None:
    chances = random.Random(1)
    found = {drawn(0, DRAWN, chance=lambda: chances.getrandbits(64)) for _ in range(20)}
    assert len(found) == 20
    numbers = [
        start(marked()[0], clock=SetBack(), salt=lambda: chances.getrandbits(64)).generation
        for _ in range(2)
    ]
    assert min(numbers) > 1
    assert numbers[0] != numbers[1]


# -- the mark ---------------------------------------------------------------------------------


def marked() -> tuple[SimDisk, int]:
    """A log of some segments that is known to be a copy; and the position after it."""
    disk, to, _ = history(20)
    write_mark(disk, MARK)
    return disk, to.position


def findings(recovered: Recovered) -> list[str]:
    return [finding.code for finding in recovered.findings]


def test_the_first_start_of_a_copy_begins_a_new_generation() -> None:
    disk, end = marked()
    recovered = start(disk)
    assert (recovered.generation, recovered.next_position, recovered.lost) == (DRAWN, end, None)
    assert findings(recovered) == ["journal.copied"]
    assert recovered.tail.header.generation == DRAWN
    assert recovered.tail.header.first_position == end
    assert positions(read_all(disk, end)) == list(range(1, end))


def test_the_second_start_of_a_copy_is_a_plain_one() -> None:
    disk, end = marked()
    append(writer(disk, start(disk)), b"more")
    again = start(disk)
    assert (again.generation, again.next_position) == (DRAWN, end + 1)
    assert again.findings == []
    assert not disk.exists(NEW_GENERATION)


def test_what_else_is_known_of_a_later_end_is_what_the_copy_lacks() -> None:
    """It stops no start: who put the copy back said so."""
    disk, end = marked()
    recovered = start(disk, evidence=[(1, end + 60)])
    assert recovered.next_position == end
    assert f"positions {end} to {end + 59} were here once" in recovered.findings[0].means


def test_without_the_mark_it_stops_the_start() -> None:
    disk, to, _ = history(20)
    with pytest.raises(StorageError, match="tail_damaged"):
        start(disk, evidence=[(0, 0), (1, to.position + 60)])


def test_the_number_is_above_what_other_evidence_knows() -> None:
    disk, _ = marked()
    number = start(disk, evidence=[(DRAWN + 7, 3)]).generation
    assert DRAWN + 7 < number <= DRAWN + 7 + SPREAD


def test_damage_below_what_the_copy_itself_proves_stops_its_start() -> None:
    disk, to, _ = history(20)
    disk.damage("0000000002.journal", 8192, bytes(16_384))
    write_mark(disk, MARK)
    assert to.serial == 2
    with pytest.raises(StorageError, match="tail_damaged"):
        start(disk)
    assert disk.exists(NEW_GENERATION)
    assert start(disk, accept_loss=True).generation == DRAWN


def test_an_empty_directory_with_a_mark_is_no_copy() -> None:
    disk = SimDisk(random.Random(1))
    write_mark(disk, MARK)
    with pytest.raises(StorageError, match="tail_damaged"):
        start(disk, evidence=[(1, 30)])
    assert start(disk).generation == 1


def test_a_mark_of_an_older_generation_counts_no_more() -> None:
    """A crash between the new segment and the end of the mark."""
    disk, _ = marked()
    generation = start(disk).generation
    write_mark(disk, MARK)
    assert read_mark(disk, generation) is None
    assert (start(disk).generation, disk.exists(NEW_GENERATION)) == (generation, False)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"version": 1}'])
def test_a_damaged_mark_counts(content: bytes) -> None:
    disk, to, _ = history(20)
    disk.plant(NEW_GENERATION, content)
    assert start(disk).next_position == to.position
    assert start(disk).generation == DRAWN


def test_a_mark_of_a_newer_release_is_refused() -> None:
    disk, _, _ = history(20)
    disk.plant(NEW_GENERATION, b'{"version": 2, "instance": "abcd", "generation": 1}')
    with pytest.raises(StorageError, match="unknown_version"):
        start(disk)


def test_forgetting_no_mark_is_fine() -> None:
    forget_mark(SimDisk(random.Random(1)))


@pytest.mark.parametrize("power", [True, False])
def test_a_crash_at_any_moment_of_the_first_start_of_a_copy_ends_in_a_new_generation(
    power: bool,
) -> None:
    for boundary in range(200):
        disk, end = marked()
        disk.settle()
        cut = CrashAt(boundary)
        disk.hook, disk.rng = cut, random.Random(boundary)
        try:
            start(disk)
        except SimCrash:
            if power:
                disk.power_cut()
            else:
                disk.crash()
        disk.hook = lambda _: None
        recovered = start(disk)
        assert recovered.generation >= DRAWN
        assert recovered.next_position == end
        assert not disk.exists(NEW_GENERATION)
        if not cut.crashed:
            return
    pytest.fail("a start has more boundaries than were tried")


@pytest.mark.parametrize("first", [True, False])
def test_a_power_cut_while_marking_leaves_a_log_that_starts(first: bool) -> None:
    for boundary in range(20):
        disk, to, _ = history(20)
        if not first:
            write_mark(disk, MARK)
        disk.settle()
        cut = CrashAt(boundary)
        disk.hook, disk.rng = cut, random.Random(boundary)
        try:
            write_mark(disk, MARK)
        except SimCrash:
            disk.power_cut()
        disk.hook = lambda _: None
        assert start(disk).next_position == to.position


# -- where they begin -------------------------------------------------------------------------


def test_a_position_of_an_older_generation_is_good_up_to_where_the_next_one_begins() -> None:
    history = Generations([(1, 1), (1, 40), (5, 100), (9, 200)])
    assert history.begins == [(1, 1), (5, 100), (9, 200)]
    assert (history.end(1), history.end(5), history.end(9)) == (100, 200, U63_MAX)
    assert [history.of(position) for position in (1, 99, 100, 199, 200)] == [1, 1, 5, 5, 9]


@pytest.mark.parametrize("generation", [4, 7, 12])
def test_a_generation_that_began_on_another_copy_has_no_good_position(generation: int) -> None:
    assert Generations([(1, 1), (5, 100), (9, 200)]).end(generation) == 0


def test_of_a_generation_whose_segments_are_gone_what_is_gone_is_good() -> None:
    """Whoever names a message that was removed means that one."""
    history = Generations([(5, 100)])
    assert history.end(1) == 100
    assert history.of(99) == 0


def test_of_a_log_that_is_not_known_nothing_is_good() -> None:
    assert Generations().end(1) == 0


def test_a_generation_without_a_record_has_no_position() -> None:
    history = Generations([(1, 1), (5, 100), (9, 100)])
    assert history.of(100) == 9
    assert history.end(5) == 100
