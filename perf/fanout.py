"""Fan-out: one publisher, and none, one, four or sixteen live subscribers, each a process.

What one subscriber is delivered per second is what those of many are compared with. Each touches
data and sequence of every message, and the sums are checked.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from contextlib import ExitStack
from typing import Any, Final

import zbroker
from perf.harness import Cpu, Result, Setup, checksum, payloads
from perf.reading import STUCK_S, read

SUBSCRIBERS: Final = (1, 4, 16)

_SPAWN: Final = multiprocessing.get_context("spawn")


def fan_out(setup: Setup) -> list[Result]:
    """Delivered messages per second, all subscribers together."""
    bodies = payloads(setup.messages)
    alone: list[float] = []
    delivered: dict[int, list[float]] = {count: [] for count in SUBSCRIBERS}
    notes: dict[int, dict[str, Any]] = {}
    with setup.broker() as broker, zbroker.connect(broker.url, name="perf-fan-out") as client:
        for number in setup.each_round("fan-out to 1, 4 and 16"):
            alone.append(len(bodies) / _publish(client, f"fan.{number}.0", bodies)[1])
            for count in SUBSCRIBERS:
                cpu = Cpu(broker)
                seconds = _round(broker.url, client, f"fan.{number}.{count}", bodies, count)
                delivered[count].append(count * len(bodies) / seconds)
                notes[count] = {"cpu_us_per_published": cpu.per_message_us(len(bodies))}
    one = delivered[SUBSCRIBERS[0]]
    return [_result(count, delivered[count], one, alone, notes[count]) for count in SUBSCRIBERS]


def _result(
    count: int, ours: list[float], one: list[float], alone: list[float], notes: dict[str, Any]
) -> Result:
    limit, name = (alone, "published, nobody subscribed") if count == 1 else (one, "delivered to 1")
    target = "" if count == 1 else ">= 100 % of what one gets"
    notes["each"] = round(statistics.median(ours) / count)
    return Result(f"fan-out, 1 to {count}", "messages/s", ours, limit, name, target, notes=notes)


def _publish(
    client: zbroker.client.Client, topic: str, bodies: list[bytes]
) -> tuple[float, float, int]:
    """When it began, seconds until the last ack, and the sequence of the first message."""
    begun = time.perf_counter()
    last = client.publish_many(topic, bodies)
    client.flush(timeout=STUCK_S)
    return begun, time.perf_counter() - begun, last.sequence - len(bodies) + 1


def _round(
    url: str, client: zbroker.client.Client, topic: str, bodies: list[bytes], count: int
) -> float:
    """Seconds from the first publish() until the last subscriber has the last message."""
    with ExitStack() as stack:
        pipes = [
            _reader(stack, url, f"{topic}.{each}", topic, len(bodies)) for each in range(count)
        ]
        for pipe in pipes:
            _receive(pipe)
        begun, _, first = _publish(client, topic, bodies)
        totals = [_receive(pipe) for pipe in pipes]
    expected = checksum(bodies, first)
    wrong = [total for total, _ in totals if total != expected]
    if wrong:
        raise AssertionError(f"{len(wrong)} of {count} sums are not {expected}: {wrong[:3]}")
    return float(max(at for _, at in totals) - begun)


def _reader(stack: ExitStack, url: str, name: str, topic: str, count: int) -> Any:
    """The pipe of a subscriber in a process of its own, which ends with `stack`."""
    pipe, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_subscribe, args=(theirs, url, name, topic, count), daemon=True)
    process.start()
    stack.callback(_end, process)
    return pipe


def _end(process: Any) -> None:
    process.join(10)
    if process.is_alive():
        process.kill()


def _receive(pipe: Any) -> Any:
    if not pipe.poll(STUCK_S):
        raise TimeoutError("a subscriber does not answer")
    return pipe.recv()


def _subscribe(pipe: Any, url: str, name: str, topic: str, count: int) -> None:
    """In the other process: `perf_counter` is the same clock in all processes of a Linux system."""
    with zbroker.connect(url, name=name) as client:
        subscription = client.subscribe(topic, since="now")
        pipe.send("ready")
        total, _ = read(subscription, count)
        pipe.send((total, time.perf_counter()))
