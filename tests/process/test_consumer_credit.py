"""Credit in messages with real processes: kills, and an instance whose host is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any, Final

import pytest
from click.testing import CliRunner

from tests.process.instances import Instances
from tests.process.load import until, until_running
from tests.process.queue_checker import depth
from tests.process.test_replicated_queues import WORK, publish, started
from zbroker import aio
from zbroker.cli.admin_main import main
from zbroker.client import connect
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

T: Final = 30.0
QUIET_S: Final = 0.5  # nothing came for so long


def fetched(consumer: Any, count: int) -> list[bytes]:
    """So many messages, acknowledged; fewer if no more come."""
    found: list[bytes] = []
    deadline = time.monotonic() + T
    while len(found) < count and time.monotonic() < deadline:
        got = consumer.fetch(count - len(found), 1)
        consumer.ack(got)
        found += [message.data for message in got]
    consumer.flush(timeout=T)
    return found


def is_quiet(consumer: Any) -> bool:
    return not consumer.fetch(1, QUIET_S)


@pytest.mark.seed("001-49")
@pytest.mark.seed("001-51")
@pytest.mark.seed("001-52")
@pytest.mark.seed("001-54")
def test_a_consumer_gets_what_it_asks_for() -> None:
    queue = {"name": "work", "topic": "t"}
    with LocalBroker(settings={"queue": [queue]}) as broker, connect(broker.url, "p") as client:
        publish(client, 20)
        until(lambda: depth(broker, "work") == 20, "all is in the queue")
        with client.consume("work", flow="credit") as consumer:
            assert is_quiet(consumer)
            rows = client.browse("work", limit=3)
            assert consumer.acquire(rows[2:]) == [rows[2].position]
            assert fetched(consumer, 1) == [b"2"]
            consumer.flow(4)
            assert fetched(consumer, 4) == [b"0", b"1", b"3", b"4"]
            assert is_quiet(consumer), "acknowledgements give none"
            pid = until_running(broker, "queues", 0)
            os.kill(pid, signal.SIGKILL)
            until_running(broker, "queues", pid)
            consumer.flow(3)
            assert fetched(consumer, 3) == [b"5", b"6", b"7"]
            assert is_quiet(consumer)
            consumer.flow(1_000)
            consumer.stop()
            before = len(consumer.fetch(100, QUIET_S))
            publish(client, 1)
            assert is_quiet(consumer)
            consumer.flow(1_000)
            consumer.drain()
            rest = consumer.fetch(100, QUIET_S)
            assert 0 < before + len(rest) <= 13
            publish(client, 1)
            assert is_quiet(consumer)


def test_the_same_in_an_event_loop() -> None:
    async def program(url: str) -> None:
        async with aio.connect(url, "p") as client:
            client.publish("t", b"0")
            client.publish("t", b"1")
            await client.flush(timeout=T)
            async with client.consume("work", flow="credit") as consumer:
                rows = await client.browse("work")
                while len(rows) < 2:
                    rows = await client.browse("work")
                assert await consumer.acquire([rows[1]]) == [rows[1].position]
                assert [each.data for each in await consumer.fetch(1, T)] == [b"1"]
                consumer.flow(5)
                await consumer.drain()
                assert [each.data for each in await consumer.fetch(1, T)] == [b"0"]

    with LocalBroker(settings={"queue": [{"name": "work", "topic": "t"}]}) as broker:
        asyncio.run(program(broker.url))


@pytest.mark.seed("001-48")
def test_a_consumer_and_a_subscription_go_on_where_their_host_is_gone() -> None:
    """The client says again what it wants, and how far it is: nothing of that was replicated."""
    with Instances(2, starts=False) as instances:
        a, b = started(instances, WORK)
        with (
            connect([a.url, b.url], "pa") as client,
            client.subscribe("t", since="epoch", filter="/n > 1") as subscription,
            client.consume("work", flow="credit", filter="/n > 9") as consumer,
        ):
            for n in range(40):
                client.publish("t", b'{"n": %d}' % n)
            client.flush(timeout=T)
            seen = [message.data for _, message in zip(range(20), subscription, strict=False)]
            consumer.flow(10)
            done = fetched(consumer, 4)
            until(lambda: depth(b.running, "work") == 36, "b knows what is done")
            a.kill()
            args = ["--url", b.url, "queue", "takeover", "work", "--from", "a", "--yes"]
            until(lambda: "a is not connected" in _explained(b.url), "b knows that a is away")
            assert CliRunner().invoke(main, args, catch_exceptions=False).exit_code == 0
            client.publish("t", b'{"n": 40}')
            client.flush(timeout=T)
            done += fetched(consumer, 6)
            assert is_quiet(consumer), "its credit went along, and is used up"
            seen += [message.data for _, message in zip(range(19), subscription, strict=False)]
        assert done == [b'{"n": %d}' % n for n in range(10, 20)], "with its filter"
        assert seen == [b'{"n": %d}' % n for n in range(2, 41)], "each once"


def _explained(url: str) -> str:
    args = ["--url", url, "queue", "explain", "work"]
    return CliRunner().invoke(main, args, catch_exceptions=False).output
