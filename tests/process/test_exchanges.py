"""Exchanges with a real broker: what is published after the answer to `bind` enters the queue."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

import zbroker
from tests.process.load import until_running
from tests.process.taking import take
from zbroker.client import Client
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

T = 30.0
ROUNDS = 6


def _connect(broker: LocalBroker, name: str) -> Client:
    return zbroker.connect(broker.url, name=name)


@pytest.mark.seed("001-66")
def test_messages_go_to_the_queues_that_are_bound(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        assert client.declare_exchange("events", "topic", timeout=T)
        assert not client.declare_exchange("events", "topic")
        client.declare_queue("bills", bound=True)
        client.declare_queue("audit", bound=True)
        assert client.bind("bills", "events", "order.*.paid")
        assert client.bind("audit", "events", "#")
        client.publish("events", b"1", key=b"order.7.paid")
        client.publish("events", b"2", key=b"order.7.sent")
        client.publish("events", b"3")
        client.flush(timeout=T)
        assert take(client, "bills", 1, T) == [b"1"]
        assert take(client, "audit", 3, T) == [b"1", b"2", b"3"]
        assert client.unbind("audit", "events", "#")
        client.publish("events", b"4", key=b"order.8.paid").wait(T)
        assert take(client, "bills", 1, T) == [b"4"]
        with pytest.raises(ZBrokerError) as refused:
            client.delete_exchange("events", if_unused=True)
        assert refused.value.code == "exchange_in_use"
        assert client.declare_queue("audit", passive=True).messages == 0
        assert client.delete_exchange("events")
        with client.subscribe("events", since="epoch", until="now") as all_of_it:
            assert [message.data for message in all_of_it] == [b"1", b"2", b"3", b"4"]


def test_headers_decide_too_in_an_event_loop(tmp_path: Path) -> None:
    async def run(url: str) -> list[bytes]:
        async with zbroker.aio.connect(url, name="a") as client:
            await client.declare_exchange("offers", "headers", timeout=T)
            await client.declare_queue("eu", bound=True)
            await client.bind("eu", "offers", arguments={"region": "eu", "n": 1})
            client.publish("offers", b"no", headers={"region": "us", "n": 1})
            client.publish("offers", b"yes", headers={"region": "eu", "n": 1.0})
            await client.flush(timeout=T)
            async with client.consume("eu", timeout=T) as consumer:
                found = await consumer.fetch(1, timeout=T)
                return [message.data for message in found]

    with LocalBroker(tmp_path / "data") as broker:
        assert asyncio.run(run(broker.url)) == [b"yes"]


def test_nothing_misses_a_queue_whatever_is_killed(tmp_path: Path) -> None:
    """Each round binds, publishes after the answer, and something dies meanwhile."""
    rng = random.Random(5)
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_exchange("events", "direct", timeout=T)
        client.declare_queue("bills", bound=True, timeout=T)
        expected: list[bytes] = []
        for number in range(ROUNDS):
            process = ("ingest", "journal", "queues")[number % 3]
            pid = until_running(broker, process, 0)
            if rng.random() < 0.5:
                os.kill(pid, signal.SIGKILL)
                client.bind("bills", "events", f"k{number}", timeout=T)
            else:
                client.bind("bills", "events", f"k{number}", timeout=T)
                os.kill(pid, signal.SIGKILL)
            key = f"k{number}".encode()
            payloads = [b"%d.%d" % (number, each) for each in range(20)]
            for payload in payloads:
                client.publish("events", payload, key=key)
            expected += payloads
            client.flush(timeout=T)
        assert sorted(set(take(client, "bills", len(expected), T))) == sorted(expected)
