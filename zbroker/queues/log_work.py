"""Performs what the core wants of messages in the log: reads, sends, asks filters. Pure.

What may be large is read slice by slice, one a turn: a slice ends as soon as so many bytes were
read and decoded or sent. What was read counts, also where the messages of a queue stand far apart
in the log; a slice ends with a batch, so one turn takes at most a batch more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pyroaring import BitMap64

from zbroker.blocks.frame_builder import FrameBuilder
from zbroker.blocks.read_request import BlockRead, Read
from zbroker.engine.effects import ForgetBlocks, Send
from zbroker.engine.events import ReadFailed
from zbroker.errors import StorageError
from zbroker.filters import Filter
from zbroker.ids import Origin
from zbroker.limits import KIB
from zbroker.log.reader import Extent
from zbroker.queues import message_finder
from zbroker.queues.effects import (
    Examine,
    Examined,
    Give,
    Given,
    Inspect,
    Inspected,
    InspectedMessage,
    ListSegments,
    LogReading,
    Reenter,
    Reentered,
    Search,
    Searched,
    Segments,
    Unsent,
)
from zbroker.queues.message_finder import Finder, FoundMessages, Reads
from zbroker.queues.queue_state import entered_of
from zbroker.wire.queue_messages import Job

SLICE_BYTES: Final = 256 * KIB  # of what filters look at


class Slice:
    """The first batches of `many`, until `most` bytes were read and handled.

    end: what stands before this position was read, or cannot be.
    """

    def __init__(self, many: Iterable[FoundMessages], positions: BitMap64, most: int) -> None:
        """many: the batches of these positions."""
        self._many, self._last, self._left = many, positions.max(), most
        self.end = positions.min()

    def __iter__(self) -> Iterator[FoundMessages]:
        block = None
        for found in self._many:
            yield found
            if found.block is not block:
                block = found.block
                self._left -= block.size
            if self._left <= 0:
                self.end = found.positions.max() + 1
                return
        self.end = self._last + 1

    def handled(self, size: int) -> None:
        """So many bytes were decoded or sent."""
        self._left -= size


class Matcher(NamedTuple):
    """How a filter is asked. type_of: how payloads of a topic are read; payloads: made of them."""

    type_of: Callable[[str], str]
    payloads: Callable[..., Any]

    def hits(self, found: FoundMessages, content: Filter) -> BitMap64:
        """The messages that it is true for."""
        return message_finder.matching(found, content, self.type_of, self.payloads)


class LogSource(Reads, Protocol):
    """The whole of it."""

    @property
    def extents(self) -> Sequence[Extent]:
        """The segments of the log."""

    def reset(self) -> None:
        """Forgets what was read."""

    def let_go(self) -> None:
        """Closes files."""


class LogWork:
    """Performs the effects of the queues core for which the log is read.

    send: False if the peer is not connected any more. sending: notes what is about to be sent.
    sees_all: no access rules hold.
    """

    def __init__(
        self, source: LogSource, send: Callable[[Send], bool], matcher: Matcher,
        sending: Callable[[Give], None], *, sees_all: bool,
    ) -> None:  # fmt: skip
        self._source, self._finder = source, Finder(source)
        self._send, self._sending = send, sending
        self._matcher, self._sees_all = matcher, sees_all
        self._giving: message_finder.Renderer | None = None
        self._read_to = 0  # what is in a queue was read, so it stands before that
        self.performers: dict[type, Callable[[Any], Any]] = {
            Read: self._read,
            Give: self.give,
            Examine: self._guarded(self._examine),
            Search: self._guarded(self._search),
            Reenter: self._guarded(self._reenter),
            Inspect: self._guarded(self._look),
            ForgetBlocks: self._forget,
            ListSegments: self._list,
        }

    def begin(self, here: Origin, persisted: int) -> None:
        """The log is this one; what the tables know of stands before `persisted`."""
        self._giving, self._read_to = message_finder.Renderer(FrameBuilder(here, Job)), persisted

    def _read(self, read: Read) -> BlockRead | ReadFailed | None:
        try:
            block = self._source.read(read)
        except StorageError as error:
            return ReadFailed(read, error)
        if not block.items:
            return None
        self._read_to = max(self._read_to, read.limit)
        self._finder.note(block)
        return BlockRead(read, block)

    def _find(self, positions: BitMap64) -> Iterator[FoundMessages]:
        """What can be read of messages; the rest is damaged or gone. Raises: StorageError."""
        return self._finder.find(positions, self._read_to)

    def _forget(self, _effect: ForgetBlocks) -> None:
        self._source.reset()
        self._finder.forget()

    def _list(self, effect: ListSegments) -> Segments:
        if effect.let_go:
            self._source.let_go()
        return Segments(self._source.extents)

    def give(self, give: Give) -> Given | Unsent | ReadFailed:
        """Sends what can be read, until its bytes_max. What was not sent is not lost."""
        self._sending(give)
        unread = give.positions.copy()
        part = Slice(self._find(give.positions), give.positions, give.bytes_max)
        try:
            size = self._send_part(give, part, unread)
        except StorageError as error:
            return ReadFailed(give.part(unread), error)
        if size is None:
            return Unsent(give.rid, give, unread)
        return Given(give, size, unread, part.end)

    def _send_part(self, give: Give, part: Slice, unread: BitMap64) -> int | None:
        """Bytes of credit; None: the consumer is gone. Takes what was sent out of `unread`."""
        assert self._giving is not None, "queues begin after the tables were loaded"
        size = 0
        for found in part:
            parts = self._giving.parts(give, found, sees_all=self._sees_all)
            for send, one in zip(message_finder.sends(give, parts), parts, strict=True):
                size += one.size
                part.handled(one.size)
                if not self._send(send):
                    return None
            unread -= found.positions
        return size

    def _guarded(
        self, read: Callable[[Any, Iterator[FoundMessages]], object]
    ) -> Callable[[LogReading], object]:
        def guarded(effect: LogReading) -> object:
            try:
                return read(effect, self._find(effect.positions))
            except StorageError as error:
                return ReadFailed(effect, error)

        return guarded

    def _examine(self, effect: Examine, many: Iterable[FoundMessages]) -> Examined:
        return Examined(effect.job, *_examined(effect, many, self._matcher))

    def _search(self, effect: Search, many: Iterable[FoundMessages]) -> Searched:
        return Searched(effect.job, *_searched(effect, many, self._matcher))

    def _reenter(self, effect: Reenter, many: Iterable[FoundMessages]) -> Reentered:
        entered = [entered_of(effect.queue, found) for found in many]
        return Reentered(effect.job, [each for each in entered if each is not None])

    def _look(self, effect: Inspect, many: Iterable[FoundMessages]) -> Inspected:
        rows: list[InspectedMessage] = []
        part = Slice(many, effect.positions, effect.bytes_max)
        for found in part:
            rows += message_finder.looked(found)
            part.handled(_decoded(found))
        return Inspected(effect.job, rows, part.end)


def _examined(
    effect: Examine, many: Iterable[FoundMessages], matcher: Matcher
) -> tuple[BitMap64, int]:
    """What matches, and the position behind what was examined."""
    hits, part = BitMap64(), Slice(many, effect.positions, SLICE_BYTES)
    for found in part:
        hits |= matcher.hits(found, effect.filter)
        part.handled(_decoded(found))
    return hits, part.end


def _searched(
    search: Search, many: Iterable[FoundMessages], matcher: Matcher
) -> tuple[int | None, int]:
    """The first that matches, if one does; and the position behind what was examined."""
    part = Slice(many, search.positions, SLICE_BYTES)
    for found in part:
        hits = matcher.hits(found, search.filter)
        if hits:
            return hits.min(), hits.min() + 1
        part.handled(_decoded(found))
    return None, part.end


def _decoded(found: FoundMessages) -> int:
    """Bytes of its batch, all of which was decoded."""
    return sum(map(len, found.block.unpacked(found.at)))
