"""zbroker/queues/work/carried.py: a queue that takes the parts of another one has its counts."""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.config import QueueConfig
from zbroker.engine.contract import MS_NS, Now
from zbroker.queues.work.carried import CarriedPart, carry, parts_of
from zbroker.queues.work.delivery_counts import COUNT_MAX, DeliveryTally
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Arrivals

NOW = Now(0, 1_000 * MS_NS)
LATER = 61_000


def queue_of(count: int) -> Queue:
    queue = Queue(QueueConfig("q"))
    queue.entered(Arrivals(BitMap64(range(1, count + 1))))
    return queue


def test_counts_and_delays_are_the_same() -> None:
    queue, other = queue_of(6), queue_of(6)
    for count in range(5):
        queue.failed(BitMap64(range(count + 1, 6)), "cancelled" if count % 2 else "lease_ended", 0)
    queue.failed(BitMap64([6]), "cancelled", LATER * MS_NS, 60_000)
    for part in parts_of(queue):
        carry(other, part)
    for at in range(1, 7):
        for mine, theirs in (
            (queue.counting.failures, other.counting.failures),
            (queue.counting.cancels, other.counting.cancels),
        ):
            assert mine.of(at) == theirs.of(at)
    assert other.where(6, NOW).state == "delayed"
    other.check()
    assert other.tick(Now(LATER, LATER * MS_NS)) == []
    assert other.where(6, NOW).state == "ready"


def test_two_queues_add_up_in_any_order() -> None:
    queue = queue_of(1)
    parts = [CarriedPart(BitMap64([1]), failures=2), CarriedPart(BitMap64([1]), failures=3)]
    for part in parts:
        carry(queue, part)
    assert queue.counting.failures.of(1) == 5


def test_a_lease_goes_on() -> None:
    queue = queue_of(1)
    queue.join(7, "c", 1, filtered=False, now=NOW)
    queue.offer(NOW, {7: True})
    carry(queue, CarriedPart(BitMap64([1]), due_ns=LATER * MS_NS, delay_ms=1))
    assert queue.where(1, NOW).state == "leased"
    queue.check()


def test_what_is_not_here_is_left_out() -> None:
    queue = queue_of(1)
    carry(queue, CarriedPart(BitMap64([1, 2]), failures=1, cancels=-1))
    assert queue.counting.failures.counted == BitMap64([1])
    queue.check()


def test_leased_messages_are_seen() -> None:
    queue = queue_of(2)
    queue.join(7, "c", 1, filtered=False, now=NOW)
    queue.offer(NOW, {7: True})
    assert list(parts_of(queue)) == [CarriedPart(BitMap64([1]), seen=True)]


def test_a_count_ends_where_it_can_be_said() -> None:
    tally = DeliveryTally()
    tally.add(BitMap64(), 1)
    assert not tally.counted
    tally.add(BitMap64([1]), COUNT_MAX + 10)
    tally.add(BitMap64([1]), 5)
    assert tally.of(1) == COUNT_MAX
