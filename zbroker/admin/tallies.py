"""How much of each topic a log holds: counted batch by batch, forgotten segment by segment. Pure.

    take(items, serial)     batches of a segment, in order; without bodies
    forget(first_position)  segments below it were removed
    rows()                  every topic with what the log holds of it

The counts of each segment are kept, so that they can be subtracted when it is removed. At
ENTRIES_MAX the two oldest segments are kept as one, which is taken off with the newer of them.
Bytes are those of packed bodies, as they are stored; of a batch of several topics each topic has
its share by messages, and the times of the batch.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, first_time, last_time

TOPICS_MAX: Final = 100_000  # names that are counted; 30 MB
ENTRIES_MAX: Final = 1_000_000  # of all segments together; 32 MB


@dataclass(slots=True)
class TopicTally:
    """Counts of a topic. bytes: packed; times: ns since 1970; last: the position of its newest."""

    topic: str
    messages: int
    bytes: int
    first_time: int
    last_time: int
    last: int

    def add(self, later: TopicTally) -> None:
        """Adds counts of later messages."""
        self.messages += later.messages
        self.bytes += later.bytes
        self.last_time, self.last = later.last_time, later.last


@dataclass(slots=True)
class _SegmentTable:
    """Counts of a segment, which ends at position `end`, as columns."""

    end: int
    topics: list[str] = field(default_factory=list)
    messages: array[int] = field(default_factory=lambda: array("q"))
    bytes: array[int] = field(default_factory=lambda: array("q"))
    first_time: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.topics)

    def add(self, topic: str, messages: int, size: int, first: int) -> None:
        """One more topic."""
        self.topics.append(topic)
        self.messages.append(messages)
        self.bytes.append(size)
        self.first_time.append(first)

    def rows(self) -> Iterator[tuple[str, int, int, int]]:
        """Topic, messages, bytes, first time."""
        return zip(self.topics, self.messages, self.bytes, self.first_time, strict=True)


class Tallies:
    """Counts of a log. position: everything before it is counted. full: some topics are not."""

    def __init__(self) -> None:
        self.position = 0
        self.full = False
        self._serial = 0
        self._newest: dict[str, TopicTally] = {}
        self._older: dict[str, TopicTally] = {}
        self._tables: list[_SegmentTable] = []

    def take(self, items: Iterable[Batch | Gap], serial: int) -> None:
        """What follows in the segment `serial`, which is the one of before or a newer one."""
        if serial != self._serial:
            self._seal()
            self._serial = serial
        for item in items:
            if isinstance(item, Gap):
                self.position = item.end
                continue
            self.position = item.end_position
            if item.kind == KIND_PUBLISH:
                self._take(item)

    def _take(self, batch: Batch) -> None:
        first, last, at = first_time(batch), last_time(batch), batch.end_position - 1
        index = batch.columns.index if batch.columns is not None else None
        if len(batch.topics) == 1 or index is None:
            taken, size = batch.taken, batch.body_length
            self._add(TopicTally(batch.topics[0], taken, size, first, last, at))
            return
        numbers = array("H", index)[batch.skip : batch.count - batch.cut]
        ends = {number: place for place, number in enumerate(numbers)}
        for number, count in Counter(numbers).items():
            share = batch.body_length * count // batch.count
            end = batch.position + ends[number]
            self._add(TopicTally(batch.topics[number], count, share, first, last, end))

    def _add(self, more: TopicTally) -> None:
        topic = more.topic
        known = self._newest.get(topic)
        if known is not None:
            known.add(more)
        elif topic in self._older or len(self._older) + len(self._newest) < TOPICS_MAX:
            self._newest[topic] = more
        else:
            self.full = True

    # -- segments -------------------------------------------------------------------------------

    def _seal(self) -> None:
        """Nothing more comes to the newest segment."""
        table = _SegmentTable(self.position)
        for topic, one in self._newest.items():
            table.add(topic, one.messages, one.bytes, one.first_time)
            if topic in self._older:
                self._older[topic].add(one)
            else:
                self._older[topic] = one
        self._newest = {}
        if table.topics:
            self._tables.append(table)
        while len(self._tables) > 1 and sum(map(len, self._tables)) > ENTRIES_MAX:
            self._tables[:2] = [_joined(*self._tables[:2])]

    def forget(self, first_position: int) -> None:
        """Subtracts the counts of segments that end at or before it."""
        going = [table for table in self._tables if table.end <= first_position]
        if not going:
            return
        del self._tables[: len(going)]
        touched: set[str] = set()
        for topic, messages, size, _ in (row for table in going for row in table.rows()):
            one = self._older[topic]
            one.messages -= messages
            one.bytes -= size
            touched.add(topic)
        self._begin_later({topic for topic in touched if not self._dropped(topic)})

    def _dropped(self, topic: str) -> bool:
        if self._older[topic].messages:
            return False
        del self._older[topic]
        return True

    def _begin_later(self, topics: set[str]) -> None:
        """Their first messages are gone: the next ones are in later segments."""
        for table in self._tables:
            if not topics:
                return
            for topic, _, _, first in table.rows():
                if topic in topics:
                    topics.discard(topic)
                    self._older[topic].first_time = first

    # -- reading --------------------------------------------------------------------------------

    def rows(self) -> Iterator[TopicTally]:
        """Every topic, in no order."""
        for topic, one in self._older.items():
            both = replace(one)
            if topic in self._newest:
                both.add(self._newest[topic])
            yield both
        yield from (replace(one) for topic, one in self._newest.items() if topic not in self._older)

    def check(self) -> None:
        """Asserts what is always true."""
        counted: Counter[str] = Counter()
        for table in self._tables:
            for topic, messages, _, _ in table.rows():
                counted[topic] += messages
        assert counted == {topic: one.messages for topic, one in self._older.items()}
        assert len(set(self._older) | set(self._newest)) <= TOPICS_MAX


def _joined(one: _SegmentTable, later: _SegmentTable) -> _SegmentTable:
    found = {topic: row for topic, *row in one.rows()}
    for topic, messages, size, first in later.rows():
        before = found.get(topic, [0, 0, first])
        found[topic] = [before[0] + messages, before[1] + size, before[2]]
    table = _SegmentTable(later.end)
    for topic, (messages, size, first) in found.items():
        table.add(topic, messages, size, first)
    return table
