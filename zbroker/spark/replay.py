"""Replays one planned range, in an executor or anywhere else: all of it, or an error.

    range of a URL         a bounded subscription of the client, checked by it
    range of a directory   zbroker.log.reader, which checks every header, and every body that
                           holds a wanted topic; no other body is read

ZeroMQ is first touched in the process that replays: Spark forks its workers, and a context of
their parent would be useless in them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from zbroker.client.message import Message, MessageBatch, decode
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin, format_vector
from zbroker.limits import STORED_MAX_BYTES
from zbroker.log.format import FLAG_ZSTD, Batch
from zbroker.spark.batch_scan import batches
from zbroker.spark.names import NATIVE_COLUMNS
from zbroker.spark.ranges import LogRange
from zbroker.wire.bodies import CODEC_ZSTD
from zbroker.wire.messages import Msg

if TYPE_CHECKING:
    import pyarrow as pa

SILENT_S: Final = 600.0  # a scan that finds nothing may be silent; a task must not hang for ever
EVERY_TOPIC: Final = ".*"
ROWS: Final = 16_384  # of a record batch: Spark is fastest with 8 to 32 thousand


def replay(part: LogRange) -> Iterator[Message]:
    """Every message of the range, in the order of the log.

    Raises: ZBrokerError gap (damaged), bookmark_expired (removed), bookmark_not_found (another log
    is there now): never fewer messages without saying so.
    """
    return chain.from_iterable(replay_batches(part))


def replay_batches(part: LogRange) -> Iterator[MessageBatch]:
    """The same as `replay`, in lists of what was published together: faster."""
    return live_batches(part) if part.is_live else _of_directory(part)


def replay_arrow(
    part: LogRange, columns: Sequence[str] | None = None, rows: int = ROWS
) -> Iterator[pa.RecordBatch]:
    """The same as record batches of at most `rows`, made from whole buffers: the fastest.

    columns: those that are made, in this order; None: topic, bookmark, publisher, sequence,
    position, timestamp, payload. Those of Kafka's connector can be had, too.
    Raises: as `replay`; bad_field; missing_package without pyarrow.
    """
    try:
        from zbroker.spark.arrow import record_batches, schema_of
    except ImportError as error:
        raise ZBrokerError("missing_package", str(error), "install the extra `spark`") from None
    return record_batches(part, schema_of(NATIVE_COLUMNS if columns is None else columns), rows)


# -- a running instance -----------------------------------------------------------------------


def live_batches(part: LogRange) -> Iterator[MessageBatch]:
    """Lists of messages of a range of a URL, each with what came together."""
    from zbroker.client import connect  # a replay of a directory needs no ZeroMQ

    origin = Origin(part.instance, part.generation)
    with (
        connect(part.source, name=reader_name(part.job), credentials=part.credentials) as client,
        client.subscribe(
            EVERY_TOPIC if part.topic is None else part.topic,
            regex=part.regex or part.topic is None,
            since=format_vector({origin: part.first - 1}),
            until=format_vector({origin: part.end - 1}),
            filter=part.filter or None,
        ) as subscription,
    ):
        yield from subscription.batches(timeout=SILENT_S)


def reader_name(job: str) -> str:
    """A client name that says who reads: job, partition and attempt in Spark; and the process.

    A client name is unique, so the rest keeps two readers of one task from ending each other.
    """
    try:
        from pyspark import TaskContext

        context = TaskContext.get()
    except ImportError:
        context = None
    task = "driver" if context is None else f"p{context.partitionId()}-a{context.attemptNumber()}"
    return f"spark-{job}-{task}-{os.getpid()}-{secrets.token_hex(3)}"


# -- a directory ------------------------------------------------------------------------------


def _of_directory(part: LogRange) -> Iterator[MessageBatch]:
    origin = Origin(part.instance, part.generation)
    for batch, picked in batches(part):
        messages = decode(_whole(batch), bytes(batch.body), origin, STORED_MAX_BYTES)
        if len(picked.at) < len(messages):
            data = [messages.data[i - batch.skip] for i in picked.at]
            messages = MessageBatch(messages.head, data, picked.at)
        yield messages


def _whole(batch: Batch) -> Msg:
    """The header of a batch as a subscriber would get it."""
    return Msg(
        sid="",
        publisher=batch.publisher,
        seq=batch.sequence,
        position=batch.position,
        time_ns=batch.log_time,
        count=batch.count,
        topics=batch.topics,
        skip=batch.skip,
        take=batch.taken,
        codec=CODEC_ZSTD if batch.flags & FLAG_ZSTD else None,
        columns=batch.columns,
    )
