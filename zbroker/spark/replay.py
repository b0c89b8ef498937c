"""Replays one planned range, in an executor or anywhere else: all of it, or an error.

    range of a URL         a bounded subscription of the client, checked by it
    range of a directory   zbroker.journal.reader, which checks every header, and every body that
                           holds a wanted topic; no other body is read

ZeroMQ is first touched in the process that replays: Spark forks its workers, and a context of
their parent would be useless in them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from zbroker.client.message import Message, decode
from zbroker.errors import ClientError
from zbroker.ids import Origin, format_vector
from zbroker.journal.format import FLAG_ZSTD, KIND_PUBLISH, Batch
from zbroker.journal.reader import Gap, Item, Log, Skipped
from zbroker.limits import MIB
from zbroker.spark.ranges import Range, gap_error
from zbroker.spark.topics import matcher
from zbroker.wire.bodies import CODEC_ZSTD
from zbroker.wire.messages import Msg

READ_BYTES: Final = 1 * MIB  # a few batches: what one call of the reader returns
INFLATED_MAX_BYTES: Final = (
    1024 * MIB
)  # `limits.message_bytes` may be as large; the body's CRC was right
SILENT_S: Final = 600.0  # a scan that finds nothing may be silent; a task must not hang for ever
EVERY_TOPIC: Final = ".*"


def replay(part: Range) -> Iterator[Message]:
    """Every message of the range, in the order of the log.

    Raises: ZBrokerError gap (damaged), bookmark_expired (removed), bookmark_not_found (another log
    stands there now): never fewer messages without saying so.
    """
    return chain.from_iterable(replay_batches(part))


def replay_batches(part: Range) -> Iterator[list[Message]]:
    """The same as `replay`, in lists of what was published together: faster."""
    return _of_url(part) if "://" in part.source else _of_directory(part)


# -- a running instance -----------------------------------------------------------------------


def _of_url(part: Range) -> Iterator[list[Message]]:
    from zbroker.client import connect  # a replay of a directory needs no ZeroMQ

    origin = Origin(part.instance, part.generation)
    with (
        connect(part.source, name=reader_name(part.job), credentials=part.credentials) as client,
        client.subscribe(
            EVERY_TOPIC if part.topic is None else part.topic,
            regex=part.regex or part.topic is None,
            since=format_vector({origin: part.first - 1}),
            until=format_vector({origin: part.end - 1}),
        ) as subscription,
    ):
        yield from subscription.batches(timeout=SILENT_S)


def reader_name(job: str) -> str:
    """A client name that says who reads: job, partition and attempt in Spark; and the process.

    A client name is unique, so the rest keeps two readers of one task from ending each other.
    """
    try:
        from pyspark import TaskContext
    except ImportError:
        context = None
    else:
        context = TaskContext.get()
    task = "driver" if context is None else f"p{context.partitionId()}-a{context.attemptNumber()}"
    return f"spark-{job}-{task}-{os.getpid()}-{secrets.token_hex(3)}"


# -- a directory ------------------------------------------------------------------------------


def _of_directory(part: Range) -> Iterator[list[Message]]:
    log = Log(Path(part.source), Path(part.archive) if part.archive else None)
    try:
        _check(log, part)
        yield from _read(log, part)
    finally:
        log.close()


def _check(log: Log, part: Range) -> None:
    if log.instance != part.instance:
        raise ClientError(
            "bookmark_not_found",
            f"{part.source} has the log of {log.instance:016x}, not {part.instance:016x}",
        )
    if part.first < log.first_position:
        raise ClientError(
            "bookmark_expired",
            f"the range begins at {part.first}, the oldest position kept is {log.first_position}",
        )


def _read(log: Log, part: Range) -> Iterator[list[Message]]:
    wants, origin = matcher(part.topic, part.regex), Origin(part.instance, part.generation)
    cursor = log.seek(part.first)
    done = part.first
    while done < part.end:
        found, cursor = log.read(cursor, part.end, READ_BYTES, wants)
        for item in found:
            done = _follows(item, done)
            if isinstance(item, Batch) and item.kind == KIND_PUBLISH:
                msg = _clipped(item, part)
                messages = decode(msg, bytes(item.body), origin, INFLATED_MAX_BYTES)
                if wants is not None and not all(map(wants, item.topics)):
                    messages = [message for message in messages if wants(message.topic)]
                if messages:
                    yield messages
        if not found and done < part.end:
            raise ClientError("gap", f"the log ends at position {done}, the range at {part.end}")


def _follows(item: Item, done: int) -> int:
    """The position behind `item`, which must go on where the one before it ended."""
    if isinstance(item, Gap):
        raise gap_error(item)
    if isinstance(item, Skipped):
        first, end = item.first, item.end
    else:
        first, end = item.position, item.end_position
    if first > done:
        raise ClientError("gap", f"positions {done} to {first - 1} are not in the log")
    return end


def _clipped(batch: Batch, part: Range) -> Msg:
    """The header of a batch as a subscriber would get it: only what lies in the range counts."""
    before = max(part.first - batch.position, 0)
    behind = max(batch.end_position - part.end, 0)
    return Msg(
        sid="",
        publisher=batch.publisher,
        seq=batch.sequence + before,
        position=batch.position + before,
        time_ns=batch.log_time,
        count=batch.count,
        topics=batch.topics,
        skip=batch.skip + before,
        take=batch.taken - before - behind,
        codec=CODEC_ZSTD if batch.flags & FLAG_ZSTD else None,
        columns=batch.columns,
    )
