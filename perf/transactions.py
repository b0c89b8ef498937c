"""Transactions: some messages in, some out, both or neither, next to publishing one at a time.

Four workers take from one queue; each transaction takes MESSAGES and publishes as many. A commit
waits for two syncs, of what was staged and of its unit, so half of what four publishers do that
wait for each message is the most it can be. What it takes to attach a session is compared with one
message.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

import zbroker
from perf.consumers import STUCK_S, Consumers, Round, Taken, consumers, folded, publish
from perf.harness import Result, Setup, payloads
from zbroker.local import Settings

QUEUE: Final = "jobs"
WORKERS: Final = 4
MESSAGES: Final = 10  # in and out, of one transaction
HELD: Final = 4 * MESSAGES
SHARE: Final = 100  # a hundredth of the messages of the other workloads
ATTACHED: Final = 200
SETTINGS: Final[Settings] = {"queue": [{"name": QUEUE}]}


def everything(setup: Setup) -> list[Result]:
    """Transactions a second, and the time to attach."""
    bodies = payloads(max(setup.messages // SHARE, WORKERS * HELD))
    ours: list[float] = []
    limit: list[float] = []
    attach: list[float] = []
    one: list[float] = []
    with (
        setup.broker(SETTINGS) as broker,
        zbroker.connect(broker.url, name="perf-transactions") as client,
        consumers(WORKERS) as pool,
    ):
        for _ in setup.each_round("transactions"):
            publish(client, QUEUE, bodies)
            folded(broker, QUEUE, len(bodies))
            ours.append(_rate(pool, _transact, len(bodies), broker.url) / MESSAGES)
            folded(broker, QUEUE, 0)
            limit.append(_rate(pool, _publish_each, len(bodies), broker.url))
            with client.session("perf") as session:
                attach.append(_median_ms(lambda: session._link.attach(STUCK_S)))
            one.append(_median_ms(lambda: client.publish("one", bodies[0]).wait(STUCK_S)))
    return [
        Result(
            f"transactions of {MESSAGES} in and {MESSAGES} out, {WORKERS} workers", "1/s", ours,
            limit, f"{WORKERS} clients, one message at a time", ">= 25 %",
        ),
        Result(
            "a session attaches, with a connection of its own, p50", "ms", attach, one,
            "one message at a time, p50", "<= 3 times", lower_is_better=True,
        ),
    ]  # fmt: skip


def _rate(pool: Consumers, work: Callable[..., Taken], count: int, url: str) -> float:
    """Messages per second of all."""
    pool.begin(work, WORKERS, count, url)
    taken = pool.end(WORKERS)
    found = sum(each.messages for each in taken)
    if found < count:
        raise AssertionError(f"{found} messages, not {count}")
    first = min(each.first for each in taken if each.first)
    return found / (max(each.last for each in taken) - first)


def _transact(this: Round, number: int, url: str) -> Taken:
    """Takes and publishes, until all workers have taken all."""
    with (
        zbroker.connect(url, name=f"perf-worker-{number}") as client,
        client.session(f"perf-{number}") as session,
    ):
        this.begin()
        with session.consume(QUEUE, backlog=HELD) as consumer:
            while not this.over:
                messages = consumer.fetch(MESSAGES, timeout=0.05)
                this.first = this.first or time.perf_counter()
                with session.transaction(STUCK_S):
                    for message in messages:
                        session.publish("results", message.data)
                        message.ack()
                this.took(len(messages), 0)
        return this.ended()


def _publish_each(this: Round, number: int, url: str) -> Taken:
    """Publishes, and waits for each."""
    with zbroker.connect(url, name=f"perf-publisher-{number}") as client:
        this.begin()
        this.first = time.perf_counter()
        while not this.over:
            client.publish("each", b"x" * 100).wait(STUCK_S)
            this.took(1, 0)
        return this.ended()


def _median_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ATTACHED):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1_000
