"""When a subscription has caught up: who iterates, who waits and who has a handler learn of it."""

from __future__ import annotations

import threading

import pytest

from tests.client.fakes import WAIT_S as T
from tests.client.fakes import wait_until
from zbroker.errors import ZBrokerError


@pytest.mark.seed("004-38")
def test_an_iteration_ends_where_it_has_caught_up(broker, client, numbered):
    subscription = client.subscribe("a", since="epoch")
    assert [message.data for message in subscription.until_caught_up(T)] == numbered
    assert subscription.caught_up
    broker.append("a", b"new")
    assert list(subscription.until_caught_up(T)) == []
    assert subscription.next(T).data == b"new"


def test_what_was_begun_before_is_finished(client, numbered):
    subscription = client.subscribe("a", since="epoch")
    first = [subscription.next(T).data for _ in range(3)]
    assert first + [message.data for message in subscription.until_caught_up(T)] == numbered


def test_with_nothing_to_replay_an_iteration_ends_at_once(client):
    subscription = client.subscribe("a", since="epoch")
    assert list(subscription.until_caught_up(T)) == []
    assert subscription.caught_up


def test_a_range_ends_where_it_has_caught_up(client, numbered):
    subscription = client.subscribe("a", since="epoch", until="now")
    assert [message.data for message in subscription.until_caught_up(T)] == numbered
    assert subscription.next(T) is None


@pytest.mark.seed("004-38")
def test_a_function_is_called_between_the_last_old_message_and_the_first_new_one(
    broker, client, numbered
):
    out = []
    subscription = client.subscribe(
        "a", since="epoch", handler=lambda message: out.append(message.data),
        on_caught_up=lambda: out.append("caught up"),
    )  # fmt: skip
    subscription.wait_caught_up(T)
    wait_until(lambda: "caught up" in out)
    broker.append("a", b"new")
    wait_until(lambda: out[-1] == b"new")
    assert out == [*numbered, "caught up", b"new"]
    subscription.close()


def test_a_function_is_called_once(broker, client, numbered):
    out = []
    subscription = client.subscribe("a", since="epoch", on_caught_up=lambda: out.append(1))
    assert len([*subscription.until_caught_up(T)]) == len(numbered)
    broker.restart()
    broker.append("a", b"new")
    assert subscription.next(T).data == b"new"
    with pytest.raises(ZBrokerError, match="timeout"):
        subscription.next(0.2)
    assert out == [1]


@pytest.mark.seed("004-38")
def test_to_wait_with_a_handler_is_to_wait_until_all_is_handled(client, numbered):
    go, out = threading.Event(), []

    def slow(message):
        go.wait(T)
        out.append(message.data)

    subscription = client.subscribe("a", since="epoch", handler=slow)
    with pytest.raises(ZBrokerError, match="timeout"):
        subscription.wait_caught_up(0.1)
    assert not subscription.caught_up
    go.set()
    subscription.wait_caught_up(T)
    assert out == numbered
    subscription.close()


def test_without_a_handler_it_waits_until_all_came_in(client, numbered):
    subscription = client.subscribe("a", since="epoch")
    subscription.wait_caught_up(T)
    assert not subscription.caught_up
    found = []
    for message in subscription:
        found.append(message.data)
        if subscription.caught_up:
            break
    assert found == numbered, "it is seen at the last message, without asking for more"


def test_who_has_too_little_credit_is_asked_to_read(client, numbered):
    subscription = client.subscribe("a", since="epoch", credit=10)
    with pytest.raises(ZBrokerError, match="credit"):
        subscription.wait_caught_up(0.1)


def test_to_wait_ends_with_what_ends_the_subscription(broker, client):
    other = client.subscribe("b", since="epoch", paused=True)
    raised = []

    def wait():
        try:
            other.wait_caught_up(T)
        except ZBrokerError as error:
            raised.append(error.code)

    thread = threading.Thread(target=wait)
    thread.start()
    broker.end_sessions()
    thread.join(T)
    assert raised == ["session_ended"]


def test_an_exception_of_the_function_ends_a_handler(client, numbered):
    def fail():
        raise ValueError("no")

    subscription = client.subscribe("a", since="epoch", handler=lambda _m: None, on_caught_up=fail)
    with pytest.raises(ValueError, match="no"):
        subscription.join(T)


def test_those_read_together_tell_each(client, numbered):
    out = []
    many = [
        client.subscribe("a", since="epoch", paused=True, on_caught_up=lambda n=n: out.append(n))
        for n in range(2)
    ]
    together = client.resume(many)
    for _ in range(2 * len(numbered)):
        assert together.next(T) is not None
    with pytest.raises(ZBrokerError, match="timeout"):
        together.next(0.2)
    assert sorted(out) == [0, 1]
