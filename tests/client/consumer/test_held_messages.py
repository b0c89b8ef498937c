"""Leases by the clock of a consumer."""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.client.consumer.held_messages import ConsumerLeases


def leases(lease_ms=1_000, now_ms=0):
    """Begun with nothing held."""
    made = ConsumerLeases()
    made.begin(lease_ms, now_ms)
    made.extend(BitMap64(), now_ms)
    return made


def test_nothing_is_due_while_nothing_is_held():
    made = leases()
    assert made.next_wake_ms() is None
    made.came(100)
    made.came(300)
    assert made.next_wake_ms() == 600
    assert not made.is_due(599)
    assert made.is_due(600)


def test_what_is_kept_over_a_loss_is_extended_at_once():
    made = leases()
    made.begin(1_000, 5_000)
    assert made.is_due(5_000)


def test_a_lease_lasts_from_its_start_or_from_the_newest_answered_extension():
    made = leases()
    assert made.hold(100, 1_099)
    assert not made.hold(100, 1_100)
    made.sent(["1", "2"], 800)
    made.settled("1")
    assert not made.hold(100, 1_100), "one of its commands has no answer"
    made.settled("2")
    assert made.hold(100, 1_799)
    assert not made.hold(100, 1_800)


def test_an_answer_of_an_older_round_extends_nothing():
    made = leases()
    made.sent(["1"], 400)
    made.sent(["2"], 800)
    made.settled("1")
    assert not made.hold(0, 1_100)


def test_without_leases_everything_lasts():
    made = leases(lease_ms=0)
    made.came(0)
    assert made.next_wake_ms() is None
    assert made.hold(0, 1 << 60)


def test_longer_leases_are_left_until_they_are_nearly_over():
    made = leases()
    made.lengthen([1, 2], 5_000, 0)
    made.lengthen([3], 900, 0)
    assert list(made.extend(BitMap64([1, 2, 3]), 500)) == [3]
    assert list(made.extend(BitMap64([1, 3]), 3_999)) == [3]
    assert list(made.extend(BitMap64([1, 3]), 4_000)) == [1, 3]


def test_longer_leases_keep_it_looking():
    made = leases()
    made.lengthen([1], 5_000, 0)
    assert not made.extend(BitMap64([1]), 500)
    assert made.next_wake_ms() == 1_000
    assert not made.extend(BitMap64(), 1_000)
    assert made.next_wake_ms() is None
