"""Messages as a subscriber gets them: a batch of columns, and light objects that point into it.

A batch is decoded once, in C; one whose payloads all have one length only if its reader looks at
payloads, since its body shows where they are. Its messages are made when somebody looks at them; a
Message holds its payload and its sequence, and works the rest out of these when it is asked for.
Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, Final, TypeVar, overload

from msgspec import Struct

from zbroker.checksums import crc32c
from zbroker.clock import to_datetime
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin, format_bookmark
from zbroker.wire import bodies as packed
from zbroker.wire.messages import Columns, Msg
from zbroker.wire.queue_messages import Job

if TYPE_CHECKING:
    import pyarrow as pa

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

    def index_of(self, sequence: int) -> int:
        """The index in the body of the message with this sequence."""
        offset = sequence - self.sequence
        if self.offsets is None:
            return self.first + offset
        return bisect_left(self.offsets, offset)

    def numbered(self, number: int, at: Sequence[int]) -> Sequence[int]:
        """The numbers of messages `at` of the body, if `number` is that of message `first`."""
        if (offsets := self.offsets) is not None:
            return [number + offsets[i] for i in at]
        begin = number - self.first
        if isinstance(at, range):
            return range(begin + at.start, begin + at.stop, at.step)
        return [begin + i for i in at]


class Message(Struct, gc=False, eq=False, frozen=True):
    """One message: `data`, and by property topic, position, time, publisher, bookmark, and what
    its publisher gave it: key, headers, expires. sequence: its number in its publisher's line.

    A message of a topic that is not recorded (`recorded` is False) has no place in the log: its
    position is 0, its bookmark "", its time is when the broker passed it on.
    """

    _head: MessageHead
    data: bytes
    sequence: int

    @property
    def _i(self) -> int:
        """Its index in the body of its batch."""
        return self._head.index_of(self.sequence)

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
    def recorded(self) -> bool:
        """False for a message that is not in the log, because its topic is not recorded."""
        return self._head.position != 0

    @property
    def position(self) -> int:
        """Its place in the log of its origin; 0 if it is not recorded."""
        head = self._head
        return head.position and head.position + self.sequence - head.sequence

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


class PayloadUse(Struct):
    """Whether the reader of a subscription looks at payloads; then they are unpacked as they come
    in, which is faster than later: 0.94 of the time of a loop over messages."""

    payloads: bool = False


class StridedPayloads(Struct, frozen=True, gc=False):
    """Payloads of one length where they are in the body of their batch, which has `count`."""

    plain: packed.Body
    count: int
    at: range  # which of them count
    stride: packed.Stride
    use: PayloadUse

    def unpacked(self) -> list[bytes]:
        """Each of those that count."""
        self.use.payloads = True
        return _cut(packed.unpacked(self.plain, self.count), self.at)

    def one(self, index: int) -> bytes:
        """One of them."""
        start = self.stride.first + self.at[index] * self.stride.step
        return bytes(self.plain[start : start + self.stride.length])


class MessageBatch(Sequence[Message]):
    """Messages that were published together, in order. Each one is made when it is asked for.

    A loop over `data`, over `sequences` or what `to_arrow` gives costs a fraction of a loop over
    messages. head: what they have in common.
    """

    __slots__ = ("_at", "_data", "_made", "_sequences", "_strided", "head")

    def __init__(
        self, head: MessageHead, data: list[bytes] | StridedPayloads, at: Sequence[int] | None,
        made: list[Message] | None = None,
    ) -> None:  # fmt: skip
        """at: their indexes in the body, or what was made of them."""
        self.head = head
        self._data: list[bytes] = data if isinstance(data, list) else []
        self._strided = None if isinstance(data, list) else data
        self._at, self._made = at, made
        self._sequences: Sequence[int] | None = None

    @classmethod
    def of(cls, messages: list[Message]) -> MessageBatch:
        """These messages themselves, at least one; what they are taken from is gone."""
        return cls(messages[0]._head, [message.data for message in messages], None, messages)

    @property
    def data(self) -> list[bytes]:
        """Their payloads."""
        if (strided := self._strided) is not None:  # other threads may do the same
            self._data = strided.unpacked()
            self._strided = None
        return self._data

    @property
    def strided(self) -> StridedPayloads | None:
        """Where they are in the body, until `data` is asked for, if all have one length."""
        return self._strided

    @property
    def size(self) -> int:
        """How many bytes its payloads have."""
        strided = self._strided
        return sum(map(len, self.data)) if strided is None else len(self) * strided.stride.length

    def messages(self) -> list[Message]:
        """All of them; a list that it was made of is that list."""
        return list(self) if self._made is None else self._made

    @property
    def sequences(self) -> Sequence[int]:
        """Their numbers in their publisher's line, rising."""
        if self._sequences is None:
            if self._made is not None:
                self._sequences = [message.sequence for message in self._made]
            else:
                self._sequences = self.head.numbered(self.head.sequence, self.at)
        return self._sequences

    @property
    def at(self) -> Sequence[int]:
        """Their indexes in the body."""
        if self._at is None:
            self._at = [self.head.index_of(sequence) for sequence in self.sequences]
        return self._at

    @property
    def positions(self) -> Sequence[int]:
        """Their places in the log of their origin, rising; zeros if they are not recorded."""
        head = self.head
        return head.numbered(head.position, self.at) if head.position else [0] * len(self)

    def after_sequence(self, sequence: int) -> MessageBatch:
        """Those with a higher one."""
        return self[bisect_right(self.sequences, sequence) :]

    def after_position(self, position: int) -> MessageBatch:
        """Those with a higher one. They are recorded."""
        return self[bisect_right(self.positions, position) :]

    def to_arrow(self) -> pa.RecordBatch:
        """A record batch: topic, publisher, sequence, position, timestamp, payload.

        The names and types are those of the Spark source. Raises: ZBrokerError missing_package.
        """
        try:
            from zbroker.client.record_batch import record_batch
        except ImportError as error:
            hint = "install pyarrow and numpy"
            raise ZBrokerError("missing_package", str(error), hint) from None
        return record_batch(self)

    def __len__(self) -> int:
        if (strided := self._strided) is not None:
            return len(strided.at)
        return len(self.data)

    def __iter__(self) -> Iterator[Message]:
        if self._made is not None:
            return iter(self._made)
        return map(Message, repeat(self.head), self.data, self.sequences)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> MessageBatch: ...

    def __getitem__(self, index: int | slice) -> Message | MessageBatch:
        made = self._made
        if isinstance(index, slice):
            if made is not None:
                return MessageBatch(self.head, self.data[index], None, made[index])
            return MessageBatch(self.head, self.data[index], self.at[index])
        if made is not None:
            return made[index]
        strided = self._strided
        data = self.data[index] if strided is None else strided.one(index)
        return Message(self.head, data, self.sequences[index])

    def __repr__(self) -> str:
        return f"MessageBatch({len(self)} messages)"


NO_MESSAGES: Final = MessageBatch(
    MessageHead(0, 0, 0, 0, Origin(0, 0), 0, None, (), None, None, None), [], range(0)
)


UNPACKED: Final = PayloadUse(payloads=True)


def decode(
    msg: Msg, body: packed.Body, own: Origin, body_max: int, use: PayloadUse = UNPACKED
) -> MessageBatch:
    """The messages of a batch that count. `own` is the origin of what names none.

    use: of its reader, to which the batch adds what that does with it.
    Raises: ZBrokerError bad_checksum, bad_frame or too_large; nothing of such a batch is used.
    """
    plain, at = _plain(msg, body, body_max), _counting(msg)
    head, count = head_of(msg, own), msg.count
    if not use.payloads and (stride := packed.stride_of(plain, count)) is not None:
        return MessageBatch(head, StridedPayloads(plain, count, at, stride, use), at)
    return MessageBatch(head, _cut(packed.unpacked(plain, count), at), at)


def opened(msg: Msg | Job, body: packed.Body, body_max: int) -> list[bytes]:
    """The payloads of a batch that count. Raises: as `decode`."""
    return _cut(packed.unpacked(_plain(msg, body, body_max), msg.count), _counting(msg))


def _plain(msg: Msg | Job, body: packed.Body, body_max: int) -> packed.Body:
    if msg.crc is not None and crc32c(body) != msg.crc:
        raise ZBrokerError(
            "bad_checksum", f"{_name(msg)} was changed on its way", "subscribe again"
        )
    return packed.inflate(body, msg.codec, body_max)


def _counting(msg: Msg | Job) -> range:
    """The indexes of the messages that count."""
    first, end = msg.skip, msg.count if msg.take is None else msg.skip + msg.take
    if not first < end <= msg.count:
        raise bad_batch(msg, f"messages {first} to {end} of {msg.count} should count")
    return range(first, end)


def _cut(payloads: list[bytes], at: range) -> list[bytes]:
    return payloads if len(at) == len(payloads) else payloads[at.start : at.stop]


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
        offsets=_offsets(msg, columns.offset),
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


def _offsets(msg: Msg | Job, raw: bytes | None) -> Sequence[int] | None:
    offsets = _column(msg, packed.offsets, raw)
    if offsets is not None and list(offsets) != sorted(offsets):
        raise bad_batch(msg, "the offsets do not rise")
    return offsets


def bad_batch(msg: Msg | Job, why: str) -> ZBrokerError:
    return ZBrokerError("bad_frame", f"{_name(msg)}: {why}", "report it: the broker sent it")


def _name(msg: Msg | Job) -> str:
    place = f"at position {msg.position}" if msg.position else f"from sequence {msg.seq} on"
    return f"the batch {place}"
