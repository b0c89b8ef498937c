"""Spark over the log: rows per second, each beside the same reader without Spark.

The log is a directory of `--messages` messages of 100 bytes; once as the broker wrote it, once with
its sealed segments packed. Both have the summaries that an instance keeps beside sealed segments.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import zbroker
from perf.harness import Result, Setup, payloads
from zbroker.client.stage_commits import commit
from zbroker.log import archive
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlaces
from zbroker.spark import LogRange, foreach_partition, plan_ranges, replay_arrow, session
from zbroker.spark.names import NATIVE_COLUMNS, ddl
from zbroker.spark.sink import SinkTarget, stage

PARTITIONS: Final = 4
WRITTEN: Final = {name: NATIVE_COLUMNS[name] for name in ("topic", "payload")}
PUBLISHED_AT_ONCE: Final = 200_000
WARM: Final = 4  # runs before the first that counts: the JVM compiles what it runs
STUCK_S: Final = 600.0


def pipeline(setup: Setup) -> list[Result]:
    """Replays in Python, tables, and streams, over a fresh log; then over a packed one."""
    place = Path(tempfile.mkdtemp(prefix="spark-", dir=setup.directory))
    spark = session("perf", "local[2]", **{"spark.sql.shuffle.partitions": 2})
    try:
        fill(setup, place)
        results = [measured(setup, spark, place, one) for one in WORK]
        results.append(published(setup, spark, place))
        pack(place)
        results.append(packed(setup, spark, place, results[0]))
        return [planned(setup, place), *results]
    finally:
        spark.stop()
        shutil.rmtree(place, ignore_errors=True)


def fill(setup: Setup, place: Path) -> None:
    """A broker writes the log."""
    bodies = payloads(min(setup.messages, PUBLISHED_AT_ONCE))
    with (
        zbroker.LocalBroker(place, settings={"journal": {"segment_size": "64MiB"}}) as broker,
        zbroker.connect(broker.url, name="perf-spark") as client,
    ):
        for first in range(0, setup.messages, len(bodies)):
            client.publish_many(f"perf.{first % 7}", bodies[: setup.messages - first])
            client.flush(timeout=STUCK_S)
    with closing(SegmentPlaces(RealDisk(place / "journal"))) as places:
        for one in places.list()[:-1]:
            archive.summary(places, one.serial, keep=True)


def pack(place: Path) -> None:
    """Its sealed segments are packed, as `compress_after` does."""
    with closing(SegmentPlaces(RealDisk(place / "journal"))) as places:
        for one in places.list()[:-1]:
            list(archive.pack(places, one.serial))
        for copy in places.copies():
            if not copy.packed and copy.serial < places.list()[-1].serial:
                places.unlink(copy)


# -- what is measured -------------------------------------------------------------------------


def in_blocks(spark: Any, ranges: list[LogRange]) -> None:
    """Record batches of everything, in the executors."""

    def handle(batches: Iterator[Any]) -> None:
        for batch in batches:
            assert batch.num_rows

    foreach_partition(spark, ranges, handle, form="arrow", columns=["payload", "sequence"])


def _table(spark: Any, ranges: list[LogRange], columns: dict[str, str] | None = None) -> Any:
    reader = spark.read.format("zbroker").option("minPartitions", PARTITIONS)
    chosen = reader if columns is None else reader.schema(ddl(columns))
    return chosen.option("journal", ranges[0].source).load()


def count(spark: Any, ranges: list[LogRange]) -> None:
    """All columns of all rows reach the JVM."""
    assert _table(spark, ranges).count() > 0


def grouped(spark: Any, ranges: list[LogRange]) -> None:
    """Half of the rows, by topic."""
    table = _table(spark, ranges).filter("position % 2 = 0").groupBy("topic")
    table.agg({"sequence": "max", "*": "count"}).collect()


def streamed(spark: Any, ranges: list[LogRange]) -> None:
    """One micro-batch into nothing."""
    reader = spark.readStream.format("zbroker").option("startingBookmark", "earliest")
    table = reader.option("journal", ranges[0].source).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = table.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(STUCK_S):
                raise TimeoutError("the stream does not end")
        finally:
            query.stop()


class Work(NamedTuple):
    """One line of the table. columns: what the reader without Spark makes."""

    name: str
    run: Callable[[Any, list[LogRange]], None]
    columns: list[str] | None
    target: str


WORK: Final = (
    Work(
        "Spark foreach_partition, record batches", in_blocks, ["payload", "sequence"], ">= 10 M/s"
    ),
    Work("Spark table, count", count, None, ">= 4 M/s"),
    Work("Spark table, filter and group", grouped, None, ">= 2.5 M/s"),
    Work("Spark stream to noop", streamed, None, ">= 2 M/s"),
)


def measured(setup: Setup, spark: Any, place: Path, work: Work) -> Result:
    """Rounds of `work`, each beside the same columns read by one process without Spark."""
    ranges = plan_ranges(place, min_partitions=PARTITIONS)
    for _ in range(WARM):
        work.run(spark, ranges)
    ours, limit = [], []
    for _ in setup.each_round(work.name):
        begun = time.perf_counter()
        work.run(spark, ranges)
        ours.append(setup.messages / (time.perf_counter() - begun))
        limit.append(setup.messages / _alone(ranges, work.columns))
    return Result(work.name, "rows/s", ours, limit, "one process, no Spark", work.target)


def published(setup: Setup, spark: Any, place: Path) -> Result:
    """All rows into a log of their own: staged by tasks, committed at once; beside one process."""
    ranges = plan_ranges(place, min_partitions=PARTITIONS)
    ours, limit = [], []

    def write(broker: zbroker.LocalBroker) -> None:
        table = _table(spark, ranges, WRITTEN)
        table.write.format("zbroker").option("endpoint", broker.url).mode("append").save()

    def stage_alone(broker: zbroker.LocalBroker) -> None:
        batches = (batch for part in ranges for batch in replay_arrow(part, list(WRITTEN)))
        staged = stage(batches, SinkTarget(broker.url, "", None), "perf-spark")
        commit(broker.url, "perf", 1, [(staged.token, staged.messages)])

    _into_a_log(setup, write)  # warms up
    for _ in setup.each_round("Spark table, published"):
        ours.append(_into_a_log(setup, write))
        limit.append(_into_a_log(setup, stage_alone))
    return Result(
        "Spark table, published", "rows/s", ours, limit, "one process, no Spark", ">= 0.5 M/s"
    )


def _into_a_log(setup: Setup, work: Callable[[zbroker.LocalBroker], None]) -> float:
    with setup.broker() as broker:
        begun = time.perf_counter()
        work(broker)
        return setup.messages / (time.perf_counter() - begun)


def packed(setup: Setup, spark: Any, place: Path, fresh: Result) -> Result:
    """Record batches of packed segments, beside fresh ones."""
    found = measured(setup, spark, place, WORK[0]._replace(name=f"{WORK[0].name}, packed"))
    return Result(
        found.name, "rows/s", found.ours, fresh.ours, "not packed", ">= 50 %",
        notes={"alone": statistics.median(found.limit)},
    )  # fmt: skip


def planned(setup: Setup, place: Path) -> Result:
    """How fast a plan passes over the log; with summaries it reads no header of most segments."""
    ours, limit = [], []
    for _ in setup.each_round("Spark plan"):
        begun = time.perf_counter()
        ranges = plan_ranges(place, min_partitions=PARTITIONS)
        ours.append(setup.messages / (time.perf_counter() - begun))
        limit.append(setup.messages / _alone(ranges, ["position"]))
    return Result("Spark plan", "messages/s", ours, limit, "reading them", "> 10 times")


def _alone(ranges: list[LogRange], columns: list[str] | None) -> float:
    begun = time.perf_counter()
    for part in ranges:
        for batch in replay_arrow(part, columns):
            assert batch.num_rows
    return time.perf_counter() - begun
