"""RabbitMQ's streams by rstream (with uvloop): batches of 1,000, confirms counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import rstream
import uvloop

from perf.brokers import rabbitmq_node
from perf.brokers.rabbitmq_node import missing, serve  # noqa: F401
from perf.brokers.reading import Reading
from perf.brokers.server import Server

USER: Final = {"username": "guest", "password": "guest"}
BATCH: Final = 1_000
WINDOW: Final = 50_000
CREDIT: Final = 50
STUCK_S: Final = 60.0


def versions(cache: Path) -> dict[str, str]:
    """Of the node and of the client."""
    return rabbitmq_node.versions(cache, "rstream")


def _producer(server: Server) -> Any:
    return rstream.Producer("127.0.0.1", server.address[1], **USER)


class Confirms:
    """Counts what was confirmed, and wakes the publisher."""

    def __init__(self) -> None:
        self.count = 0
        self.moved = asyncio.Event()

    async def take(self, status: Any) -> None:
        """Raises: RuntimeError, if the broker refused it."""
        if not status.is_confirmed:
            raise RuntimeError("not confirmed")
        self.count += 1
        self.moved.set()

    async def reach(self, count: int) -> None:
        """Until so many are confirmed."""
        while self.count < count:
            self.moved.clear()
            await asyncio.wait_for(self.moved.wait(), STUCK_S)


def make(server: Server, topic: str) -> None:
    """A stream."""

    async def work() -> None:
        async with _producer(server) as producer:
            await producer.create_stream(topic, exists_ok=True)

    uvloop.run(work())


def publish(server: Server, topic: str, bodies: list[bytes]) -> tuple[float, float]:
    """At most WINDOW messages are not confirmed."""

    async def work() -> tuple[float, float]:
        async with _producer(server) as producer:
            confirms = Confirms()
            begun = time.perf_counter()
            for at in range(0, len(bodies), BATCH):
                some = bodies[at : at + BATCH]
                await producer.send_batch(topic, some, on_publish_confirm=confirms.take)
                await asyncio.sleep(0)
                await confirms.reach(at + len(some) - WINDOW)
            await confirms.reach(len(bodies))
            return begun, time.perf_counter()

    return uvloop.run(work())


def one(server: Server, topic: str, bodies: list[bytes]) -> list[float]:
    """By send_wait()."""

    async def work() -> list[float]:
        async with _producer(server) as producer:
            taken = []
            for body in [b"first", *bodies]:
                begun = time.perf_counter()
                await producer.send_wait(topic, body)
                taken.append(time.perf_counter() - begun)
            return taken[1:]

    return uvloop.run(work())


def read(server: Server, topic: str, reading: Reading) -> None:
    """With a callback for each message."""

    async def work() -> None:
        reader = rstream.Consumer("127.0.0.1", server.address[1], **USER)
        await reader.start()
        over = asyncio.Event()

        def take(data: bytes, context: Any) -> None:
            if reading.timed:
                last = reading.stamps([data])
            else:
                reading.total += data[11] + context.offset
                last = reading.took(1)
            if last:
                over.set()

        offset = rstream.OffsetType.FIRST if reading.start else rstream.OffsetType.NEXT
        reading.subscribing()
        await reader.subscribe(
            topic, take, decoder=bytes, initial_credit=CREDIT,
            offset_specification=rstream.ConsumerOffsetSpecification(offset, None),
        )  # fmt: skip
        await asyncio.sleep(0.2)
        reading.subscribed()
        running = asyncio.ensure_future(reader.run())
        await over.wait()
        running.cancel()
        await reader.close()

    uvloop.run(work())


def paced(server: Server, topic: str, due: Iterable[list[bytes]]) -> None:
    """What is due goes as one batch; confirms are not waited for."""

    async def work() -> None:
        async with _producer(server) as producer:
            confirms, sent = Confirms(), 0
            for some in due:
                await producer.send_batch(topic, some, on_publish_confirm=confirms.take)
                await asyncio.sleep(0)
                sent += len(some)
            await confirms.reach(sent)

    uvloop.run(work())
