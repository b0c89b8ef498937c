"""What a client tells: listeners, callbacks of receipts; and a client that is used after a fork."""

from __future__ import annotations

import os
import threading

import pytest

from tests.client.fakes import WAIT_S as T
from tests.client.fakes import wait_until
from zbroker.client import connect
from zbroker.client.publisher.receipt import Callbacks
from zbroker.errors import ZBrokerError


def names(seen):
    return [state.name for state in seen]


def test_listeners_are_called_in_order(broker):
    seen, more = [], []
    client = connect(broker.url, "pricer", timeout=T, on_state=seen.append)
    client.on_state(more.append)
    broker.hold = True
    receipt = client.publish("t", b"1")
    wait_until(lambda: broker.log)
    broker.restart()
    wait_until(lambda: len(broker.logons) == 2)
    broker.release()
    receipt.wait(T)
    client.publish("t", b"2").wait(T)
    client.close()
    assert names(seen)[:3] == ["connecting", "logged_on", "disconnected"]
    assert names(seen)[-1] == "closed"
    assert seen[-1].error.code == "closed"
    assert names(seen)[-2] in ("logged_on", "republished")
    assert names(more) == names(seen)[2:]
    assert {state.url for state in seen} == {broker.url}


def test_what_was_stored_at_the_logon_is_said_to_be_settled(broker):
    seen = []
    with connect(broker.url, "pricer", timeout=T, on_state=seen.append) as client:
        broker.deaf = True
        receipt = client.publish("t", b"1")
        assert receipt.sequence
        broker.restart()
        broker.deaf = False
        receipt.wait(T)
        wait_until(lambda: names(seen)[-1] == "republished")


def test_subscriptions_that_are_there_again_are_reported(broker):
    seen = []
    with connect(broker.url, "pricer", timeout=T, on_state=seen.append) as client:
        client.publish("t", b"1").wait(T)
        subscription = client.subscribe("t", since="epoch")
        assert subscription.next(T).data == b"1"
        assert "resubscribed" not in names(seen)
        broker.restart()
        client.publish("t", b"2").wait(T)
        assert subscription.next(T).data == b"2"
        wait_until(lambda: "resubscribed" in names(seen))
        assert names(seen).count("resubscribed") == 1


def test_a_listener_may_publish_and_wait(broker):
    done = threading.Event()

    def listener(state):
        if state.name == "logged_on":
            wait_until(lambda: made)
            made[0].publish("t", b"from the listener").wait(T)
            done.set()

    made = []
    with connect(broker.url, "pricer", timeout=T, on_state=listener) as client:
        made.append(client)
        assert done.wait(T)
    assert [row[3] for row in broker.log] == [b"from the listener"]


def test_a_listener_that_fails_disturbs_nothing(broker, caplog):
    def fail(_state):
        raise RuntimeError("no")

    with connect(broker.url, "pricer", timeout=T, on_state=fail) as client:
        client.publish("t", b"1").wait(T)
    assert "callback_failed" in caplog.text


def test_a_receipt_calls_back_when_it_is_persisted(client):
    seen = []
    for number in range(5):
        client.publish("t", b"%d" % number).add_done_callback(
            lambda receipt: seen.append(receipt.wait(0))
        )
    wait_until(lambda: len(seen) == 5)
    assert seen == sorted(seen, key=lambda bookmark: int(bookmark.split("|")[1]))


def test_a_receipt_that_is_done_calls_back_too(client):
    receipt = client.publish("t", b"1")
    receipt.wait(T)
    seen = threading.Event()
    receipt.add_done_callback(lambda _: seen.set())
    assert seen.wait(T)


def test_a_refused_receipt_calls_back_with_its_error(broker, client):
    broker.refusals.append("bad_topic")
    seen = []

    def callback(receipt):
        with pytest.raises(ZBrokerError) as raised:
            receipt.wait(0)
        seen.append(raised.value.code)

    client.publish("t", b"1").add_done_callback(callback)
    wait_until(lambda: seen)
    assert seen == ["bad_topic"]


def test_receipts_call_back_when_their_client_ends(broker):
    broker.hold = True
    seen = threading.Event()
    client = connect(broker.url, "pricer", timeout=T)
    client.publish("t", b"1").add_done_callback(lambda _: seen.set())
    client.close(flush=False)
    assert seen.wait(T)


def test_what_no_one_reaches_in_time_is_given_up(broker):
    client = connect(broker.url, "pricer", timeout=T, give_up=0.3)
    broker.stop()
    receipt = client.publish("t", b"1")
    with pytest.raises(ZBrokerError, match="gave_up"):
        receipt.wait(T)
    with pytest.raises(ZBrokerError, match="gave_up"):
        client.publish("t", b"2")
    client.close(flush=False)
    broker.start()


def test_a_callback_may_close_what_calls_it():
    callbacks = Callbacks("test")
    closed = threading.Event()

    def close():
        callbacks.close(T)
        closed.set()

    callbacks.call(close)
    assert closed.wait(T)


def in_child(check):
    """Runs `check` in a forked process; what it returns, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write, check().encode()[:4_000])
        except BaseException as error:
            os.write(write, repr(error).encode()[:4_000])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_learns_that_the_client_is_not_its_own(broker, client):
    client.publish("t", b"1").wait(T)
    receipt = client.publish("t", b"2")
    subscription = client.subscribe("t", since="epoch")
    assert subscription.next(T).data == b"1"

    def use():
        codes = []
        for attempt in (
            lambda: subscription.next(T),
            lambda: client.publish("t", b"child"),
            lambda: client.publish_many("t", [b"child"] * 10),
            lambda: client.subscribe("t"),
            lambda: client.flush(1),
            client.ranges,
        ):
            try:
                attempt()
                codes.append("none")
            except ZBrokerError as error:
                codes.append(error.code)
        subscription.close()
        client.close()
        return " ".join(codes)

    assert set(in_child(use).split()) == {"forked"}
    receipt.wait(T)
    client.publish("t", b"3").wait(T)
    assert [subscription.next(T).data, subscription.next(T).data] == [b"2", b"3"]
    assert [row[3] for row in broker.log] == [b"1", b"2", b"3"]
