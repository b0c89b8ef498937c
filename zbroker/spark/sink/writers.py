"""Spark's interfaces for writing: tasks stage, the driver commits once.

    write (executors) --a message for each partition--> commit (driver), again after a crash
                      --a task failed for good--------> abort

A batch job is a run of its own, or the one that `publishId` names; then whatever runs under it
publishes once. A streaming query is an app by its id, which its checkpoint keeps, and a micro-batch
is a batch of it. Source: the exactly-once trials of the Spark facts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from zbroker.client.stage_commits import abort, commit
from zbroker.errors import ClientError
from zbroker.spark.sink import rows
from zbroker.spark.sink.staging import SinkTarget, Staged, stage
from zbroker.spark.workers import settle

QUERY_ID = "sql.streaming.queryId"  # a local property that Spark sets for tasks of a stream
JOBS = "jobs"  # they have one publisher together, and are known by their run
_ONLY = 1  # number of the only batch of a job


@dataclass(frozen=True)
class StagedPart(WriterCommitMessage):  # type: ignore[misc]
    """What one task staged for `app`."""

    app: str
    partition: int
    token: str
    messages: int


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write.format("zbroker").mode("append")`."""

    def __init__(self, to: SinkTarget, publish_id: str) -> None:
        self._to = to
        self._app = f"{JOBS}/{publish_id or secrets.token_hex(16)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In an executor. Raises: ZBrokerError."""
        return _write(iterator, self._to, self._app)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver. Raises: ZBrokerError; the same job may be run again then."""
        _commit(self._to, _parts(messages), _ONLY)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: nothing of it is shown."""
        _abort(self._to, _parts(messages))


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("zbroker")`. Spark makes one anew for each commit."""

    def __init__(self, to: SinkTarget) -> None:
        self._to = to

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In an executor. Raises: ZBrokerError."""
        query = TaskContext.get().getLocalProperty(QUERY_ID)
        if not query:
            text = "this release of Spark does not tell tasks the id of their query"
            raise ClientError("bad_field", text, "write in foreachBatch, with a publishId")
        return _write(iterator, self._to, f"query-{query}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver; of a batch that was committed before a crash nothing comes again."""
        _commit(self._to, _parts(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: nothing of it is shown."""
        del batchId
        _abort(self._to, _parts(messages))


def target(url: str, topic: str, credentials: Any, schema: Any) -> SinkTarget:  # noqa: ANN401
    """Raises: ClientError bad_field, for rows or options that nothing can be published with."""
    if not url:
        raise ClientError("bad_field", "writing needs `endpoint`", "a directory is only read")
    rows.check(schema, topic)
    return SinkTarget(url, topic, credentials)


def _write(iterator: Iterator[pa.RecordBatch], to: SinkTarget, app: str) -> StagedPart:
    settle()
    task = TaskContext.get()
    partition, attempt = task.partitionId(), task.attemptNumber()
    name = f"spark-{app.partition('/')[0]}-p{partition}-a{attempt}"
    staged: Staged = stage(iterator, to, name)
    return StagedPart(app, partition, staged.token, staged.messages)


def _parts(messages: Iterable[WriterCommitMessage | None]) -> list[StagedPart]:
    """Of tasks that succeeded, in the order of their partitions."""
    return sorted((each for each in messages if each is not None), key=lambda one: one.partition)


def _commit(to: SinkTarget, parts: Sequence[StagedPart], batch: int) -> None:
    chosen = [part for part in parts if part.messages]
    if not chosen:
        return
    named = [(part.token, part.messages) for part in chosen]
    done = commit(to.url, chosen[0].app, batch, named, credentials=to.credentials)
    if done.already:
        _abort(to, chosen)  # an earlier attempt of this batch counts


def _abort(to: SinkTarget, parts: Sequence[StagedPart]) -> None:
    tokens = [part.token for part in parts if part.messages]
    if tokens:
        abort(to.url, tokens, credentials=to.credentials)
