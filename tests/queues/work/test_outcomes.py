"""What becomes of messages that come back, or go."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work.delays import due_of
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import MS_NS, Arrivals, Outcome

NOW = Now(1_000, 10**15)
ONE = BitMap64([5])


def leased(**kwargs: Any) -> Queue:
    """A queue with one message, which is leased."""
    queue = Queue(QueueConfig("q", **kwargs))
    queue.entered(Arrivals(ONE))
    queue.join(1, "ann", 0, False, NOW)
    assert queue.offer(NOW, {1: True})
    return queue


def release(queue: Queue, **kwargs: Any) -> Outcome:
    (outcome,) = queue.settle(1, ONE, "release", NOW, **kwargs).outcomes
    return outcome


def fail(queue: Queue, times: int) -> None:
    for _ in range(times):
        outcome = release(queue)
        queue.failed(outcome.positions, outcome.why, 0)
        assert queue.offer(NOW, {1: True})


def test_a_rejected_one_is_a_dead_letter_with_the_text_that_was_given() -> None:
    queue = leased(dead_letter="dead")
    (outcome,) = queue.settle(1, ONE, "reject", NOW, reason="not json").outcomes
    assert outcome == Outcome(ONE, "gone", "rejected", letter="not json")


def test_without_a_topic_for_them_there_are_no_dead_letters() -> None:
    (outcome,) = leased().settle(1, ONE, "reject", NOW, reason="not json").outcomes
    assert outcome == Outcome(ONE, "gone", "rejected")


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_as_many_deliveries_as_the_limit_are_made(limit: int) -> None:
    queue = leased(max_deliveries=limit, dead_letter="dead")
    fail(queue, limit - 1)
    assert release(queue) == Outcome(ONE, "gone", "max_deliveries", letter="max_deliveries")


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_as_many_releases_as_the_limit_are_made(limit: int) -> None:
    queue = leased(max_cancels=limit)
    fail(queue, limit - 1)
    assert release(queue) == Outcome(ONE, "gone", "max_cancels")


def test_a_lease_that_ends_is_no_release() -> None:
    queue = leased(max_cancels=1, lease=100)
    (outcome,) = queue.tick(Now(1_100, NOW.wall_ns))
    assert outcome == Outcome(ONE, "failed", "lease_ended")


def test_each_failure_waits_for_the_next_delay_and_the_last_one_holds() -> None:
    queue, reported = leased(retry_delay=[10, 300]), []
    for _ in range(3):
        outcome = release(queue)
        reported.append((outcome.due_ns - NOW.wall_ns) // MS_NS)
        queue.failed(outcome.positions, outcome.why, 0)
        queue.offer(NOW, {1: True})
    assert reported == [10, 300, 300]


def test_a_delay_that_is_asked_for_is_the_one_that_counts() -> None:
    outcome = release(leased(retry_delay=[10]), delay_ms=77)
    assert outcome.due_ns == NOW.wall_ns + 77 * MS_NS


def test_an_acknowledgement_counts_though_the_lease_has_ended() -> None:
    queue = leased(lease=100)
    (failed,) = queue.tick(Now(1_100, NOW.wall_ns))
    result = queue.settle(1, ONE, "ack", NOW)
    assert (result.taken, result.outcomes) == (1, [Outcome(ONE, "gone", "acked")])
    queue.failed(failed.positions, failed.why, failed.due_ns)
    assert not queue.offer(NOW, {1: True})
    queue.gone(ONE)
    assert not queue.here


def test_what_expires_while_it_is_leased_goes_when_it_comes_back() -> None:
    queue = Queue(QueueConfig("q", dead_letter="dead"))
    queue.entered(Arrivals(ONE, expires=[(NOW.wall_ns + 5, 5, 6)]))
    queue.join(1, "ann", 0, False, NOW)
    queue.offer(NOW, {1: True})
    assert queue.tick(Now(NOW.mono_ms, NOW.wall_ns + 5)) == []
    assert release(queue) == Outcome(ONE, "gone", "time_limit", letter="time_limit")


@pytest.mark.parametrize("jump_ns", [36_500 * 86_400 * 10**9, -3_650 * 86_400 * 10**9])
def test_a_wall_clock_that_was_wrong_neither_ends_nor_lengthens_a_delay(jump_ns: int) -> None:
    """It is set while a message is given back, and set right again."""
    zero_ns = NOW.wall_ns
    right = Now(1_000, zero_ns + 1_000 * MS_NS, zero_ns)
    wrong = replace(right, wall_ns=right.wall_ns + jump_ns)
    assert due_of(wrong.steady_ns, 2_000) == due_of(right.steady_ns, 2_000)
    queue = Queue(QueueConfig("q"))
    queue.entered(Arrivals(ONE))
    queue.failed(ONE, "cancelled", due_of(wrong.steady_ns, 2_000))
    for now in (right, wrong):
        assert queue.tick(now) == []
        assert queue.where(5, right).state == "delayed"
        wake_ms = queue.next_wake(now)
        assert wake_ms is not None
        assert 2_900 <= wake_ms <= 3_100
    queue.tick(replace(wrong, mono_ms=3_100))
    assert queue.where(5, right).state == "ready"


def test_a_delay_of_a_process_that_began_under_a_wrong_clock_ends_with_the_next_process() -> None:
    """The wall clock is a century ahead at first; then it is set right, and the process ends."""
    century_ns = 36_500 * 86_400 * 10**9
    wrong = Now(1_000, NOW.wall_ns + century_ns, NOW.wall_ns + century_ns)
    first = leased(retry_delay=[2_000])
    (outcome,) = first.settle(1, ONE, "release", wrong).outcomes
    first.failed(outcome.positions, outcome.why, outcome.due_ns, outcome.delay_ms)
    second = Queue(QueueConfig("q", retry_delay=[2_000]))
    second.load(first.dump())
    folded = Queue(QueueConfig("q", retry_delay=[2_000]))
    folded.entered(Arrivals(ONE))
    folded.failed(outcome.positions, outcome.why, outcome.due_ns, outcome.delay_ms)
    right = Now(0, NOW.wall_ns, NOW.wall_ns)
    for queue in (second, folded):
        assert queue.next_wake(right) == 0
        assert queue.tick(right) == []
        assert queue.where(5, right).state == "delayed"
        assert queue.next_wake(right) == 2_000
        queue.tick(replace(right, mono_ms=2_000))
        assert queue.where(5, right).state == "ready"
