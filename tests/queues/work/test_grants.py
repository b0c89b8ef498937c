"""zbroker/queues/work/grants.py: which messages may go to another instance."""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.config import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work.grants import grant, owned
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Arrivals

NOW = Now(0, 1_000_000_000)


def queue(count: int = 6, **more: object) -> Queue:
    """Messages 1 to `count`; 5 is a barrier, and the last one belongs to another instance."""
    made = Queue(QueueConfig("q", topic="t", barrier="/b = 1", **more))  # type: ignore[arg-type]
    made.entered(Arrivals(BitMap64(range(1, count + 1)), barriers=BitMap64([5])))
    made.disown(BitMap64([count]))
    return made


def positions(one: Queue, limit: int = 100, *, leaving: bool) -> list[int]:
    return [at for outcome in grant(one, limit, leaving=leaving) for at in outcome.positions]


def test_an_instance_that_asks_gets_what_could_be_offered() -> None:
    assert positions(queue(), leaving=False) == [1, 2, 3, 4]


def test_one_that_is_to_stop_gives_all_that_it_owns_the_oldest_first() -> None:
    one = queue()
    assert positions(one, 3, leaving=True) == [1, 2, 3]
    assert positions(one, leaving=True) == [4, 5]
    assert positions(one, leaving=True) == []
    one.check()


def test_neither_of_a_consumer_nor_what_is_done_is_given() -> None:
    one = queue()
    one.join(7, "c", 2, filtered=False, now=NOW)
    one.offer(NOW, {})
    one.settle(None, BitMap64([3]), "ack", NOW)
    assert list(owned(one)) == [4, 5]
    assert positions(one, leaving=True) == [4, 5]


def test_those_that_were_refused_may_be_given_again() -> None:
    one = queue()
    [outcome] = grant(one, 100, leaving=True)
    one.undo(outcome)
    one.check()
    assert positions(one, leaving=True) == [1, 2, 3, 4, 5]


def test_what_is_useless_here_is_what_no_consumer_with_room_can_take() -> None:
    one = Queue(QueueConfig("q", topic="t", max_backlog=3))
    one.entered(Arrivals(BitMap64(range(1, 7))))
    assert one.untaken() is None, "there is no consumer"
    one.join(7, "c", 1, filtered=True, now=NOW)
    one.join(8, "c", 1, filtered=True, now=NOW)
    one.looked(7, BitMap64(range(1, 6)), BitMap64([1]))
    assert one.untaken() == BitMap64(), "the other one was compared with nothing"
    one.looked(8, BitMap64(range(1, 7)), BitMap64([2]))
    assert one.untaken() == BitMap64([3, 4, 5])
    one.offer(NOW, {8: False})
    assert one.untaken() is None, "one is full, the other one has no credit"
    one.join(9, "c", 9, filtered=False, now=NOW)
    assert one.untaken() == BitMap64(), "that one takes any"
    one.offer(NOW, {8: False})
    assert one.untaken() is None, "the limit of the queue is reached"


def test_messages_of_a_key_stay() -> None:
    one = Queue(QueueConfig("q", topic="t", group_key="/k"))
    one.entered(Arrivals(BitMap64([1])))
    assert grant(one, 1, leaving=True) == []
