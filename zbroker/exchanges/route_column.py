"""The column of a batch that says to which queues its messages go: `Routes` as bytes. Pure.

    column 10   queues u16, sets u16
                for each queue: length of its name u16, name UTF-8, life: created ns u64,
                instance u64, generation u32; ascending
                for each set: how many u16, the numbers of its queues u16 each; ascending
                for each message of the body: the number of its set u16; left out if there is
                one set, which is that of all

    little-endian

The instance that took the messages has decided it, and no other one decides it again. Messages are
counted as in the body, so the same bytes hold for a batch with leading or trailing messages left
out. A tie has the routes of the copy that it represents: of its own messages, in their order.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from zbroker.exchanges.exchange import BoundQueue
from zbroker.limits import BATCH_COUNT_MAX, NAME_MAX_BYTES, U63_MAX
from zbroker.log.format import COLUMN_ROUTES, FLAG_SHOWS, Batch
from zbroker.log.queue_records import QueueDeclaration
from zbroker.wire.bodies import indexes, to_little

QUEUES_MAX: Final = 1_000  # of one batch: its header has a table of them
SET_QUEUES_MAX: Final = 30_000  # in all sets of one batch
SETS_MAX: Final = BATCH_COUNT_MAX  # each message has one
KNOWN_MAX: Final = 16  # columns that were decoded lately: all queues that a batch names look at it

_HEAD: Final = struct.Struct("<HH")
_U16: Final = struct.Struct("<H")
_LIFE: Final = struct.Struct("<QQI")


class Routes(NamedTuple):
    """Where the messages of a batch go.

    queues: the table of all queues, sorted. sets: each a sorted run of indexes into `queues`; no
    two are equal. column: for each message, which of the sets it has (u16); the empty one: it is
    unroutable.
    """

    queues: tuple[BoundQueue, ...]
    sets: tuple[tuple[int, ...], ...]
    column: array[int]

    @property
    def unroutable(self) -> list[int]:
        """The messages that go to no queue, by index."""
        if () not in self.sets:
            return []
        empty = self.sets.index(())
        return [at for at, number in enumerate(self.column) if number == empty]

    def queues_of(self, at: int) -> list[BoundQueue]:
        """Those of one message."""
        return [self.queues[number] for number in self.sets[self.column[at]]]

    def part(self, first: int, end: int) -> Routes:
        """The same of messages `first` to `end` (exclusive), without what they do not need."""
        column = self.column[first:end]
        used = list(dict.fromkeys(column))
        queues = sorted({number for each in used for number in self.sets[each]})
        numbers = {old: new for new, old in enumerate(queues)}
        places = {old: new for new, old in enumerate(used)}
        return Routes(
            tuple(self.queues[number] for number in queues),
            tuple(tuple(numbers[number] for number in self.sets[each]) for each in used),
            array("H", map(places.__getitem__, column)),
        )


def encode(routes: Routes) -> bytes:
    """The bytes of the column. Raises: ValueError, for a life with numbers that do not fit."""
    parts = [_HEAD.pack(len(routes.queues), len(routes.sets))]
    parts += map(_queue_bytes, routes.queues)
    for each in routes.sets:
        parts += (_U16.pack(len(each)), to_little(array("H", each)))
    if len(routes.sets) != 1:
        parts.append(to_little(routes.column))
    return b"".join(parts)


@lru_cache(QUEUES_MAX)
def _queue_bytes(queue: BoundQueue) -> bytes:
    """The bytes of one queue; most batches name a few of the same ones."""
    text = queue.name.encode()
    try:
        return _U16.pack(len(text)) + text + _LIFE.pack(*queue.life)
    except struct.error as error:
        raise ValueError(f"a queue cannot be written: {error}") from None


def decode(data: bytes, count: int) -> Routes:
    """The routes of a batch with `count` messages in its body.

    Raises: ValueError, for anything that `encode` does not make of such a batch.
    """
    if not 0 < count <= BATCH_COUNT_MAX:
        raise ValueError(f"{count} messages have no routes")
    reader = _ColumnReader(data)
    queue_count, set_count = reader.head()
    if queue_count > QUEUES_MAX or not 0 < set_count <= min(count, SETS_MAX):
        raise ValueError(f"{queue_count} queues in {set_count} sets for {count} messages")
    queues = tuple(reader.queue() for _ in range(queue_count))
    _ascending(queues, "queues")
    sets, left = [], SET_QUEUES_MAX
    for _ in range(set_count):
        each = reader.numbers(reader.u16(left))
        _ascending(each, "numbers of a set")
        if each and each[-1] >= queue_count:
            raise ValueError(f"there is no queue {each[-1]}")
        left -= len(each)
        sets.append(tuple(each))
    if len(set(sets)) < set_count:
        raise ValueError("a set is there twice")
    column = reader.numbers(count) if set_count != 1 else array("H", bytes(2 * count))
    if max(column) >= set_count:
        raise ValueError(f"there is no set {max(column)}")
    reader.end()
    return Routes(queues, tuple(sets), column)


def _ascending(found: Sequence[BoundQueue] | Sequence[int], what: str) -> None:
    if any(a >= b for a, b in pairwise(found)):  # type: ignore[operator]
        raise ValueError(f"{what} are not ascending")


class _ColumnReader:
    """Takes one thing after the other. Each raises: ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise ValueError("the column is too short")
        self._at += size
        return found

    def head(self) -> tuple[int, int]:
        queues, sets = _HEAD.unpack(self._take(_HEAD.size))
        return queues, sets

    def u16(self, most: int) -> int:
        number: int = _U16.unpack(self._take(_U16.size))[0]
        if number > most:
            raise ValueError(f"{number} is more than {most}")
        return number

    def numbers(self, count: int) -> array[int]:
        return indexes(self._take(2 * count))

    def queue(self) -> BoundQueue:
        name = self._take(self.u16(NAME_MAX_BYTES)).decode()  # UnicodeDecodeError is a ValueError
        created_ns, instance, generation = _LIFE.unpack(self._take(_LIFE.size))
        if not name or created_ns > U63_MAX:
            raise ValueError("a queue has a name, and was made at a time")
        return BoundQueue(name, QueueDeclaration(created_ns, instance, generation))

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes follow")


# -- what readers ask -----------------------------------------------------------------------------


RoutedName = tuple[str, tuple[int, int, int]]  # a BoundQueue, or what is equal to one


class RoutedMessages:
    """The messages of each queue, by index in the body, ascending."""

    def __init__(self, routes: Routes) -> None:
        self._numbers: dict[RoutedName, int] = {
            queue: number for number, queue in enumerate(routes.queues)
        }
        self._in_sets: list[list[int]] = [[] for _ in routes.sets]
        for at, number in enumerate(routes.column):
            self._in_sets[number].append(at)
        self._sets_of: list[list[int]] = [[] for _ in routes.queues]
        for number, each in enumerate(routes.sets):
            for queue in each:
                self._sets_of[queue].append(number)

    @property
    def queues(self) -> Iterable[RoutedName]:
        """All that one of the messages goes to."""
        return self._numbers

    def of(self, queues: Iterable[RoutedName]) -> list[int]:
        """The messages that go to one of these: the names that one queue has."""
        known = (self._numbers.get(queue) for queue in queues)
        sets = {each for number in known if number is not None for each in self._sets_of[number]}
        if len(sets) == 1:
            return self._in_sets[sets.pop()]
        return sorted(at for number in sets for at in self._in_sets[number])


_known: Final[dict[tuple[bytes, int], RoutedMessages | None]] = {}


def routed(batch: Batch) -> RoutedMessages | None:
    """What the column of a batch says, decoded once for all who ask; None: it has none, or one
    that cannot be read, which a newer release may have written."""
    data = next((data for tag, data in batch.extra if tag == COLUMN_ROUTES), None)
    if data is None:
        return None
    key = data, batch.count
    if key not in _known:
        if len(_known) >= KNOWN_MAX:
            _known.clear()
        try:
            _known[key] = RoutedMessages(decode(data, batch.count))
        except ValueError:
            _known[key] = None
    return _known[key]


def part(extra: Iterable[tuple[int, bytes]], count: int, first: int, end: int) -> list[
    tuple[int, bytes]
]:  # fmt: skip
    """The column for messages `first` to `end` of a body of `count`, if there is one that can be
    read."""
    for tag, data in extra:
        if tag == COLUMN_ROUTES:
            try:
                return [(tag, encode(decode(data, count).part(first, end)))]
            except ValueError:
                return []
    return []


def wrong(extra: Iterable[tuple[int, bytes]], count: int, flags: int) -> str:
    """Why a record with these columns, of a peer, is not taken; "" if it may be."""
    data = [data for tag, data in extra if tag == COLUMN_ROUTES]
    if not data:
        return ""
    if len(data) > 1 or flags & FLAG_SHOWS:
        return f"column {COLUMN_ROUTES} is there once, and of messages"
    try:
        decode(data[0], count)
    except ValueError as error:
        return f"column {COLUMN_ROUTES} cannot be: {error}"
    return ""
