"""Reads the log for subscriptions: what several of them want is read, checked and decoded once.

Blocks are kept by where they start, up to READ_CACHE_BYTES, the least recently used goes first.
Subscriptions that have caught up have a Log of their own, because a Log learns how much to read at
a time: little at the end of the log, much in a replay.
What they leave in short blocks is read again, in longer ones, for those that catch up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Final

from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import Read
from zbroker.limits import MIB
from zbroker.log.format import Batch
from zbroker.log.reader import Cursor, Extent, Gap, Log

READ_CACHE_BYTES: Final = 16 * MIB
SHORT: Final = 16  # a block of less than such a part of what may be read at once is short
_ITEM_BYTES: Final = 1_000  # of Python objects for one batch, roughly

_Key = tuple[Cursor, Hashable]  # where, and with what was passed over


class BlockReader:
    """The logs of one process and the blocks read lately.

    open_segment: the serial of the open segment and a position that is not beyond it, as the
    journal announced both; 0 if it announced nothing yet.
    """

    def __init__(
        self,
        directory: Path,
        archive: Path | None = None,
        open_segment: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        self._open_segment = open_segment
        self._logs = (Log(directory, archive), Log(directory, archive))
        self._blocks: OrderedDict[_Key, Block] = OrderedDict()
        self._short: set[_Key] = set()  # blocks that end early, where the log did
        self._bytes = 0
        self._used: tuple[_Key, int] | None = None  # read last, and what it weighed then
        self._newest = Cursor(0, 0, 0)  # a batch near the end
        self.hits = 0
        self.misses = 0

    def reset(self) -> None:
        """Forgets everything: the journal restarted and may have cut off bytes."""
        self._blocks.clear()
        self._short.clear()
        self._bytes, self._newest, self._used = 0, Cursor(0, 0, 0), None
        for log in self._logs:
            log.refresh()

    @property
    def extents(self) -> list[Extent]:
        """The segments as they were when the newest of the log was read; nothing is looked up."""
        return self._logs[False].extents

    def let_go(self) -> None:
        """Closes files: one that was removed takes space for as long as somebody has it open."""
        for log in self._logs:
            log.close()

    def read(self, read: Read) -> Block:
        """The block at a cursor, mostly without reading it again. Raises: StorageError."""
        cursor = self._seek(read) if read.seek else read.cursor
        if read.headers:
            return self._headers(read, cursor)
        key = cursor, read.wants_key
        self._weigh()
        block = self._blocks.get(key)
        if block is not None and not self._is_outgrown(key, block, read):
            self._blocks.move_to_end(key)
            self._used = key, _weight(block)
            self.hits += 1
            return block
        self.misses += 1
        items, after = self._logs[read.live].read_wanted(
            cursor, read.limit, read.max_bytes, read.wants, self._open_serial(read.limit)
        )
        batches = [item for item in items if isinstance(item, Batch)]
        size = sum(batch.header_length + batch.body_length for batch in batches)
        block = Block(cursor, items, after, size)
        whole = len(batches) == len(items)
        if items and (whole or not _may_come_back(items)):
            self._keep(key, block, short=whole and _is_short(cursor, after, read))
        return block

    def _headers(self, read: Read, cursor: Cursor) -> Block:
        """Not kept: it costs little, and who wants the bodies needs another block."""
        found, after = self._logs[read.live].read_headers(
            cursor, read.limit, read.max_bytes, self._open_serial(read.limit)
        )
        size = sum(item.header_length for item in found if isinstance(item, Batch))
        return Block(cursor, found, after, size)

    def _open_serial(self, limit: int) -> int:
        # a limit beyond what was announced came with an answer, which does not name the segment
        serial, written = self._open_segment()
        return serial if limit <= written else 0

    def _seek(self, read: Read) -> Cursor:
        serial, offset, position = read.cursor
        if serial == 0 and 0 < self._newest.position <= position:
            serial, offset, _ = self._newest
        return self._logs[read.live].seek(position, serial, offset)

    def _is_outgrown(self, key: _Key, block: Block, read: Read) -> bool:
        """True if the log goes on by now where a short block ended."""
        return key in self._short and not read.live and block.next.position < read.limit

    def _keep(self, key: _Key, block: Block, *, short: bool) -> None:
        before = self._blocks.pop(key, None)
        if before is not None:
            self._bytes -= _weight(before)
            self._short.discard(key)
        if short:
            self._short.add(key)
        self._blocks[key] = block
        self._used = key, _weight(block)
        self._bytes += _weight(block)
        self._shrink()
        first = block.items[0]
        if isinstance(first, Batch) and first.position > self._newest.position:
            self._newest = Cursor(block.start.serial, first.offset, first.position)

    def _weigh(self) -> None:
        """Counts the frames made of the last block, once no more are made of it."""
        if self._used is not None:
            key, before = self._used
            self._used = None
            self._bytes += _weight(self._blocks[key]) - before
            self._shrink()

    def _shrink(self) -> None:
        while self._bytes > READ_CACHE_BYTES and len(self._blocks) > 1:
            key, block = self._blocks.popitem(last=False)
            self._bytes -= _weight(block)
            self._short.discard(key)


def _is_short(start: Cursor, end: Cursor, read: Read) -> bool:
    """True if little was read, also of what is not wanted, since the log ended there."""
    if end.position != read.limit or end.serial != start.serial:
        return False
    return end.offset - start.offset < read.max_bytes // SHORT


def _may_come_back(items: Sequence[object]) -> bool:
    """True if a file was missing: it is served again as soon as it is put back."""
    return any(isinstance(item, Gap) and item.why == "missing" for item in items)


def _weight(block: Block) -> int:
    return block.size + block.made_bytes + _ITEM_BYTES * len(block.items)
