"""How far the log is replicated: as many synchronous destinations as are asked for, downgrades."""

from __future__ import annotations

from zbroker.engine.effects import Note
from zbroker.limits import U63_MAX
from zbroker.link_topics import LinkTopics
from zbroker.replication.durability import CAUGHT_UP_MS, DestinationRule, Durability

SYNC = [DestinationRule("b", sync=True), DestinationRule("c", sync=True), DestinationRule("d")]
SLOW = [DestinationRule("b", sync=True, downgrade_ms=5_000)]


def names(notes: list[Note]) -> list[str]:
    return [note.name for note in notes]


def test_without_a_synchronous_destination_nothing_is_waited_for() -> None:
    durability = Durability(SYNC[2:])
    assert not durability.asked
    assert (durability.needed, durability.through) == (0, U63_MAX)


def test_by_default_all_synchronous_destinations_are_waited_for() -> None:
    durability = Durability(SYNC)
    durability.moved("b", 10)
    assert (durability.needed, durability.through) == (2, 0)
    durability.moved("c", 7)
    durability.moved("d", 99)
    assert durability.through == 7


def test_a_quorum_waits_for_the_fastest() -> None:
    durability = Durability(SYNC, sync_needed=1)
    durability.moved("b", 10)
    durability.moved("c", 7)
    assert (durability.needed, durability.through) == (1, 10)


def test_with_different_topics_each_one_is_waited_for_that_is_not_downgraded() -> None:
    """The mark of a destination passes what it does not want: the highest one proves nothing."""
    rules = [
        DestinationRule("b", sync=True, topics=LinkTopics(["orders"])),
        DestinationRule("c", sync=True),
    ]
    durability = Durability(rules)
    durability.moved("b", 10)
    durability.moved("c", 7)
    assert durability.through == 7
    durability.set_downgraded("b", on=True)
    assert (durability.needed, durability.through) == (1, 7)
    durability.set_downgraded("c", on=True)
    assert (durability.needed, durability.through) == (0, U63_MAX)


def test_a_destination_that_lags_for_too_long_is_downgraded() -> None:
    durability = Durability(SLOW)
    assert durability.tick(0, 10) == []
    assert durability.next_wake_ms() == 5_000
    assert durability.tick(4_999, 12) == []
    assert names(durability.tick(5_000, 12)) == ["replication.downgraded"]
    assert (durability.needed, durability.through) == (0, U63_MAX)
    assert durability.downgraded("b")


def test_a_destination_that_goes_on_is_not_downgraded_however_much_is_behind() -> None:
    """What it lacks now was not there downgrade_after ago."""
    durability = Durability(SLOW)
    for second in range(100):
        assert durability.tick(second * 1_000, 10 + second * 10) == []
        durability.moved("b", 10 + second * 10)
    assert not durability.downgraded("b")


def test_it_is_waited_for_again_once_it_has_caught_up() -> None:
    durability = Durability(SLOW)
    durability.tick(0, 10)
    durability.tick(5_000, 20)
    durability.moved("b", 10)
    assert names(durability.tick(6_000, 30)) == [], "that took six seconds"
    durability.moved("b", 30)
    assert names(durability.tick(6_000 + CAUGHT_UP_MS, 31)) == ["replication.upgraded"]
    assert (durability.needed, durability.through) == (1, 30)


def test_one_that_lacks_nothing_is_waited_for_again_at_once() -> None:
    durability = Durability(SLOW)
    durability.tick(0, 10)
    durability.tick(5_000, 10)
    durability.moved("b", 10)
    assert names(durability.tick(60_000, 10)) == ["replication.upgraded"]


def test_min_sync_is_waited_for_although_all_are_downgraded() -> None:
    durability = Durability(SLOW, min_sync=1)
    durability.tick(0, 10)
    assert names(durability.tick(5_000, 10)) == ["replication.downgraded"]
    assert (durability.needed, durability.through) == (1, 0)


def test_without_downgrade_after_it_is_waited_for_for_ever() -> None:
    durability = Durability(SYNC[:1])
    durability.tick(0, 10)
    assert durability.tick(10**9, 10) == []
    assert (durability.needed, durability.next_wake_ms()) == (1, None)


def test_marks_above_the_end_of_a_new_journal_do_not_count() -> None:
    durability = Durability(SYNC[:1])
    durability.moved("b", 10)
    durability.journal_begins(6)
    assert durability.through == 6


def test_one_that_a_person_downgraded_is_not_waited_for_although_it_has_caught_up() -> None:
    durability = Durability(SLOW)
    assert names(durability.set_downgraded("b", on=True)) == ["replication.downgraded"]
    assert (durability.needed, durability.through) == (0, U63_MAX)
    durability.moved("b", 10)
    for second in range(20):
        assert durability.tick(second * 1_000, 10) == []
    assert durability.downgraded("b")
    assert durability.by_hand("b")


def test_a_downgrade_by_hand_of_one_that_lags_lasts_too() -> None:
    durability = Durability(SLOW)
    durability.tick(0, 10)
    durability.tick(5_000, 10)
    assert durability.set_downgraded("b", on=True) == [], "it is downgraded already"
    durability.moved("b", 10)
    assert durability.tick(60_000, 10) == []
    assert durability.downgraded("b")


def test_one_that_a_person_upgraded_has_the_whole_time_again() -> None:
    durability = Durability(SLOW)
    durability.tick(0, 10)
    durability.tick(5_000, 10)
    assert names(durability.set_downgraded("b", on=False)) == ["replication.upgraded"]
    assert (durability.needed, durability.through) == (1, 0)
    assert not durability.by_hand("b")
    assert durability.tick(6_000, 10) == []
    assert durability.tick(10_999, 10) == []
    assert names(durability.tick(11_000, 10)) == ["replication.downgraded"]


def test_an_upgrade_of_one_that_is_waited_for_changes_nothing() -> None:
    durability = Durability(SLOW)
    assert durability.set_downgraded("b", on=False) == []
    assert durability.needed == 1


def test_the_others_are_waited_for_when_a_person_downgrades_one() -> None:
    durability = Durability(SYNC)
    durability.moved("b", 10)
    assert durability.needed_after("c", downgraded=True) == 1
    durability.set_downgraded("c", on=True)
    assert (durability.needed, durability.through) == (1, 10)
    assert durability.is_sync("c")
    assert not durability.is_sync("d")
