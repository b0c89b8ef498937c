"""Readers of the log for Spark: a plan on the driver, one range for each task.

How far a stream is, Spark keeps in its checkpoint; this side keeps nothing. Everything follows from
offsets and options, because a query that is restarted asks for the partitions of its last batch
before anything else. Nothing is advertised that is not durable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from zbroker.errors import ClientError, ZBrokerError
from zbroker.ids import EPOCH
from zbroker.spark.arrow import record_batches
from zbroker.spark.log_hold import LogHold
from zbroker.spark.plan_runner import settle
from zbroker.spark.ranges import PARTITIONS_MIN, LogRange
from zbroker.spark.source import offsets
from zbroker.spark.source.offsets import LogState, Offset
from zbroker.spark.source.options import SourceOptions
from zbroker.spark.source.parsers import Point
from zbroker.spark.source.places import PlanRequest, SourceLog, topics_of

HEAD_KEPT_S: Final = 0.2  # Spark asks sixty times a second
_LOG = logging.getLogger(__name__)

Json = Mapping[str, Any]


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
        with closing(SourceLog(self._options)) as log:
            ranges = self._plan(log)
            lease = log.lease()
        live = [part.first for part in ranges if part.is_live]
        if lease is not None and live:
            lease.hold(min(live), renew=False)  # this process may live longer than the job
        return [InputPartition(part) for part in ranges]

    def _plan(self, log: SourceLog) -> list[LogRange]:
        given = self._options
        state = self._pinned or log.state()
        first = log.position(EPOCH if given.since is None else given.since, state)
        if not given.fail_on_data_loss:
            first = max(first, state.log_start)
        if first >= state.head:
            return []
        end: Point = state.head
        if given.until not in (None, "now"):
            end = min(given.until, end) if isinstance(given.until, int) else given.until
        wanted = PlanRequest(*topics_of(given), given.min_partitions or PARTITIONS_MIN)
        return log.plan(first, end, state, wanted)

    def read(self, partition: Any) -> Iterator[Any]:  # noqa: ANN401 - an InputPartition
        """Record batches. Raises: ZBrokerError."""
        return read_range(partition.value, self._schema, self._options)


class StreamSourceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One query. Made in two processes: one asks for offsets, the other is pickled to the tasks."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._log = SourceLog(options)
        self._forget()

    def _forget(self) -> None:
        self._known: LogState | None = None
        self._known_at = 0.0
        self._target: Offset | None = None
        self._lease: LogHold | None = None

    def __getstate__(self) -> tuple[SourceOptions, pa.Schema]:
        return self._options, self._schema

    def __setstate__(self, state: tuple[SourceOptions, pa.Schema]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    # -- offsets ------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Where a query without a checkpoint begins. Raises: ZBrokerError."""
        state = self._state(fresh=True)
        since = "now" if self._options.since is None else self._options.since
        start = Offset(state.origin, self._log.position(since, state))
        if (error := offsets.loss(start, state)) is not None:
            self._accept(error)
            start = Offset(state.origin, offsets.resumed(start, state))
        self._hold(start.next)
        return start.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The size of one micro-batch, as the options limit it."""
        given = self._options
        if given.max_bookmarks_per_trigger is not None:
            return ReadMaxRows(given.max_bookmarks_per_trigger)
        if given.max_bytes_per_trigger is not None:
            return ReadMaxBytes(given.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes: never back, never past what is durable."""
        begin, state = offsets.parse(start), self._state()
        error = self._loss(begin, state)
        if error is not None:
            self._accept(error)
            begin = Offset(state.origin, self._resumed(begin, state))
        head = state.head
        if self._target is not None and self._target.origin == state.origin:
            head = min(head, self._target.next)
        if head <= begin.next:
            return dict(start) if error is None else begin.as_json()
        self._hold(begin.next)
        return Offset(state.origin, self._limited(begin.next, head, limit, state)).as_json()

    def _limited(self, first: int, head: int, limit: ReadLimit, state: LogState) -> int:
        if isinstance(limit, ReadAllAvailable):
            return head
        if isinstance(limit, ReadMaxRows):
            head = min(head, first + limit.max_rows)
        size = self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return head if size is None else self._within(first, head, size, state)

    def _within(self, first: int, head: int, size: int, state: LogState) -> int:
        """The end of the first part of about `size` bytes."""
        ranges = self._log.plan(first, head, state, self._wanted(1))
        total = sum(part.bytes for part in ranges)
        if total <= size:
            return head
        ranges = self._log.plan(first, head, state, self._wanted(-(-total // size)))
        return ranges[0].end if ranges else head

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The head as it was last seen, for the lag that Spark shows."""
        known = self._known
        return None if known is None else Offset(known.origin, known.head).as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query reads up to the head as it is now."""
        state = self._state(fresh=True)
        self._target = Offset(state.origin, state.head)

    # -- batches ------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> Sequence[Any]:
        """The ranges of a micro-batch, from its offsets alone. Raises: ZBrokerError."""
        begin, stop = offsets.parse(start), offsets.parse(end)
        state = self._state(fresh=True)
        first, end_at = begin.next, stop.next
        if (error := self._loss(begin, state) or self._loss(stop, state)) is not None:
            self._accept(error)
            first = self._resumed(begin, state)
            if stop.origin != state.origin:  # as much of the old plan as is there
                end_at = self._resumed(stop, state)
        if first >= end_at:
            return []
        if end_at > state.head:
            self._accept(_shorter(stop, state))
        self._hold(first)
        end_at = min(end_at, state.head)
        wanted = self._wanted(self._options.min_partitions or 1)
        return [InputPartition(part) for part in self._log.plan(first, end_at, state, wanted)]

    def read(self, partition: Any) -> Iterator[Any]:  # noqa: ANN401 - an InputPartition
        """Record batches, in an executor. Raises: ZBrokerError."""
        return read_range(partition.value, self._schema, self._options)

    def commit(self, end: Json) -> None:
        """Lets go of messages before `end`; called one batch late, for the last one never."""
        done = offsets.parse(end)
        self._hold(done.next)
        if self._lease is not None:
            self._lease.move(done.next)

    def stop(self) -> None:
        """Lets everything go; Spark mostly ends the process without asking."""
        if self._lease is not None:
            self._lease.release()
        self._log.close()
        self._forget()

    # -- helpers ------------------------------------------------------------------------------

    def _resumed(self, offset: Offset, state: LogState) -> int:
        return offsets.resumed(offset, state, self._kept(offset, state))

    def _loss(self, offset: Offset, state: LogState) -> ClientError | None:
        return offsets.loss(offset, state, self._kept(offset, state))

    def _kept(self, offset: Offset, state: LogState) -> int | None:
        return None if offset.origin == state.origin else self._log.kept(offset, state)

    def _wanted(self, parts: int) -> PlanRequest:
        return PlanRequest(*topics_of(self._options), parts)

    def _state(self, *, fresh: bool = False) -> LogState:
        """The log now, or a moment ago; within one log the head never goes back."""
        now = time.monotonic()
        if self._known is None or fresh or now - self._known_at >= HEAD_KEPT_S:
            state, known = self._log.state(), self._known
            if known is not None and known.origin == state.origin:
                state = state._replace(head=max(state.head, known.head))
            self._known, self._known_at = state, now
        return self._known

    def _hold(self, position: int) -> None:
        """From the first batch that this process knows of; `commit` moves it on."""
        if self._lease is None:
            self._lease = self._log.lease()
            if self._lease is not None:
                self._lease.hold(position)

    def _accept(self, error: ZBrokerError) -> None:
        """Raises: `error`, unless failOnDataLoss is false."""
        if self._options.fail_on_data_loss:
            raise error
        _LOG.warning("%s; the query goes on, because failOnDataLoss is false", error.reason)


def _shorter(stop: Offset, state: LogState) -> ZBrokerError:
    text = f"the checkpoint goes on to position {stop.next}, the log ends at {state.head}"
    hint = "name the log of the checkpoint, or set failOnDataLoss to false"
    return ZBrokerError("bookmark_not_found", text, hint)


# -- tasks ---------------------------------------------------------------------------------------


def read_range(part: LogRange | None, schema: pa.Schema, options: SourceOptions) -> Iterator[Any]:
    """Record batches of a range, in an executor; none for None, which is a plan without ranges.

    Where failOnDataLoss is false, messages that were removed since the plan are skipped, with a
    line in the log. Raises: ZBrokerError, as `replay`.
    """
    settle()
    if part is None:
        return
    begun = False
    try:
        for batch in record_batches(part, schema, options.rows):
            begun = True
            yield batch
    except ZBrokerError as error:
        if options.fail_on_data_loss or begun or error.code != "bookmark_expired":
            raise
        with closing(SourceLog(options)) as log:
            log_start = log.state().log_start
        _LOG.warning("%s; it is skipped, because failOnDataLoss is false", error.reason)
        if log_start < part.end:
            rest = replace(part, first=max(part.first, log_start))
            yield from record_batches(rest, schema, options.rows)
