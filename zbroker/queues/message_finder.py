"""Messages of the log by their positions: which block holds them, read once for all who ask."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from pyroaring import BitMap64

from zbroker.blocks.frame_builder import Block, Frame, FrameBuilder, Projection
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
STEPS_MAX: Final = 8  # blocks read one behind the other to get to a place; then it is searched for


class FoundMessages:
    """Messages of one batch: item `at` of `block`, and which of its body, in order."""

    __slots__ = ("at", "batch", "block", "picks", "positions")

    def __init__(self, block: Block, at: int, batch: Batch, positions: BitMap64) -> None:
        self.block, self.at, self.batch, self.positions = block, at, batch, positions
        first = batch.position - batch.skip
        low, high = positions.min(), positions.max()
        self.picks: range | list[int]
        if high - low + 1 == len(positions):
            self.picks = range(low - first, high - first + 1)
        else:
            self.picks = [position - first for position in positions]


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
        """The journal was started anew: files may differ."""
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


def _plain(topic: str) -> str:
    raise AssertionError(f"nothing is rewritten of {topic}")


class Renderer:
    """For one origin. sees_all: no access rules hold."""

    def __init__(self, maker: FrameBuilder) -> None:
        self._maker = maker

    def parts(self, give: Give, found: FoundMessages, *, sees_all: bool) -> tuple[Frame, ...]:
        """The messages of one batch for a consumer."""
        dress = None
        if give.barrier or give.deliveries is not None or give.acked is not None:
            dress = _dress(give, found.batch)
        look = Projection(_plain, give.to.zstd, dress=dress)
        return self._maker.picked(found.block, found.at, found.picks, look, sees_all=sees_all)


def sends(give: Give, parts: Sequence[Frame]) -> list[Send]:
    """The frames of parts for a consumer."""
    sid, rid = give.to.sid_packed, give.to.rid
    return [Send(rid, part.before + sid + part.after, part.body) for part in parts]


def _dress(give: Give, batch: Batch) -> Callable[[Any, Sequence[int]], None]:
    """What is said of messages besides what they are."""
    first = batch.position - batch.skip

    def dress(job: Job, picks: Sequence[int]) -> None:
        job.barrier = give.barrier
        positions = [first + pick for pick in picks]
        if give.deliveries is not None:
            at = give.positions.rank(positions[0] - 1)
            counts = give.deliveries[at : at + len(positions)]
            if max(counts) > 1:
                job.deliveries = bodies.to_little(array("H", [min(n, 65_535) for n in counts]))
        if give.acked is not None and give.acked:
            job.acked = bytes(position in give.acked for position in positions)

    return dress


def matching(
    found: FoundMessages,
    content: Filter,
    type_of: Callable[[str], str],
    payloads: Callable[..., Any],
) -> BitMap64:
    """The positions of messages that a filter is true for."""
    batch, about = found.batch, found.block.about(found.at)
    first = batch.position - batch.skip
    by_type: dict[str, list[int]] = {}
    for pick in found.picks:
        by_type.setdefault(type_of(about.topic(pick)), []).append(pick)
    hits = BitMap64()
    for type_, picks in by_type.items():
        data = payloads(type_, found.block.unpacked(found.at))
        for pick in content.test(type_).picks(data, picks, about):
            hits.add(first + pick)
    return hits


def looked(found: FoundMessages) -> list[InspectedMessage]:
    """The messages one by one, as they were published."""
    batch, about = found.batch, found.block.about(found.at)
    messages, columns = found.block.unpacked(found.at), batch.columns
    headers = found.block.headers(found.at)
    keys = None
    if columns is not None and columns.keys is not None:
        keys = bodies.keys(columns.keys, batch.count)
    return [
        InspectedMessage(
            batch.position - batch.skip + pick, about.topic(pick), batch.publisher,
            batch.sequence + pick - batch.skip, about.time_ns(pick), messages[pick],
            keys[pick] if keys is not None else None,
            headers.of(pick),
        )
        for pick in found.picks
    ]  # fmt: skip
