"""Answers about replicated queues wait for synchronous destinations."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.test_replicated import QUEUE, Shared
from zbroker.config import QueueConfig
from zbroker.engine.news_need import FOLLOW_MS
from zbroker.wire import queue_messages as q
from zbroker.wire.replicas import Replicated

ONCE = QueueConfig("q", topic="t", scope="distributed", semantics="at-most-once")


class Synced(Shared):
    """An instance with a synchronous destination."""

    def __init__(self, *configs: QueueConfig, **more: Any) -> None:
        super().__init__(*(configs or (QUEUE,)), sync=True, **more)

    def replicated(self, through: int | None = None) -> None:
        """It holds everything below this position: all that is here now."""
        self.turn.hear(Replicated(self.journal, through or self.position, 1))
        self.run()

    def settled(self) -> list[int]:
        """How many messages each answer is about."""
        return [one.taken for _, one in self.answers if isinstance(one, q.Settled)]


@pytest.fixture
def bench() -> Synced:
    bench = Synced()
    bench.consume(backlog=10)
    return bench


@pytest.mark.seed("000-20")
def test_delivery_at_the_owner_waits_for_no_other_instance(bench: Synced) -> None:
    mine = bench.many(3)
    assert bench.got() == mine
    assert bench.to_replication == [], "it says nothing to others for it"


def test_an_answer_waits_until_enough_destinations_know(bench: Synced) -> None:
    one, two, three = bench.many(3)
    bench.ack(one)
    bench.release(two)
    bench.settle(q.RejectMessages, [three], "s")
    assert bench.settled() == []
    first = bench.position - 2
    bench.replicated(first)
    assert bench.settled() == [1]
    bench.replicated()
    assert bench.settled() == [1, 1, 1]
    assert not bench.core.shared.promises


def test_what_is_replicated_already_is_answered_at_once(bench: Synced) -> None:
    [one] = bench.many(1)
    bench.replicated(1 << 40)
    bench.ack(one)
    assert bench.settled() == [1]


def test_an_acknowledgement_that_is_repeated_waits_for_the_first_one(bench: Synced) -> None:
    [one] = bench.many(1)
    bench.ack(one)
    bench.ack(one)
    assert bench.settled() == []
    bench.replicated()
    assert bench.settled() == [1, 0]


def test_what_was_done_before_this_process_began_is_waited_for(bench: Synced) -> None:
    [one] = bench.many(1)
    bench.ack(one)
    bench.restart()
    bench.logon()
    bench.answers.clear()
    bench.ack(one, sid=None, queue="q")
    assert bench.settled() == []
    bench.replicated()
    assert bench.settled() == [0]


def test_more_time_is_answered_at_once(bench: Synced) -> None:
    [one] = bench.many(1)
    bench.settle(q.Extend, [one], "s")
    assert bench.settled() == [1]


def test_a_refusal_is_answered_at_once(bench: Synced) -> None:
    [one] = bench.many(1)
    bench.holding = True
    bench.ack(one)
    bench.refuse()
    assert bench.last().code


def test_positions_of_a_journal_before_cover_nothing(bench: Synced) -> None:
    [one] = bench.many(1)
    bench.ack(one)
    bench.turn.hear(Replicated(bench.journal + 1, 1 << 40, 1))
    bench.run()
    assert bench.settled() == []
    bench.die()
    bench.come_back()
    assert bench.settled() == [1], "the one that listens now"


def test_a_message_that_is_sent_once_is_done_at_destinations_before() -> None:
    bench = Synced(ONCE)
    bench.consume()
    mine = bench.many(1)
    assert bench.got() == []
    bench.replicated()
    assert bench.got() == mine


def test_local_queues_wait_for_no_destination() -> None:
    bench = Synced(QueueConfig("q", topic="t"))
    bench.consume()
    [one] = bench.many(1)
    bench.ack(one)
    assert bench.settled() == [1]


def test_without_synchronous_destinations_nothing_waits() -> None:
    bench = Shared(replicates=True)
    bench.peers_read()
    bench.consume()
    [one] = bench.many(1)
    bench.ack(one)
    assert bench.last().taken == 1


def test_each_mark_is_followed_while_an_answer_waits(bench: Synced) -> None:
    [one, two] = bench.many(2)
    assert bench.followed == []
    bench.ack(one)
    assert bench.followed == [True]
    bench.replicated()
    bench.pass_ms(FOLLOW_MS + 1)
    assert bench.followed == [True, False]
    bench.ack(two)
    assert bench.followed == [True, False, True]
    bench.replicated()
    assert bench.settled() == [1, 1]
