"""zbroker/queues/work/session_consumers.py: consumers whose messages have no lease."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from tests.queues.work.test_queue import config
from zbroker.engine.contract import Now
from zbroker.queues.work import session_consumers
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Arrivals

KEY, OTHER, PLAIN = 1, 2, 3
BILLS = ("ann", "bills")


def at(ms: int) -> Now:
    return Now(ms, 10**15 + ms * 1_000_000)


def kept(filtered: bool = False, **more: Any) -> Queue:
    """A consumer of a session has three messages, another one has three more."""
    queue = Queue(config(max_per_subscription=3, **more))
    for key, session in ((KEY, BILLS), (OTHER, ("ann", "other"))):
        queue.join(key, f"c{key}", 0, filtered and key == OTHER, at(0))
        assert session_consumers.add(queue, key, session)
    queue.entered(Arrivals(BitMap64(range(1, 7))))
    if filtered:
        queue.looked(OTHER, BitMap64(range(1, 7)), BitMap64(range(1, 7)))
    queue.offer(at(0), {})
    queue.check()
    assert [len(queue.leased(key)) for key in (KEY, OTHER)] == [3, 3]
    return queue


@pytest.mark.parametrize("filtered", [False, True])
def test_nothing_ends_what_they_hold(filtered: bool) -> None:
    queue = kept(filtered)
    queue.lose(OTHER, at(0))
    queue.settle(PLAIN if queue.has(PLAIN) else None, BitMap64([1, 2]), "extend", at(1), lease_ms=1)
    assert queue.next_wake(at(1)) is None
    assert queue.tick(at(10**9)) == []
    assert len(queue.leased(None)) == 6


def test_the_end_of_one_session_is_not_that_of_another() -> None:
    queue = kept()
    held = queue.leased(KEY)
    assert session_consumers.end(queue, BILLS, at(5), failed=False) == []
    assert not queue.has(KEY)
    assert queue.leased(None) == queue.leased(OTHER)
    assert queue.deliveries_of(held) == [2, 2, 2]
    queue.check()


@pytest.mark.parametrize("lost", [False, True])
def test_an_end_by_others_is_recorded_as_a_failure(lost: bool) -> None:
    queue = kept()
    held = queue.leased(KEY)
    if lost:
        queue.lose(KEY, at(0))
    [outcome] = session_consumers.end(queue, BILLS, at(5), failed=True)
    assert (outcome.positions, outcome.fate, outcome.why) == (held, "failed", "lease_ended")
    assert not queue.has(KEY)
    queue.check()


def test_one_that_holds_nothing_just_ends() -> None:
    queue = kept()
    queue.gone(queue.leased(KEY))
    assert session_consumers.end(queue, BILLS, at(5), failed=True) == []
    assert not queue.has(KEY)


def test_what_is_kept_over_a_lost_connection_has_no_lease_either() -> None:
    queue = kept()
    held = queue.leased(KEY)
    queue.lose(KEY, at(0))
    queue.join(9, f"c{KEY}", 0, False, at(1))
    session_consumers.add(queue, 9, BILLS)
    assert queue.reclaim(9, f"c{KEY}", held, at(1)) == held
    assert queue.tick(at(10**9)) == []
    queue.check()


def test_a_consumer_of_no_session_has_leases_beside_them() -> None:
    queue = kept()
    queue.join(PLAIN, "p", 0, False, at(0))
    queue.entered(Arrivals(BitMap64([7])))
    queue.offer(at(0), {})
    [outcome] = queue.tick(at(10_000))
    assert outcome.positions == BitMap64([7])


def test_at_most_once_there_is_nothing_to_keep() -> None:
    queue = Queue(config(semantics="at-most-once"))
    queue.join(KEY, "c", 0, False, at(0))
    assert not session_consumers.add(queue, KEY, BILLS)
    assert session_consumers.end(queue, BILLS, at(5), failed=True) == []
    assert queue.has(KEY)
