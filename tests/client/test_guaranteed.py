"""Guaranteed publishing and durable subscriptions as their users see them, over whole lives."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
import zmq

from tests.client.fakes import WAIT_S as T
from tests.client.fakes import wait_until
from zbroker.client import connect
from zbroker.errors import GaveUp, StoreFull, Timeout
from zbroker.local import LocalBroker
from zbroker.wire import codec
from zbroker.wire.messages import Ack, Logon

#: connects, waits for a line, publishes, says so, and waits to be killed
PUBLISHER = """
import sys, zbroker
url, store = sys.argv[1:]
client = zbroker.connect(url, "pricer", publish_store=store)
print("connected", flush=True)
sys.stdin.readline()
for number in range(2_000):
    client.publish("t", b"%d" % number)
client.publish_many("t", [b"%d" % number for number in range(2_000, 5_000)])
print("published", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(params=["memory", "file"])
def publish_store(request, tmp_path):
    return "memory" if request.param == "memory" else tmp_path / "store"


def data_of(broker):
    return [row[3] for row in broker.log]


def texts(count):
    return [b"%d" % number for number in range(count)]


# -- publishing -------------------------------------------------------------------------------


@pytest.mark.seed("002-03")
@pytest.mark.seed("002-30")
@pytest.mark.process
@pytest.mark.parametrize("kept", [False, True])
def test_a_publisher_killed_while_the_broker_is_away_loses_nothing(broker, tmp_path, kept):
    """The broker is away before the first publish, or has some of it and has not said so."""
    store = tmp_path / "store"
    command = [sys.executable, "-c", PUBLISHER, broker.url, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout.readline() == b"connected\n"
            if kept:
                broker.hold = True
            else:
                broker.stop()
            child.stdin.write(b"\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"published\n"
            if kept:
                wait_until(lambda: broker.log)  # more than two batches wait for an ack
        finally:
            child.kill()
    broker.hold = False
    broker.restart() if kept else broker.start()
    with connect(broker.url, "pricer", publish_store=store, timeout=T) as client:
        client.publish("t", b"5000")
        client.flush(T)
    assert data_of(broker) == texts(5_001)


@pytest.mark.seed("002-36")
def test_either_store_publishes_what_waited_for_the_broker(broker, publish_store):
    with connect(broker.url, "pricer", publish_store=publish_store, timeout=T) as client:
        broker.stop()
        receipts = [client.publish("t", data) for data in texts(300)]
        assert client.unpersisted == 300
        broker.start()
        client.flush(T)
        assert all(receipt.persisted for receipt in receipts)
    assert data_of(broker) == texts(300)


def test_a_memory_store_ends_with_its_client(broker):
    with connect(broker.url, "pricer", timeout=T) as client:
        broker.stop()
        client.publish("t", b"0")
        client.close(flush=False)
    broker.start()
    with connect(broker.url, "pricer", timeout=T) as client:
        client.publish("t", b"1").wait(T)
    assert data_of(broker) == [b"1"]


def test_giving_up_keeps_what_a_file_store_has(broker, tmp_path):
    store = tmp_path / "store"
    client = connect(broker.url, "pricer", publish_store=store, give_up="50ms", timeout=T)
    broker.stop()
    receipt = client.publish("t", b"0")
    with pytest.raises(GaveUp):
        receipt.wait(T)
    client.close(flush=False)
    broker.start()
    with connect(broker.url, "pricer", publish_store=store, timeout=T) as client:
        client.flush(T)
    assert data_of(broker) == [b"0"]


def test_a_bound_on_messages_is_kept(broker, publish_store):
    with connect(
        broker.url, "pricer", publish_store=publish_store, store_messages=100, timeout=T
    ) as client:
        broker.stop()
        for _ in range(1_000_000):
            try:
                client.publish("t", b"", timeout=0)
            except StoreFull:
                break
        assert client.unpersisted == 100
        broker.start()
        client.publish("t", b"", timeout=T).wait(T)
    assert len(broker.log) == 101


def test_a_full_disk_under_the_store_refuses_the_message_only(broker, tmp_path, monkeypatch):
    def full(fd, offset, length):
        raise OSError(errno.ENOSPC, "No space left on device")

    with connect(broker.url, "pricer", publish_store=tmp_path, timeout=T) as client:
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", full)
            with pytest.raises(StoreFull, match="No space"):
                client.publish("t", b"0", timeout=0.2)
        client.publish("t", b"1").wait(T)
    assert data_of(broker) == [b"1"]


def test_a_wait_that_was_too_short_changes_nothing(broker, publish_store):
    broker.hold = True
    with connect(broker.url, "pricer", publish_store=publish_store, timeout=T) as client:
        receipt = client.publish("t", b"0")
        with pytest.raises(Timeout):
            receipt.wait(0)
        broker.release()
        receipt.wait(T)
    assert data_of(broker) == [b"0"]


@pytest.mark.seed("002-19")
def test_a_later_client_of_the_same_name_is_numbered_on(broker):
    numbers = []
    for data in texts(3):
        with connect(broker.url, "pricer", timeout=T) as client:
            numbers.append(client.publish("t", data).sequence)
    assert numbers == sorted(set(numbers))
    assert data_of(broker) == texts(3)


# -- against a real broker ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def instance():
    with LocalBroker() as broker:
        yield broker


@pytest.mark.seed("002-06")
@pytest.mark.seed("002-14")
@pytest.mark.seed("002-18")
@pytest.mark.process
def test_the_answer_to_every_logon_says_what_is_persisted(instance):
    with connect(instance.url, "teller", timeout=T) as client:
        client.publish_many("t", texts(1_000))
        last = client.publish("t", b"").sequence
        client.flush(T)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(instance.url)
        for cid in ("1", "2"):
            answer = logged_on(socket, cid)
            assert (answer.type, answer.cid, answer.seq, answer.acked) == (
                "processed", cid, last, last,
            )  # fmt: skip


def logged_on(socket, cid):
    """The answer to a logon that asks for no acknowledgement."""
    socket.send(codec.encode(Logon("teller", "by hand", cid=cid)))
    assert socket.poll(int(T * 1_000))
    answer = codec.decode(codec.ANSWERS, socket.recv())
    assert isinstance(answer, Ack), answer
    return answer


@pytest.mark.seed("002-27")
@pytest.mark.process
def test_a_durable_subscription_to_a_pattern_gets_what_came_while_it_was_away(instance, tmp_path):
    got = []

    def read(count):
        with connect(instance.url, "billing", bookmark_store=tmp_path, timeout=T) as client:
            for message in client.subscribe("pat[.].*", regex=True, since="recent", name="s"):
                got.append((message.topic, message.data))
                if len(got) == count:
                    return

    with connect(instance.url, "feed", timeout=T) as feed:
        wanted = []
        for turn in range(3):
            wanted += [(f"pat.{turn}", data) for data in texts(100)]
            feed.publish_many(f"pat.{turn}", texts(100))
            feed.publish("other", b"")
            feed.flush(T)
            read(len(wanted) + turn)
    assert got[:100] == wanted[:100]
    assert dedupe(got) == wanted


def dedupe(items):
    return list(dict.fromkeys(items))
