"""Subscriptions that a handler reads."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.client.fakes import WAIT_S as T
from tests.client.fakes import wait_until
from zbroker.errors import ZBrokerError


def test_a_handler_gets_every_message_of_a_range(client, numbered):
    out = []
    subscription = client.subscribe("a", since="epoch", until="now", handler=out.append)
    subscription.join(T)
    assert [message.data for message in out] == numbered
    assert subscription.error is None
    subscription.close()


def test_an_exception_in_a_handler_ends_the_subscription(broker, client, numbered, caplog):
    def fail(message):
        if message.data == b"3":
            raise ValueError("three")

    with caplog.at_level(logging.ERROR, "zbroker.client"):
        subscription = client.subscribe("a", since="epoch", handler=fail)
        with pytest.raises(ValueError, match="three"):
            subscription.join(T)
    assert "client.handler_failed" in caplog.text
    assert isinstance(subscription.error, ValueError)
    subscription.close()
    wait_until(lambda: not broker._subscriptions)


def test_closing_raises_what_was_not_reported(client, numbered):
    def fail(_message):
        raise ValueError("now")

    subscription = client.subscribe("a", since="epoch", handler=fail)
    wait_until(lambda: subscription.error is not None)
    with pytest.raises(ValueError, match="now"):
        subscription.close()
    subscription.close()


def test_leaving_a_block_by_an_exception_keeps_that_exception(client, numbered):
    def fail(_message):
        raise ValueError("handler")

    def use():
        with client.subscribe("a", since="epoch", handler=fail) as subscription:
            wait_until(lambda: subscription.error is not None)
            raise KeyError

    with pytest.raises(KeyError):
        use()


def test_a_handler_closes_its_own_subscription(client, numbered):
    out = []

    def some(message):
        out.append(message.data)
        if len(out) == 5:
            subscription.close()

    begun = threading.Event()

    def wait_for_name(message):
        begun.wait(T)
        some(message)

    subscription = client.subscribe("a", since="epoch", handler=wait_for_name)
    begun.set()
    subscription.join(T)
    assert out == numbered[:5]


def test_a_handler_pauses_its_own_subscription(client, numbered):
    out, begun = [], threading.Event()

    def some(message):
        begun.wait(T)
        out.append(message.data)
        if len(out) % 50 == 0:
            subscription.pause(T)
            subscription.resume(T)

    subscription = client.subscribe("a", since="epoch", until="now", handler=some)
    begun.set()
    subscription.join(T)
    assert out == numbered


def test_closing_waits_for_the_call_under_way(client, numbered):
    inside, go_on, out = threading.Event(), threading.Event(), []

    def slow(message):
        inside.set()
        go_on.wait(T)
        out.append(message.data)

    subscription = client.subscribe("a", since="epoch", handler=slow)
    assert inside.wait(T)
    closing = threading.Thread(target=subscription.close)
    closing.start()
    wait_until(lambda: subscription._closed)
    assert closing.is_alive()
    go_on.set()
    closing.join(T)
    assert out == numbered[:1]


def test_what_the_broker_ends_it_with_is_kept(broker, client, numbered):
    broker.corrupt = True
    subscription = client.subscribe("a", since="epoch", handler=lambda _message: None)
    with pytest.raises(ZBrokerError, match="bad_checksum"):
        subscription.join(T)
    assert subscription.error.code == "bad_checksum"


def test_no_one_else_reads_what_a_handler_reads(client):
    with client.subscribe("a", handler=lambda _message: None) as subscription:
        with pytest.raises(RuntimeError):
            next(iter(subscription))
        with pytest.raises(RuntimeError):
            next(subscription.batches())
        with pytest.raises(RuntimeError):
            subscription.next(0)


def test_joining_needs_a_handler_and_may_time_out(client):
    with client.subscribe("a") as plain, pytest.raises(ZBrokerError, match="bad_field"):
        plain.join(T)
    with (
        client.subscribe("a", handler=lambda _message: None) as subscription,
        pytest.raises(ZBrokerError, match="timeout"),
    ):
        subscription.join(0.02)


def test_a_handler_cannot_wait_for_itself(client, numbered):
    begun = threading.Event()

    def join(_message):
        begun.wait(T)
        subscription.join()

    subscription = client.subscribe("a", since="epoch", handler=join)
    begun.set()
    with pytest.raises(RuntimeError):
        subscription.join(T)
