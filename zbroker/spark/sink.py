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
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from zbroker.client import Client, connect
from zbroker.client.connect_types import Credentials
from zbroker.client.stage_commits import abort, commit, principal_of
from zbroker.errors import ClientError, NameInUse
from zbroker.limits import MIB
from zbroker.spark.plan_runner import settle

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
    check_rows(schema, topic)
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


PAYLOADS: Final = ("payload", "value")
_TYPES: Final = {
    "topic": ("string",),
    "payload": ("binary", "string"),
    "value": ("binary", "string"),
    "key": ("binary", "string"),
}
_COLUMNS: Final = "payload (or value) binary or string, topic string, key binary or string"


class SinkMessages(NamedTuple):
    """Of one record batch; topics: one for all, or one for each. keys: None if there are none."""

    topics: str | list[str]
    payloads: list[bytes]
    keys: list[bytes | None] | None


def check_rows(schema: Any, topic: str) -> None:  # noqa: ANN401 - a StructType of Spark
    """Raises: ClientError bad_field, for rows that cannot be published."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind not in _TYPES.get(field.name, ()):
            raise ClientError(
                "bad_field",
                f"column `{field.name} {kind}` cannot be published",
                f"select columns first: {_COLUMNS}",
            )
    names = [field.name for field in schema.fields]
    if sum(name in names for name in PAYLOADS) != 1:
        raise ClientError("bad_field", "the rows have no payload, or two", f"select {_COLUMNS}")
    if not topic and "topic" not in names:
        hint = "give option `topic`, or rows with a column `topic`"
        raise ClientError("bad_field", "there is no topic to publish to", hint)


def messages_of(batch: pa.RecordBatch, topic: str) -> SinkMessages:
    """Its rows, in their order. topic: wins over the column. Raises: ClientError bad_field."""
    names = batch.schema.names
    payloads = _bytes(batch, "payload" if "payload" in names else "value")
    keys = _pylist(batch, "key") if "key" in names else None
    if keys is not None and not any(key is not None for key in keys):
        keys = None
    return SinkMessages(topic or _topics(batch), payloads, keys)


def _topics(batch: pa.RecordBatch) -> str | list[str]:
    found: list[str] = _whole(batch.column("topic").to_pylist(), "topic")
    return found[0] if found and found.count(found[0]) == len(found) else found


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes]:
    found: list[bytes] = _whole(_pylist(batch, name), name)
    return found


def _pylist(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    found: list[Any] = column.to_pylist()
    return found


def _whole(values: Sequence[Any], name: str) -> Any:  # noqa: ANN401 - the same list
    """Raises: ClientError bad_field."""
    if None in values:
        text = f"row {values.index(None)} of a record batch has no {name}"
        raise ClientError("bad_field", text, f"leave out rows where {name} is null")
    return values


CONNECT_S: Final = 60.0
NAMES_MAX: Final = 100  # that are tried, before one is made up
STORE_BYTES: Final = 4 * MIB  # on their way: more would have other publishers wait, nothing else
FLUSH_S: Final = 600.0  # a broker that restarts, or has a full disk for a while


class Staged(NamedTuple):
    """A token, and how many messages were staged under it."""

    token: str
    messages: int


class SinkTarget(NamedTuple):
    """Where to: `topic` "" for the column of that name."""

    url: str
    topic: str
    credentials: Credentials | None


def stage(batches: Iterable[pa.RecordBatch], to: SinkTarget, name: str) -> Staged:
    """Stages all rows, in their order; durable when this returns.

    name: of the publisher. The broker keeps each name for ever, so it should come again.
    Raises: ZBrokerError, with nothing shown to anybody.
    """
    token, count = secrets.token_hex(16), 0
    client: Client | None = None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if client is None:
                client = _connect(to, name, token)
            _publish(client, messages_of(batch, to.topic))
            count += batch.num_rows
        if client is not None:
            client.flush(FLUSH_S)
    finally:
        if client is not None:
            client.close(flush=False)
    return Staged(token, count)


def _connect(to: SinkTarget, name: str, token: str) -> Client:
    """Another job's task may have the name, or one that lives on although Spark gave it up.

    With security on names begin with the principal: its own, which nobody else can take first.
    """
    principal = _principal(to.url, to.credentials) if to.credentials is not None else ""
    names = [f"{principal}.{name}", name] if principal else [name]

    def log_on(as_who: str) -> Client:
        return connect(
            to.url, as_who, timeout=CONNECT_S, credentials=to.credentials, stage=token,
            store_bytes=STORE_BYTES,
        )  # fmt: skip

    for base in names:
        for number in range(1, NAMES_MAX):
            try:
                return log_on(base if number == 1 else f"{base}-{number}")
            except NameInUse:
                continue
            except ClientError as error:
                if error.code != "not_entitled":
                    raise
                break  # its names are listed in the access file, or this one is another's
    return log_on(f"{name}-{token[:8]}")


@lru_cache(maxsize=100)
def _principal(url: str, credentials: Credentials) -> str:
    """Asked once by each worker process of Spark."""
    return principal_of(url, credentials=credentials, timeout=CONNECT_S)


def _publish(client: Client, rows: SinkMessages) -> None:
    if rows.keys is None:
        client.publish_many(rows.topics, rows.payloads)
        return
    topics = [rows.topics] * len(rows.payloads) if isinstance(rows.topics, str) else rows.topics
    for topic, payload, key in zip(topics, rows.payloads, rows.keys, strict=True):
        client.publish(topic, payload, key=key)
