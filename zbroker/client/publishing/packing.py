"""Messages to record batches: one msgpack array of payloads, with what the header says of them.

A batch is packed once, by the client, and stays as it is on the wire, on disk and on its way to
subscribers. Everything here works on whole lists, because a Python statement per message and step
is what a publisher's speed is made of. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import google_crc32c
from msgspec import Struct

from zbroker.limits import KIB
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

BATCH_MESSAGES: Final = 5_000
BATCH_BYTES: Final = 528 * KIB  # 5,000 messages of 100 bytes; subscribers are served in such steps
TOPICS_BYTES: Final = 32 * KIB  # leaves half of a header for the columns of a full batch
ITEM_OVERHEAD: Final = 5  # msgpack's bin 32 header, the largest


class Item(Protocol):
    """What is packed: a receipt, as the application queued it."""

    topic: str
    value: bytes | int  # the payload, until the message has its sequence
    time: int | None


T = TypeVar("T", bound=Item)


class Rows(NamedTuple, Generic[T]):
    """Messages column by column: every attribute of every message is looked up once."""

    items: list[T]
    data: list[bytes]
    topics: list[str]
    times: list[int | None] | None  # None: no message has one
    sizes: list[int]


class Batch(Struct, gc=False):
    """One packed batch as the publish store keeps it. Messages `first` to `last`, after `prev`.

    The numbers are zero until the link's core gives them; `round` is that of its last send.
    """

    count: int
    body: bytes
    crc: int
    topic: str | None
    topics: list[str] | None
    columns: Columns | None
    first: int = 0
    last: int = 0
    prev: int = 0
    round: int = 0

    @property
    def names(self) -> set[str]:
        """The topics in it."""
        return {self.topic} if self.topic is not None else set(self.topics or ())


def rows(items: list[T]) -> Rows[T]:
    """The columns of `items`, which have no sequence yet."""
    data = [item.value for item in items]
    times = [item.time for item in items]
    timed = None if times.count(None) == len(times) else times
    return Rows(items, data, [item.topic for item in items], timed, list(map(len, data)))  # type: ignore[arg-type]


def split(rows: Rows[T], limit: int = BATCH_BYTES) -> Iterator[Rows[T]]:
    """`rows` in runs that fit one batch each: bytes, and topics in the header.

    A message larger than `limit` stands alone.
    """
    if sum(rows.sizes) + ITEM_OVERHEAD * len(rows.items) <= limit:
        yield from _by_time(rows)
        return
    sums = list(accumulate([size + ITEM_OVERHEAD for size in rows.sizes]))
    start = base = 0
    while start < len(rows.items):
        end = max(start + 1, bisect_right(sums, base + limit, start))
        yield from _by_time(_part(rows, start, end))
        start, base = end, sums[end - 1]


def _part(rows: Rows[T], start: int, end: int) -> Rows[T]:
    times = None if rows.times is None else rows.times[start:end]
    return Rows(
        rows.items[start:end], rows.data[start:end], rows.topics[start:end], times,
        rows.sizes[start:end],
    )  # fmt: skip


def _by_time(rows: Rows[T]) -> Iterator[Rows[T]]:
    """Runs in which all messages have a time of their own, or none has: a column has no blanks."""
    if rows.times is None or None not in rows.times:
        yield from _by_topics(rows)
        return
    start = 0
    for without, run in groupby(rows.times, key=lambda time: time is None):
        end = start + len(list(run))
        part = _part(rows, start, end)
        yield from _by_topics(part._replace(times=None) if without else part)
        start = end


def _by_topics(rows: Rows[T]) -> Iterator[Rows[T]]:
    """Halves `rows` until the names of their topics fit a header."""
    names = rows.topics
    if names.count(names[0]) == len(names) or _fit_a_header(set(names)):
        yield rows
        return
    half = len(names) // 2
    yield from _by_topics(_part(rows, 0, half))
    yield from _by_topics(_part(rows, half, len(names)))


def _fit_a_header(topics: set[str]) -> bool:
    return sum(len(topic.encode()) + ITEM_OVERHEAD for topic in topics) <= TOPICS_BYTES


def pack(rows: Rows[T]) -> Batch:
    """One batch of all of `rows`, which are a run of `split`."""
    body = bodies.pack(rows.data)
    topic, topics, index = _topic_columns(rows.topics)
    time = None if rows.times is None else bodies.to_little(array("q", rows.times))  # type: ignore[arg-type]
    columns = None if index is None and time is None else Columns(index=index, time=time)
    return Batch(len(rows.items), body, google_crc32c.value(body), topic, topics, columns)


def _topic_columns(names: list[str]) -> tuple[str | None, list[str] | None, bytes | None]:
    """The only topic, or the table of topics and which of them each message has."""
    if names.count(names[0]) == len(names):
        return names[0], None, None
    topics = list(dict.fromkeys(names))
    number = {name: i for i, name in enumerate(topics)}
    index = array("H", list(map(number.__getitem__, names)))
    return None, topics, bodies.to_little(index)
