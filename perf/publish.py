"""Publishing 100 B messages, acknowledged after the sync: an open window, or one at a time."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import zbroker
from perf import limits
from perf.harness import Cpu, Result, Setup, Written, payloads, writing

FLUSH_S = 120.0
ONE_BY_ONE = 2_000
RAW_PAGE = 4_096
RAW_TARGET = ">= 50 % of raw synced writes"


@dataclass
class Series:
    """One way of publishing and what its rounds gave; `topics` None is publish_many()."""

    name: str
    target: str
    topics: list[str] | None
    ours: list[float] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def result(self) -> Result:
        """Its line of the table."""
        values = (self.ours, self.limit, "raw synced writes", self.target)
        return Result(self.name, "messages/s", *values, notes=self.notes)


def throughput(setup: Setup) -> list[Result]:
    """An open window, one topic: by publish() with a receipt each, and by publish_many()."""
    bodies = payloads(setup.messages)
    single = Series("publish(), open window", RAW_TARGET, ["perf"] * len(bodies))
    many = Series("publish_many(), open window", RAW_TARGET, None)
    measure(setup, bodies, [single, many])
    return [single.result(), many.result()]


def measure(setup: Setup, bodies: list[bytes], all_series: list[Series]) -> None:
    """Publishes `bodies` in each way in turn, each followed by the same writes without a broker."""
    with setup.broker() as broker, zbroker.connect(broker.url, name="perf-publish") as client:
        for _ in setup.each_round(" and ".join(series.name for series in all_series)):
            for series in all_series:
                with writing(broker, len(bodies)) as done:
                    cpu = Cpu(broker)
                    series.ours.append(len(bodies) / publish_all(client, bodies, series.topics))
                    used = cpu.per_message_us(len(bodies))
                    written = done()
                series.limit.append(len(bodies) / raw_seconds(setup, written))
                series.notes = {**written.notes(), "cpu_us_per_message": used}


def publish_all(
    client: zbroker.client.Client, bodies: list[bytes], topics: list[str] | None
) -> float:
    """Seconds from the first publish() to the last ack; without `topics` by one publish_many()."""
    publish = client.publish
    begun = time.perf_counter()
    if topics is None:
        client.publish_many("perf", bodies)
    else:
        for topic, body in zip(topics, bodies, strict=True):
            publish(topic, body)
    client.flush(timeout=FLUSH_S)
    return time.perf_counter() - begun


def raw_seconds(setup: Setup, written: Written) -> float:
    """Seconds that the same bytes take in as many synced writes."""
    return sum(limits.synced_writes(setup.directory, written.group_bytes, written.groups))


def latency(setup: Setup) -> list[Result]:
    """Window 1: the next message after the ack of the one before."""
    bodies = payloads(ONE_BY_ONE)
    ours, limit, high = [], [], []
    with setup.broker() as broker, zbroker.connect(broker.url, name="perf-latency") as client:
        client.publish("perf", b"first").wait(10)
        for _ in setup.each_round("publish, one at a time"):
            taken = sorted(_one(client, body) for body in bodies)
            ours.append(statistics.median(taken) * 1e6)
            high.append(taken[len(taken) * 99 // 100] * 1e6)
            limit.append(
                statistics.median(limits.synced_writes(setup.directory, RAW_PAGE, ONE_BY_ONE)) * 1e6
            )
    return [
        Result(
            "publish, one at a time, p50", "us", ours, limit, "raw synced 4 KiB write",
            "no worse than Redis AOF always", lower_is_better=True,
            notes={"p99_us": statistics.median(high), "fdatasyncs_per_million": 1_000_000},
        )
    ]  # fmt: skip


def _one(client: zbroker.client.Client, body: bytes) -> float:
    begun = time.perf_counter()
    client.publish("perf", body).wait(10)
    return time.perf_counter() - begun
