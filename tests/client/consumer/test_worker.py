"""Workers: handlers in threads."""

from __future__ import annotations

import logging
import threading

import pytest

import zbroker
from tests.client.fakes import WAIT_S as T
from tests.client.fakes import wait_until
from zbroker.errors import ZBrokerError
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q


def test_a_handler_that_returns_acks_its_message(broker, client):
    broker.publish(200)
    out = []
    worker = client.worker("work", lambda message: out.append(message.position))
    worker.run(until=lambda: worker.handled == 200)
    assert sorted(out) == broker.acked == list(range(1, 201))
    assert (worker.handled, worker.failed, worker.consumer.unsettled) == (200, 0, 0)
    assert repr(worker) == "Worker(handled=200, failed=0)"


def test_handlers_run_at_the_same_time(broker, client):
    broker.publish(4)
    together = threading.Barrier(4)
    worker = client.worker("work", lambda _message: together.wait(T), concurrency=4)
    worker.run(until=lambda: worker.handled == 4)
    assert broker.acked == [1, 2, 3, 4]


def test_a_handler_that_raises_releases_its_message(broker, client):
    broker.publish(3)
    reported = []

    def fail_once(message):
        if message.position == 2 and not message.redelivered:
            raise ValueError("two")

    worker = client.worker("work", fail_once, on_error=lambda *what: reported.append(what))
    worker.run(until=lambda: worker.handled == 3)
    assert broker.acked == [1, 2, 3]
    assert broker.listener.released == [(2, 0)]
    ((message, error),) = reported
    assert (message.position, str(error), worker.failed) == (2, "two", 1)


def test_what_a_handler_raises_is_logged_if_no_one_asked_for_it(broker, client, caplog):
    broker.publish()

    def fail_once(message):
        if not message.redelivered:
            raise ValueError("one")

    with caplog.at_level(logging.ERROR, "zbroker.client"):
        worker = client.worker("work", fail_once)
        worker.run(until=lambda: worker.handled == 1)
    assert "client.handler_failed: message 7|1| of 't' goes back" in caplog.text


def test_a_callback_that_fails_does_not_end_the_worker(broker, client, caplog):
    broker.publish(2)

    def fail(*_what):
        raise ValueError("again")

    worker = client.worker("work", fail, on_error=fail)
    with caplog.at_level(logging.ERROR, "zbroker.client"):
        worker.run(until=lambda: worker.failed >= 4)
    assert "client.callback_failed" in caplog.text
    assert worker.error is None


def test_a_handler_rejects_what_is_no_good(broker, client):
    broker.publish(2)

    def reject(message):
        if message.position == 1:
            raise zbroker.Reject("no good")

    worker = client.worker("work", reject)
    worker.run(until=lambda: worker.handled + worker.failed == 2)
    assert broker.listener.gone == {1: "rejected", 2: "acked"}
    assert broker.commands(q.RejectMessages)[0].reason == "no good"


def test_a_handler_may_settle_its_message_itself(broker, client):
    broker.publish(1)
    worker = client.worker("work", lambda message: message.reject("mine"))
    worker.run(until=lambda: worker.handled == 1)
    assert broker.listener.gone == {1: "rejected"}


def test_stopping_lets_handlers_end_and_gives_back_what_waits(broker, client):
    broker.publish(10)
    inside, go_on = threading.Semaphore(0), threading.Event()

    def slow(_message):
        inside.release()
        go_on.wait(T)

    worker = client.worker("work", slow, concurrency=2).start()
    assert inside.acquire(timeout=T)
    assert inside.acquire(timeout=T)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    wait_until(lambda: worker._stopping)
    go_on.set()
    stopping.join(T)
    assert not stopping.is_alive()
    assert len(broker.acked) == worker.handled == 2
    wait_until(lambda: not broker.listener.takers)


def test_a_handler_that_does_not_end_is_a_timeout_and_its_message_comes_back(broker, client):
    broker.publish()
    inside, go_on = threading.Event(), threading.Event()

    def slow(_message):
        inside.set()
        go_on.wait(T)

    worker = client.worker("work", slow).start()
    assert inside.wait(T)
    with pytest.raises(ZBrokerError, match="timeout: 1 handlers"):
        worker.stop(0.05)
    wait_until(lambda: not broker.listener.takers)
    go_on.set()
    wait_until(lambda: not any(thread.is_alive() for thread in worker._threads))
    assert worker.error.code == "closed"
    assert broker.acked == []


def test_a_handler_may_stop_its_worker(broker, client):
    broker.publish(5)
    worker = client.worker("work", lambda _message: worker.stop(), concurrency=1)
    worker.run()
    assert (worker.handled, broker.acked) == (1, [1])


def test_what_ends_the_consumer_ends_the_worker(broker, client):
    worker = client.worker("work", print)
    running = threading.Thread(target=lambda: outcome.append(_error_of(worker.run)))
    outcome = []
    running.start()
    wait_until(lambda: broker.listener.takers)
    (key,) = broker.listener.takers
    broker.do(lambda: broker._answer("queues", key[0], m.Error("internal", "gone", sid=key[1])))
    running.join(T)
    assert outcome == ["internal"]


def _error_of(function):
    try:
        function()
    except ZBrokerError as error:
        return error.code


def test_an_exception_that_is_none_of_a_handler_ends_its_thread(broker, client, caplog):
    broker.publish()

    def leave(message):
        if not message.redelivered:
            raise SystemExit

    with caplog.at_level(logging.ERROR, "zbroker.client"):
        worker = client.worker("work", leave, concurrency=2)
        with pytest.raises(SystemExit):
            worker.run(until=lambda: worker.handled == 1)
    assert "client.worker_failed" in caplog.text
    assert broker.acked == [1]


def test_a_worker_is_started_once_and_stopped_as_often_as_one_likes(broker, client):
    with client.worker("work", print) as worker:
        with pytest.raises(ZBrokerError, match="closed"):
            worker.start()
        worker.stop()
    other = client.worker("work", print)
    assert other.consumer is None
    other.stop()


def test_a_refusal_is_raised_by_its_start(broker, client):
    worker = client.worker("work", print)
    broker.listener.code = "not_entitled"
    with pytest.raises(ZBrokerError, match="not_entitled"):
        worker.start()


@pytest.mark.parametrize("wrong", [0, -1, True, "4"])
def test_a_wrong_concurrency_is_a_bad_field(client, wrong):
    with pytest.raises(ZBrokerError, match="bad_field"):
        client.worker("work", print, concurrency=wrong)
