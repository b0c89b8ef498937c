"""Batch reads: a plan on the driver, one range for each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from zbroker.ids import EPOCH
from zbroker.spark.ranges import LogRange
from zbroker.spark.source import partition_reader
from zbroker.spark.source.offsets import LogState
from zbroker.spark.source.options import SourceOptions
from zbroker.spark.source.parsers import Point
from zbroker.spark.source.places import PlanRequest, SourceLog, topics_of

PARTITIONS_MIN: Final = 4


class BatchSourceReader(DataSourceReader):  # type: ignore[misc]
    """Reads a stretch of the log whose end was fixed when the DataFrame was made.

    It takes no filters from Spark: Spark 4.3 keeps what was pushed with the table, so two scans of
    one DataFrame would share it, and rows of one of them would be missing.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema, pinned: LogState | None) -> None:
        self._options = options
        self._schema = schema
        self._pinned = pinned

    def partitions(self) -> Sequence[Any]:
        """Plans. Raises: ZBrokerError."""
        place = SourceLog(self._options)
        try:
            ranges = self._plan(place)
            lease = place.lease()
        finally:
            place.close()
        live = [part.first for part in ranges if part.is_live]
        if lease is not None and live:
            lease.hold(min(live), renew=False)  # this process may live longer than the job
        return [InputPartition(part) for part in ranges]

    def _plan(self, place: SourceLog) -> list[LogRange]:
        given = self._options
        state = self._pinned or place.state()
        first = self._first(place, state)
        if first >= state.head:
            return []
        end: Point = state.head
        if given.until not in (None, "now"):
            end = min(given.until, end) if isinstance(given.until, int) else given.until
        wanted = PlanRequest(*topics_of(given), given.min_partitions or PARTITIONS_MIN)
        return place.plan(first, end, state, wanted)

    def _first(self, place: SourceLog, state: LogState) -> int:
        since = self._options.since
        first = place.position(EPOCH if since is None else since, state)
        return first if self._options.fail_on_data_loss else max(first, state.floor)

    def read(self, partition: Any) -> Iterator[Any]:  # noqa: ANN401 - an InputPartition
        """Record batches. Raises: ZBrokerError."""
        return partition_reader.read(partition.value, self._schema, self._options)
