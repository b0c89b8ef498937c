"""Conflation: per interval of time only the newest message of each key. Pure.

    interval   |----- n -----|---- n+1 ----|        number = log time // interval
    messages    a1 b1 a2 b2 a3   b3 a4
    sent                     a3(a1) b2(b1)  b3 a4   newest (under whose position and bookmark)

The picture is of log time: there intervals are the same whatever a replay began with, so the same
messages give the same result. A message whose log time went back belongs to the interval that is
open. By the clock of the replay an interval begins with the first message that is held, and ends so
much later on a clock that the caller reads, however old the messages are. The message sent for a
key has the content and time of its newest message in the interval and the identity of its first;
keys come in the order of those, so positions rise, also over intervals. A resume point must stay
before `oldest_position`.

Memory is bounded: where a message would bring what is held over `KEYS_MAX` or `HELD_MAX_BYTES`,
the interval ends early for those, which is counted; the rest of it is conflated again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.msgpack import Ext

from zbroker.blocks.frame_builder import Block, Held, MessagePlace
from zbroker.errors import ZBrokerError
from zbroker.formats import decode
from zbroker.limits import MIB
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

KEYS_MAX: Final = 65_536  # of one subscription; each takes about half a KiB beside its bytes
HELD_MAX_BYTES: Final = 32 * MIB  # payloads and keys of one subscription, or one larger message

_DEPTH_MAX: Final = 32  # of a value in a key; what nests deeper is never merged
_INT_MAX: Final = (1 << 61) - 2  # larger ones can be chosen so that thousands have one hash
_LONG_AGO: Final = -(1 << 64)

_NO_COLUMNS: Final = Columns()

Path = Callable[[Any], Any]  # the value of a decoded payload at a place; None if there is none


class BatchMessages(NamedTuple):
    """The messages of one batch, by index.

    place: asked once for each key of an interval. value: the decoded payload; asked only where
    a key has paths; may raise ZBrokerError for a payload that is not what its type says.
    extra: key, headers and expiry; None if no message of the batch has any.
    """

    data: Sequence[bytes]
    times: Sequence[int]  # log time, ns
    topics: Sequence[str]
    place: Callable[[int], MessagePlace]
    value: Callable[[int], Any]
    extra: Callable[[int], Columns | None] | None = None


def messages_of(block: Block, at: int, type_of: Callable[[str], str]) -> BatchMessages:
    """The messages of a batch as conflation looks at them."""
    batch, data = block.batch(at), block.unpacked(at)
    columns = batch.columns or Columns()
    index = bodies.indexes(columns.index) if columns.index is not None else None
    topics = [batch.topics[i] for i in index] if index is not None else batch.topics * len(data)
    times = bodies.times(columns.time) if columns.time is not None else [batch.log_time] * len(data)
    extras = bodies.extras(batch.columns, batch.count)
    origin = batch.origin_instance, batch.origin_generation, batch.origin_position

    def place(i: int) -> MessagePlace:
        ahead = i - batch.skip
        at = (*origin[:2], origin[2] + ahead) if origin[0] else None
        return MessagePlace(batch.position + ahead, batch.publisher, batch.sequence + ahead, at)

    def extra(i: int) -> Columns | None:
        found = Columns()
        if extras is not None:
            extras.put(found, (i,))
        return found if found != _NO_COLUMNS else None

    def value(i: int) -> object:
        return decode(type_of(topics[i]), data[i])

    return BatchMessages(data, times, topics, place, value, extra if extras is not None else None)


class Conflation:
    """The messages that one subscription holds back.

    end_ns: when the open interval is over, by its clock; long ago before the first message.
    closed_early: how often a limit ended an interval. by_replay: its clock is that of the replay,
    not the log time of messages. seen: the newest log time of the last messages, and when that was
    by the clock of the replay.
    """

    def __init__(
        self, interval_ns: int, paths: Sequence[Path] = (), *, by_replay: bool = False
    ) -> None:
        """paths: the fields that make a key together with the topic; none: the topic alone.

        A message that has none of these fields, or is not what its type says, is a key of its
        own: it waits for the end of the interval like all others and is never merged.
        """
        assert interval_ns > 0
        self.closed_early = 0
        self.by_replay = by_replay
        self.seen = (0, 0)
        self._interval_ns = interval_ns
        self._paths = tuple(paths)
        self.end_ns = _LONG_AGO
        self._held: dict[Hashable, _Newest] = {}
        self._size = 0

    @property
    def oldest_position(self) -> int | None:
        """Position of the first message that is held; None if none is."""
        for newest in self._held.values():
            return newest.first.position
        return None

    def add(self, messages: BatchMessages, at: Iterable[int], now_ns: int = 0) -> list[Held]:
        """Takes in those messages whose indices are in `at`, in order.

        now_ns: by the clock of the replay. Returns: messages whose interval is over.
        """
        due = self.flush() if self.by_replay and self.is_over(now_ns) else []
        times, topics = messages.times, messages.topics
        for i in at:
            if self.by_replay:
                if not self._held:
                    self.end_ns = now_ns + self._interval_ns
            elif times[i] >= self.end_ns:
                due += self.flush()
                self.end_ns = (times[i] // self._interval_ns + 1) * self._interval_ns
            key = self._key(messages, i) if self._paths else topics[i]
            due += self._hold(key, messages, i)
        return due

    def prolong(self, now_ns: int) -> None:
        """Keeps the open interval open, since held messages could not be sent."""
        self.end_ns = max(self.end_ns, now_ns + 1)

    def is_over(self, now_ns: int) -> bool:
        """True if something is held and its interval is over; no message to come is older."""
        return bool(self._held) and now_ns >= self.end_ns

    def due(self, now_ns: int) -> list[Held]:
        """Messages that are due because time went on without another one."""
        return self.flush() if self.is_over(now_ns) else []

    def flush(self) -> list[Held]:
        """Everything that is held: its interval is over."""
        since = self.oldest_position or 0
        due = [
            Held(one.first, one.topic, one.time_ns, one.data, since, one.extra)
            for one in self._held.values()
        ]
        self._held, self._size = {}, 0
        return due

    def forget(self) -> None:
        """Drops all held messages: they are read again."""
        self._held, self._size, self.end_ns = {}, 0, _LONG_AGO

    def check(self) -> None:
        """Asserts what is always true."""
        assert len(self._held) <= KEYS_MAX
        assert self._size <= HELD_MAX_BYTES or len(self._held) == 1
        sizes = [_size_of(key) + newest.size for key, newest in self._held.items()]
        assert self._size == sum(sizes)

    def _hold(self, key: Hashable, messages: BatchMessages, i: int) -> list[Held]:
        """Makes a message the newest of its key; returns those that are sent to make it fit."""
        data, time_ns = messages.data[i], messages.times[i]
        extra = messages.extra(i) if messages.extra is not None else None
        taken = bodies.credit_bytes(data, extra)
        newest = self._held.get(key)
        if newest is not None:
            more = taken - newest.size
            if self._size + more <= HELD_MAX_BYTES:
                newest.data, newest.time_ns, newest.extra = data, time_ns, extra
                self._size += more
                return []
        size = taken + _size_of(key)
        due: list[Held] = []
        if self._size + size > HELD_MAX_BYTES or len(self._held) == KEYS_MAX:
            self.closed_early += bool(self._held)
            due = self.flush()
        self._held[key] = _Newest(messages.place(i), messages.topics[i], time_ns, data, extra)
        self._size += size
        return due

    def _key(self, messages: BatchMessages, i: int) -> Hashable:
        """The topic and the values of the fields, or something that equals nothing else."""
        parts: list[Hashable] = [messages.topics[i]]
        found = False
        try:
            value = messages.value(i)
            for path in self._paths:
                part = path(value)
                if part is not None:
                    found = True
                    part = _hashable(part)
                parts.append(part)
        except (ZBrokerError, _TooDeep):
            return object()
        return tuple(parts) if found else object()


class _Newest(Struct):
    """The newest message of a key, under the place of its first one."""

    first: MessagePlace
    topic: str
    time_ns: int
    data: bytes
    extra: Columns | None

    @property
    def size(self) -> int:
        """Bytes of what belongs to the newest message."""
        return bodies.credit_bytes(self.data, self.extra)


class _TooDeep(Exception):
    """A value nests too deep to be compared."""


def _hashable(value: object) -> Hashable:
    """Equal for values that are the same in JSON or msgpack: 1 and 1.0 are, 1 and true are not.

    Values other than text and small whole numbers become bytes, which differ from all of those,
    and which take about as much memory as a map or a list takes in the payload.
    Raises: _TooDeep.
    """
    if type(value) is str or (type(value) is int and -_INT_MAX <= value <= _INT_MAX):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) <= _INT_MAX:
        return int(value)
    return _text(value, _DEPTH_MAX).encode()


def _text(value: object, depth: int) -> str:
    """One text for each value, whatever the order of its maps.

    Raises: _TooDeep.
    """
    if not depth:
        raise _TooDeep
    match value:
        case dict():
            pairs = (f"{_text(k, depth - 1)}:{_text(v, depth - 1)}" for k, v in value.items())
            return "{" + ",".join(sorted(pairs)) + "}"
        case list() | tuple():
            return "[" + ",".join(_text(item, depth - 1) for item in value) + "]"
        case float() if value.is_integer():
            return repr(int(value))
        case Ext():
            return f"Ext({value.code},{value.data!r})"
    return repr(value)


def _size_of(key: Hashable) -> int:
    """Bytes of what a key is made of."""
    if isinstance(key, tuple):
        return sum(map(_size_of, key))
    return len(key) if isinstance(key, str | bytes) else 0
