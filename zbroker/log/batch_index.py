"""What a batch says of its messages, one by one, by their index in the body. Pure."""

from __future__ import annotations

from bisect import bisect_left

from zbroker.ids import format_bookmark
from zbroker.limits import STORED_MAX_BYTES
from zbroker.log.format import FLAG_ZSTD, Batch
from zbroker.wire import bodies


class BatchMetadata:
    """What a filter may ask about a message besides its payload.

    headers: of the batch, if they are kept.
    """

    __slots__ = ("_batch", "_headers", "_index", "_keys", "_times")

    def __init__(self, batch: Batch, headers: bodies.HeaderColumn | None = None) -> None:
        columns = batch.columns
        index, times = (columns.index, columns.time) if columns is not None else (None, None)
        self._batch = batch
        self._headers = headers or bodies.HeaderColumn(columns, batch.count)
        self._keys = bodies.KeyColumn(columns, batch.count)
        self._index = bodies.indexes(index) if index is not None else None
        self._times = bodies.times(times) if times is not None else None

    def topic(self, i: int) -> str:
        return self._batch.topics[0 if self._index is None else self._index[i]]

    def time_ns(self, i: int) -> int:
        return self._batch.log_time if self._times is None else self._times[i]

    def bookmark(self, i: int) -> str:
        """Nothing that is not recorded has one."""
        batch = self._batch
        if not batch.position:
            return ""
        return format_bookmark(batch.publisher, batch.sequence + i - batch.skip)

    def header(self, i: int, name: str) -> object:
        return self._headers.value(i, name)

    def key(self, i: int) -> bytes | None:
        return self._keys.of(i)


def time_of(batch: Batch, index: int) -> int:
    """The log time of message `index` of the body."""
    columns = batch.columns
    if columns is None or not columns.time:
        return batch.log_time
    return bodies.times(columns.time)[index]


def since(batch: Batch, span: tuple[int, int], time_ns: int) -> int:
    """The first message of [first, last) whose log time is `time_ns` or later; `last` if none."""
    first, last = span
    if batch.columns is None or not batch.columns.time:
        return first if batch.log_time >= time_ns else last
    return bisect_left(bodies.times(batch.columns.time), time_ns, first, last)


def position_since(batch: Batch, time_ns: int) -> int:
    """The position of the first message that counts whose log time is `time_ns` or later.

    If there is none, the position after the batch.
    """
    at = since(batch, (batch.skip, batch.count - batch.cut), time_ns)
    return batch.position + at - batch.skip


def plain_of(batch: Batch) -> bytes | memoryview:
    """The body, not compressed. Raises: ClientError bad_frame, too_large."""
    name = bodies.CODEC_ZSTD if batch.flags & FLAG_ZSTD else None
    return bodies.inflate(batch.body, name, STORED_MAX_BYTES)
