"""Reading: a replay of the log, and a live subscriber while publishing goes on.

The reader touches data and sequence of every message, and the sum is checked.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

import zbroker
from perf import limits
from perf.harness import (
    Cpu,
    Result,
    Setup,
    checksum,
    payloads,
    sum_of_columns,
    sum_of_messages,
    writing,
)
from perf.publish import Series, publish_all, raw_seconds

HEADER_BYTES: Final = 150  # of a msg header with one topic
STUCK_S: Final = 120.0
LIVE_TARGET: Final = ">= 2 M/s on a quiet machine"

_SPAWN: Final = multiprocessing.get_context("spawn")


def read(
    subscription: Any, count: int, sum_of: Callable[[Any], int] = sum_of_messages
) -> tuple[int, int]:
    """The sum over `count` messages, and in how many batches they came."""
    total = batches = 0
    for batch in subscription.batches():
        batches += 1
        total += sum_of(batch)
        count -= len(batch)
        if count <= 0:
            break
    return total, batches


def replay(setup: Setup) -> list[Result]:
    """The whole log, from its beginning to its end, by one subscriber."""
    bodies = payloads(setup.messages)
    ways = {"replay": sum_of_messages}
    if find_spec("pyarrow") is not None:
        ways["replay, record batches"] = sum_of_columns
    found = {
        name: Result(name, "messages/s", [], [], "raw ZeroMQ, same frames", ">= 50 %")
        for name in ways
    }
    with setup.broker() as broker, zbroker.connect(broker.url, name="perf-replay") as client:
        first = client.publish("perf", bodies[0]).sequence
        client.publish_many("perf", bodies[1:])
        client.flush(timeout=STUCK_S)
        expected = checksum(bodies, first)
        for sum_of in ways.values():  # what they import is not measured
            read(client.subscribe("perf", since="epoch", until="now"), len(bodies), sum_of)
        for _ in setup.each_round("replay"):
            for name, sum_of in ways.items():
                result, cpu, begun = found[name], Cpu(broker), time.perf_counter()
                subscription = client.subscribe("perf", since="epoch", until="now")
                total, batches = read(subscription, len(bodies), sum_of)
                result.ours.append(len(bodies) / (time.perf_counter() - begun))
                used = cpu.per_message_us(len(bodies))
                result.notes = {"batches": batches, "cpu_us_per_message": used}
                if total != expected:
                    raise AssertionError(f"the sum of {name} is {total}, not {expected}")
                size = sum(map(len, bodies)) // batches
                result.limit.append(len(bodies) / limits.raw_frames(HEADER_BYTES, size, batches))
    return list(found.values())


def live(setup: Setup) -> list[Result]:
    """Publishing with one subscriber in another process; until both have everything."""
    bodies = payloads(setup.messages)
    one = Series("publish() plus one live subscriber", LIVE_TARGET, [])
    many = Series("publish_many() plus one live subscriber", LIVE_TARGET, None)
    with setup.broker() as broker, zbroker.connect(broker.url, name="perf-live") as client:
        for number in setup.each_round("publish with one live subscriber"):
            for series in (one, many):
                topic = f"perf.{number}.{series is many}"
                with writing(broker, len(bodies)) as done:
                    cpu = Cpu(broker)
                    seconds = _live_round(broker.url, client, topic, bodies, series is many)
                    series.ours.append(len(bodies) / seconds)
                    used = cpu.per_message_us(len(bodies))
                    written = done()
                series.limit.append(len(bodies) / raw_seconds(setup, written))
                series.notes = {**written.notes(), "cpu_us_per_message": used}
    return [one.result(), many.result()]


def _live_round(
    url: str, client: zbroker.client.Client, topic: str, bodies: list[bytes], many: bool
) -> float:
    pipe, theirs = _SPAWN.Pipe()
    reader = _SPAWN.Process(target=_subscribe, args=(theirs, url, topic, len(bodies)), daemon=True)
    reader.start()
    try:
        _receive(pipe)
        begun = time.perf_counter()
        if many:
            client.publish_many(topic, bodies)
            client.flush(timeout=STUCK_S)
        else:
            publish_all(client, bodies, [topic] * len(bodies))
        acked = time.perf_counter()
        total, read_at, first = _receive(pipe)
    finally:
        reader.join(10)
        if reader.is_alive():
            reader.kill()
    if total != checksum(bodies, first):
        raise AssertionError(f"the subscriber's sum is {total}")
    return float(max(acked, read_at) - begun)


def _receive(pipe: Any) -> Any:
    if not pipe.poll(STUCK_S):
        raise TimeoutError("the subscriber does not answer")
    return pipe.recv()


def _subscribe(pipe: Any, url: str, topic: str, count: int) -> None:
    """In the other process: `perf_counter` is the same clock in all processes of a Linux system."""
    with zbroker.connect(url, name=f"perf-reader-{topic}") as client:
        subscription = client.subscribe(topic, since="now")
        batches = subscription.batches()
        pipe.send("ready")
        total = 0
        first = None
        while count > 0:
            batch = next(batches)
            first = batch[0].sequence if first is None else first
            for message in batch:
                total += message.data[11] + message.sequence
            count -= len(batch)
        pipe.send((total, time.perf_counter(), first))
