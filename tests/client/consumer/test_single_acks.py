"""zbroker/client/consumer/single_acks.py: none is lost between threads that ack and the turn."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from tests.client.consumer.fakes import QueueBroker
from tests.client.consumer.wired import Wired
from tests.client.times import at
from zbroker import connect
from zbroker.client.consumer.single_acks import Acked, SingleAcks
from zbroker.engine.contract import Limit
from zbroker.errors import ZBrokerError

T = 20.0
THREADS = 4
MESSAGES = 5_000


@pytest.fixture
def eager() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_the_first_one_calls_for_a_turn_that_takes_all() -> None:
    acks, messages = SingleAcks(), list("abc")
    assert acks.next_wake_ms() is None
    assert [acks.add(each) for each in messages] == [True, False, False]
    assert acks.next_wake_ms() == 0
    assert list(acks.events({}, Limit(1))) == [Acked(messages)]
    assert list(acks.events({}, Limit(1))) == []
    assert acks.next_wake_ms() is None
    assert acks.add("d"), "it calls for another turn"


def test_after_every_ack_of_several_threads_a_turn_comes(eager: None) -> None:
    """Whoever is told to call for a turn does so; that takes all that is there by then."""
    acks, taken, called = SingleAcks(), [], threading.Event()

    def ack(thread: int) -> None:
        for number in range(MESSAGES):
            if acks.add((thread, number)):
                called.set()

    threads = [threading.Thread(target=ack, args=(n,), daemon=True) for n in range(THREADS)]
    for each in threads:
        each.start()
    while len(taken) < THREADS * MESSAGES:
        assert called.wait(20), f"{len(taken)} came, and no turn is called for"
        called.clear()
        taken += acks.take()
    for each in threads:
        each.join(20)
    for thread in range(THREADS):
        assert [n for t, n in taken if t == thread] == list(range(MESSAGES))


def test_of_many_those_count_that_are_in_hand() -> None:
    wired = Wired().live(3)
    one, two, _three = wired.out(3)
    wired.ack(one)
    wired.core.handle(Acked([one, two, two]), at(wired.now))
    assert set(wired.core.settling.under_way("ack")) == {one._at, two._at}
    assert len(wired.core.held) == 1


def test_acks_before_a_release_of_the_same_message_count() -> None:
    """What the program does next comes after the acks before it, also without a turn between."""
    with QueueBroker() as broker, connect(broker.url, "worker") as client:
        broker.publish(2)
        consumer = client.consume("work")
        one, two = consumer.fetch(2, T)
        one.ack()
        one.release()
        two.release()
        consumer.flush(T)
        assert broker.acked == [1]


def test_an_ack_of_a_consumer_that_is_closed_says_so() -> None:
    with QueueBroker() as broker, connect(broker.url, "worker") as client:
        broker.publish(1)
        consumer = client.consume("work")
        (message,) = consumer.fetch(1, T)
        consumer.close()
        with pytest.raises(ZBrokerError, match="closed"):
            message.ack()
