"""Kafka: one KRaft node from its jars, by confluent-kafka (librdkafka).

acks=all, batch.size 256 KiB, linger 5 ms, no compression; linger 0 where a message is waited for,
1 ms and five requests in flight where a rate is fixed: else it sends a request for each message,
and a million of them wait in flight.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from perf.brokers import server as servers
from perf.brokers.reading import Reading
from perf.brokers.server import Server
from perf.consumers import Round, Taken
from zbroker.free_ports import free_ports

HEAP: Final = ("-Xms1G", "-Xmx1G")  # as its own script has it, and these options
JAVA: Final = (
    "java", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
)  # fmt: skip
QUIET: Final = {"log_level": 0}
THROUGHPUT: Final = {
    "acks": "all", "batch.size": 262_144, "batch.num.messages": 10_000, "linger.ms": 5,
    "compression.type": "none", "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
}  # fmt: skip
LATENCY: Final = {**THROUGHPUT, "linger.ms": 0, "socket.nagle.disable": True}
PACED: Final = {**LATENCY, "linger.ms": 1, "max.in.flight.requests.per.connection": 5}
FETCH: Final = {
    "enable.auto.commit": False, "fetch.wait.max.ms": 100, "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 262_144, "fetch.message.max.bytes": 4_194_304,
    "fetch.queue.backoff.ms": 5,
}  # fmt: skip
CHUNK: Final = 10_000
WARM: Final = 300_000  # messages until the JVM has compiled what it runs
PARTITIONS: Final = 4  # of the queue: each consumer has one
QUEUE: Final = "work"
BACKLOG: Final = 1_000
CONSUME_ARGUMENTS: Final = (BACKLOG,)
CONTROLLER_SETTINGS: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={place}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
SYNCED: Final = "log.flush.interval.messages=1\n"


def _jars(cache: Path) -> Path:
    return cache / "kafka" / "lib"


def missing(cache: Path) -> str | None:
    """Needs Java, and the jars in the cache."""
    if shutil.which("java") is None:
        return "there is no java"
    if not list(_jars(cache).glob("kafka_*.jar")):
        return "its jars are not in the cache: python -m perf.brokers.install kafka"
    return None


def versions(cache: Path) -> dict[str, str]:
    """The server's from the name of its jar."""
    jar = next(_jars(cache).glob("kafka_*.jar"))
    return {"server": jar.stem.rpartition("-")[2], "client": f"confluent-kafka {ck.__version__}"}


@contextmanager
def serve(place: Path, cache: Path, sync: bool) -> Iterator[Server]:
    """sync: before every acknowledgement, else when the kernel likes."""
    port, control = free_ports(2)
    config = place / "server.properties"
    text = CONTROLLER_SETTINGS.format(place=place, port=port, control=control)
    config.write_text(text + (SYNCED if sync else ""))
    java = [*JAVA, *HEAP, "-cp", f"{_jars(cache)}/*"]
    identity = ["-t", str(uuid.uuid4()), "-c", str(config)]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", *identity], check=True, capture_output=True
    )
    address = f"127.0.0.1:{port}"

    def answers() -> bool:
        servers.first_bytes(port, 0)
        return bool(_admin(address).list_topics(timeout=1).brokers)

    with servers.run([*java, "kafka.Kafka", str(config)], place, answers) as server:
        server.address = address
        yield server


def _admin(address: str) -> Any:
    return AdminClient({"bootstrap.servers": address, **QUIET})


def make(server: Server, topic: str, partitions: int = 1) -> None:
    """A topic, with a leader."""
    admin = _admin(server.address)  # has to live as long as its futures
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(30)
    time.sleep(0.3)


def warm(server: Server, topic: str, bodies: list[bytes]) -> None:
    """As many messages as the JVM needs before its figures stop rising."""
    for _ in range(-(-WARM // len(bodies))):
        publish(server, topic, bodies)


def _producer(server: Server, settings: dict[str, Any]) -> Any:
    producer = ck.Producer({"bootstrap.servers": server.address, **QUIET, **settings})
    producer.list_topics(timeout=10)
    return producer


def _end(server: Server, topic: str) -> int:
    reader = ck.Consumer({"bootstrap.servers": server.address, **QUIET, "group.id": "look"})
    end = reader.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=10)[1]
    reader.close()
    return int(end)


def _finish(producer: Any, server: Server, topic: str, expected: int) -> None:
    """Raises: AssertionError, unless all of them are in the log."""
    end = _end(server, topic)
    if len(producer) or end != expected:
        raise AssertionError(f"the log ends at {end}, not at {expected}")


def publish(server: Server, topic: str, bodies: list[bytes]) -> tuple[float, float]:
    """By produce() of each, which is what most programs call."""
    producer, before = _producer(server, THROUGHPUT), _end(server, topic)
    produce, poll = producer.produce, producer.poll
    begun = time.perf_counter()
    for number, body in enumerate(bodies):
        try:
            produce(topic, body)
        except BufferError:
            poll(0.1)
            produce(topic, body)
        if not number % CHUNK:
            poll(0)
    producer.flush(120)
    acked = time.perf_counter()
    _finish(producer, server, topic, before + len(bodies))
    return begun, acked


def publish_many(server: Server, topic: str, bodies: list[bytes]) -> tuple[float, float]:
    """By produce_batch(); making its dicts counts, since a program has to make them."""
    producer, before = _producer(server, THROUGHPUT), _end(server, topic)
    begun = time.perf_counter()
    for at in range(0, len(bodies), CHUNK):
        some = [{"value": body} for body in bodies[at : at + CHUNK]]
        producer.produce_batch(topic, some, partition=0)
    producer.flush(120)
    acked = time.perf_counter()
    _finish(producer, server, topic, before + len(bodies))
    return begun, acked


def one(server: Server, topic: str, bodies: list[bytes]) -> list[float]:
    """Each is waited for by poll()."""
    producer = _producer(server, LATENCY)
    taken: list[float] = []
    errors: list[Any] = []
    for body in [b"first", *bodies]:
        begun = time.perf_counter()
        producer.produce(topic, body, on_delivery=lambda error, _: errors.append(error))
        while not errors:
            producer.poll(1)
        taken.append(time.perf_counter() - begun)
        if (error := errors.pop()) is not None:
            raise RuntimeError(f"not delivered: {error}")
    return taken[1:]


def read(server: Server, topic: str, reading: Reading) -> None:
    """By consume() of many; by poll() where it is timed: consume() waits until its list is full."""
    reader = ck.Consumer(
        {"bootstrap.servers": server.address, **QUIET, "group.id": "read", **FETCH}
    )
    start = 0 if reading.start else _end(server, topic)
    reading.subscribing()
    reader.assign([ck.TopicPartition(topic, 0, start)])
    if not reading.start:
        reader.poll(0.5)
    reading.subscribed()
    over = False
    while not over:
        if reading.timed:
            message = reader.poll(1.0)
            over = message is not None and reading.stamps([message.value()])
            continue
        batch = reader.consume(CHUNK, 0.1)
        for message in batch:
            reading.total += message.value()[11] + message.offset()
        over = reading.took(len(batch))
    reader.close()


def paced(server: Server, topic: str, due: Iterable[list[bytes]]) -> None:
    """Each by produce(), which does not wait."""
    producer = _producer(server, PACED)
    for some in due:
        for body in some:
            producer.produce(topic, body)
        producer.poll(0)
    producer.flush(60)


def fill(server: Server, bodies: list[bytes]) -> None:
    """In turn into as many partitions as there are consumers, so that each has the same share."""
    make(server, QUEUE, PARTITIONS)
    producer = _producer(server, THROUGHPUT)
    for number, body in enumerate(bodies):
        producer.produce(QUEUE, body, partition=number % PARTITIONS)
    producer.flush(60)


def consume(this: Round, number: int, address: str, backlog: int) -> Taken:
    """Commits the offset after each message without waiting; the last commit is waited for.

    Kafka acknowledges single messages in share groups only, which the Python client lacks.
    """
    reader = ck.Consumer(
        {"bootstrap.servers": address, **QUIET, "group.id": "none",
         "enable.auto.commit": False, "fetch.wait.max.ms": 10}
    )  # fmt: skip
    reader.assign([ck.TopicPartition(QUEUE, number, 0)])
    this.begin()
    offset = 0
    while not this.over:
        batch = reader.consume(backlog, 0.05)
        this.first = this.first or (time.perf_counter() if batch else 0.0)
        total = 0
        for message in batch:
            total += message.value()[11]
            offset = message.offset() + 1
            reader.commit(offsets=[ck.TopicPartition(QUEUE, number, offset)], asynchronous=True)
            if not offset % BACKLOG:
                reader.poll(0)  # answers to commits are taken in
        this.took(len(batch), total)
    reader.commit(offsets=[ck.TopicPartition(QUEUE, number, offset)], asynchronous=False)
    taken = this.ended()
    reader.close()
    return taken
