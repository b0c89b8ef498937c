"""NATS JetStream by nats-py (with uvloop): file storage, 1,000 asynchronous publishes at a time.

More of them pending than the client allows make it ten times slower, so they are gathered.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import nats
import uvloop
from nats.js import api, errors

from perf.brokers import server as servers
from perf.brokers.reading import Reading
from perf.brokers.server import Server
from perf.consumers import Round, Taken
from zbroker.free_ports import free_ports

BATCH: Final = 1_000
PENDING_MAX: Final = 4_000
QUEUE: Final = "work"
BACKLOG: Final = 1_000
CONSUMERS_MAX: Final = 16
PUBLISHED_AT_ONCE: Final = 500
CONSUME_ARGUMENTS: Final = (BACKLOG,)
FETCH_S: Final = 0.1


def missing(_cache: Path) -> str | None:
    """Needs the server."""
    return None if servers.program("nats-server") else "there is no nats-server"


def versions(_cache: Path) -> dict[str, str]:
    """The server's as it says it."""
    found = subprocess.run(
        [str(servers.program("nats-server")), "--version"], check=True, capture_output=True
    )
    return {"server": found.stdout.decode().strip(), "client": f"nats-py {version('nats-py')}"}


@contextmanager
def serve(place: Path, _cache: Path, sync: bool) -> Iterator[Server]:
    """sync: before every acknowledgement, else every two minutes."""
    [port], config = free_ports(1), place / "nats.conf"
    always = ", sync_interval: always" if sync else ""
    config.write_text(
        f'listen: 127.0.0.1:{port}\njetstream {{ store_dir: "{place}/data"{always} }}\n'
    )

    def answers() -> bool:
        """Its INFO comes when JetStream is recovered."""
        return servers.first_bytes(port, 4) == b"INFO"

    command = [str(servers.program("nats-server")), "-c", str(config)]
    with servers.run(command, place, answers) as server:
        server.address = f"nats://127.0.0.1:{port}"
        yield server


async def _gathered(js: Any, topic: str, bodies: list[bytes]) -> None:
    await asyncio.gather(*[await js.publish_async(topic, body) for body in bodies])


def make(server: Server, topic: str) -> None:
    """A stream of one subject."""

    async def work() -> None:
        client = await nats.connect(server.address)
        js = client.jetstream()
        await js.add_stream(name=topic, subjects=[topic], storage=api.StorageType.FILE)
        await client.close()

    uvloop.run(work())


def publish(server: Server, topic: str, bodies: list[bytes]) -> tuple[float, float]:
    """By publish_async()."""

    async def work() -> tuple[float, float]:
        client = await nats.connect(server.address)
        js = client.jetstream(publish_async_max_pending=PENDING_MAX)
        begun = time.perf_counter()
        for at in range(0, len(bodies), BATCH):
            await _gathered(js, topic, bodies[at : at + BATCH])
        acked = time.perf_counter()
        await client.close()
        return begun, acked

    return uvloop.run(work())


def one(server: Server, topic: str, bodies: list[bytes]) -> list[float]:
    """By publish(), which waits."""

    async def work() -> list[float]:
        client = await nats.connect(server.address)
        js, taken = client.jetstream(), []
        for body in [b"first", *bodies]:
            begun = time.perf_counter()
            await js.publish(topic, body)
            taken.append(time.perf_counter() - begun)
        await client.close()
        return taken[1:]

    return uvloop.run(work())


def read(server: Server, topic: str, reading: Reading) -> None:
    """An ordered consumer with a callback: its fastest way without acknowledgements."""

    async def work() -> None:
        client = await nats.connect(server.address)
        over = asyncio.Event()

        async def take(message: Any) -> None:
            if reading.timed:
                last = reading.stamps([message.data])
            else:
                reading.total += message.data[11] + int(message.reply.split(".")[5])
                last = reading.took(1)
            if last:
                over.set()

        policy = api.DeliverPolicy.ALL if reading.start else api.DeliverPolicy.NEW
        reading.subscribing()
        await client.jetstream().subscribe(
            topic, stream=topic, ordered_consumer=True, cb=take, pending_msgs_limit=10_000_000,
            pending_bytes_limit=1 << 32, config=api.ConsumerConfig(deliver_policy=policy),
        )  # fmt: skip
        await client.flush()
        reading.subscribed()
        await over.wait()
        await client.close()

    uvloop.run(work())


def paced(server: Server, topic: str, due: Iterable[list[bytes]]) -> None:
    """What is due goes together; the next when it is acknowledged."""

    async def work() -> None:
        client = await nats.connect(server.address)
        js = client.jetstream()
        for some in due:
            await _gathered(js, topic, some)
        await client.close()

    uvloop.run(work())


# -- the work queue ---------------------------------------------------------------------------


def fill(server: Server, bodies: list[bytes]) -> None:
    """A work queue with these messages alone, the first has sequence 1."""
    uvloop.run(_fill(server, bodies))


async def _fill(server: Server, bodies: list[bytes]) -> None:
    client = await nats.connect(server.address)
    js = client.jetstream()
    with contextlib.suppress(errors.NotFoundError):
        await js.delete_stream(QUEUE)
    await js.add_stream(
        name=QUEUE, subjects=[QUEUE], retention=api.RetentionPolicy.WORK_QUEUE,
        storage=api.StorageType.FILE,
    )  # fmt: skip
    await js.add_consumer(
        QUEUE, durable_name=QUEUE, ack_policy=api.AckPolicy.EXPLICIT,
        max_ack_pending=BACKLOG * CONSUMERS_MAX,
    )  # fmt: skip
    for at in range(0, len(bodies), PUBLISHED_AT_ONCE):
        await _gathered(js, QUEUE, bodies[at : at + PUBLISHED_AT_ONCE])
    await client.close()


def consume(this: Round, _number: int, address: str, backlog: int) -> Taken:
    """Fetches, and acknowledges each without waiting for an answer."""
    return uvloop.run(_consume(this, address, backlog))


async def _consume(this: Round, address: str, backlog: int) -> Taken:
    client = await nats.connect(address)
    js = client.jetstream()
    source = await js.pull_subscribe_bind(consumer=QUEUE, stream=QUEUE)
    this.begin()
    while not this.over:
        try:
            messages = await source.fetch(backlog, timeout=FETCH_S)
        except (TimeoutError, nats.errors.TimeoutError):
            continue
        this.first = this.first or time.perf_counter()
        total = 0
        for message in messages:
            total += message.data[11] + message.metadata.sequence.stream
            await message.ack()
        this.took(len(messages), total)
    await client.flush()
    while (info := await js.consumer_info(QUEUE, QUEUE)).num_ack_pending or info.num_pending:
        await asyncio.sleep(0.002)
    taken = this.ended()
    await client.close()
    return taken
