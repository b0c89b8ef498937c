"""A program that moves topic `in` to topic `out` with a streaming query, and is killed at will.

    python -m tests.spark.sink.driver URL CHECKPOINT staged|naive ROWS_PER_BATCH CRASHES

CRASHES: share of tasks that crash after they have written some of their rows. It ends when all that
was there has been moved.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import zbroker
from zbroker.spark import session
from zbroker.spark.source.datasource import ZBrokerSource

WAIT_S = 300


def main(url: str, checkpoint: str, how: str, rows: str, crashes: str) -> None:
    """Runs the query to its end."""
    spark = session("driver", "local[2,20]", **{"spark.sql.shuffle.partitions": 2})
    spark.dataSource.register(ZBrokerSource)
    source = (
        spark.readStream.format("zbroker")
        .options(endpoint=url, topics="in", startingBookmark="earliest", minPartitions="2")
        .option("maxBookmarksPerTrigger", rows)
        .load()
        .select("payload")
    )
    if how == "staged":
        stumbling = source.mapInArrow(_stumbling(float(crashes)), "payload binary")
        writer = stumbling.writeStream.format("zbroker").options(endpoint=url, topic="out")
    else:
        publishing = _publishing(url, float(crashes))
        writer = source.writeStream.foreachBatch(
            lambda frame, _: frame.mapInArrow(publishing, "rows bigint").count()
        )
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(WAIT_S):
        sys.exit(f"the query did not end within {WAIT_S} s")


def _stumbling(crashes: float) -> Any:
    """Passes rows on, and sometimes crashes between two of its batches, or after the last."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        crash = random.random() < crashes
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if crash and random.random() < 0.5:
                raise RuntimeError("this task crashes on purpose")
            yield batch.slice(batch.num_rows // 2)
        if crash:
            raise RuntimeError("this task crashes on purpose")

    return work


def _publishing(url: str, crashes: float) -> Any:
    """What people write first: each task publishes its rows by itself."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        crash, count = random.random() < crashes, 0
        with zbroker.connect(url, timeout=60) as client:
            for batch in batches:
                if batch.num_rows:
                    client.publish_many("out", batch.column("payload").to_pylist())
                    count += batch.num_rows
        if crash:
            raise RuntimeError("this task crashes on purpose")
        yield pa.RecordBatch.from_pydict({"rows": [count]})

    return work


if __name__ == "__main__":
    main(*sys.argv[1:])
