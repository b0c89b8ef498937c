"""A cursor over the log and the subscriptions that follow it: mostly one. Pure.

Several that were resumed together share one: each message goes to all who want it before the next
one goes to anybody, so their order across subscriptions is that of the log. The slowest sets the
pace: without credit for one of them the replay waits.

A replay waits for credit, new watermarks (`dry`) or its pace (`due_ns`), or while it is paused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from msgspec import Struct, field

from zbroker.blocks.frame_builder import Block, Frame, FrameBuilder, Held, item_end, item_first
from zbroker.delivery.conflation import BatchMessages, Conflation, messages_of
from zbroker.delivery.pace import ReplayPace
from zbroker.delivery.passage import Passage
from zbroker.delivery.points import Point
from zbroker.delivery.selection import slice_of
from zbroker.delivery.subscription import SubscriptionState
from zbroker.filters.limits import STEP_BYTES_MAX
from zbroker.ids import format_bookmark
from zbroker.limits import KIB, MIB, U63_MAX
from zbroker.log.batch_index import time_of
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor, Gap, Item, Skipped
from zbroker.wire import bodies

#: A turn of one replay is one block: big enough to be cheap for big batches, small enough that tiny
#: ones do not keep the others waiting.
BLOCK_MAX_BYTES: Final = 1 * MIB
BLOCK_MIN_BYTES: Final = 64 * KIB
BLOCK_SHAPED_BYTES: Final = 256 * KIB  # where each message is looked at: some ms of work
BLOCK_ITEMS_MAX: Final = 256
BLOCK_ITEMS_MIN: Final = 64
PACED_MAX: Final = 1_024  # messages whose time is looked up at once

_NOWHERE: Final = Cursor(0, 0, 0)

Sent = list[tuple[SubscriptionState, Frame]]
Chosen = list[tuple[SubscriptionState, Sequence[int]]]
Keys = list[Hashable]  # of frames that other subscriptions share: all of a batch that they want


class Replay(Struct, eq=False):
    """State of one cursor. `position`: the first one not yet sent or stepped over.

    cursor: the batch at or before `position` that is read next; with `seek` it is only a hint.
    dry: a read found nothing although watermarks say that there is more; it waits for new ones.
    hint: serial and offset of a batch that was there when last read.
    due_ns: when its pace lets the next message go. flush_ns: when the open interval of a conflation
    is over; flush: it is. Both in monotonic time. intervals: None without conflation.
    publisher, sequence: of the newest message passed. passage: the vector of all that was passed.
    finding: the journal's answer leaves open how much was before its start; it waits for that.
    """

    key: int
    members: list[SubscriptionState]
    pace: ReplayPace | None = None
    running: bool = False
    queued: bool = False
    dry: bool = False
    paused: bool = False
    eager: bool = False  # follows what is written, not what is durable
    dense: bool = False  # its topic is not rare here: it reads for itself
    cursor: Cursor = _NOWHERE
    seek: bool = True
    hint: tuple[int, int] = (0, 0)
    position: int = 0
    block_bytes: int = BLOCK_MIN_BYTES
    publisher: int = 0
    sequence: int = 0
    passage: Passage = field(default_factory=lambda: Passage({}))
    finding: bool = False
    gap: Gap | None = None
    due_ns: int | None = None
    flush_ns: int | None = None
    flush: bool = False
    work: int = STEP_BYTES_MAX  # what filters may still do in this turn
    intervals: Intervals | None = None

    def __post_init__(self) -> None:
        if self.members[0].conflation is not None:
            self.intervals = Intervals(self.members)

    # -- whether it has something to do -------------------------------------------------------

    @property
    def until(self) -> int:
        """The position at which its last member ends."""
        return max(one.until for one in self.members)

    @property
    def caught_up(self) -> bool:
        """True if all of it has seen what was durable when it began."""
        return all(one.caught_up for one in self.members)

    @property
    def shares(self) -> bool:
        """True if it can wait in a scan: only its topic decides what it may pass over."""
        one = self.members[0]
        return not (
            self.dense or one.regex or one.live or len(self.members) > 1
            or self.pace is not None or self.intervals is not None
            or one.not_before_ns is not None or one.stop_ns is not None
        ) and (one.caught_up or self.position < one.goal)  # fmt: skip

    @property
    def times(self) -> list[int]:
        """When it has something to do by itself, monotonic."""
        return [when for when in (self.due_ns, self.flush_ns) if when is not None]

    @property
    def bookmark(self) -> str | None:
        """The bookmark of the newest message passed, wanted or not."""
        return format_bookmark(self.publisher, self.sequence) if self.sequence else None

    def due(self, limit: int) -> bool:
        """True if there is something to send, below `limit`, and nothing to wait for."""
        if not self.running or self.paused or self.finding:
            return False
        if any(one.credit <= 0 for one in self.members):
            return False
        if self.due_ns is not None and not self._paces_log:
            return False
        if self.flush or any(one.ready for one in self.members):
            return True
        return self.due_ns is None and not self.dry and self.position < min(limit, self.until)

    @property
    def _paces_log(self) -> bool:
        """True if its pace is that of taking messages from the log, not that of sending them."""
        return self.intervals is not None and self.intervals.by_replay

    def go_to(self, at: Point) -> None:
        """Moves the cursor; the next read looks for it."""
        if at.position < self.position:
            self.passage.back(at.position)
        self.position = at.position
        self.cursor, self.seek = Cursor(at.serial, at.offset, at.position), True

    def step_to(self, block: Block, position: int) -> None:
        """Moves the cursor on over items of a block that it does not want."""
        before, self.position = self.position, max(self.position, position)
        self._pass(block, before)

    def _pass(self, block: Block, before: int) -> None:
        """Notes what was passed since `before`."""
        if self.intervals is not None or self.members[0].live:
            self.passage.go(block.steps(before, self.position))
        elif self.position > before:
            self.passage.add(block.passed(before, self.position))

    # -- sending ------------------------------------------------------------------------------

    def advance(
        self, block: Block, limit: int, maker: FrameBuilder, now_ns: int, *, written: int
    ) -> Sent:
        """What to send of `block`, below `limit`, while there is credit and the pace allows.

        Sets `gap`, and goes no further, where positions are missing. written: where the log ends;
        messages between `limit` and that are not durable yet.
        """
        sent: Sent = []
        items, before = block.items, self.position
        self.work = STEP_BYTES_MAX
        for one in self.members:
            one.forget_cover(self.position)
        at = bisect_right(items, self.position, key=item_end) if items else 0
        if self.intervals is not None and (self.flush or self._paces_log):
            self.flush = False
            self.intervals.begin(now_ns, at_end=self.position >= min(written, self.until))
        self._drain(maker, now_ns, sent)
        while at < len(items) and self._goes_on() and self.position < min(limit, self.until):
            item = items[at]
            if type(item) is Gap or item_first(item) > self.position:
                self._meets_gap(item, maker, now_ns, sent)
                break
            if type(item) is Batch and item.kind == KIND_PUBLISH:
                self._batch(block, at, maker, now_ns, sent)
            else:
                self._step_over(item)
            at += self.position >= item_end(item)
        if self.intervals is not None:
            self._at_end(written, maker, now_ns, sent)
        if self.pace is not None and self.due_ns is None and not self.due(limit):
            self.pace.rest()
        self._remember(block, consumed=at == len(items))
        self._pass(block, before)
        return sent

    def _goes_on(self) -> bool:
        return (
            self.work > 0
            and self.due_ns is None
            and not any(one.credit <= 0 or one.left <= 0 or one.ready for one in self.members)
        )

    def _meets_gap(self, item: Item, maker: FrameBuilder, now_ns: int, sent: Sent) -> None:
        """Sends held messages, which are from before the gap; then notes the gap."""
        if self.intervals is not None:
            self.intervals.close()
            self._drain(maker, now_ns, sent)
            if any(one.ready or one.left <= 0 for one in self.members):
                return
        if isinstance(item, Gap):
            self.gap = Gap(self.position, item.end, item.why)
        else:
            self.gap = Gap(self.position, item_first(item), "not in the log")

    def _step_over(self, item: Item) -> None:
        end = item_end(item)
        self.position = min(end, self.until) if isinstance(item, Skipped) else end
        if isinstance(item, Skipped) and item.sequence and item.end <= self.until:
            self.publisher, self.sequence = item.publisher, item.sequence

    def _batch(self, block: Block, at: int, maker: FrameBuilder, now_ns: int, sent: Sent) -> None:
        batch, one = block.batch(at), self.members[0]
        whole = self.position == batch.position and batch.end_position <= self.until
        timed = one.not_before_ns is not None or one.stop_ns is not None
        if len(self.members) > 1 or self.pace is not None or not one.plain:
            self._choose(block, at, maker, now_ns, sent)
        elif whole and not timed:
            wanted = one.selection.wanted(batch)
            if True in wanted:
                _put(sent, one, maker.whole(block, at, wanted, zstd=one.look.zstd))
            self.position = batch.end_position
        else:
            span, wanted = one.span(batch, self.position), one.selection.wanted(batch)
            if True in wanted:
                _put(sent, one, maker.some(block, at, span, wanted, zstd=one.look.zstd))
            self.position = min(batch.end_position, self.until)
        if self.position > batch.position:
            self.publisher = batch.publisher
            self.sequence = batch.sequence + self.position - batch.position - 1

    def _choose(self, block: Block, at: int, maker: FrameBuilder, now_ns: int, sent: Sent) -> None:
        """A batch of which a part may be wanted, or may go now."""
        batch = block.batch(at)
        ahead = batch.skip - batch.position
        chosen: Chosen = []
        keys: Keys = []
        last = self._slice(block, at, self.position + ahead)
        for one in self.members:
            span = one.span(batch, self.position)
            span = span._replace(last=min(span.last, last))
            picks, key = one.selection.picks(block, at, span, one.look.type_of)
            if picks and one.cover is not None:
                fresh = one.cover.picks(batch, picks)
                picks, key = fresh, key if fresh is picks else None
            if picks:
                chosen.append((one, picks))
                keys.append(key)
        stop = self._stop(block, at, chosen, now_ns)
        if stop is None:
            stop = min(min(batch.end_position, self.until) + ahead, last)
        else:
            chosen = [(one, picks[: bisect_left(picks, stop)]) for one, picks in chosen]
            chosen = [pair for pair in chosen if pair[1]]
            keys = [None] * len(chosen)
        if self.intervals is None:
            self._send(block, at, maker, chosen, keys, sent)
        elif chosen:
            messages = messages_of(block, at, self.members[0].look.type_of)
            self.intervals.add(block, at, chosen, messages, now_ns)
        self.position = stop - ahead
        self._drain(maker, now_ns, sent)

    def _slice(self, block: Block, at: int, first: int) -> int:
        """The message before which this turn ends, because what filters do takes too long."""
        steps = sum(one.selection.steps for one in self.members)
        if not steps:
            return U63_MAX
        last, self.work = slice_of(block, at, first, (steps, self.work))
        return last

    def _stop(self, block: Block, at: int, chosen: Chosen, now_ns: int) -> int | None:
        """The first message of the batch that may not go now; None if all may."""
        stops: list[int] = []
        if self.intervals is None:
            stops = [picks[one.left - 1] + 1 for one, picks in chosen if len(picks) >= one.left]
        stop = min(stops, default=None)
        if self.pace is None or not chosen or (self.intervals is not None and not self._paces_log):
            return stop
        picks = chosen[0][1]
        if len(chosen) > 1:
            picks = sorted({pick for _, some in chosen for pick in some})
        if stop is not None:
            picks = picks[: bisect_left(picks, stop)]
        offered = picks[:PACED_MAX]
        taken = self.pace.take(now_ns, *_times_and_sizes(self.pace, block, at, offered))
        if taken < len(offered):
            self.due_ns = self.pace.next_ns
        if taken < len(picks):
            return picks[taken]
        return stop

    def _send(
        self, block: Block, at: int, maker: FrameBuilder, chosen: Chosen, keys: Keys, sent: Sent
    ) -> None:
        if len(chosen) > 1:
            chosen = list(_runs(chosen))
            keys = [None] * len(chosen)
        for (one, picks), key in zip(chosen, keys, strict=True):
            look = one.look
            if key is not None:
                key = (key, look.zstd, look.select.text if look.select is not None else "")
            one.left -= len(picks)
            all_of_it = one.selection.sees_all(block.batch(at))
            _put(sent, one, maker.picked(block, at, picks, look, key, sees_all=all_of_it))

    # -- conflation ---------------------------------------------------------------------------

    def _drain(self, maker: FrameBuilder, now_ns: int, sent: Sent) -> None:
        """Sends what is due of what was held, as the pace allows."""
        while self.intervals is not None and (one := self.intervals.first()) is not None:
            held = one.ready[0]
            if one.credit <= 0:
                return
            if not self._paces_log and self._waits(held, now_ns):
                return
            one.ready.popleft()
            one.left -= 1
            _put(sent, one, (maker.held(held, one.look),))

    def _waits(self, held: Held, now_ns: int) -> bool:
        """True if its pace does not let that go now."""
        if self.pace is None or self.due_ns is not None:
            return self.due_ns is not None
        if self.pace.take(now_ns, (held.time_ns,), (len(held.data),)):
            return False
        self.due_ns = self.pace.next_ns
        return True

    def _at_end(self, written: int, maker: FrameBuilder, now_ns: int, sent: Sent) -> None:
        """Plans when held messages are due: later, or now if the range is over."""
        assert self.intervals is not None
        if self.position >= self.until:
            self.intervals.close()
            self._drain(maker, now_ns, sent)
        elif self.flush_ns is None:
            self.flush_ns = self.intervals.ends_ns(now_ns, at_end=self.position >= written)

    # -- reading ------------------------------------------------------------------------------

    def _remember(self, block: Block, *, consumed: bool) -> None:
        """Goes on after a block only when all of it was used: only its ends are known."""
        self.cursor, self.seek = (block.next if consumed else block.start), False
        if block.items and isinstance(block.items[0], Batch):
            self.hint = (block.start.serial, block.items[0].offset)
        most = BLOCK_MAX_BYTES if self.members[0].plain else BLOCK_SHAPED_BYTES
        self.block_bytes = next_block_bytes(self.block_bytes, block, most)


def next_block_bytes(block_bytes: int, block: Block, most: int) -> int:
    """How much to read at a time after `block`: fewer bytes of tiny batches, more of big ones."""
    if len(block.items) > BLOCK_ITEMS_MAX:
        return max(BLOCK_MIN_BYTES, block_bytes // 2)
    if len(block.items) < BLOCK_ITEMS_MIN and 2 * block.size >= block_bytes:
        return min(most, 2 * block_bytes)
    return block_bytes


def _put(sent: Sent, one: SubscriptionState, parts: Iterable[Frame]) -> None:
    for part in parts:
        one.credit -= part.size
        one.sent_messages += part.messages
        one.sent_bytes += len(part.body)
        sent.append((one, part))


def _runs(chosen: Chosen) -> Iterator[tuple[SubscriptionState, list[int]]]:
    """What several members want of one batch, in the order of the log."""
    pairs = sorted((pick, n) for n, (_, picks) in enumerate(chosen) for pick in picks)
    for n, run in groupby(pairs, key=itemgetter(1)):
        yield chosen[n][0], [pick for pick, _ in run]


def _times_and_sizes(
    pace: ReplayPace, block: Block, at: int, picks: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """What its kind of rate looks at; the other sequence only has the right length."""
    batch = block.batch(at)
    if pace.kind == "bytes":
        messages = block.unpacked(at)
        return picks, [len(messages[pick]) for pick in picks]
    if pace.kind == "multiple":
        if batch.columns is None or batch.columns.time is None:
            return [batch.log_time] * len(picks), picks
        times = bodies.times(batch.columns.time)
        return [times[pick] for pick in picks], picks
    return picks, picks


class Intervals:
    """Messages that the subscriptions of one replay hold back under conflation.

    All of them conflate alike. Their intervals end together, and due messages go out in the order
    of the first ones of their keys, which is that of the log across all of them.
    members: the list of the replay, which changes.
    """

    def __init__(self, members: list[SubscriptionState]) -> None:
        self._members = members

    @property
    def by_replay(self) -> bool:
        """True if intervals are of the time of the replay: its pace comes before conflation."""
        return self._pairs[0][1].by_replay

    @property
    def _pairs(self) -> list[tuple[SubscriptionState, Conflation]]:
        return [(one, one.conflation) for one in self._members if one.conflation is not None]

    @property
    def _seen(self) -> tuple[int, int]:
        """The newest log time that one of them passed, and when."""
        return max(conflation.seen for _, conflation in self._pairs)

    def begin(self, now_ns: int, *, at_end: bool) -> None:
        """Ends intervals whose time is over; those of log time only at the end of the log.

        at_end: nothing is written after the messages that were passed; those that are written and
        not durable yet may belong to the open interval.
        """
        if self.by_replay:
            if any(conflation.is_over(now_ns) for _, conflation in self._pairs):
                self.close()
        elif at_end:
            log_ns, since_ns = self._seen
            self._close_before(log_ns + now_ns - since_ns)

    def add(
        self, block: Block, at: int, chosen: Chosen, messages: BatchMessages, now_ns: int
    ) -> None:
        """Holds what is wanted of a batch."""
        early = 0
        for one, picks in chosen:
            conflation = one.conflation
            assert conflation is not None, "all of them conflate, or none does"
            before = conflation.closed_early
            one.ready.extend(conflation.add(messages, picks, now_ns))
            conflation.seen = (time_of(block.batch(at), picks[-1]), now_ns)
            early += conflation.closed_early - before
        if len(self._members) > 1:
            if early:
                self.close()
            elif not self.by_replay:
                self._close_before(self._seen[0])

    def close(self) -> None:
        """Ends the open interval of all of them."""
        for one, conflation in self._pairs:
            one.ready.extend(conflation.flush())

    def _close_before(self, log_ns: int) -> None:
        for one, conflation in self._pairs:
            one.ready.extend(conflation.due(log_ns))

    def first(self) -> SubscriptionState | None:
        """The one that is sent next; None if nothing is due."""
        due = (one for one in self._members if one.ready and one.left > 0)
        return min(due, key=lambda one: one.ready[0].first.position, default=None)

    def ends_ns(self, now_ns: int, *, at_end: bool) -> int | None:
        """When the open interval is over (monotonic), if time alone ends it."""
        ends = [held.end_ns for _, held in self._pairs if held.oldest_position is not None]
        if not ends or not (at_end or self.by_replay):
            return None
        log_ns, since_ns = (0, 0) if self.by_replay else self._seen
        return max(now_ns + 1, since_ns + min(ends) - log_ns)
