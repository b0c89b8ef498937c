"""Limits are for what is published: what was acknowledged is read under any later setting."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import zbroker
from zbroker.client import connect
from zbroker.limits import MIB
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

T = 60.0
SIZES = [1, 17 * MIB, 65 * MIB, 10]  # above the default limit, and above all credit
RAISED = {"limits": {"message_bytes": "80MiB", "window_bytes": "160MiB"}}
QUEUES = {
    "queue": [
        {"name": "work", "topic": "big"},
        {"name": "story", "topic": "big", "kind": "replayable"},
    ]
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """It holds four messages that were published under a higher limit."""
    data: Path = tmp_path_factory.mktemp("lowered") / "data"
    with (
        LocalBroker(data, settings=RAISED) as before,
        connect(before.url, "p", store_bytes=100 * MIB) as client,
    ):
        for size in SIZES:
            client.publish("big", bytes(size)).wait(T)
    with LocalBroker(data, settings=QUEUES) as running:
        yield running


@pytest.fixture
def client(broker):
    with connect(broker.url) as one:
        yield one


def test_a_subscription_is_sent_what_was_acknowledged(client):
    subscription = client.subscribe("big", since="epoch", until="now")
    assert [len(message.data) for message in subscription] == SIZES


def test_a_filter_reads_what_was_acknowledged(client):
    subscription = client.subscribe("big", since="epoch", until="now", filter="HEADER('a') IS NULL")
    assert [len(message.data) for message in subscription] == SIZES


def test_a_subscription_of_an_event_loop_is_sent_what_was_acknowledged(broker):
    async def read():
        async with await zbroker.aio.connect(broker.url) as client:
            found = client.subscribe("big", since="epoch", until="now")
            return [len(message.data) async for message in found]

    assert asyncio.run(read()) == SIZES


@pytest.mark.parametrize(("queue", "since"), [("work", None), ("story", "epoch")])
def test_a_queue_gives_what_was_acknowledged(client, queue, since):
    with client.consume(queue, since=since) as consumer:
        found = []
        while len(found) < len(SIZES):
            (message,) = consumer.fetch(1, timeout=T)
            found.append(len(message.data))
            message.ack()
    assert found == SIZES
