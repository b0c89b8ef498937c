"""zbroker/queues/work/selector_stats.py: what a filter was compared with, and what is asked for."""

from __future__ import annotations

from pyroaring import BitMap64

from tests.queues.work.test_queue import NOW
from zbroker.config import QueueConfig
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.selector_stats import (
    ASK_AGAIN_MAX_MS,
    ASK_AGAIN_MS,
    NamedDemand,
    again_ms,
)
from zbroker.queues.work.values import Arrivals
from zbroker.wire.replication import WANT_NAMES_MAX

MANY = BitMap64(range(1, 2_001))
NONE = BitMap64()


def filtered(count: int = 10, foreign: range = range(1, 11), late_before: int = 11) -> Queue:
    """A queue with one consumer, which has a filter; some messages belong to others."""
    queue = Queue(QueueConfig("q", topic="t", scope="distributed"))
    queue.entered(Arrivals(BitMap64(range(1, count + 1))))
    queue.disown(BitMap64(foreign))
    queue.late_before = late_before
    queue.join(1, "ann", 4, True, NOW)
    return queue


# -- what is compared -------------------------------------------------------------------------


def test_messages_of_others_are_compared_once_and_only_late_ones() -> None:
    queue = filtered(late_before=6)
    assert [*queue.unlooked(1, 3, NOW)] == [1, 2, 3]
    queue.looked(1, BitMap64([1, 2, 3]), BitMap64([2]))
    assert [*queue.unlooked(1, 3, NOW)] == [4, 5]
    queue.looked(1, BitMap64([4, 5]), NONE)
    assert not queue.unlooked(1, 3, NOW)
    queue.own(BitMap64([2, 3]))
    assert not queue.unlooked(1, 3, NOW), "it was compared already"
    assert [*queue.offer(NOW, {})[0].positions] == [2]
    queue.check()


def test_what_is_given_away_is_compared_after_the_cursor_passed() -> None:
    queue = filtered(foreign=range(5, 11))
    queue.looked(1, part := queue.unlooked(1, 9, NOW), NONE)
    assert len(part) == 10
    queue.entered(Arrivals(BitMap64([11, 12])))
    queue.disown(BitMap64([12]))
    queue.late_before = 13
    queue.looked(1, BitMap64([12]), NONE)
    queue.disown(BitMap64([11]))
    assert [*queue.unlooked(1, 9, NOW)] == [11]
    queue.looked(1, BitMap64([11]), BitMap64([11]))
    queue.gone(BitMap64([11]))
    assert not queue.unlooked(1, 9, NOW)
    queue.check()


def test_nothing_more_is_compared_once_another_request_could_be_made() -> None:
    queue = filtered(3_000, range(1, 3_001), 3_001)
    queue.looked(1, part := queue.unlooked(1, WANT_NAMES_MAX, NOW), part)
    assert not queue.unlooked(1, 10, NOW)
    assert len(queue.seek(0).names) == WANT_NAMES_MAX
    queue.looked(1, part := queue.unlooked(1, WANT_NAMES_MAX, NOW), part)
    assert part.min() == WANT_NAMES_MAX + 1
    assert not queue.unlooked(1, 10, NOW)


def test_after_a_barrier_nothing_is_compared() -> None:
    queue = filtered(4, range(1, 5))
    queue.entered(Arrivals(BitMap64([5, 6]), barriers=BitMap64([5])))
    queue.disown(BitMap64([5, 6]))
    assert [*queue.unlooked(1, 9, NOW)] == [1, 2, 3, 4]


# -- what is asked for ------------------------------------------------------------------------


def test_a_request_is_made_again_after_a_while_then_later() -> None:
    demand, fits = NamedDemand(), BitMap64([3, 5])
    assert demand.next(fits, fits, 8, 10, 0) == (fits, 2, ASK_AGAIN_MS)
    assert demand.next(fits, fits, 8, 10, ASK_AGAIN_MS - 1) == (NONE, 0, ASK_AGAIN_MS)
    assert demand.next(fits, fits, 8, 10, ASK_AGAIN_MS).names == fits
    assert demand.next(fits, fits, 8, 10, 2 * ASK_AGAIN_MS).wake_ms == 3 * ASK_AGAIN_MS
    assert [again_ms(rounds) for rounds in (0, 1, 99)] == [200, 400, ASK_AGAIN_MAX_MS]


def test_later_ones_follow_and_the_oldest_are_always_among_them() -> None:
    demand = NamedDemand()
    begins = []
    for at in range(5):
        names = demand.next(MANY, MANY, 8, 1_000, at * ASK_AGAIN_MS).names
        assert BitMap64(range(1, 251)).issubset(names)
        begins.append([*names][250])
    assert begins == [251, 1_001, 1_751, 251, 1_001]


def test_where_something_comes_it_goes_on() -> None:
    demand = NamedDemand()
    demand.next(MANY, MANY, 8, 1_000, 0)
    demand.next(MANY, MANY, 8, 1_000, ASK_AGAIN_MS)
    left = MANY - BitMap64(range(1_001, 1_009))
    found = demand.next(left, left, 8, 1_000, ASK_AGAIN_MS + 1)
    assert [*found.names][250] == 1_009


def test_what_is_on_its_way_is_not_asked_for_one_by_one() -> None:
    demand = NamedDemand()
    demand.next(MANY, MANY, 100, 1_000, 0)
    left = MANY - BitMap64(range(1, 81))  # 80 of 100 came
    assert demand.next(left, left, 24, 1_000, 1) == (NONE, 0, ASK_AGAIN_MS)
    assert demand.next(left, left, 60, 1_000, 1).most == 40


def test_what_does_not_fit_any_more_is_forgotten() -> None:
    demand = NamedDemand()
    demand.next(MANY, MANY, 8, 1_000, 0)
    assert demand.next(NONE, MANY, 8, 1_000, 1) == (NONE, 0, None)
    assert demand.next(MANY, MANY, 8, 1_000, 2).most == 8


# -- of all consumers -------------------------------------------------------------------------


def test_of_very_many_consumers_those_that_waited_longest_ask_first() -> None:
    queue = Queue(QueueConfig("q", topic="t", scope="distributed"))
    count = WANT_NAMES_MAX + 3
    positions = BitMap64(range(1, count + 1))
    queue.entered(Arrivals(positions))
    queue.disown(positions)
    queue.late_before = count + 1
    for key in range(1, count + 1):
        queue.join(key, f"c{key}", 4, True, NOW)
        queue.looked(key, positions, BitMap64([key]))
    first = queue.seek(1)
    assert len(first.names) == WANT_NAMES_MAX
    assert first.wake_ms == 1 + ASK_AGAIN_MS
    assert positions - first.names <= queue.seek(2).names


def test_one_without_credit_asks_for_nothing() -> None:
    queue = filtered()
    queue.looked(1, part := queue.unlooked(1, 20, NOW), part)
    queue.offer(NOW, {1: False})
    assert not queue.seeking()
    assert queue.seek(0) == (NONE, 0, None)


def test_one_whose_connection_is_lost_asks_for_nothing() -> None:
    queue = filtered()
    queue.looked(1, part := queue.unlooked(1, 20, NOW), part)
    queue.lose(1, NOW)
    assert not queue.seeking()
