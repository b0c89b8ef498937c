"""Consumers of a queue."""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.queues.work.consumers import QueueConsumers, in_turn


def test_who_had_no_space_has_it_since_he_got_it() -> None:
    consumers = QueueConsumers()
    first, second = (consumers.join(key, "c", 2, filtered=False) for key in (1, 2))
    consumers.give(first, BitMap64([1, 2]))
    assert first.since < second.since
    assert consumers.free(BitMap64([1])) == 1
    assert first.since > second.since


def test_what_somebody_else_has_is_freed_too() -> None:
    consumers = QueueConsumers()
    first, second = (consumers.join(key, "c", 9, filtered=False) for key in (1, 2))
    consumers.give(first, BitMap64([1, 2]))
    consumers.give(second, BitMap64([3, 4]))
    assert consumers.free(BitMap64([2, 3, 8]), second) == 2
    assert (set(first.held), set(second.held)) == ({1}, {4})
    owner = consumers.owner(4)
    assert owner is second
    assert consumers.owner(9) is None


def test_who_is_lost_is_forgotten_with_the_last_message_he_holds() -> None:
    consumers = QueueConsumers()
    one = consumers.join(1, "ann", 9, filtered=True)
    consumers.give(one, BitMap64([5]))
    consumers.lose(one)
    assert not consumers.filtered
    assert consumers.current() == []
    assert consumers.lost_of("ann") == [one]
    consumers.forget_lost(0)
    assert consumers.by_key
    consumers.free(BitMap64([5]))
    consumers.forget_lost(0)
    assert not consumers.by_key


def test_only_what_was_not_compared_before_the_cursor_is_missed() -> None:
    consumers = QueueConsumers()
    looks = consumers.join(1, "ann", 9, filtered=True).looks
    assert looks is not None
    looks.near.cursor, looks.looked = 10, BitMap64([3])
    consumers.appeared(BitMap64([3, 4, 12]))
    assert looks.near.missed == BitMap64([4])
    consumers.gone(BitMap64([3, 4]))
    assert not looks.near.missed
    assert not looks.looked


def test_a_turn_goes_on_after_the_last_one() -> None:
    consumers = QueueConsumers()
    many = [consumers.join(key, "c", 9, filtered=False) for key in (7, 5, 6)]
    assert [one.key for one in in_turn(many, many[0].number)] == [5, 6, 7]
