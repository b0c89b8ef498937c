"""The client against a real broker whose processes are killed under it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.client.fakes import wait_until
from zbroker.client import connect
from zbroker.local import LocalBroker

T = 30.0
MESSAGES = 60_000


def kill(broker, room):
    """Kills the process of a room, and waits for the one that follows it."""
    old = broker.pids[room]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: broker.pids.get(room, 0) not in (0, old))


@pytest.mark.process
def test_killed_rooms_neither_lose_nor_repeat_a_message():
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
