"""Which messages of a batch are recorded, and the parts of one kind that it is cut into. Pure.

Most batches stay whole: clients publish one topic at a time, or all topics are recorded. Only here
is a body packed again on its way to the log: the log's batches have consecutive sequences, and
unrecorded messages must not be in them.

Content is examined only here, each message alone, whatever batch it came in. A payload that is not
of its type is not recorded: no filter is true for it. A batch in which no message can match is
recognized by a search in its bytes, and not unpacked.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import Final, NamedTuple

from msgspec.structs import replace

from zbroker.checksums import crc32c
from zbroker.exchanges import route_column
from zbroker.recording import RecordFilter, Recording
from zbroker.wire import bodies
from zbroker.wire.internal import Entry
from zbroker.wire.messages import Columns, Publish

_NONE: Final = Columns()


class BatchPart(NamedTuple):
    """Consecutive messages that are all recorded, or all not."""

    recorded: bool
    entry: Entry
    body: bytes


class Splitter:
    """Cuts batches by what is recorded."""

    def __init__(self, recording: Recording, max_bytes: int) -> None:
        """max_bytes: of a body without its compression."""
        self.contents = Contents(recording)
        self._kind = recording.kind
        self._max_bytes = max_bytes

    def split(
        self, entry: Entry, body: bytes, messages: list[bytes] | None = None
    ) -> list[BatchPart]:
        """The runs of a checked batch, in order; a batch of one kind as it is.

        `prev` of a recorded run is the last recorded message before it, as far as that is in this
        batch. messages: those of `body`, if they are unpacked already.
        """
        kinds = [self._kind(topic) for topic in entry.topics]
        column = entry.columns.index if entry.columns is not None else None
        if None not in kinds and (column is None or len(set(kinds)) == 1):
            return [BatchPart(bool(kinds[0]), entry, body)]
        index = bodies.indexes(column) if column is not None else bytes(entry.count)
        opened = Messages(entry, body, self._max_bytes, messages)
        recorded = [kinds[at] for at in index]
        if None in kinds:
            self.contents.decide(recorded, index, entry, opened)
        runs = [(bool(kind), len(list(run))) for kind, run in groupby(recorded)]
        if len(runs) == 1:
            return [BatchPart(runs[0][0], entry, body)]
        return _cut(entry, opened.all, index, runs)


def _cut(
    entry: Entry, messages: list[bytes], index: Sequence[int], runs: list[tuple[bool, int]]
) -> list[BatchPart]:
    """The batch in pieces. runs: (recorded, number of messages)."""
    column = entry.columns.time if entry.columns is not None else None
    times = bodies.times(column) if column is not None else None
    extras = bodies.extras(entry.columns, entry.count)
    parts, first, prev = [], 0, entry.prev
    for recorded, count in runs:
        end = first + count
        plain = bodies.pack(messages[first:end])
        topics, columns = _columns(entry.topics, index[first:end], times and times[first:end])
        if extras is not None:
            extras.put(columns, range(first, end))
        part = replace(
            entry, seq=entry.seq + first, count=count, prev=prev, crc=crc32c(plain), codec=None,
            topics=topics, columns=columns if columns != _NONE else None,
            routes=_routes(entry, first, end),
        )  # fmt: skip
        parts.append(BatchPart(recorded, part, plain))
        if recorded:
            prev = entry.seq + end - 1
        first = end
    return parts


def _routes(entry: Entry, first: int, end: int) -> bytes:
    if not entry.routes:
        return b""
    return route_column.encode(route_column.decode(entry.routes, entry.count).part(first, end))


def _columns(
    names: list[str], index: Sequence[int], times: array[int] | None
) -> tuple[list[str], Columns]:
    """The topics that are left, in order of appearance, and the columns that go with them."""
    if len(names) == 1 and times is None:
        return names, Columns()
    place = {old: new for new, old in enumerate(dict.fromkeys(index))}
    columns = Columns()
    if len(place) > 1:
        columns.index = bodies.to_little(array("H", [place[at] for at in index]))
    if times is not None:
        columns.time = bodies.to_little(times)
    return [names[at] for at in place], columns


class Messages:
    """The messages of a body, unpacked at the first use."""

    def __init__(
        self, entry: Entry, body: bytes, max_bytes: int, messages: list[bytes] | None = None
    ) -> None:
        """A checked body of at most `max_bytes` without its compression."""
        self._entry, self._body, self._max_bytes = entry, body, max_bytes
        if messages is not None:
            self.all = messages

    @cached_property
    def plain(self) -> bodies.Body:
        """The packed body without its compression."""
        return bodies.inflate(self._body, self._entry.codec, self._max_bytes)

    @cached_property
    def all(self) -> list[bytes]:
        """All of them, in order."""
        return bodies.unpack(self.plain, None, self._entry.count, self._max_bytes)


class Contents:
    """Decides by content, and counts.

    filtered: messages that a filter kept out of the log. unreadable: those of them whose payload is
    not what its type says, as far as they were unpacked. A message that comes again counts again.
    """

    def __init__(self, recording: Recording) -> None:
        self.filtered = 0
        self.unreadable = 0
        self._recording = recording

    def decide(
        self, recorded: list[bool | None], index: Sequence[int], entry: Entry, messages: Messages
    ) -> None:
        """Puts True or False into `recorded` where it says None.

        index: for each message, which of the topics of `entry` it has.
        """
        about = About(entry.topics, index, entry)
        for content, topics in self._deciders(entry.topics).items():
            at: Sequence[int] = range(entry.count)
            if len(topics) < len(entry.topics):
                at = [n for n, topic in enumerate(index) if topic in topics]
            picked = self._picked(content, at, messages, about)
            for n in at:
                recorded[n] = n in picked

    def _deciders(self, topics: list[str]) -> dict[RecordFilter, set[int]]:
        """The filters, each with the topics it decides over; topics without one are left out."""
        deciders: dict[RecordFilter, set[int]] = {}
        for number, topic in enumerate(topics):
            if self._recording.kind(topic) is None:
                deciders.setdefault(self._recording.content(topic), set()).add(number)
        return deciders

    def _picked(
        self, content: RecordFilter, at: Sequence[int], messages: Messages, about: About
    ) -> set[int]:
        if not content.maybe(messages.plain):
            self.filtered += len(at)
            return set()
        picked, unreadable = content.look(messages.all, at, about)
        self.filtered += len(at) - len(picked)
        self.unreadable += unreadable
        return picked


class About:
    """The metadata of messages that have no place in the log yet, for filters.

    A time is there only if its publisher gave one (0 else), so that the answer stays the same when
    the message comes again.
    """

    def __init__(self, topics: Sequence[str], index: Sequence[int], batch: Entry | Publish) -> None:
        """index: for each message, which of the topics it has."""
        self._topics, self._index, self._batch = topics, index, batch
        self._single = batch if isinstance(batch, Publish) and batch.count is None else None
        self._headers = bodies.HeaderColumn(batch.columns, len(index))
        self._keys = bodies.KeyColumn(batch.columns, len(index))

    def topic(self, i: int) -> str:
        """Its topic."""
        return self._topics[self._index[i]]

    def time_ns(self, i: int) -> int:
        """The time that its publisher gave; 0 without one."""
        columns = self._batch.columns
        if columns is not None and columns.time is not None:
            return bodies.times(columns.time[8 * i : 8 * i + 8])[0]
        return self._batch.time_ns or 0

    def bookmark(self, _i: int) -> str:
        """There is none before it is recorded."""
        return ""

    def header(self, i: int, name: str) -> object:
        """The header that its publisher gave."""
        if self._single is None:
            return self._headers.value(i, name)
        value = (self._single.headers or {}).get(name)
        return None if value is None else bodies.scalar(value)

    def key(self, i: int) -> bytes | None:
        """The key that its publisher gave."""
        return self._keys.of(i) if self._single is None else self._single.key
