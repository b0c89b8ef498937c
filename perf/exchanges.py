"""Publishing to a topic exchange with many bindings, and beside many idle queues.

Each message has a routing key that fits one of the bindings, so it enters one of the queues. The
limit is the same loop with the same keys to a topic that no queue has.
"""

from __future__ import annotations

import time
from typing import Final

import zbroker
from perf.harness import Result, Setup, payloads
from zbroker.local import Settings

BINDINGS: Final = 100
QUEUES: Final = 10  # that they lead to
IDLE: Final = 10_000
SHARE: Final = 5  # a fifth of the messages of the other workloads: each is published by itself
EXCHANGE: Final = "events"
PLAIN: Final = "plain"
STUCK_S: Final = 600.0


def everything(setup: Setup) -> list[Result]:
    """Rates of an exchange, and of a plain topic beside queues that get nothing."""
    return [_routed(setup), _beside_idle(setup)]


def _routed(setup: Setup) -> Result:
    bodies = payloads(setup.messages // SHARE)
    keys = [b"k%d.new" % number for number in range(BINDINGS)]
    settings: Settings = {
        "queue": [{"name": f"q{number}", "bound": True} for number in range(QUEUES)]
    }
    rates: dict[str, list[float]] = {PLAIN: [], EXCHANGE: []}
    with (
        setup.broker(settings) as broker,
        zbroker.connect(broker.url, name="perf-exchange") as client,
    ):
        client.declare_exchange(EXCHANGE, kind="topic")
        for number in range(BINDINGS):
            client.bind(f"q{number % QUEUES}", EXCHANGE, f"k{number}.*")
        _rate(client, "first", bodies[: len(bodies) // 10], keys)
        for _ in setup.each_round("a topic exchange"):
            for topic in setup.random.sample([*rates], len(rates)):
                rates[topic].append(_rate(client, topic, bodies, keys))
    return Result(
        f"publish(), a topic exchange with {BINDINGS} bindings", "messages/s", rates[EXCHANGE],
        rates[PLAIN], "a plain topic", ">= 60 %",
    )  # fmt: skip


def _rate(
    client: zbroker.client.Client, topic: str, bodies: list[bytes], keys: list[bytes]
) -> float:
    """Messages a second, in an open window, until all are acknowledged."""
    begun = time.perf_counter()
    for number, body in enumerate(bodies):
        client.publish(topic, body, key=keys[number % BINDINGS])
    client.flush(timeout=STUCK_S)
    return len(bodies) / (time.perf_counter() - begun)


def _beside_idle(setup: Setup) -> Result:
    """Two instances that are there all the time, one with the queues."""
    bodies = payloads(setup.messages)
    limits: Settings = {"limits": {"queues_per_principal": IDLE}}
    with setup.broker(limits) as crowded, setup.broker() as plain:
        with zbroker.connect(crowded.url, name="perf-idle") as client:
            for number in range(IDLE):
                name = f"idle-{number}"
                client.declare_queue(name, topic=f"idle.{number}", recovery_point="now")
        rates: dict[str, list[float]] = {plain.url: [], crowded.url: []}
        for url in rates:
            _published(url, bodies[: len(bodies) // 10])
        for _ in setup.each_round("idle queues"):
            for url in setup.random.sample([*rates], len(rates)):
                rates[url].append(_published(url, bodies))
    return Result(
        f"publish_many() beside {IDLE:,} idle queues", "messages/s", rates[crowded.url],
        rates[plain.url], "without", ">= 95 %",
    )  # fmt: skip


def _published(url: str, bodies: list[bytes]) -> float:
    with zbroker.connect(url, name="perf-many") as client:
        client.publish("perf", b"first").wait(STUCK_S)
        begun = time.perf_counter()
        client.publish_many("perf", bodies)
        client.flush(timeout=STUCK_S)
        return len(bodies) / (time.perf_counter() - begun)
