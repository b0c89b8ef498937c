"""The Spark part of the demo: `foreachPartition` over planned ranges counts flights per carrier.

Each executor replays its ranges itself, straight from the broker; no row crosses the JVM. The
results are accumulators: the tallies, and a line per finished partition for the terminal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from pyspark import AccumulatorParam, TaskContext

from zbroker.demo.check import CarrierTally

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

    from zbroker.spark import LogRange

Tallies = dict[str, CarrierTally]
_POLL_S: Final = 0.1


class PartitionDone(NamedTuple):
    """One finished partition."""

    partition: int
    pid: int
    messages: int
    seconds: float


class Arrival(msgspec.Struct, gc=False):
    """The fields of a flight that a tally needs."""

    carrier: str
    arr_delay: int | None


class TallyParam(AccumulatorParam[Tallies]):  # type: ignore[misc]  # pyspark is not followed
    """Adds tallies of partitions up, carrier by carrier."""

    def zero(self, value: Tallies) -> Tallies:
        return {}

    def addInPlace(self, value1: Tallies, value2: Tallies) -> Tallies:  # noqa: N802 - Spark's name
        for carrier, more in value2.items():
            have = value1.get(carrier, CarrierTally(0, 0))
            value1[carrier] = CarrierTally(
                have.flights + more.flights, have.arr_delay + more.arr_delay
            )
        return value1


class DoneParam(AccumulatorParam[list[PartitionDone]]):  # type: ignore[misc]
    """Collects the finished partitions."""

    def zero(self, value: list[PartitionDone]) -> list[PartitionDone]:
        return []

    def addInPlace(  # noqa: N802
        self, value1: list[PartitionDone], value2: list[PartitionDone]
    ) -> list[PartitionDone]:
        value1 += value2
        return value1


def tally_of(bodies: Iterable[bytes]) -> Tallies:
    """Flights and minutes late per carrier of these messages."""
    decode = msgspec.json.Decoder(Arrival).decode
    counts: dict[str, int] = {}
    delays: dict[str, int] = {}
    for body in bodies:
        flight = decode(body)
        counts[flight.carrier] = counts.get(flight.carrier, 0) + 1
        delays[flight.carrier] = delays.get(flight.carrier, 0) + (flight.arr_delay or 0)
    return {carrier: CarrierTally(count, delays[carrier]) for carrier, count in counts.items()}


def run_partition(
    tallies: Accumulator[Tallies],
    done: Accumulator[list[PartitionDone]],
    ranges: Iterable[LogRange],
) -> None:
    """Runs in an executor: replays the ranges of this partition and adds what it found."""
    from zbroker.spark import replay_batches

    begun = time.perf_counter()
    messages = 0
    for part in ranges:
        for batch in replay_batches(part):
            messages += len(batch)
            tallies.add(tally_of(message.data for message in batch))
    context: Any = TaskContext.get()
    done.add(
        [PartitionDone(context.partitionId(), os.getpid(), messages, time.perf_counter() - begun)]
    )


def run(
    spark: SparkSession, ranges: list[LogRange], on_done: Callable[[list[PartitionDone]], None]
) -> tuple[Tallies, list[PartitionDone]]:
    """The tallies of all ranges, one Spark partition each; `on_done` hears of finished ones."""
    context = spark.sparkContext
    tallies: Accumulator[Tallies] = context.accumulator({}, TallyParam())
    done: Accumulator[list[PartitionDone]] = context.accumulator([], DoneParam())
    work = partial(run_partition, tallies, done)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(context.parallelize(ranges, len(ranges)).foreachPartition, work)
        while not wait([job], timeout=_POLL_S).done:
            on_done(list(done.value))
        job.result()
    on_done(done.value)
    return dict(sorted(tallies.value.items())), sorted(done.value)
