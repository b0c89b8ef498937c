"""What one batch gives to a record batch: some numbers, and arrays where messages differ.

Nothing here is made for a single message: payloads of one length are seen in the body by their
stride, others are decoded as a list at once, columns of the batch are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from zbroker.client.message import MessageBatch
from zbroker.client.record_batch import payloads_of, strided_array
from zbroker.log.batch_index import plain_of
from zbroker.log.format import Batch
from zbroker.spark.batch_scan import PickedMessages, batches
from zbroker.spark.ranges import LogRange
from zbroker.spark.replay import live_batches
from zbroker.wire import bodies

Array = Any  # of numpy, which is not there when types are checked


class PieceNeeds(NamedTuple):
    """What record batches are made of."""

    payloads: bool
    keys: bool


class Piece(Struct, gc=False):
    """`rows` messages of one batch. sequence, position: of message 0 of the body.

    at: their indexes in the body, for sequence and position; None: consecutive ones from `first`.
    index, times: of each of them, where they differ.
    """

    rows: int
    publisher: int
    sequence: int
    position: int
    first: int
    at: Array | None
    time_ns: int
    topics: Sequence[str]
    index: Array | None
    times: Array | None
    payloads: list[bytes] | Array | None
    keys: list[bytes | None] | None
    size: int


def pieces(part: LogRange, needs: PieceNeeds) -> Iterator[Piece]:
    """All of the range. Raises: ZBrokerError, as `replay`."""
    if part.is_live:
        return (_of_messages(messages, needs) for messages in live_batches(part))
    return (_of_batch(batch, picked, needs) for batch, picked in batches(part))


# -- from a directory -------------------------------------------------------------------------


def _of_batch(batch: Batch, picked: PickedMessages, needs: PieceNeeds) -> Piece:
    at, columns = picked.at, batch.columns
    pick = slice(at.start, at.stop) if isinstance(at, range) else np.asarray(at)
    keys = None
    if needs.keys and columns is not None and columns.keys is not None:
        found = bodies.keys(columns.keys, batch.count)
        keys = [found[i] for i in at]
    return Piece(
        rows=len(at),
        publisher=batch.publisher,
        sequence=batch.sequence - batch.skip,
        position=batch.position - batch.skip,
        first=at[0],
        at=None if isinstance(at, range) else pick,
        time_ns=batch.log_time,
        topics=batch.topics,
        index=_picked("<u2", columns.index if columns else None, pick),
        times=_picked("<i8", columns.time if columns else None, pick),
        payloads=_payloads(batch, picked, pick) if needs.payloads else None,
        keys=keys,
        size=batch.body_length,
    )


def _picked(kind: str, column: bytes | None, pick: Any) -> Array | None:  # noqa: ANN401 - numpy
    return None if column is None else np.frombuffer(column, kind)[pick]


def _payloads(batch: Batch, picked: PickedMessages, pick: Any) -> list[bytes] | Array:  # noqa: ANN401
    if picked.payloads is not None:
        return [picked.payloads[i] for i in picked.at]
    plain = plain_of(batch)
    if (stride := bodies.stride_of(plain, batch.count)) is not None:
        return strided_array(plain, batch.count, stride)[pick]
    payloads = bodies.unpacked(plain, batch.count)
    if isinstance(picked.at, range):
        return payloads[pick]
    return [payloads[i] for i in picked.at]


# -- from a running instance ------------------------------------------------------------------


def _of_messages(messages: MessageBatch, needs: PieceNeeds) -> Piece:
    head, at = messages.head, messages.at
    pick = slice(at[0], at[-1] + 1) if at[-1] - at[0] == len(at) - 1 else np.asarray(at)
    steps = None if head.offsets is None else _taken(head.offsets, pick).astype(np.int64)
    return Piece(
        rows=len(at),
        publisher=head.publisher,
        sequence=head.sequence - (head.first if head.offsets is None else 0),
        position=head.position - (head.first if head.offsets is None else 0),
        first=at[0],
        at=steps if steps is not None else (None if isinstance(pick, slice) else pick),
        time_ns=head.time_ns,
        topics=head.topics or [head.topic or ""],
        index=_taken(head.index, pick),
        times=_taken(head.times, pick),
        payloads=payloads_of(messages) if needs.payloads else None,
        keys=[head.keys[i] for i in at] if needs.keys and head.keys is not None else None,
        size=messages.size,
    )


def _taken(column: Sequence[int] | None, pick: Any) -> Any:  # noqa: ANN401 - an array or None
    return None if column is None else np.asarray(column)[pick]
