"""Messages as a subscriber gets them: light objects that point into their batch.

A batch is decoded once, in C; a Message holds its payload and its index and works the rest out
when it is asked for. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count, repeat
from typing import Final, TypeVar

import google_crc32c
from msgspec import Struct

from zbroker.clock import to_datetime
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin, format_bookmark
from zbroker.wire import bodies as packed
from zbroker.wire.messages import Columns, Msg
from zbroker.wire.queue_messages import Job

_NO_COLUMNS: Final = Columns()
T = TypeVar("T")


class MessageHead(Struct, gc=False):
    """What the messages of one batch have in common, and their columns."""

    publisher: int
    sequence: int  # of the message with index `first`
    position: int  # likewise
    first: int
    origin: Origin
    time_ns: int
    topic: str | None
    topics: Sequence[str]
    index: Sequence[int] | None
    times: Sequence[int] | None
    offsets: Sequence[int] | None
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[packed.Headers | None] | None = None
    expiry: Sequence[int] | None = None

    def offset(self, i: int) -> int:
        """How far message `i` of the body is from the first one that counts."""
        return i - self.first if self.offsets is None else self.offsets[i]


class Message(Struct, gc=False, eq=False, frozen=True):
    """One message: `data`, and by property topic, sequence, position, time, publisher, bookmark,
    and what its publisher gave it: key, headers, expires.

    A message of a topic that is not recorded (`recorded` is False) has no place in the log: its
    position is 0, its bookmark "", its time is when the broker passed it on.
    """

    _head: MessageHead
    data: bytes
    _i: int

    @property
    def topic(self) -> str:
        head = self._head
        if head.index is not None:
            return head.topics[head.index[self._i]]
        return head.topic or ""

    @property
    def publisher(self) -> int:
        """The publisher's id: what `zbroker.ids.publisher_id` makes of its name."""
        return self._head.publisher

    @property
    def sequence(self) -> int:
        """Its number in its publisher's line."""
        head = self._head
        if head.offsets is None:
            return head.sequence + self._i - head.first
        return head.sequence + head.offsets[self._i]

    @property
    def recorded(self) -> bool:
        """False for a message that is not in the log, because its topic is not recorded."""
        return self._head.position != 0

    @property
    def position(self) -> int:
        """Its place in the log of its origin; 0 if it is not recorded."""
        return self._head.position and self._head.position + self._head.offset(self._i)

    @property
    def origin(self) -> Origin:
        """The instance and generation that accepted it first, whose positions these are."""
        return self._head.origin

    @property
    def bookmark(self) -> str:
        """Names this message on every instance; a subscription can start after it.

        "" if it is not recorded.
        """
        if not self._head.position:
            return ""
        return format_bookmark(self._head.publisher, self.sequence)

    @property
    def time_ns(self) -> int:
        """Its log time in nanoseconds since 1970 UTC."""
        head = self._head
        return head.time_ns if head.times is None else head.times[self._i]

    @property
    def time(self) -> datetime:
        """Its log time, aware, to the microsecond."""
        return to_datetime(self.time_ns)

    @property
    def key(self) -> bytes | None:
        """The key that its publisher gave it."""
        keys = self._head.keys
        return None if keys is None else keys[self._i]

    @property
    def headers(self) -> dict[str, str | int | float | bool | bytes | None]:
        """The headers that its publisher gave it; empty if none."""
        headers = self._head.headers
        return {} if headers is None else headers[self._i] or {}

    @property
    def expires_ns(self) -> int | None:
        """When it expires, in nanoseconds since 1970 UTC; None: never. A replay sends it anyway."""
        expiry = self._head.expiry
        return None if expiry is None else expiry[self._i] or None

    @property
    def expires(self) -> datetime | None:
        """When it expires, aware, to the microsecond; None: never. A replay sends it anyway."""
        ns = self.expires_ns
        return None if ns is None else to_datetime(ns)

    def __repr__(self) -> str:
        name = self.bookmark or "not recorded"
        return f"Message({self.topic!r}, {name!r}, {self.data[:64]!r})"


def decode(msg: Msg, body: bytes, own: Origin, body_max: int) -> list[Message]:
    """The messages of a batch that count. `own` is the origin of what names none.

    Raises: ZBrokerError bad_checksum, bad_frame or too_large; nothing of such a batch is used.
    """
    bodies = opened(msg, body, body_max)
    return list(map(Message, repeat(head_of(msg, own)), bodies, count(msg.skip)))


def taken_apart(messages: list[Message]) -> tuple[MessageHead, list[int], list[bytes]]:
    """The head, the indexes and the payloads of messages that came together, at least one."""
    return (
        messages[0]._head,
        [message._i for message in messages],
        [message.data for message in messages],
    )


def opened(msg: Msg | Job, body: bytes, body_max: int) -> list[bytes]:
    """The payloads of a batch that count. Raises: as `decode`."""
    if msg.crc is not None and google_crc32c.value(body) != msg.crc:
        raise ZBrokerError(
            "bad_checksum", f"{_name(msg)} was changed on its way", "subscribe again"
        )
    bodies = packed.unpack(body, msg.codec, msg.count, body_max)
    first, last = msg.skip, len(bodies) if msg.take is None else msg.skip + msg.take
    if not first < last <= len(bodies):
        raise bad_batch(msg, f"messages {first} to {last} of {len(bodies)} should count")
    return bodies[first:last] if last - first < len(bodies) else bodies


def head_of(msg: Msg | Job, own: Origin) -> MessageHead:
    """What its messages have in common. Raises: ZBrokerError bad_frame."""
    columns = msg.columns or _NO_COLUMNS
    origin, position = own, msg.position
    if msg.origin is not None:
        origin, position = Origin(msg.origin[0], msg.origin[1]), msg.origin[2]
    return MessageHead(
        publisher=msg.publisher,
        sequence=msg.seq,
        position=position,
        first=msg.skip,
        origin=origin,
        time_ns=msg.time_ns,
        topic=msg.topic or (msg.topics[0] if msg.topics else None),
        topics=msg.topics or (),
        index=_index(msg, columns.index),
        times=_column(msg, packed.times, columns.time),
        offsets=_column(msg, packed.offsets, columns.offset),
        keys=_array(msg, packed.keys, columns.keys),
        headers=_array(msg, packed.headers, columns.headers),
        expiry=_array(msg, packed.expiry, columns.expiry),
    )


def _column(
    msg: Msg | Job, read: Callable[[bytes], Sequence[int]], raw: bytes | None
) -> Sequence[int] | None:
    """A column: one integer per message of the body."""
    if raw is None:
        return None
    try:
        column = read(raw)
    except ValueError:  # not a whole number of integers
        column = ()
    if len(column) != msg.count:
        raise bad_batch(msg, f"a column has {len(raw)} bytes for {msg.count} messages")
    return column


def _array(
    msg: Msg | Job, read: Callable[[bytes, int], Sequence[T]], raw: bytes | None
) -> Sequence[T] | None:
    """A column that is an array of msgpack: one item per message of the body."""
    if raw is None:
        return None
    try:
        return read(raw, msg.count)
    except ZBrokerError as error:
        raise bad_batch(msg, error.reason) from None


def _index(msg: Msg | Job, raw: bytes | None) -> Sequence[int] | None:
    index = _column(msg, packed.indexes, raw)
    if index is not None and max(index) >= len(msg.topics or ()):
        raise bad_batch(msg, "a message has a topic that is not in the table")
    return index


def bad_batch(msg: Msg | Job, why: str) -> ZBrokerError:
    return ZBrokerError("bad_frame", f"{_name(msg)}: {why}", "report it: the broker sent it")


def _name(msg: Msg | Job) -> str:
    place = f"at position {msg.position}" if msg.position else f"from sequence {msg.seq} on"
    return f"the batch {place}"
