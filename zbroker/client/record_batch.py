"""A batch of messages as a record batch of Arrow, its columns made from whole buffers.

`pa.array` and `pa.scalar` import pandas when they are first called, which takes 0.2 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from zbroker.client.message import MessageBatch
from zbroker.wire import bodies

Array = Any  # of numpy, which is not there when types are checked
_NS_PER_US: Final = 1_000
_MOMENT: Final = pa.timestamp("us", tz="UTC")
_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(), "publisher": pa.string(), "sequence": pa.int64(),
        "position": pa.int64(), "timestamp": _MOMENT, "payload": pa.binary(),
    }
)  # fmt: skip


def record_batch(batch: MessageBatch) -> pa.RecordBatch:
    """See MessageBatch.to_arrow."""
    head, rows = batch.head, len(batch)
    if head.index is None:
        topic = _repeated(head.topic or "", rows)
    else:
        topics = of_lengths(pa.string(), [topic.encode() for topic in head.topics])
        topic = topics.take(_numbers(pa.int64(), taken(head.index, batch.at)))
    if head.times is None:
        times_us: Array = np.full(rows, head.time_ns // _NS_PER_US)
    else:
        times_us = taken(head.times, batch.at) // _NS_PER_US
    columns = [
        topic, _repeated(str(head.publisher), rows), _numbers(pa.int64(), batch.sequences),
        _numbers(pa.int64(), batch.positions), _numbers(_MOMENT, times_us), _payload(batch),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def taken(column: Sequence[int], at: Sequence[int]) -> Array:
    """What a column says of the messages `at`."""
    found: Array = np.asarray(column)[_integers(at)]
    return found


def payloads_of(batch: MessageBatch) -> list[bytes] | Array:
    """Its payloads; an array of numpy where they are, if they all have one length."""
    strided = batch.strided
    if strided is None:
        return batch.data
    at = strided.at
    return strided_array(strided.plain, strided.count, strided.stride)[at.start : at.stop]


def strided_array(plain: bodies.Body, count: int, stride: bodies.Stride) -> Array:
    """The `count` payloads of a packed body, where they are."""
    return np.ndarray(count, f"V{stride.length}", plain, stride.first, (stride.step,))


def of_one_length(kind: pa.DataType, values: object, rows: int, length: int) -> pa.Array:
    """A column whose values are in `values` one after the other."""
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(length)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(values)])


def of_lengths(kind: pa.DataType, values: list[bytes]) -> pa.Array:
    """A column of values that may differ in length."""
    ends: Array = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


@lru_cache(maxsize=8)  # batches in a row have as many of the same
def _repeated(text: str, rows: int) -> pa.Array:
    value = text.encode()
    return of_one_length(pa.string(), value * rows, rows, len(value))


def _integers(values: Sequence[int] | Array) -> Array:
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    return np.ascontiguousarray(values, dtype=np.int64)


def _numbers(kind: pa.DataType, values: Sequence[int] | Array) -> pa.Array:
    found = _integers(values)
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(found)])


def _payload(batch: MessageBatch) -> pa.Array:
    found = payloads_of(batch)
    if isinstance(found, list):
        return of_lengths(pa.binary(), found)
    return of_one_length(pa.binary(), found.copy(), len(found), found.itemsize)
