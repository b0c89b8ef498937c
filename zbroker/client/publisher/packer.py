"""Messages to record batches: one msgpack array of payloads, with what the header says of them.

A batch is packed once, by the client, and stays as it is on the wire, on disk and on its way to
subscribers. Everything here works on whole lists, because a Python statement per message and step
is what a publisher's speed is made of. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate, groupby
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Raw, Struct, msgpack

from zbroker.checksums import crc32c
from zbroker.client.publisher import hot_path
from zbroker.limits import HEADER_MAX_BYTES, KIB
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

BATCH_MESSAGES: Final = 5_000
BATCH_BYTES: Final = 528 * KIB  # 5,000 messages of 100 bytes; subscribers are served in such steps
TABLES_BYTES: Final = HEADER_MAX_BYTES - 1 * KIB  # topics and columns; leaves room for the rest
ITEM_OVERHEAD: Final = 5  # msgpack's bin 32 header, the largest

_encode: Final = msgpack.Encoder().encode


class Extra(Struct, gc=False, frozen=True):
    """What a message may have beside its payload. `headers` is its own and never changes.

    expires_ns: when it expires, ns since 1970 UTC; None: never. mandatory: the broker says if no
    queue gets it. before: of the last message of a `publish_many` that is mandatory, the receipts
    of the others.
    """

    key: bytes | None = None
    headers: Mapping[str, bodies.Scalar] | None = None
    expires_ns: int | None = None
    mandatory: bool = False
    before: tuple[Any, ...] = ()


class OfferedItem(Protocol):
    """A message to pack: a receipt, as the application queued it."""

    topic: str
    value: bytes | int  # the payload, until the message has its sequence
    time: int | None
    extra: Extra | None


class Encoded(NamedTuple):
    """An Extra as columns have it. size: bytes of key and headers."""

    key: bytes | None
    headers: Raw
    expires_ns: int
    size: int
    mandatory: bool = False


_NOTHING: Final = Encoded(None, Raw(_encode(None)), 0, 0)


def encoded(extra: Extra) -> Encoded:
    """Key and headers as they go into columns.

    Raises: OverflowError, UnicodeEncodeError if headers hold what msgpack cannot.
    """
    headers = Raw(_encode(extra.headers))
    size = len(_encode(extra.key)) + len(memoryview(headers))
    return Encoded(extra.key, headers, extra.expires_ns or 0, size, extra.mandatory)


T = TypeVar("T", bound=OfferedItem)


class MessageRows(NamedTuple, Generic[T]):
    """Messages column by column: every attribute of every message is looked up once."""

    items: list[T]
    data: list[bytes]
    topics: list[str]
    times: list[int | None] | None  # None: no message has one
    sizes: list[int]  # payloads with keys and headers
    extras: list[Encoded] | None  # likewise
    topic: str | None  # if all have the same


class PackedBatch(Struct, gc=False):
    """One packed batch as the publish store keeps it. Messages `first` to `last`, after `prev`.

    The numbers are zero until the link's core gives them; `round` and `sent_ms` are those of its
    last send.
    size: of the body, in bytes, also while only a file has the body; `place` is where it is
    there: segment, offset, bytes.
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
    size: int = 0
    place: tuple[int, int, int] | None = None
    sent_ms: int = 0
    mandatory: bool = False

    def __post_init__(self) -> None:
        self.size = self.size or len(self.body)

    @property
    def names(self) -> set[str]:
        """The topics in it."""
        return {self.topic} if self.topic is not None else set(self.topics or ())


def batches(items: list[T], limit: int) -> Iterator[tuple[PackedBatch, list[T], list[int]]]:
    """`items` in batches, each with its items and their sizes; no sizes: all are small."""
    data = hot_path.payloads(items, limit)  # type: ignore[type-var]  # it looks what they are
    if data is not None:
        body = bodies.pack(data)
        yield PackedBatch(len(items), body, crc32c(body), items[0].topic, None, None), items, []
        return
    for run in split(rows(items), limit):
        yield pack(run), run.items, run.sizes


def rows(items: list[T]) -> MessageRows[T]:
    """The columns of `items`, which have no sequence yet."""
    data = [item.value for item in items]
    times = [item.time for item in items if item.extra is None]  # cheaper than a list of extras
    extras = None
    if len(times) < len(items):
        times = [item.time for item in items]
        extras = [_NOTHING if item.extra is None else encoded(item.extra) for item in items]
    timed = None if times.count(None) == len(times) else times
    sizes = list(map(len, data))  # type: ignore[arg-type]
    if extras is not None:
        sizes = [size + one.size for size, one in zip(sizes, extras, strict=True)]
    topics = [item.topic for item in items]
    return MessageRows(items, data, topics, timed, sizes, extras, _only(topics))  # type: ignore[arg-type]


def _only(names: list[str]) -> str | None:
    return names[0] if names.count(names[0]) == len(names) else None


def split(rows: MessageRows[T], limit: int = BATCH_BYTES) -> Iterator[MessageRows[T]]:
    """`rows` in runs that fit one batch each: bytes, and topics and columns in the header.

    A message larger than `limit` is alone.
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


def _part(rows: MessageRows[T], start: int, end: int) -> MessageRows[T]:
    times = None if rows.times is None else rows.times[start:end]
    extras = None if rows.extras is None else rows.extras[start:end]
    topics = rows.topics[start:end]
    return MessageRows(
        rows.items[start:end], rows.data[start:end], topics, times, rows.sizes[start:end], extras,
        _only(topics),
    )  # fmt: skip


def _by_time(rows: MessageRows[T]) -> Iterator[MessageRows[T]]:
    """Runs in which all messages have a time of their own, or none has: a column has no blanks."""
    if rows.times is None or None not in rows.times:
        yield from _by_mandatory(rows)
        return
    start = 0
    for without, run in groupby(rows.times, key=lambda time: time is None):
        end = start + len(list(run))
        part = _part(rows, start, end)
        yield from _by_mandatory(part._replace(times=None) if without else part)
        start = end


def _by_mandatory(rows: MessageRows[T]) -> Iterator[MessageRows[T]]:
    """Runs of messages that are all mandatory, or none is: a publish says it of all that it has."""
    if rows.extras is None or not any(one.mandatory for one in rows.extras):
        yield from _by_header(rows)
        return
    start = 0
    for _, run in groupby(rows.extras, key=lambda one: one.mandatory):
        end = start + len(list(run))
        yield from _by_header(_part(rows, start, end))
        start = end


def _by_header(rows: MessageRows[T]) -> Iterator[MessageRows[T]]:
    """Halves `rows` until their topics and columns fit a header."""
    if _header_bytes(rows) <= TABLES_BYTES:
        yield rows
        return
    half = len(rows.items) // 2
    yield from _by_header(_part(rows, 0, half))
    yield from _by_header(_part(rows, half, len(rows.items)))


def _header_bytes(rows: MessageRows[T]) -> int:
    """At most so many bytes do topics and columns take. One message always fits."""
    count = len(rows.items)
    size = 0 if rows.times is None else 8 * count
    if rows.topic is None:
        size += 2 * count + sum(len(name.encode()) + ITEM_OVERHEAD for name in set(rows.topics))
    if rows.extras is not None:
        size += 10 * count + sum([one.size for one in rows.extras])  # two nils, the expiry
    return size


def pack(rows: MessageRows[T]) -> PackedBatch:
    """One batch of all of `rows`, which are a run of `split`."""
    body = bodies.pack(rows.data)
    topics, index = (None, None) if rows.topic is not None else _topic_columns(rows.topics)
    time = None if rows.times is None else bodies.to_little(array("q", rows.times))  # type: ignore[arg-type]
    columns = None if index is None and time is None else Columns(index=index, time=time)
    if rows.extras is not None:
        columns = _put_extras(columns or Columns(), rows.extras)
    made = PackedBatch(len(rows.items), body, crc32c(body), rows.topic, topics, columns)
    made.mandatory = rows.extras is not None and rows.extras[0].mandatory
    return made


def _topic_columns(names: list[str]) -> tuple[list[str], bytes]:
    """The table of topics and which of them each message has."""
    topics = list(dict.fromkeys(names))
    number = {name: i for i, name in enumerate(topics)}
    index = array("H", list(map(number.__getitem__, names)))
    return topics, bodies.to_little(index)


def _put_extras(columns: Columns, extras: list[Encoded]) -> Columns | None:
    """`columns` with one more for each kind that a message has; None if there is none."""
    keys = [one.key for one in extras]
    if keys.count(None) < len(keys):
        columns.keys = _encode(keys)
    headers = [one.headers for one in extras]
    if headers.count(_NOTHING.headers) < len(headers):
        columns.headers = _encode(headers)
    expiry = [one.expires_ns for one in extras]
    if any(expiry):
        columns.expiry = bodies.to_little(array("q", expiry))
    return columns if columns != Columns() else None
