"""RabbitMQ's quorum queues: confirms come after the write-ahead log was synced.

Published by aio-pika with confirms gathered by the thousand, consumed by pika: the faster one for
each. A queue is not read twice, so there is no replay and no fan-out; its one subscriber consumes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import aio_pika
import pika
import uvloop

from perf.brokers import rabbitmq_node
from perf.brokers.rabbitmq_node import missing, serve  # noqa: F401
from perf.brokers.reading import Reading
from perf.brokers.server import Server
from perf.consumers import Round, Taken

BATCH: Final = 1_000
BACKLOG: Final = 1_000
QUEUE: Final = "work"
CONSUME_ARGUMENTS: Final = (BACKLOG,)
KIND: Final = {"x-queue-type": "quorum"}
READS_ONCE: Final = True  # what was read is gone


def versions(cache: Path) -> dict[str, str]:
    """Of the node, and of the client that publishes."""
    return rabbitmq_node.versions(cache, "aio-pika")


def _connect(address: Any) -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", address[0], heartbeat=0))


def make(server: Server, topic: str) -> None:
    """A queue."""
    connection = _connect(server.address)
    connection.channel().queue_declare(topic, durable=True, arguments=KIND)
    connection.close()


async def _channel(server: Server) -> tuple[Any, Any]:
    url = f"amqp://guest:guest@127.0.0.1:{server.address[0]}/"
    connection = await aio_pika.connect(url)
    return connection, await connection.channel(publisher_confirms=True)


def _message(body: bytes) -> Any:
    return aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)


def publish(server: Server, topic: str, bodies: list[bytes]) -> tuple[float, float]:
    """The next thousand when these are confirmed."""

    async def work() -> tuple[float, float]:
        connection, channel = await _channel(server)
        send = channel.default_exchange.publish
        begun = time.perf_counter()
        for at in range(0, len(bodies), BATCH):
            some = bodies[at : at + BATCH]
            await asyncio.gather(*[send(_message(body), topic) for body in some])
        acked = time.perf_counter()
        await connection.close()
        return begun, acked

    return uvloop.run(work())


def one(server: Server, topic: str, bodies: list[bytes]) -> list[float]:
    """By pika, which waits for the confirm."""
    connection = _connect(server.address)
    channel = connection.channel()
    channel.confirm_delivery()
    persistent, taken = pika.BasicProperties(delivery_mode=2), []
    for body in [b"first", *bodies]:
        begun = time.perf_counter()
        channel.basic_publish("", topic, body, persistent)
        taken.append(time.perf_counter() - begun)
    connection.close()
    return taken[1:]


def read(server: Server, topic: str, reading: Reading) -> None:
    """Consumed without acknowledgement of each: what comes is gone."""
    connection = _connect(server.address)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=BATCH)
    over = False

    def take(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        nonlocal over
        if reading.timed:
            over = reading.stamps([body])
        else:
            reading.total += body[11] + method.delivery_tag
            over = reading.took(1)
        if over or not method.delivery_tag % 100:
            channel.basic_ack(method.delivery_tag, multiple=True)

    reading.subscribing()
    channel.basic_consume(topic, take)
    reading.subscribed()
    while not over:
        connection.process_data_events(0.01)
    connection.close()


def paced(server: Server, topic: str, due: Iterable[list[bytes]]) -> None:
    """What is due goes together; the next when it is confirmed."""

    async def work() -> None:
        connection, channel = await _channel(server)
        send = channel.default_exchange.publish
        for some in due:
            await asyncio.gather(*[send(_message(body), topic) for body in some])
        await connection.close()

    uvloop.run(work())


def fill(server: Server, bodies: list[bytes]) -> None:
    """Into a queue that is empty."""
    make(server, QUEUE)
    publish(server, QUEUE, bodies)


def consume(this: Round, _number: int, address: Any, backlog: int) -> Taken:
    """Acknowledges each; in the end a question on the same channel is answered after the acks."""
    connection = _connect(address)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=backlog)
    this.begin()

    def take(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        this.first = this.first or time.perf_counter()
        channel.basic_ack(method.delivery_tag)
        this.took(1, body[11])

    channel.basic_consume(QUEUE, take)
    while not this.over:
        connection.process_data_events(0.01)
    channel.queue_declare(QUEUE, passive=True)
    taken = this.ended()
    connection.close()
    return taken
