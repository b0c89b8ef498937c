"""Why nothing is offered: one answer, the most important one first."""

from __future__ import annotations

from array import array
from typing import Any

from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import MS_NS, Arrivals, Numbers

NOW = Now(1_000, 10**15)


def queue_of(*positions: int, consumer: bool = True, **kwargs: Any) -> Queue:
    queue = Queue(QueueConfig("q", **{"lease": 5_000, **kwargs}))
    queue.entered(Arrivals(BitMap64(positions)))
    if consumer:
        queue.join(1, "ann", 0, False, NOW)
    return queue


def test_an_empty_queue_says_so() -> None:
    assert queue_of().why_nothing(NOW) == ["it is empty"]


def test_nothing_in_the_way_is_no_reason() -> None:
    assert queue_of(5).why_nothing(NOW) == []


def test_no_one_consumes() -> None:
    assert queue_of(5, consumer=False).why_nothing(NOW) == ["it has no consumer"]


def test_no_credit() -> None:
    queue = queue_of(5)
    queue.offer(NOW, {1: False})
    assert queue.why_nothing(NOW)[0].startswith("no consumer has credit")


def test_a_full_backlog() -> None:
    queue = queue_of(5, 6, max_per_subscription=1)
    queue.offer(NOW, {1: True})
    assert queue.why_nothing(NOW) == ["every consumer with credit has its backlog full"]


def test_the_limit_of_the_queue() -> None:
    queue = queue_of(5, 6, max_backlog=1)
    queue.offer(NOW, {1: True})
    assert "max_backlog" in queue.why_nothing(NOW)[0]


def test_all_leased_and_until_when() -> None:
    queue = queue_of(5, 6)
    queue.offer(NOW, {1: True})
    (line,) = queue.why_nothing(NOW)
    assert line == "2 messages are leased; the first lease ends in 5.0 s"


def test_leases_without_an_end_are_reported_as_such() -> None:
    queue = queue_of(5, lease=0)
    queue.offer(NOW, {1: True})
    assert queue.why_nothing(NOW) == ["1 messages are leased"]


def test_delayed_and_until_when() -> None:
    queue = queue_of(5)
    queue.failed(BitMap64([5]), "cancelled", NOW.wall_ns + 2_500 * MS_NS)
    queue.offer(NOW, {1: True})
    assert queue.why_nothing(NOW) == ["1 messages are delayed; the first one is due in 2.5 s"]
    assert queue.where(5, NOW).due == 3_500


def test_a_barrier_that_waits_for_those_before_it() -> None:
    queue = queue_of(5, barrier="/b")
    queue.entered(Arrivals(BitMap64([7, 8]), barriers=BitMap64([7])))
    queue.offer(NOW, {1: True})
    assert queue.why_nothing(NOW)[0] == "the barrier at 7 waits until all before it are gone"
    assert [queue.where(position, NOW).state for position in (5, 7, 8)] == ["leased"] + [
        "waiting"
    ] * 2
    assert queue.counts() == Numbers(ready=0, leased=1, delayed=0, going=0, waiting=2)


def test_a_barrier_that_waits_for_a_consumer() -> None:
    queue = Queue(QueueConfig("q", barrier="/b"))
    queue.entered(Arrivals(BitMap64([7]), barriers=BitMap64([7])))
    assert queue.why_nothing(NOW) == ["it has no consumer", "the barrier at 7 waits for a consumer"]


def test_a_busy_group() -> None:
    queue = Queue(QueueConfig("q", group_key="/g"))
    queue.entered(Arrivals(BitMap64([5, 6]), groups=array("q", [1, 1])))
    queue.join(1, "ann", 0, False, NOW)
    queue.offer(NOW, {1: True})
    assert "1 messages wait for another one of their group key" in queue.why_nothing(NOW)
    assert queue.where(6, NOW).state == "waiting"


def test_a_filter_that_fits_nothing() -> None:
    queue = Queue(QueueConfig("q"))
    queue.entered(Arrivals(BitMap64([5])))
    queue.join(1, "ann", 0, True, NOW)
    queue.looked(1, queue.unlooked(1, 9, NOW), BitMap64())
    assert "fits no filter" in queue.why_nothing(NOW)[0]


def test_an_end_on_its_way_is_reported() -> None:
    queue = queue_of(5)
    queue.settle(None, BitMap64([5]), "ack", NOW)
    assert queue.why_nothing(NOW) == ["1 messages are done; that is on its way to the disk"]
    assert queue.where(5, NOW).state == "going"
