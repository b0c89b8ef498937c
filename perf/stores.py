"""Publishing with a store in memory and in a directory, by threads and by an event loop.

The limit keeps nothing: it packs, sends and counts acks, and has no receipts. What would be lost
with the connection is lost.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import msgspec
import zmq

import zbroker
from perf.harness import Cpu, Result, Setup, payloads
from zbroker import aio
from zbroker.checksums import crc32c

STORES: Final = ("memory", "file")
THREADS: Final = 8
ONE_BY_ONE: Final = 1_000
FLUSH_S: Final = 120.0
BATCH: Final = 5_000
WINDOW: Final = 20 * BATCH
STUCK_MS: Final = 60_000
LIMIT: Final = "a client that keeps nothing"


def kept(setup: Setup) -> list[Result]:
    """An open window in each way, then one at a time."""
    bodies = payloads(setup.messages)
    ways: dict[str, Callable[[str, str, list[bytes]], float]] = {
        "publish()": _by_threads(1),
        f"publish(), {THREADS} threads": _by_threads(THREADS),
        "publish_many()": _many,
        "publish(), asyncio": _async,
    }
    ours: dict[tuple[str, str], list[float]] = {}
    cpu: dict[tuple[str, str], float] = {}
    limit: list[float] = []
    with setup.broker() as broker:
        for number in setup.each_round("stores"):
            limit.append(len(bodies) / _nothing_kept(broker.url, bodies))
            for way, publish in ways.items():
                for kind in STORES:
                    used = Cpu(broker)
                    with _store(setup, kind) as store:
                        name = f"perf-{kind}-{secrets.token_hex(4)}-{number}"
                        seconds = publish(broker.url, name, bodies, store)
                    ours.setdefault((way, kind), []).append(len(bodies) / seconds)
                    cpu[way, kind] = used.per_message_us(len(bodies)).get("client", 0.0)
        latencies = _one_by_one(setup, broker)
    return [*_table(ours, limit, cpu), *latencies]


def _table(
    ours: dict[tuple[str, str], list[float]],
    limit: list[float],
    cpu: dict[tuple[str, str], float],
) -> list[Result]:
    results = []
    for (way, kind), values in ours.items():
        beside = ours[way, "memory"] if kind == "file" else ours["publish()", "memory"]
        share = statistics.median(a / b for a, b in zip(values, beside, strict=True))
        of = "share_of_memory" if kind == "file" else "share_of_one_thread"
        notes: dict[str, Any] = {of: round(share, 2), "client_cpu_us": cpu[way, kind]}
        target = {"file": ">= 60 % of memory", "memory": ""}[kind]
        if "asyncio" in way and kind == "memory":
            target = ">= 50 % of one thread"
        results.append(
            Result(f"{way}, {kind}", "messages/s", values, limit, LIMIT, target, notes=notes)
        )
    return results


@contextmanager
def _store(setup: Setup, kind: str) -> Iterator[str | Path]:
    if kind == "memory":
        yield "memory"
        return
    place = Path(tempfile.mkdtemp(prefix="store-", dir=setup.directory))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def _by_threads(count: int) -> Callable[[str, str, str | Path, list[bytes]], float]:
    def publish(url: str, name: str, bodies: list[bytes], store: str | Path) -> float:
        with zbroker.connect(url, name, publish_store=str(store)) as client:
            size = len(bodies) // count
            parts = [bodies[n * size : (n + 1) * size] for n in range(count)]
            begun = time.perf_counter()
            if count == 1:
                _each(client, parts[0])
            else:
                threads = [threading.Thread(target=_each, args=(client, part)) for part in parts]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            client.flush(FLUSH_S)
            return time.perf_counter() - begun

    return publish


def _each(client: zbroker.client.Client, bodies: list[bytes]) -> None:
    publish = client.publish
    for body in bodies:
        publish("perf", body)


def _many(url: str, name: str, bodies: list[bytes], store: str | Path) -> float:
    with zbroker.connect(url, name, publish_store=str(store)) as client:
        begun = time.perf_counter()
        client.publish_many("perf", bodies)
        client.flush(FLUSH_S)
        return time.perf_counter() - begun


def _async(url: str, name: str, bodies: list[bytes], store: str | Path) -> float:
    async def publish() -> float:
        async with aio.connect(url, name, publish_store=str(store)) as client:
            begun = time.perf_counter()
            for start in range(0, len(bodies), BATCH):
                await client.ready()
                for body in bodies[start : start + BATCH]:
                    client.publish("perf", body)
            await client.flush(FLUSH_S)
            return time.perf_counter() - begun

    return asyncio.run(publish())


# -- one at a time ----------------------------------------------------------------------------


def _one_by_one(setup: Setup, broker: zbroker.LocalBroker) -> list[Result]:
    ways = {"publish, one at a time": _waits, "publish, one at a time, asyncio": _awaits}
    taken: dict[tuple[str, str], list[float]] = {}
    for _ in setup.each_round("one at a time"):
        for way, measure in ways.items():
            for kind in STORES:
                with _store(setup, kind) as store:
                    name = f"perf-one-{secrets.token_hex(4)}"
                    p50 = statistics.median(measure(broker.url, name, store)) * 1e6
                taken.setdefault((way, kind), []).append(p50)
    memory = taken["publish, one at a time", "memory"]
    return [
        Result(
            f"{way}, {kind}, p50", "us", values, memory, "with a store in memory", "",
            lower_is_better=True,
        )
        for (way, kind), values in taken.items()
    ]  # fmt: skip


def _waits(url: str, name: str, store: str | Path) -> list[float]:
    taken = []
    with zbroker.connect(url, name, publish_store=str(store)) as client:
        for body in payloads(ONE_BY_ONE):
            begun = time.perf_counter()
            client.publish("perf", body).wait(FLUSH_S)
            taken.append(time.perf_counter() - begun)
    return taken


def _awaits(url: str, name: str, store: str | Path) -> list[float]:
    async def publish() -> list[float]:
        taken = []
        async with aio.connect(url, name, publish_store=str(store)) as client:
            for body in payloads(ONE_BY_ONE):
                begun = time.perf_counter()
                await client.publish("perf", body)
                taken.append(time.perf_counter() - begun)
        return taken

    return asyncio.run(publish())


# -- the limit --------------------------------------------------------------------------------


def _nothing_kept(url: str, bodies: list[bytes]) -> float:
    """Seconds until all acks are there, with WINDOW messages under way at the most."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVTIMEO, STUCK_MS)
    try:
        socket.connect(url)
        logon = {"cmd": "logon", "cid": "1", "client": f"perf-{secrets.token_hex(4)}"}
        socket.send_multipart([msgpack.packb({**logon, "instance": "1", "version": 1})])
        first = _answer(socket)["seq"] + 1
        begun = time.perf_counter()
        acked = first - 1
        for start in range(0, len(bodies), BATCH):
            part = bodies[start : start + BATCH]
            while first + start - acked > WINDOW:
                acked = _answer(socket).get("seq", acked)
            _send(socket, part, first + start)
        while acked < first + len(bodies) - 1:
            acked = _answer(socket).get("seq", acked)
        return time.perf_counter() - begun
    finally:
        context.destroy(linger=0)


def _send(socket: zmq.Socket[bytes], part: list[bytes], seq: int) -> None:
    body = msgspec.msgpack.encode(part)
    header = {
        "cmd": "publish", "topic": "perf", "seq": seq, "prev": seq - 1, "count": len(part),
        "crc": crc32c(body), "ack": ["persisted"],
    }  # fmt: skip
    socket.send_multipart([msgpack.packb(header), body])


def _answer(socket: zmq.Socket[bytes]) -> dict[str, Any]:
    answer: dict[str, Any] = msgpack.unpackb(socket.recv_multipart()[0])
    if answer["cmd"] == "error":
        raise RuntimeError(f"the broker refused: {answer}")
    return answer
