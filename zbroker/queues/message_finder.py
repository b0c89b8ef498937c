"""Messages of the log by their positions: the blocks that hold them, and what is made of them.

A frame for a consumer has the body as it is, or packed again. Only where no access rules hold may
it have more messages in it than those that count.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from pyroaring import BitMap64

from zbroker.blocks.frame_builder import Block, FrameBuilder, Projection
from zbroker.blocks.read_request import Read
from zbroker.engine.effects import Send
from zbroker.filters import Filter
from zbroker.limits import KIB
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor
from zbroker.queues.effects import Give, InspectedMessage
from zbroker.wire import bodies
from zbroker.wire.queue_messages import Job

BLOCK_BYTES: Final = 256 * KIB
HINTS_MAX: Final = 65_536  # then every second one is forgotten
STEPS_MAX: Final = 8  # blocks read in a row to get to a place; then it is searched for


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

    def matching(
        self, content: Filter, type_of: Callable[[str], str], payloads: Callable[..., Any]
    ) -> BitMap64:
        """The positions of messages that a filter is true for.

        type_of: how payloads of a topic are read; payloads: what decodes them.
        """
        about = self.block.about(self.at)
        by_type: dict[str, list[int]] = {}
        for pick in self.picks:
            by_type.setdefault(type_of(about.topic(pick)), []).append(pick)
        hits = BitMap64()
        for type_, picks in by_type.items():
            data = payloads(type_, self.block.unpacked(self.at))
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


class Reads(Protocol):
    """Where blocks are read: zbroker.blocks.block_reader.BlockReader."""

    def read(self, read: Read) -> Block:
        """Raises: StorageError."""


class Finder:
    """Where to read what. `reading`: shared with the fold of the log."""

    def __init__(self, reading: Reads) -> None:
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


# -- what is made of them -------------------------------------------------------------------------


def render(
    maker: FrameBuilder, give: Give, found: FoundMessages, *, sees_all: bool
) -> Iterator[tuple[Send, int]]:
    """The frames that have messages of one batch for a consumer, each with its bytes of credit.

    sees_all: no access rules hold, so a body may be sent whole if most of it is wanted.
    """
    dress = None
    if give.barrier or give.deliveries is not None or give.acked is not None:
        dress = _dress(give, found)
    look = Projection(_plain, give.to.zstd, dress=dress)
    for frame in maker.picked(found.block, found.at, found.picks, look, sees_all=sees_all):
        header = frame.before + give.to.sid_packed + frame.after
        yield Send(give.to.rid, header, frame.body), frame.size


def _plain(topic: str) -> str:
    raise AssertionError(f"nothing is rewritten of {topic}")


def _dress(give: Give, found: FoundMessages) -> Callable[[Any, Sequence[int]], None]:
    """Adds to a header what the queue knows of the messages."""

    def dress(job: Job, picks: Sequence[int]) -> None:
        job.barrier = give.barrier
        positions = [found.first + pick for pick in picks]
        if give.deliveries is not None:
            at = give.positions.rank(positions[0] - 1)
            counts = give.deliveries[at : at + len(positions)]
            if max(counts) > 1:
                job.deliveries = bodies.to_little(array("H", [min(n, 65_535) for n in counts]))
        if give.acked:
            job.acked = bytes(position in give.acked for position in positions)

    return dress
