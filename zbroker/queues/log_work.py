"""Performs the effects of the core that need messages of the log. Pure.

What may be large is read slice by slice, one a turn: a slice ends as soon as so many bytes were
read and decoded or sent. All bytes that were read count, also where the messages of a queue are far
apart in the log; a slice ends with a batch, so one turn takes at most a batch more.

Messages are found by their positions: the blocks that hold them are read once for all. A frame for
a consumer has the body as it is, or packed again. Only where no access rules hold may it have more
messages in it than those that count.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol

from pyroaring import BitMap64

from zbroker.blocks.frame_builder import Block, FrameBuilder, Projection
from zbroker.blocks.read_request import BlockRead, Read
from zbroker.engine.effects import ForgetBlocks, Send
from zbroker.engine.events import ReadFailed
from zbroker.errors import StorageError
from zbroker.filters import Filter, Payloads
from zbroker.ids import Origin
from zbroker.limits import KIB
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor, Extent
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
from zbroker.wire import bodies
from zbroker.wire.queue_messages import Job

BLOCK_BYTES: Final = 256 * KIB
HINTS_MAX: Final = 65_536  # then every second one is forgotten
STEPS_MAX: Final = 8  # blocks read in a row to get to a place; then it is searched for
SLICE_BYTES: Final = 256 * KIB  # of what filters look at


class LogSource(Protocol):
    """Where blocks are read: zbroker.blocks.block_reader.BlockReader."""

    def read(self, read: Read) -> Block:
        """Raises: StorageError."""

    @property
    def extents(self) -> Sequence[Extent]:
        """The segments of the log."""

    def reset(self) -> None:
        """Forgets what was read."""

    def let_go(self) -> None:
        """Closes files."""


class LogWork:
    """Performs the effects of the queues core for which the log is read.

    send: False if the peer is not connected any more. type_of: how filters read payloads of a
    topic. sending: notes what is about to be sent.
    sees_all: no access rules hold.
    """

    def __init__(
        self, source: LogSource, send: Callable[[Send], bool], type_of: Callable[[str], str],
        sending: Callable[[Give], None], *, sees_all: bool,
    ) -> None:  # fmt: skip
        self._source, self._finder = source, Finder(source)
        self._send, self._sending = send, sending
        self._type_of, self._sees_all = type_of, sees_all
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

    def begin(self, announced: Origin, persisted: int) -> None:
        """announced: see Load. The tables know the log up to `persisted` at most."""
        self._builder, self._read_to = FrameBuilder(announced, Job), persisted

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
            hits |= found.matching(effect.filter, self._type_of)
            part.handled(_decoded(found))
        return Examined(effect.job, hits, part.end)

    def _search(self, effect: Search, many: Iterable[FoundMessages]) -> Searched:
        part = Slice(many, effect.positions, SLICE_BYTES)
        for found in part:
            hits = found.matching(effect.filter, self._type_of)
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


class FoundMessages:
    """Messages of one batch: item `at` of `block`, and which of its body, in order.

    first: the position that the first message of the body has.
    """

    __slots__ = ("at", "batch", "block", "first", "picks", "positions")

    def __init__(self, block: Block, at: int, batch: Batch, positions: BitMap64) -> None:
        self.block, self.at, self.batch, self.positions = block, at, batch, positions
        self.first = first = batch.position - batch.skip
        low, high = positions.min(), positions.max()
        self.picks: range | list[int]
        if high - low + 1 == len(positions):
            self.picks = range(low - first, high - first + 1)
        else:
            self.picks = [position - first for position in positions]

    def matching(self, content: Filter, type_of: Callable[[str], str]) -> BitMap64:
        """The positions of messages that a filter is true for. type_of: see LogWork."""
        about = self.block.about(self.at)
        by_type: dict[str, list[int]] = {}
        for pick in self.picks:
            by_type.setdefault(type_of(about.topic(pick)), []).append(pick)
        hits = BitMap64()
        for type_, picks in by_type.items():
            data = Payloads(type_, self.block.unpacked(self.at))
            hits |= BitMap64(
                [self.first + pick for pick in content.test(type_).picks(data, picks, about)]
            )
        return hits

    def rows(self) -> list[InspectedMessage]:
        """The messages one by one, as they were published."""
        batch, about = self.batch, self.block.about(self.at)
        messages, headers = self.block.unpacked(self.at), self.block.headers(self.at)
        keys: Sequence[bytes | None] = [None] * batch.count
        if batch.columns is not None and batch.columns.keys is not None:
            keys = bodies.keys(batch.columns.keys, batch.count)
        return [
            InspectedMessage(
                self.first + pick, about.topic(pick), batch.publisher,
                batch.sequence + pick - batch.skip, about.time_ns(pick), messages[pick],
                keys[pick], headers.of(pick),
            )
            for pick in self.picks
        ]  # fmt: skip


class Finder:
    """Where to read what. `reading`: shared with the fold of the log."""

    def __init__(self, reading: LogSource) -> None:
        self._reading = reading
        self._positions = array("q")
        self._cursors: list[Cursor] = []
        self._last: Block | None = None  # the next find mostly goes on there

    def forget(self) -> None:
        """The journal was started again: files may differ."""
        self._positions, self._cursors, self._last = array("q"), [], None

    def note(self, block: Block) -> None:
        """A block was read: its place is known without looking for it."""
        position = block.start.position
        at = bisect_right(self._positions, position)
        if at and self._positions[at - 1] == position:
            return
        self._positions.insert(at, position)
        self._cursors.insert(at, block.start)
        if len(self._cursors) > HINTS_MAX:
            self._positions, self._cursors = self._positions[::2], self._cursors[::2]

    def find(self, positions: BitMap64, limit: int) -> Iterator[FoundMessages]:
        """What can be read of these messages, batch by batch. Raises: StorageError."""
        left = positions
        while left:
            block = self._block(left.min(), limit)
            if block is None:
                return
            part = left[: left.rank(block.next.position - 1)]
            left = left[len(part) :]
            yield from _of_block(block, part)

    def _block(self, position: int, limit: int) -> Block | None:
        """The block that holds `position`; it may not be there any more."""
        last = self._last
        if last is not None and last.start.position <= position < last.next.position:
            return last
        at = bisect_right(self._positions, position) - 1
        seek = at < 0
        cursor = Cursor(0, 0, position) if seek else self._cursors[at]
        steps = 0
        while True:
            block = self._reading.read(Read(0, cursor, seek, limit, BLOCK_BYTES))
            if not block.items:
                return None
            self.note(block)
            if block.next.position > position:
                self._last = block
                return block
            steps += 1
            seek = steps == STEPS_MAX
            cursor = Cursor(0, 0, position) if seek else block.next


def _of_block(block: Block, part: BitMap64) -> Iterator[FoundMessages]:
    """The batches of a block that hold some of `part`."""
    low, last = part.min(), part.max()
    for at, item in enumerate(block.items):
        if not isinstance(item, Batch) or item.kind != KIND_PUBLISH:
            continue
        end = item.end_position
        if end <= low:
            continue
        if item.position > last:
            return
        if item.position <= low and last < end:
            yield FoundMessages(block, at, item, part)
            return
        mine = part[part.rank(item.position - 1) : part.rank(end - 1)]
        if mine:
            yield FoundMessages(block, at, item, mine)


def render(
    maker: FrameBuilder, give: Give, found: FoundMessages, *, sees_all: bool
) -> Iterator[tuple[Send, int]]:
    """The frames that have messages of one batch for a consumer, each with its bytes of credit.

    sees_all: no access rules hold, so a body may be sent whole if most of it is wanted.
    """
    dress = None
    if give.barrier or give.deliveries is not None or give.acked is not None:
        dress = partial(_dress, give, found)
    look = Projection(zstd=give.to.zstd, dress=dress)
    for frame in maker.picked(found.block, found.at, found.picks, look, sees_all=sees_all):
        header = frame.before + give.to.sid_packed + frame.after
        yield Send(give.to.rid, header, frame.body), frame.size


def _dress(give: Give, found: FoundMessages, job: Any, picks: Sequence[int]) -> None:  # noqa: ANN401
    """Adds to a header what the queue knows of the messages."""
    job.barrier = give.barrier
    positions = [found.first + pick for pick in picks]
    if give.deliveries is not None:
        at = give.positions.rank(positions[0] - 1)
        counts = give.deliveries[at : at + len(positions)]
        if max(counts) > 1:
            job.deliveries = bodies.to_little(array("H", [min(n, 65_535) for n in counts]))
    if give.acked:
        job.acked = bytes(position in give.acked for position in positions)
