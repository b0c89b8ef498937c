"""What is locked while units are refused, or while it is given away: it stays so, and comes back at
the next decision."""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work import locks
from zbroker.queues.work.grants import grant
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Arrivals, Lock, Outcome

NOW = Now(1_000, 10**15)
ONE = BitMap64([5])
BRANCH = ("ann", "token")


def _rolled_back_and_acknowledged() -> tuple[Queue, Outcome, Outcome]:
    """A queue with one locked message; the units that bring it back, and take it out, are under
    way."""
    queue = Queue(QueueConfig("q"))
    queue.entered(Arrivals(ONE))
    locks.locked(queue, ONE, Lock(BRANCH))
    [back] = locks.decide(queue, BRANCH, committed=False)
    [gone] = queue.settle(None, ONE, "ack", NOW).outcomes
    return queue, back, gone


def _comes_back(queue: Queue, outcome: Outcome) -> bool:
    queue.failed(outcome.positions, outcome.why, outcome.due_ns)
    queue.check()
    queue.join(1, "ann", 0, False, NOW)
    return bool(queue.offer(NOW, {1: True}))


def _is_gone(queue: Queue, outcome: Outcome) -> bool:
    queue.check()
    queue.gone(outcome.positions)
    queue.check()
    return not queue.here and not queue.places.locks


def test_it_stays_locked_when_both_units_are_refused() -> None:
    queue, back, gone = _rolled_back_and_acknowledged()
    for outcome in (back, gone):
        queue.undo(outcome)
        queue.check()
    assert list(queue.places.locks.all) == [5]
    [again] = locks.decide(queue, BRANCH, committed=False)
    assert _comes_back(queue, again)


def test_it_comes_back_when_only_the_acknowledgement_is_refused() -> None:
    queue, back, gone = _rolled_back_and_acknowledged()
    queue.undo(gone)
    queue.check()
    assert _comes_back(queue, back)


def test_it_is_gone_when_only_the_roll_back_is_refused() -> None:
    queue, back, gone = _rolled_back_and_acknowledged()
    queue.undo(back)
    assert _is_gone(queue, gone)


def _granted_and_locked() -> Queue:
    """A queue with one message that goes to another instance; meanwhile one that had it, too, has
    locked it."""
    queue = Queue(QueueConfig("q"))
    queue.entered(Arrivals(ONE))
    [outcome] = grant(queue, 1)
    locks.locked(queue, ONE, Lock(BRANCH))
    assert outcome.positions == ONE
    return queue


def test_a_message_that_is_given_away_stays_locked() -> None:
    queue = _granted_and_locked()
    queue.disown(ONE)
    queue.granted(ONE)
    queue.check()
    assert queue.places.locks.all == ONE


def test_it_stays_locked_where_the_gift_does_not_hold() -> None:
    queue = _granted_and_locked()
    queue.granted(ONE)
    queue.check()
    queue.join(2, "bob", 0, False, NOW)
    assert not queue.offer(NOW, {2: True})
    queue.leave(2)
    [back] = locks.decide(queue, BRANCH, committed=False)
    assert _comes_back(queue, back)


def test_it_is_rolled_back_while_it_is_given_away() -> None:
    queue = _granted_and_locked()
    [back] = locks.decide(queue, BRANCH, committed=False)
    queue.granted(ONE)
    queue.check()
    assert _comes_back(queue, back)


def test_it_is_committed_while_it_is_given_away() -> None:
    queue = _granted_and_locked()
    [gone] = locks.decide(queue, BRANCH, committed=True)
    queue.granted(ONE)
    assert _is_gone(queue, gone)
