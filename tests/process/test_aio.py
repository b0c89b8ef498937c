"""A real broker and a client in an event loop: kills, cut waits, a store that outlives."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import zbroker
from tests.process.load import until_running
from zbroker.client.connect_types import ConnectionState
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

T = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@asynccontextmanager
async def reading(subscription: zbroker.aio.Subscription) -> AsyncIterator[list[bytes]]:
    """What a task reads whose waits are cut short again and again."""
    out: list[bytes] = []

    async def read() -> None:
        while True:
            try:
                message = await asyncio.wait_for(subscription.next(), 0.02)
            except TimeoutError:
                continue
            if message is None:
                return
            out.append(message.data)

    task = asyncio.create_task(read())
    yield out
    await subscription.close()
    await asyncio.wait_for(task, T)


async def publish(client: zbroker.aio.Client, sent: list[bytes], pid: int) -> None:
    """20,000 messages; `pid` is killed among them, and some wait is cut short."""
    for count in range(20_000):
        await client.ready(T)
        sent.append(b"%d" % len(sent))
        receipt = client.publish("looped", sent[-1])
        if count == 5_000:
            os.kill(pid, signal.SIGKILL)
        if count % 5_000 == 0:
            wait = asyncio.create_task(receipt.wait(T))
            await asyncio.sleep(0)
            wait.cancel()
    await client.flush(T)
    assert receipt.persisted


def test_each_message_comes_once_whatever_is_killed_or_cancelled(broker: LocalBroker) -> None:
    states: list[ConnectionState] = []

    async def main() -> None:
        sent: list[bytes] = []
        async with (
            zbroker.aio.connect(
                broker.url, "looped", heartbeat=2.0, on_state=states.append
            ) as client,
            reading(await client.subscribe("looped")) as read,
        ):
            for name in ("ingest", "delivery", "journal"):
                pid = await asyncio.to_thread(until_running, broker, name, 0)
                await publish(client, sent, pid)
            async with asyncio.timeout(T):
                while len(read) < len(sent):
                    await asyncio.sleep(0.01)
            assert read == sent
            replay = client.subscribe("looped", since="epoch", until="now")
            assert [message.data async for message in replay] == sent

    asyncio.run(asyncio.wait_for(main(), 3 * T))
    assert [state.name for state in states].count("logged_on") >= 2


def test_a_store_in_a_directory_outlives_a_kill(broker: LocalBroker, tmp_path: Path) -> None:
    program = f"""
        import asyncio, os, signal, zbroker

        async def main():
            client = await zbroker.aio.connect(
                {broker.url!r}, "stored", publish_store={str(tmp_path)!r}
            )
            for number in range(3_000):
                client.publish("stored", b"%d" % number)
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=T, check=False)
    assert done.returncode == -signal.SIGKILL

    async def main() -> None:
        store = str(tmp_path)
        async with zbroker.aio.connect(broker.url, "stored", publish_store=store) as client:
            await client.publish("stored", b"last").wait(T)
            replay = client.subscribe("stored", since="epoch", until="now")
            read = [message.data async for message in replay]
        assert read == [*(b"%d" % number for number in range(3_000)), b"last"]

    asyncio.run(asyncio.wait_for(main(), T))
