"""Queues that programs declare, with a real broker: they outlast its processes, and it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

import zbroker
from tests.process.load import until_running
from tests.process.queue_checker import queue_row
from tests.process.taking import take
from zbroker.client import Client
from zbroker.client.queue_commands import QueueInfo
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

T = 30.0


def _connect(broker: LocalBroker, name: str) -> Client:
    return zbroker.connect(broker.url, name=name)


def _declare(client: Client) -> QueueInfo:
    return client.declare_queue("bills", topic="orders", lease="1m", timeout=T)


@pytest.mark.seed("001-68")
def test_a_declared_queue_lasts_until_a_program_deletes_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        first = _declare(client)
        assert (first.name, first.created, first.declaration) == ("bills", True, 1)
        client.publish_many("orders", [b"1", b"2", b"3", b"4"])
        client.flush(timeout=T)
        assert take(client, "bills", 1, T) == [b"1"]
        pid = until_running(broker, "queues", 0)
        os.kill(pid, signal.SIGKILL)
        again = _declare(client)  # it waits for the process
        assert (again.created, again.declaration) == (False, 1)
        assert take(client, "bills", 1, T) == [b"2"]
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        assert not _declare(client).created
        assert take(client, "bills", 1, T) == [b"3"], "nothing that was acknowledged comes back"
        assert client.purge_queue("bills", timeout=T) == 1
        with client.consume("bills", timeout=T) as consumer:
            with pytest.raises(ZBrokerError, match="has 1 consumers"):
                client.delete_queue("bills", if_unused=True, timeout=T)
            client.delete_queue("bills", if_empty=True, timeout=T)
            with pytest.raises(ZBrokerError, match="was deleted") as ended:
                consumer.fetch(1, timeout=T)
            assert ended.value.code == "unknown_queue"
        with pytest.raises(ZBrokerError) as unknown:
            client.delete_queue("bills", timeout=T)
        assert unknown.value.code == "unknown_queue"
        client.publish("orders", b"5").wait(T)
        assert client.declare_queue("bills", topic="orders", recovery_point="now").declaration == 2


def test_an_operator_sees_whose_queue_it_is() -> None:
    with LocalBroker() as broker, _connect(broker, "a") as client:
        _declare(client)
        assert queue_row(broker, "bills")["source"] == "client:"


def test_the_same_in_an_event_loop() -> None:
    async def main(url: str) -> None:
        async with zbroker.aio.connect(url, name="looped") as client:
            made = await asyncio.gather(*(
                client.declare_queue("q", topic="t", max_deliveries=3) for _ in range(4)
            ))  # fmt: skip
            assert sorted(one.created for one in made) == [False, False, False, True]
            await client.publish("t", b"1")
            with pytest.raises(ZBrokerError, match="`max_deliveries` 3, not 4"):
                await client.declare_queue("q", topic="t", max_deliveries=4)
            with pytest.raises(ZBrokerError, match="leese"):
                await client.declare_queue("p", leese=4)
            assert (await client.command("declare_queue", name="q", passive=True)).declaration == 1
            assert await client.purge_queue("q") == 1
            await client.delete_queue("q", if_unused=True, if_empty=True)
            with pytest.raises(ZBrokerError) as unknown:
                await client.declare_queue("q", passive=True)
            assert unknown.value.code == "unknown_queue"

    with LocalBroker() as broker:
        asyncio.run(asyncio.wait_for(main(broker.url), 2 * T))
