"""Performs the effects of the core that need messages of the log. Pure.

What may be large is read slice by slice, one a turn: a slice ends as soon as so many bytes were
read and decoded or sent. All bytes that were read count, also where the messages of a queue are far
apart in the log; a slice ends with a batch, so one turn takes at most a batch more.
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
from zbroker.ids import Origin
from zbroker.limits import KIB
from zbroker.log.reader import Extent
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
from zbroker.queues.message_finder import Finder, FoundMessages, Reads, render
from zbroker.wire.queue_messages import Job

SLICE_BYTES: Final = 256 * KIB  # of what filters look at


class Slice:
    """The first batches of `many`, until `most` bytes were read and handled.

    end: messages before this position were read, or cannot be.
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
    """How a filter is asked. see FoundMessages.matching."""

    type_of: Callable[[str], str]
    payloads: Callable[..., Any]


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
        self._builder: FrameBuilder | None = None
        self._read_to = 0  # messages of queues were read, so they are before that
        self.performers: dict[type, Callable[[Any], Any]] = {
            Read: self._read,
            Give: self.give,
            Examine: self._guarded(self._examine),
            Search: self._guarded(self._search),
            Reenter: self._guarded(self._reenter),
            Inspect: self._guarded(self._inspect),
            ForgetBlocks: self._forget,
            ListSegments: self._list,
        }

    def begin(self, here: Origin, persisted: int) -> None:
        """The log is this one; the tables know it up to `persisted` at most."""
        self._builder, self._read_to = FrameBuilder(here, Job), persisted

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
        """Sends what can be read, until its bytes_max."""
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
        assert self._builder is not None, "queues begin after the tables were loaded"
        size = 0
        for found in part:
            for send, one in render(self._builder, give, found, sees_all=self._sees_all):
                size += one
                part.handled(one)
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
        hits, part = BitMap64(), Slice(many, effect.positions, SLICE_BYTES)
        for found in part:
            hits |= found.matching(effect.filter, *self._matcher)
            part.handled(_decoded(found))
        return Examined(effect.job, hits, part.end)

    def _search(self, effect: Search, many: Iterable[FoundMessages]) -> Searched:
        part = Slice(many, effect.positions, SLICE_BYTES)
        for found in part:
            hits = found.matching(effect.filter, *self._matcher)
            if hits:
                return Searched(effect.job, hits.min(), hits.min() + 1)
            part.handled(_decoded(found))
        return Searched(effect.job, None, part.end)

    def _reenter(self, effect: Reenter, many: Iterable[FoundMessages]) -> Reentered:
        entered = [effect.queue.entered_of(found) for found in many]
        return Reentered(effect.job, [each for each in entered if each is not None])

    def _inspect(self, effect: Inspect, many: Iterable[FoundMessages]) -> Inspected:
        rows: list[InspectedMessage] = []
        part = Slice(many, effect.positions, effect.bytes_max)
        for found in part:
            rows += found.rows()
            part.handled(_decoded(found))
        return Inspected(effect.job, rows, part.end)


def _decoded(found: FoundMessages) -> int:
    """Bytes of its batch, all of which was decoded."""
    return sum(map(len, found.block.unpacked(found.at)))
