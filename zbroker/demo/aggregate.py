"""The Spark part of the demo: `foreachPartition` over planned ranges counts flights per carrier.

Each executor replays its ranges itself, straight from the broker; no row crosses the JVM. The
result is an accumulator: a line per finished partition for the terminal, with its tallies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from pyspark import AccumulatorParam, TaskContext

from zbroker.demo.check import CarrierTally
from zbroker.demo.flights import FlightDelay

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
    tallies: Tallies


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
    decode = msgspec.json.Decoder(FlightDelay).decode
    counts: dict[str, int] = {}
    delays: dict[str, int] = {}
    for body in bodies:
        flight = decode(body)
        counts[flight.carrier] = counts.get(flight.carrier, 0) + 1
        delays[flight.carrier] = delays.get(flight.carrier, 0) + (flight.arr_delay or 0)
    return {carrier: CarrierTally(count, delays[carrier]) for carrier, count in counts.items()}


def merged(parts: Iterable[Tallies]) -> Tallies:
    """Tallies of all parts, carrier by carrier."""
    found: Tallies = {}
    for part in parts:
        for carrier, (flights, delay) in part.items():
            before = found.get(carrier, CarrierTally(0, 0))
            found[carrier] = CarrierTally(before.flights + flights, before.arr_delay + delay)
    return dict(sorted(found.items()))


def run_partition(done: Accumulator[list[PartitionDone]], ranges: Iterable[LogRange]) -> None:
    """Runs in an executor: replays the ranges of this partition and counts their flights."""
    from zbroker.spark import replay

    begun = time.perf_counter()
    tallies = tally_of(message.data for part in ranges for message in replay(part))
    messages = sum(tally.flights for tally in tallies.values())
    context: Any = TaskContext.get()
    taken = time.perf_counter() - begun
    done.add([PartitionDone(context.partitionId(), os.getpid(), messages, taken, tallies)])


def run(
    spark: SparkSession, ranges: list[LogRange], on_done: Callable[[list[PartitionDone]], None]
) -> tuple[Tallies, list[PartitionDone]]:
    """The tallies of all ranges, one Spark partition each; `on_done` gets the finished ones."""
    context = spark.sparkContext
    done: Accumulator[list[PartitionDone]] = context.accumulator([], DoneParam())
    work = partial(run_partition, done)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(context.parallelize(ranges, len(ranges)).foreachPartition, work)
        while not wait([job], timeout=_POLL_S).done:
            on_done(list(done.value))
        job.result()
    on_done(done.value)
    parts = sorted(done.value, key=attrgetter("partition"))
    return merged(part.tallies for part in parts), parts
