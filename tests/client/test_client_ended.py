"""A client that ends takes its subscriptions and consumers along: they end with its error."""

from __future__ import annotations

import gc
import threading

import pytest

from tests.client.consumer.fakes import QueueBroker
from tests.client.fakes import WAIT_S as T
from tests.client.fakes import FakeBroker, wait_until
from zbroker.client import connect
from zbroker.errors import ZBrokerError
from zbroker.wire import queue_messages as q


def in_thread(read):
    """What `read` raises in a thread, which is waited for."""
    raised = []

    def run():
        try:
            read()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(T)
        assert not thread.is_alive(), "it waits for ever"
        assert len(raised) == 1
        return raised[0]

    return result


READERS = {
    "next": lambda one: one.next(),
    "iteration": list,
    "batches": lambda one: list(one.batches()),
}


@pytest.mark.seed("002-33")
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_reader_that_waits_learns_what_ended_its_client(broker, client, read):
    subscription = client.subscribe("a")
    result = in_thread(lambda: read(subscription))
    broker.end_sessions()
    assert result().code == "session_ended"
    assert subscription.error.code == "session_ended"


def test_what_came_in_is_handed_out_before_the_error(broker, client, numbered):
    subscription = client.subscribe("a", since="epoch")
    assert subscription.next(T).data == numbered[0]
    wait_until(lambda: broker._subscriptions)
    broker.end_sessions()
    wait_until(lambda: subscription.error is not None)
    rest = []
    with pytest.raises(ZBrokerError, match="session_ended"):
        rest.extend(message.data for message in subscription)
    assert rest == numbered[1 : 1 + len(rest)]


def test_a_handler_ends_with_the_error(broker, client):
    subscription = client.subscribe("a", handler=lambda _message: None)
    broker.end_sessions()
    with pytest.raises(ZBrokerError, match="session_ended"):
        subscription.join(T)


def test_those_read_together_end_with_the_error(broker, client):
    many = [client.subscribe(topic, since="epoch", paused=True) for topic in "ab"]
    together = client.resume(many)
    result = in_thread(together.next)
    broker.end_sessions()
    assert result().code == "session_ended"
    wait_until(lambda: all(one.error is not None for one in many))


def test_a_question_without_an_answer_ends_with_the_error(broker, client):
    subscription = client.subscribe("a")
    broker.mute = True
    result = in_thread(lambda: subscription.pause(T))
    wait_until(lambda: broker.asked)
    broker.end_sessions()
    assert result().code == "session_ended"


def test_a_subscription_that_is_not_accepted_yet_ends_with_the_error(broker, client):
    result = in_thread(lambda: client.subscribe("silent", timeout=T * 6))
    wait_until(lambda: broker.subscribes)
    broker.end_sessions()
    assert result().code == "session_ended"


def test_nothing_new_is_asked_of_a_client_that_ended(broker, client):
    broker.end_sessions()
    wait_until(lambda: client.publisher and client._track.error is not None)
    for ask in (client.subscribe, client.consume):
        with pytest.raises(ZBrokerError, match="session_ended"):
            ask("a")


def test_a_client_that_gave_up_takes_its_subscriptions_along():
    with (
        FakeBroker() as broker,
        connect(broker.url, "p", timeout=T, give_up=0.3) as client,
    ):
        subscription = client.subscribe("a")
        result = in_thread(subscription.next)
        broker.stop()
        assert result().code == "gave_up"


def test_closing_a_client_ends_iterations_without_an_error(broker, client):
    subscription = client.subscribe("a")
    out = []
    thread = threading.Thread(target=lambda: out.append(subscription.next()), daemon=True)
    thread.start()
    client.close()
    thread.join(T)
    assert out == [None]
    assert subscription.error is None


def test_a_subscription_keeps_its_client(broker):
    subscription = connect(broker.url, "p", timeout=T).subscribe("a")
    gc.collect()
    broker.append("a", b"1")
    assert subscription.next(T).data == b"1"
    subscription.close()


# -- queues -----------------------------------------------------------------------------------


@pytest.fixture
def queues():
    with QueueBroker() as fake:
        yield fake


def test_a_consumer_that_waits_learns_what_ended_its_client(queues):
    with connect(queues.url, "worker", timeout=T) as client:
        consumer = client.consume("work")
        result = in_thread(lambda: consumer.fetch(1))
        queues.end_sessions()
        assert result().code == "session_ended"
        assert consumer.error.code == "session_ended"


def test_what_a_consumer_held_goes_back_when_its_client_ends(queues):
    with connect(queues.url, "worker", timeout=T) as client:
        consumer = client.consume("work")
        queues.publish(2)
        (message,) = consumer.fetch(1, timeout=T)
        queues.end_sessions()
        wait_until(lambda: consumer.error is not None)
        with pytest.raises(ZBrokerError, match="session_ended"):
            message.ack()
        wait_until(lambda: queues.commands(q.Cancel))


def test_a_worker_ends_with_the_error(queues):
    with connect(queues.url, "worker", timeout=T) as client:
        worker = client.worker("work", lambda _message: None)
        result = in_thread(worker.run)
        wait_until(lambda: worker.consumer is not None)
        queues.end_sessions()
        assert result().code == "session_ended"


def test_a_consumer_keeps_its_client(queues):
    consumer = connect(queues.url, "worker", timeout=T).consume("work")
    gc.collect()
    queues.publish(1)
    (message,) = consumer.fetch(1, timeout=T)
    message.ack()
    consumer.close()
