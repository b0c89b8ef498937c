"""Publishing from Spark, exactly once: tasks stage their rows, the driver commits once.

    write (executors) --a message for each partition--> commit (driver), again after a crash
                      --a task failed for good--------> abort

A batch job is a run of its own, or the one that `publishId` names; then all runs under that name
together publish once. A streaming query is an app by its id, which its checkpoint keeps, and a
micro-batch is a batch of it.

A task publishes under a token that it makes up. A task that is tried again has another token, and
so has its copy in another executor: the commit names the tokens of the attempts that Spark chose,
and the others expire.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter
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

QUERY_ID: Final = "sql.streaming.queryId"  # a local property that Spark sets for tasks of a stream
JOBS: Final = "jobs"  # they have one publisher together, and are known by their run
CONNECT_S: Final = 60.0
NAMES_MAX: Final = 100  # that are tried, before one is made up
STORE_BYTES: Final = 4 * MIB  # on their way: more would have other publishers wait, nothing else
FLUSH_S: Final = 600.0  # a broker that restarts, or has a full disk for a while
_ONLY: Final = 1  # number of the only batch of a job
_BYTES: Final = ("binary", "string")
_TYPES: Final = {"topic": ("string",), "payload": _BYTES, "value": _BYTES, "key": _BYTES}
_COLUMNS: Final = "payload (or value) binary or string, topic string, key binary or string"


class SinkTarget(NamedTuple):
    """The broker and the topic; "" for the column of that name."""

    url: str
    topic: str
    credentials: Credentials | None


@dataclass(frozen=True)
class StagedPart(WriterCommitMessage):  # type: ignore[misc]
    """What one task staged for `app`."""

    app: str
    partition: int
    token: str
    messages: int


Messages = Sequence[WriterCommitMessage | None]


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
        _commit(self._to, messages, _ONLY)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: nothing of it is shown."""
        _abort(self._to, messages)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("zbroker")`. Spark makes another one for each commit."""

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
        """On the driver; a batch that was committed before a crash is not published again."""
        _commit(self._to, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: nothing of it is shown."""
        del batchId
        _abort(self._to, messages)


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
    return StagedPart(app, partition, *stage(iterator, to, name))


def _commit(to: SinkTarget, messages: Messages, batch: int) -> None:
    parts = _parts(messages)
    if not parts:
        return
    named = [(part.token, part.messages) for part in parts]
    done = commit(to.url, parts[0].app, batch, named, credentials=to.credentials)
    if done.already:
        _abort(to, parts)  # an earlier attempt of this batch counts


def _abort(to: SinkTarget, messages: Messages) -> None:
    tokens = [part.token for part in _parts(messages)]
    if tokens:
        abort(to.url, tokens, credentials=to.credentials)


def _parts(messages: Messages) -> list[StagedPart]:
    """The parts with messages of tasks that succeeded, in the order of their partitions."""
    staged = [part for part in messages if part is not None and part.messages]
    return sorted(staged, key=attrgetter("partition"))


# -- rows as messages -------------------------------------------------------------------------


class SinkMessages(NamedTuple):
    """The rows of a record batch; topics: one for all, or one for each. keys: None if all are."""

    topics: str | list[str]
    payloads: list[bytes]
    keys: list[bytes | None] | None


def check_rows(schema: Any, topic: str) -> None:  # noqa: ANN401 - a StructType of Spark
    """Raises: ClientError bad_field, for rows that cannot be published."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind not in _TYPES.get(field.name, ()):
            text = f"column `{field.name} {kind}` cannot be published"
            raise ClientError("bad_field", text, f"select columns first: {_COLUMNS}")
    names = [field.name for field in schema.fields]
    if ("payload" in names) == ("value" in names):
        raise ClientError("bad_field", "the rows have no payload, or two", f"select {_COLUMNS}")
    if not topic and "topic" not in names:
        hint = "give option `topic`, or rows with a column `topic`"
        raise ClientError("bad_field", "there is no topic to publish to", hint)


def messages_of(batch: pa.RecordBatch, topic: str) -> SinkMessages:
    """Its rows, in their order. topic: wins over the column. Raises: ClientError bad_field."""
    names = batch.schema.names
    payloads = _whole(batch, "payload" if "payload" in names else "value", pa.binary())
    keys = batch.column("key").cast(pa.binary()).to_pylist() if "key" in names else []
    topics = topic or _whole(batch, "topic", pa.string())
    if not topic and len(set(topics)) == 1:
        topics = topics[0]
    return SinkMessages(topics, payloads, keys if any(key is not None for key in keys) else None)


def _whole(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> Any:  # noqa: ANN401 - a list
    """The values of a column. Raises: ClientError bad_field, if one of them is null."""
    values = batch.column(name).cast(kind).to_pylist()
    if None in values:
        text = f"row {values.index(None)} of a record batch has no {name}"
        raise ClientError("bad_field", text, f"leave out rows where {name} is null")
    return values


# -- tasks ------------------------------------------------------------------------------------


class Staged(NamedTuple):
    """A token, and how many messages were staged under it."""

    token: str
    messages: int


def stage(batches: Iterable[pa.RecordBatch], to: SinkTarget, name: str) -> Staged:
    """Stages all rows, in their order; durable when this returns.

    name: of the publisher. The broker keeps each name for ever, so it should come again.
    Raises: ZBrokerError; then no message is shown.
    """
    token, count = secrets.token_hex(16), 0
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Staged(token, 0)
    client = _connect(to, name, token)
    try:
        for batch in chain([first], filled):
            _publish(client, messages_of(batch, to.topic))
            count += batch.num_rows
        client.flush(FLUSH_S)
    finally:
        client.close(flush=False)
    return Staged(token, count)


def _connect(to: SinkTarget, name: str, token: str) -> Client:
    """Another job's task may have the name, or one that lives on although Spark gave it up.

    With security on, names begin with the principal: no other one can take these first.
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
