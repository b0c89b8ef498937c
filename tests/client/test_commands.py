"""Commands as values, and heartbeats that begin in a session."""

from __future__ import annotations

import inspect
import pickle

import pytest

import zbroker
from tests.client.fakes import WAIT_S as T
from tests.client.fakes import wait_until
from zbroker import Command
from zbroker.client import Client, connect
from zbroker.client.aio.client import AsyncClient as LoopedClient
from zbroker.client.command import NAMES
from zbroker.errors import ZBrokerError

# -- values -----------------------------------------------------------------------------------


def test_a_command_is_a_value():
    one = Command("publish", topic="a", data=b"1")
    assert one == Command("publish", data=b"1", topic="a")
    assert one != Command("publish", topic="a", data=b"2")
    assert one != ("publish", one.options)
    assert len({one, Command("publish", topic="a", data=b"1")}) == 1
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(one) == "Command('publish', topic='a', data=b'1')"
    assert one.with_(data=b"2") == Command("publish", topic="a", data=b"2")
    with pytest.raises(AttributeError, match="with_"):
        one.name = "subscribe"
    with pytest.raises(TypeError):
        one.options["topic"] = "b"


def test_an_unknown_command_names_the_known_ones():
    with pytest.raises(ZBrokerError, match="subscribe") as raised:
        Command("sow")
    assert raised.value.code == "bad_command"


@pytest.mark.parametrize("client", [Client, LoopedClient])
def test_each_command_is_a_method_of_both_clients(client):
    for name in NAMES:
        assert callable(getattr(client, name))
        assert inspect.getdoc(getattr(client, name))


# -- what they do -----------------------------------------------------------------------------


@pytest.mark.seed("002-11")
def test_what_commands_publish_is_numbered_like_all_else(broker, client):
    receipts = [
        client.publish("a", b"0"),
        client.command("publish", topic="a", data=b"1"),
        client.command(Command("publish_many", topic="a"), payloads=[b"2", b"3"]),
        client.command(Command("publish", topic="a", data=b"x"), data=b"4"),
    ]
    client.command("flush", timeout=T)
    first = receipts[0].sequence
    assert [one.sequence - first for one in receipts] == [0, 1, 3, 4]
    assert [row[3] for row in broker.log] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.seed("002-11")
def test_after_a_reconnect_they_go_on_with_their_numbers(broker, client):
    first = client.command("publish", topic="a", data=b"1")
    first.wait(T)
    broker.restart()
    second = client.command("publish", topic="a", data=b"2")
    second.wait(T)
    assert second.sequence == first.sequence + 1


def test_a_subscribe_command_gives_a_subscription(client, numbered):
    wanted = Command("subscribe", topic="a", since="epoch")
    with client.command(wanted, until="now") as subscription:
        assert [message.data for message in subscription] == numbered


def test_an_option_that_is_not_there_is_named(client):
    for options, named in (({"topic": "a"}, "data"), ({"topic": "a", "data": b"", "x": 1}, "x")):
        with pytest.raises(ZBrokerError, match=named) as raised:
            client.command("publish", **options)
        assert raised.value.code == "bad_field"


def test_the_package_has_it():
    assert zbroker.Command is Command


# -- heartbeats -------------------------------------------------------------------------------


@pytest.mark.seed("002-43")
def test_a_heartbeat_message_begins_them_in_a_session(broker, client):
    assert broker.logons[-1].heartbeat_s is None
    client.heartbeat("500ms")
    wait_until(lambda: ("ingest", 0.5) in broker.beats)
    assert len(broker.logons) == 1, "it is the same session"


def test_they_are_kept_up_once_they_began(broker, client):
    client.heartbeat(0.02)
    wait_until(lambda: broker.beats.count(("ingest", None)) >= 3)


def test_they_can_end(broker, client):
    client.heartbeat(5)
    client.heartbeat(None)
    wait_until(lambda: broker.beats == [("ingest", 5.0), ("ingest", 0.0)])


def test_the_next_session_asks_for_the_same(broker, client):
    client.heartbeat("2s")
    broker.restart()
    wait_until(lambda: len(broker.logons) > 1)
    assert broker.logons[-1].heartbeat_s == 2.0


def test_a_subscription_gets_them_by_a_new_connection_and_goes_on(broker, client, numbered):
    subscription = client.subscribe("a", since="epoch")
    assert subscription.next(T).data == numbered[0]
    client.heartbeat(30)
    rest = [subscription.next(T).data for _ in numbered[1:]]
    assert rest == numbered[1:]

    def again():
        with pytest.raises(ZBrokerError, match="timeout"):
            subscription.next(0.05)  # who reads is who connects
        return len(broker.listener_logons) == 2

    wait_until(again)
    broker.append("a", b"new")
    assert subscription.next(T).data == b"new"
    assert [one.heartbeat_s for one in broker.listener_logons] == [None, 30.0]


def test_a_longer_interval_is_reported_on_the_connection_that_is_there(broker):
    with connect(broker.url, "p", timeout=T, heartbeat=30) as client:
        subscription = client.subscribe("a", since="epoch")
        client.heartbeat(60)
        wait_until(lambda: ("delivery", 60.0) in broker.beats)
        assert len(broker.listener_logons) == 1
        subscription.close()


def test_an_interval_that_cannot_be_is_refused(client):
    for interval in (0, -1, "soon", 3_601):
        with pytest.raises(ZBrokerError, match="interval") as raised:
            client.heartbeat(interval)
        assert raised.value.code == "bad_field"
