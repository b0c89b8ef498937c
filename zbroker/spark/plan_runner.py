"""A plan run on a Spark session: every range by one task, on whichever machine has room."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from zbroker.errors import ClientError
from zbroker.spark.log_hold import held
from zbroker.spark.names import COLUMNS, NATIVE_COLUMNS, ddl
from zbroker.spark.ranges import LogRange
from zbroker.spark.replay import ROWS, replay_arrow, replay_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_PLAN: Final = "range binary"


def foreach_partition(
    spark: SparkSession,
    ranges: Sequence[LogRange],
    handle: Callable[[Iterator[Any]], object],
    *,
    form: Literal["messages", "arrow"] = "messages",
    columns: Sequence[str] | None = None,
    rows: int = ROWS,
) -> None:
    """Calls `handle` in the executors, once for each range; the data never crosses the JVM.

    handle: gets an iterator over the range: of lists of messages, or, with form="arrow", of record
    batches with these columns and at most so many rows. A task that fails is run again from the
    beginning of its range, so what it does has to be repeatable.
    What the ranges need of a running instance is held until all is done.
    Raises: ClientError bad_field; Spark's error if a task failed too often.
    """
    if form not in ("messages", "arrow"):
        raise ClientError("bad_field", f"`form` is messages or arrow, not {form!r}")
    if not ranges:
        return

    def work(parts: Iterable[LogRange]) -> None:
        settle()
        for part in parts:
            handle(replay_arrow(part, columns, rows) if form == "arrow" else replay_batches(part))

    with held(ranges):
        spark.sparkContext.parallelize(ranges, len(ranges)).foreachPartition(work)


def read_ranges(
    spark: SparkSession,
    ranges: Sequence[LogRange],
    columns: Sequence[str] | None = None,
    *,
    rows: int = ROWS,
) -> DataFrame:
    """A DataFrame over a plan, also with Spark Connect; only `columns` are made.

    Nothing holds the ranges: wrap the action in `held(ranges)` if retention may remove them.
    Raises: ClientError bad_field.
    """
    from zbroker.spark.arrow import schema_of

    names = list(NATIVE_COLUMNS if columns is None else columns)
    schema_of(names)  # a wrong name is refused before anything runs

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        settle()
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from replay_arrow(pickle.loads(part), names, rows)

    plan = spark.createDataFrame([(bytearray(pickle.dumps(part)),) for part in ranges], _PLAN)
    spread = plan.repartition(max(len(ranges), 1))
    return spread.mapInArrow(read, ddl({name: COLUMNS[name] for name in names}))


@cache
def settle() -> None:
    """Once in each Python worker, before its first task: its garbage collection gets cheap.

    Spark collects the garbage of a worker after every task, and walks all modules of Spark and
    Arrow for it: 45 ms, as long as the reading of 300,000 messages takes. After this it walks only
    objects that tasks have made.
    """
    gc.freeze()
