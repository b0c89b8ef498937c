"""The client against a real broker whose processes are killed under it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.client.fakes import wait_until
from zbroker.client import connect
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

T = 30.0
MESSAGES = 60_000


def kill(broker, name):
    """Kills a process, and waits for the one that follows it."""
    old = broker.pids[name]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: broker.pids.get(name, 0) not in (0, old))


@pytest.mark.seed("002-35")
@pytest.mark.seed("004-06")
@pytest.mark.process
def test_killed_processes_neither_lose_nor_repeat_a_message():
    with (
        LocalBroker() as broker,
        connect(broker.url, "writer") as client,
        connect(broker.url, "reader") as other,
        other.subscribe("a") as subscription,
    ):
        got = []

        def read():
            for batch in subscription.batches(timeout=T):
                got.extend(int(message.data) for message in batch)
                if len(got) >= MESSAGES:
                    return

        reader = threading.Thread(target=read)
        reader.start()
        killed = ["ingest", "delivery", "journal"]
        for i in range(MESSAGES):
            client.publish("a", b"%d" % i)
            if i % 15_000 == 10_000 and killed:
                kill(broker, killed.pop())
        client.flush(T)
        reader.join(T)
        assert got == list(range(MESSAGES))


@pytest.mark.process
def test_many_topics_and_batches_keep_their_topics():
    with LocalBroker() as broker, connect(broker.url) as client:
        for i in range(5_000):
            client.publish(f"t{i % 7}", b"%d" % i)
        client.flush(T)
        with client.subscribe("t3", since="epoch", until="now") as subscription:
            got = [(message.topic, int(message.data)) for message in subscription]
        assert got == [("t3", i) for i in range(3, 5_000, 7)]
        with client.subscribe("t.*", regex=True, since="epoch", until="now") as subscription:
            got = [(message.topic, int(message.data)) for message in subscription]
        assert got == [(f"t{i % 7}", i) for i in range(5_000)]


@pytest.mark.seed("004-71")
@pytest.mark.process
def test_what_is_read_together_keeps_its_order_while_delivery_is_killed():
    with LocalBroker() as broker, connect(broker.url) as client:
        rows = [("abc"[i * i % 3], b'{"id": %d}' % i) for i in range(6_000)]
        for topic, data in rows:
            client.publish(topic, data)
        client.flush(T)
        wishes = {"since": "epoch", "until": "now", "paused": True, "credit": 4_000}
        many = [client.subscribe(topic, **wishes) for topic in "abc"]
        together = client.resume(many, timeout=T)
        assert together.combined == many
        got = []
        while (pair := together.next(T)) is not None:
            got.append((pair[0].topic, pair[1].data))
            if len(got) in (500, 3_000):
                kill(broker, "delivery")
            if len(got) == 2_000:
                client.pause(many, timeout=T)
                client.resume(many, timeout=T)
        assert got == rows


@pytest.mark.process
def test_a_handler_gets_what_a_replaced_filter_lets_through_while_delivery_is_killed():
    with LocalBroker() as broker, connect(broker.url) as client:
        got = []
        subscription = client.subscribe("a", filter="/n < 0", handler=got.append)
        start = subscription.replace(filter="/n > 100", timeout=T)
        for number in range(5_000):
            client.publish("a", b'{"n": %d}' % (number % 500))
            if number == 2_500:
                client.flush(T)
                kill(broker, "delivery")
        client.flush(T)
        wanted = [number % 500 for number in range(5_000) if number % 500 > 100]
        wait_until(lambda: len(got) >= len(wanted) or subscription.error)
        subscription.close()
        assert [int(message.data[6:-1]) for message in got] == wanted
        assert got[0].position >= start


@pytest.mark.seed("004-85")
@pytest.mark.seed("004-86")
@pytest.mark.process
def test_live_delivery_neither_repeats_nor_misses_while_processes_are_killed():
    with (
        LocalBroker() as broker,
        connect(broker.url, "writer") as client,
        client.subscribe("a", delivery="live") as subscription,
    ):
        for number in range(3_000):
            client.publish("a", b"%d" % number)
            if number in (1_000, 2_000):
                kill(broker, "delivery" if number == 1_000 else "journal")
        got = [int(subscription.next(T).data) for _ in range(3_000)]
        assert got == list(range(3_000))
        client.flush(T)
        with pytest.raises(ZBrokerError, match="timeout"):
            subscription.next(2.0)
        assert subscription.durable == subscription.vector


@pytest.mark.process
def test_every_option_is_spoken_by_the_broker():
    with LocalBroker() as broker, connect(broker.url) as client:
        client.publish_many("a", [b'{"k": %d, "n": %d}' % (i % 2, i) for i in range(40)])
        client.flush(T)

        def read(**wishes):
            with client.subscribe("a", **{"since": "epoch", "until": "now", **wishes}) as found:
                return [bytes(message.data) for message in found]

        assert len(read(rate=10_000)) == len(read(rate="5MB", filter="")) == 40
        assert len(read(rate="1000X", rate_max_gap="1ms", delivery="fully_durable")) == 40
        assert read(select="-/,+/n", limit=2, until=None) == [b'{"n":0}', b'{"n":1}']
        assert len(read(since="[epoch:now)", until=None, filter="/n >= 30")) == 10
        assert len(read(conflation="1h", conflation_key="/k")) in (2, 4)  # of one hour, or of two
        assert read(since="5|5|", bookmark_not_found="epoch", limit=1) == [b'{"k": 0, "n": 0}']
        for wrong, code in (({"filter": "/n >"}, "bad_filter"), ({"select": "n"}, "bad_field")):
            with pytest.raises(ZBrokerError) as raised:
                read(**wrong)
            assert raised.value.code == code


@pytest.mark.seed("004-71")
@pytest.mark.seed("004-72")
@pytest.mark.process
def test_every_group_that_is_resumed_at_once_comes_in_the_order_of_the_log():
    with LocalBroker() as broker, connect(broker.url, "p") as client:
        receipts = [client.publish("abcdef"[n % 6], b'{"n": %d}' % n) for n in range(60)]
        client.flush(T)
        half = receipts[29].wait(T)
        early = [client.subscribe(one, since="epoch", until="now", paused=True) for one in "ab"]
        late = [client.subscribe(one, since=half, until="now", paused=True) for one in "cd"]
        calm = [
            client.subscribe(
                one, since="epoch", until="now", paused=True, conflation="1d", conflation_key="/n"
            )
            for one in "ef"
        ]  # fmt: skip
        together = client.resume([*early, *late, *calm])
        assert {tuple(group) for group in together.groups} == {
            tuple(early), tuple(late), tuple(calm),
        }  # fmt: skip
        came = [(one, message.position) for one, message in together]
        for group in (early, late, calm):
            order = [position for one, position in came if one in group]
            assert len(order) == {0: 20, 1: 10, 2: 20}[[early, late, calm].index(group)]
            assert order == sorted(order)
