"""Record batches of a range: columns made from whole buffers, and only those that are asked for.

Rows come in the order of the log. Only a key ever is null; what a schema says of that is kept as it
is, because Spark compares it with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zbroker.client.record_batch import of_one_length
from zbroker.errors import ClientError
from zbroker.limits import MIB
from zbroker.spark.names import COLUMNS, LOG_APPEND_TIME
from zbroker.spark.pieces import Array, Piece, PieceNeeds, pieces
from zbroker.spark.ranges import LogRange

BYTES_MAX: Final = 64 * MIB  # of payloads in one record batch, unless one batch of the log has more
ALIKE_MIN: Final = 64  # texts with one beginning, on average, for which copying pays
_WIDTH: Final = 4
_BASE: Final = 10**_WIDTH
#: the digits of each number below 10,000
_DIGITS: Final = np.frombuffer(b"".join(b"%04d" % number for number in range(_BASE)), "<u4")
_NS_PER_US: Final = 1_000
_TYPES: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def record_batches(part: LogRange, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    """Raises: ClientError bad_field; ZBrokerError, as `replay`."""
    if rows < 1:
        raise ClientError("bad_field", f"`rows` must be at least 1, not {rows}")
    return _batches(part, schema, rows)


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """The Arrow schema of these columns; all may be null. Raises: ClientError bad_field."""
    names = list(columns)
    for name in names:
        if name not in COLUMNS:
            raise ClientError("bad_field", f"no column {name!r}; there are {', '.join(COLUMNS)}")
    return pa.schema([pa.field(name, _TYPES[COLUMNS[name]]) for name in names])


def _batches(part: LogRange, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    wanted = set(schema.names)
    needs = PieceNeeds(payloads=bool(wanted & {"payload", "value"}), keys="key" in wanted)
    for some in _gathered(pieces(part, needs), rows):
        made = _record_batch(some, schema)
        for first in range(0, made.num_rows, rows):
            yield made.slice(first, rows)


def _gathered(found: Iterable[Piece], rows: int) -> Iterator[list[Piece]]:
    """Neighbours with about `rows` messages together."""
    some: list[Piece] = []
    count = size = 0
    for piece in found:
        if some and (count + piece.rows > rows or size + piece.size > BYTES_MAX):
            yield some
            some, count, size = [], 0, 0
        some.append(piece)
        count += piece.rows
        size += piece.size
    if some:
        yield some


def _record_batch(some: list[Piece], schema: pa.Schema) -> pa.RecordBatch:
    counts = np.fromiter((piece.rows for piece in some), np.int64, len(some))
    arrays = [_COLUMNS[name](some, counts) for name in schema.names]
    if not arrays:  # Spark asks for no column where it only counts
        return pa.RecordBatch.from_struct_array(pa.array([{}] * int(counts.sum()), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def grouped(batch: pa.RecordBatch, step_us: int) -> Iterator[tuple[int, str, pa.RecordBatch]]:
    """Its rows by steps of time (their number since 1970) and topic; in each group in order."""
    if not batch.num_rows:
        return
    topics = batch.column("topic").dictionary_encode()
    steps = batch.column("timestamp").cast(pa.int64()).to_numpy() // step_us
    names = topics.dictionary.to_pylist()
    keys = steps * len(names) + topics.indices.to_numpy()
    if (keys != keys[0]).any():
        order = np.argsort(keys, kind="stable")
        keys, batch = keys[order], batch.take(pa.array(order))
    starts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
    for first, end in pairwise(starts):
        step, code = divmod(int(keys[first]), len(names))
        yield step, names[code], batch.slice(first, end - first)


# -- columns ----------------------------------------------------------------------------------


def _topic(some: list[Piece], counts: Array) -> pa.Array:
    if all(piece.index is None for piece in some):
        return _repeated([piece.topics[0] for piece in some], counts)
    numbers: dict[str, int] = {}
    of = [[numbers.setdefault(topic, len(numbers)) for topic in piece.topics] for piece in some]
    parts = [
        np.full(piece.rows, mine[0]) if piece.index is None else np.asarray(mine)[piece.index]
        for piece, mine in zip(some, of, strict=True)
    ]
    return pa.array(numbers, pa.string()).take(pa.array(np.concatenate(parts)))


def _publisher(some: list[Piece], counts: Array) -> pa.Array:
    return _repeated([str(piece.publisher) for piece in some], counts)


def _bookmark(some: list[Piece], counts: Array) -> pa.Array:
    sequences = _numbers(some, counts, "sequence")
    publishers = np.fromiter((piece.publisher for piece in some), np.uint64, len(some))
    cuts = np.flatnonzero(publishers[1:] != publishers[:-1])  # after each, another publisher
    if len(cuts) * ALIKE_MIN > len(sequences):
        heads = _repeated([f"{piece.publisher}|" for piece in some], counts)
        return joined(heads, sequences, "|")
    runs = np.split(sequences, np.cumsum(counts)[cuts])
    made = [
        numbered(f"{publishers[cut]}|", numbers, "|")
        for cut, numbers in zip([*cuts.tolist(), -1], runs, strict=True)
    ]
    return whole(made)


def _repeated(names_of: list[str], counts: Array) -> pa.Array:
    numbers: dict[str, int] = {}
    of = [numbers.setdefault(name, len(numbers)) for name in names_of]
    names = pa.array(numbers, pa.string())
    if len(numbers) == 1:
        return pa.repeat(names[0], int(counts.sum()))
    return names.take(pa.array(np.repeat(of, counts)))


def _numbers(some: list[Piece], counts: Array, of: Literal["sequence", "position"]) -> Array:
    """The sequence or position of each message; a piece has that of message 0 of its body."""
    zeros = [getattr(piece, of) for piece in some]
    if any(piece.at is not None for piece in some):
        runs: list[Array] = [
            zero
            + (np.arange(piece.first, piece.first + piece.rows) if piece.at is None else piece.at)
            for piece, zero in zip(some, zeros, strict=True)
        ]
        return np.concatenate(runs).astype(np.int64, copy=False)
    firsts = np.asarray(zeros, np.int64) + np.asarray([piece.first for piece in some], np.int64)
    before = np.cumsum(counts) - counts
    return np.repeat(firsts - before, counts) + np.arange(int(counts.sum()), dtype=np.int64)


def _timestamp(some: list[Piece], counts: Array) -> pa.Array:
    if all(piece.times is None for piece in some):
        log_us = [piece.time_ns // _NS_PER_US for piece in some]
        times: Array = np.repeat(np.asarray(log_us, np.int64), counts)
    else:
        parts = [
            np.full(piece.rows, piece.time_ns) if piece.times is None else piece.times
            for piece in some
        ]
        times = np.concatenate(parts) // _NS_PER_US
    return pa.array(times, pa.int64()).cast(_TYPES["timestamp"])


def _payload(some: list[Piece], _counts: Array) -> pa.Array:
    groups = groupby(some, _one_length)
    return whole([_binaries([piece.payloads for piece in group], size) for size, group in groups])


def _one_length(piece: Piece) -> int | None:
    found = piece.payloads
    return None if found is None or isinstance(found, list) else found.itemsize


def _binaries(some: list[Array], length: int | None) -> pa.Array:
    if length is None:
        return pa.array([data for payloads in some for data in payloads], pa.binary())
    values = np.concatenate(some)
    return of_one_length(pa.binary(), values, len(values), length)


def _key(some: list[Piece], _counts: Array) -> pa.Array:
    keys: list[bytes | None] = []
    for piece in some:
        keys += piece.keys if piece.keys is not None else [None] * piece.rows
    return pa.array(keys, pa.binary())


def _constant(_some: list[Piece], counts: Array, value: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), int(counts.sum()))


def _position(some: list[Piece], counts: Array) -> pa.Array:
    return pa.array(_numbers(some, counts, "position"))


_COLUMNS: Final[dict[str, Callable[[list[Piece], Array], pa.Array]]] = {
    "topic": _topic,
    "bookmark": _bookmark,
    "publisher": _publisher,
    "sequence": lambda some, counts: pa.array(_numbers(some, counts, "sequence")),
    "position": _position,
    "timestamp": _timestamp,
    "payload": _payload,
    "key": _key,
    "value": _payload,
    "partition": partial(_constant, value=0),
    "offset": _position,
    "timestampType": partial(_constant, value=LOG_APPEND_TIME),
}


# -- columns of texts and bytes, made by copying, not one by one ------------------------------
# Numbers of one publisher rise by one, so ten thousand of their texts differ in four digits only.


def whole(some: list[pa.Array]) -> pa.Array:
    """Columns as one."""
    return some[0] if len(some) == 1 else pa.concat_arrays(some)


def numbered(before: str, numbers: Array, after: str) -> pa.Array:
    """`before`, the number, `after`, for an array of numbers, none of them negative."""
    starts = numbers // _BASE
    cuts: Array = np.flatnonzero(np.diff(starts)) + 1
    if len(cuts) * ALIKE_MIN > len(numbers):
        return joined(pa.scalar(before), numbers, after)
    some = [
        _alike(before, int(starts[first]), numbers[first:end], after)
        for first, end in pairwise([0, *cuts.tolist(), len(numbers)])
    ]
    return whole(some)


def _alike(before: str, start: int, numbers: Array, after: str) -> pa.Array:
    if start == 0:  # fewer digits than four, perhaps
        return joined(pa.scalar(before), numbers, after)
    head = f"{before}{start}".encode()
    text = head + bytes(_WIDTH) + after.encode()
    made = bytearray(text) * len(numbers)
    ends: Array = np.ndarray(len(numbers), "<u4", made, len(head), (len(text),))
    ends[:] = _DIGITS[numbers - start * _BASE]
    return of_one_length(pa.string(), made, len(numbers), len(text))


def joined(before: Any, numbers: Array, after: str) -> pa.Array:  # noqa: ANN401 - texts, or one
    """The same where numbers are not alike, or each has another text before it."""
    digits = pc.cast(pa.array(numbers), pa.string())
    return pc.binary_join_element_wise(before, digits, after, "")
