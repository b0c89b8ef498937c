"""One subscription: a cursor over the log that sends what it wants while it has credit.

    locating --located--> running --end of range, gap, error, unsubscribe--> gone

Live is a cursor that has caught up; there is no second mechanism, so there is nothing to lose or
repeat at a cut-over.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zbroker.delivery.blocks import Block, Maker, Span, since
from zbroker.delivery.points import Point
from zbroker.ids import format_bookmark
from zbroker.journal.format import KIND_PUBLISH, Batch
from zbroker.journal.reader import Cursor, Gap
from zbroker.limits import KIB, MIB, U63_MAX
from zbroker.topics import Matcher

#: A turn of one subscription is one block: big enough to be cheap for big batches, small enough
#: that tiny ones do not keep the others waiting.
BLOCK_MAX_BYTES: Final = 1 * MIB
BLOCK_MIN_BYTES: Final = 64 * KIB
BLOCK_ITEMS_MAX: Final = 256
BLOCK_ITEMS_MIN: Final = 64


Frames = list[tuple[bytes, bytes]]
_NOWHERE: Final = Cursor(0, 0, 0)


class Names(NamedTuple):
    """What a subscription is called: by the core, by its connection, by its subscriber."""

    key: int
    rid: bytes
    sid: str


@dataclass(slots=True)
class Subscription:
    """State of one subscription. `position`: the first one not yet sent or stepped over.

    cursor: the batch at or before `position` that is read next; with `seek` it is only a hint.
    dry: a read found nothing although marks say that there is something; it waits for new marks.
    hint: serial and offset of a batch that was there when last read.
    until: the range ends before this position. target: when it is passed, `completed` is due.
    not_before_ns, stop_ns: the same two ends while they are times later than the log.
    dropped: unrecorded messages that came while it had no credit; dropped_told: it knows of.
    """

    names: Names
    wants: Matcher
    credit: int
    zstd: bool = False
    running: bool = False
    queued: bool = False
    dry: bool = False
    caught_up: bool = False
    cursor: Cursor = _NOWHERE
    seek: bool = True
    hint: tuple[int, int] = (0, 0)
    position: int = 0
    until: int = U63_MAX
    target: int = 0
    not_before_ns: int | None = None
    stop_ns: int | None = None
    block_bytes: int = BLOCK_MIN_BYTES
    publisher: int = 0  # of the newest message passed
    sequence: int = 0
    gap: Gap | None = None
    dropped: int = 0
    dropped_told: int = 0
    sid_packed: bytes = field(default=b"", repr=False)
    topic: str = ""  # as it was asked for, for people

    @property
    def bounded(self) -> bool:
        """True if it ends by itself."""
        return self.until != U63_MAX or self.stop_ns is not None

    @property
    def bookmark(self) -> str | None:
        """The bookmark of the newest message passed, wanted or not."""
        return format_bookmark(self.publisher, self.sequence) if self.sequence else None

    def start(self, at: Point, until: Point | None, persisted: int) -> None:
        """Begins at a located point."""
        self.running = True
        self.not_before_ns = at.time_ns
        self.go_to(at)
        if until is not None:
            self.stop_ns = until.time_ns
            self.until = until.position if until.time_ns is None else U63_MAX
        self.target = persisted

    def go_to(self, at: Point) -> None:
        """Moves the cursor; the next read looks for it."""
        self.position = at.position
        self.cursor, self.seek = Cursor(at.serial, at.offset, at.position), True

    @property
    def ended(self) -> bool:
        """True if a range was asked for and all of it was sent or stepped over."""
        return self.position >= self.until

    def due(self, persisted: int) -> bool:
        """True if there is something to read and credit to send it."""
        return self.running and self.credit > 0 and self.position < min(persisted, self.until)

    def advance(self, block: Block, limit: int, maker: Maker) -> tuple[Frames, int]:
        """Headers and bodies to send of `block`, below `limit` and while there is credit.

        Sets `gap`, and goes no further, where positions are missing.
        Returns: header and body of each, and how many messages that is.
        """
        items = block.items
        sent: Frames = []
        count = 0
        at = bisect_right(items, self.position, key=_end) if items else 0
        while at < len(items) and self.credit > 0 and self.position < min(limit, self.until):
            item = items[at]
            if isinstance(item, Gap):
                self.gap = Gap(self.position, item.end, item.why)
                return sent, count
            if item.position > self.position:
                self.gap = Gap(self.position, item.position, "not in the log")
                return sent, count
            if item.kind == KIND_PUBLISH:
                count += self._send(block, at, maker, sent)
            else:
                self.position = item.end_position
            at += 1
        self._remember(block, consumed=at == len(items))
        return sent, count

    def _send(self, block: Block, at: int, maker: Maker, sent: Frames) -> int:
        batch = block.items[at]
        assert isinstance(batch, Batch)
        wanted = tuple(map(self.wants, batch.topics))
        timed = self.not_before_ns is not None or self.stop_ns is not None
        end = batch.position + batch.count - batch.skip - batch.cut
        if timed or self.position != batch.position or end > self.until:
            parts = maker.some(block, at, self._span(batch), wanted, zstd=self.zstd)
        elif True in wanted:
            parts = maker.whole(block, at, wanted, zstd=self.zstd)
        else:
            parts = ()
        count = 0
        for part in parts:
            count += part.messages
            sent.append((part.before + self.sid_packed + part.after, part.body))
            self.credit -= len(part.body)
        self.position = min(end, self.until)
        if self.position > batch.position:
            self.publisher = batch.publisher
            self.sequence = batch.sequence + self.position - batch.position - 1
        return count

    def _span(self, batch: Batch) -> Span:
        """Which messages of `batch` count here; turns a time later than the log into a position."""
        ahead = batch.skip - batch.position
        span = Span(self.position + ahead, min(batch.end_position, self.until) + ahead)
        if self.stop_ns is not None and (stop := since(batch, span, self.stop_ns)) < span.last:
            self.until, self.stop_ns = stop - ahead, None
            span = Span(span.first, stop)
        if self.not_before_ns is not None:
            span = Span(since(batch, span, self.not_before_ns), span.last)
            if span.first < span.last:
                self.not_before_ns = None
        return span

    def _remember(self, block: Block, *, consumed: bool) -> None:
        """Goes on behind a block only when all of it was used: only its ends are known."""
        self.cursor, self.seek = (block.next if consumed else block.start), False
        if block.items and isinstance(block.items[0], Batch):
            self.hint = (block.start.serial, block.items[0].offset)
        count = len(block.items)
        if count > BLOCK_ITEMS_MAX:
            self.block_bytes = max(BLOCK_MIN_BYTES, self.block_bytes // 2)
        elif count < BLOCK_ITEMS_MIN and 2 * block.size >= self.block_bytes:
            self.block_bytes = min(BLOCK_MAX_BYTES, self.block_bytes * 2)


def _end(item: Batch | Gap) -> int:
    return item.end if isinstance(item, Gap) else item.end_position
