"""zbroker of the version that this process imports, by its own client.

Only what all versions have is used: one version's workloads measure the other ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import zbroker
from perf.brokers.reading import Reading
from perf.brokers.server import Server
from perf.consumers import consume_each as consume  # noqa: F401
from perf.consumers import folded
from perf.harness import sum_of_columns, sum_of_messages

FLUSH_S: Final = 120.0
QUEUE: Final = "work"
BACKLOG: Final = 1_000
CONSUME_ARGUMENTS: Final = (QUEUE, BACKLOG)
SETTINGS: Final = {"journal": {"segment_size": "256MiB"}}


def missing(_cache: Path) -> str | None:
    """It is there."""
    return None


def versions(_cache: Path) -> dict[str, str]:
    """Of the package."""
    return {"zbroker": zbroker.__version__}


@contextmanager
def serve(place: Path, _cache: Path, _sync: bool) -> Iterator[Server]:
    """No queue at first: one reads everything that is published."""
    start = zbroker.LocalBroker  # imports the client, which is not a part of the start
    begun = time.perf_counter()
    with start(place / "data", settings=SETTINGS) as broker:
        ready_s = time.perf_counter() - begun
        pids = broker.pids
        yield Server(broker.url, lambda: pids, ready_s, broker)


def make(_server: Server, _topic: str) -> None:
    """Topics need no making."""


def publish(server: Server, topic: str, bodies: list[bytes]) -> tuple[float, float]:
    """By publish() of each."""
    with zbroker.connect(server.address, name=f"p-{topic}") as client:
        publish_one = client.publish
        begun = time.perf_counter()
        for body in bodies:
            publish_one(topic, body)
        client.flush(timeout=FLUSH_S)
        return begun, time.perf_counter()


def publish_many(server: Server, topic: str, bodies: list[bytes]) -> tuple[float, float]:
    """By one publish_many()."""
    with zbroker.connect(server.address, name=f"m-{topic}") as client:
        begun = time.perf_counter()
        client.publish_many(topic, bodies)
        client.flush(timeout=FLUSH_S)
        return begun, time.perf_counter()


def one(server: Server, topic: str, bodies: list[bytes]) -> list[float]:
    """The first one, which is not counted, opens everything."""
    taken = []
    with zbroker.connect(server.address, name=f"o-{topic}") as client:
        client.publish(topic, b"first").wait(FLUSH_S)
        for body in bodies:
            begun = time.perf_counter()
            client.publish(topic, body).wait(FLUSH_S)
            taken.append(time.perf_counter() - begun)
    return taken


def read(server: Server, topic: str, reading: Reading) -> None:
    """In the batches in which they come."""
    name = f"r-{topic}-{time.time_ns()}"
    with zbroker.connect(server.address, name=name) as client:
        reading.subscribing()
        batches = client.subscribe(topic, since="epoch" if reading.start else "now").batches()
        reading.subscribed()
        over = False
        while not over:
            batch: Any = next(batches)
            if reading.timed:
                over = reading.stamps([message.data for message in batch])
                continue
            reading.total += sum_of_messages(batch)
            over = reading.took(len(batch))


def read_columns(server: Server, topic: str, reading: Reading) -> None:
    """As record batches; by messages with a version that has none."""
    import numpy  # noqa: F401 - an import is not what is measured
    import pyarrow  # noqa: F401

    name = f"c-{topic}-{time.time_ns()}"
    with zbroker.connect(server.address, name=name) as client:
        reading.subscribing()
        for batch in client.subscribe(topic, since="epoch").batches():
            sum_of = sum_of_columns if hasattr(batch, "to_arrow") else sum_of_messages
            reading.total += sum_of(batch)
            if reading.took(len(batch)):
                break


def paced(server: Server, topic: str, due: Iterable[list[bytes]]) -> None:
    """Each by publish(), which does not wait."""
    with zbroker.connect(server.address, name=f"s-{topic}") as client:
        for some in due:
            for body in some:
                client.publish(topic, body)
        client.flush(timeout=FLUSH_S)


def fill(server: Server, bodies: list[bytes]) -> None:
    """Into a queue that holds them all before the clock starts."""
    definition = {"topic": QUEUE, "max_per_subscription": BACKLOG}
    server.broker.ask(f"/queues/{QUEUE}/create", {"definition": definition})
    publish_many(server, QUEUE, bodies)
    folded(server.broker, QUEUE, len(bodies))
