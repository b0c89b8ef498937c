"""Replays of single topics, and the scans of the log that they share. Pure.

    waiting --its turn--> reading --a block--> waiting further on, or at rest at the end of the log
       ^                     |
       +---- due again ---- left: ended, without credit, dense, caught up, paused, replaced

Replays that wait at the same position are one Scan: one read of the log for what any of them wants,
and each batch goes only to those whose topic it holds. Old ones take turns between the one that
waited longest, so none starves, and the lowest one: it reads up to the next one and becomes one
with it. So however many begin at different times, soon they are few scans. Those that have caught
up meet at the end of the log.

A replay keeps its state, credit and rules; a scan only knows which batches it may pass over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from zbroker.blocks.frame_builder import Block, item_end, item_first
from zbroker.blocks.read_request import Read
from zbroker.delivery.replay import BLOCK_MAX_BYTES, Replay, next_block_bytes
from zbroker.limits import U63_MAX
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, Skipped

#: Members that one turn serves, each some tens of us: so others do not wait for long.
SERVED_MAX: Final = 256
#: A topic that is in so many batches of a block, and in every fourth of those that were read, is
#: not rare: its replays read for themselves, which costs less for each batch.
DENSE_MIN: Final = 4
#: Items of a block that was read for one topic: between two batches there is at most one `Skipped`,
#: so it has at least DENSE_MIN batches.
DENSE_ITEMS_MIN: Final = 2 * DENSE_MIN
_SPARE: Final = 64  # positions at which no replay waits any more, before a sweep


class ScanMatches(NamedTuple):
    """What a scan makes of a block: which items each member wants, by its key.

    end: all others go on there. It is before the last batch that is looked at if that has more
    takers than a turn serves; the others come next.
    dense: members whose topic is not rare. gap: positions are missing at the start.
    """

    wanted: dict[int, list[int]]
    end: int
    dense: list[Replay]
    gap: bool


class SharedScan:
    """Replays at the same position, each with one subscription to one exact topic."""

    def __init__(self, key: int, first: Replay) -> None:
        self.key = key
        self.live = first.caught_up
        self.position = first.position
        self.members: dict[int, Replay] = {}
        self.goal = U63_MAX  # the lowest position at which a member has to be looked at
        self._cursor, self._seek = first.cursor, first.seek
        self._hint = first.hint
        self._block_bytes = first.block_bytes
        self._topics: dict[str, dict[int, Replay]] = {}
        self._names: frozenset[str] | None = None  # of the topics; more after some have left
        self._version = 0

    def add(self, replay: Replay) -> None:
        """It is at the position of this scan."""
        assert replay.position == self.position, (replay, self.position)
        one = replay.members[0]
        self.members[replay.key] = replay
        self._topics.setdefault(one.topic, {})[replay.key] = replay
        self.goal = min(self.goal, one.goal)
        if self._seek and not replay.seek:
            self._cursor, self._seek = replay.cursor, False
        self._names = None

    def discard(self, replay: Replay) -> None:
        """It goes on by itself, from the position that it has."""
        del self.members[replay.key]
        topic = replay.members[0].topic
        same = self._topics[topic]
        del same[replay.key]
        if not same:
            del self._topics[topic]
        if replay.position == self.position:
            replay.cursor, replay.seek, replay.hint = self._cursor, self._seek, self._hint

    def read(self, limit: int) -> Read:
        """What to read: all that a member may want, or all that there is for others to share."""
        if self.live:
            return Read(self.key, self._cursor, self._seek, limit, self._block_bytes, live=True)
        if self._names is None:
            self._names = frozenset(self._topics)
            self._version += 1
        return Read(
            self.key, self._cursor, self._seek, limit, self._block_bytes,
            wants=self._names.__contains__, wants_key=(self.key, self._version),
        )  # fmt: skip

    def find(self, block: Block, limit: int) -> ScanMatches:
        """The items of a block that members want, as far as one turn goes; where others go on."""
        wanted: dict[int, list[int]] = {}
        counts: dict[str, int] = {}
        topics, end, looked_at = self._topics, self.position, 0
        before, gap, first = end, False, bisect_right(block.items, end, key=item_end)
        for at in range(first, len(block.items)):
            item = block.items[at]
            gap = type(item) is Gap or item_first(item) > end
            if gap or end >= limit:
                break
            looked_at += 1
            before, end = end, item_end(item)
            if not isinstance(item, Batch) or item.kind != KIND_PUBLISH:
                continue
            for topic in dict.fromkeys(item.topics):
                if topic in topics and len(wanted) <= 2 * SERVED_MAX:
                    counts[topic] = counts.get(topic, 0) + 1
                    for key in islice(topics[topic], 2 * SERVED_MAX + 1):  # more is not served now
                        wanted.setdefault(key, []).append(at)
            if len(wanted) >= SERVED_MAX:
                break
        if len(wanted) > 2 * SERVED_MAX:  # by its last batch
            wanted = dict(islice(wanted.items(), SERVED_MAX))
            end = before
        dense = [
            replay
            for topic, count in counts.items()
            if count >= DENSE_MIN and 4 * count >= looked_at and not self.live
            for replay in topics[topic].values()
        ]  # fmt: skip
        for replay in dense:
            wanted.pop(replay.key, None)
        return ScanMatches(wanted, end, dense, gap=gap and not looked_at)

    def move(self, block: Block, end: int) -> None:
        """All members go on at `end`: they passed what is before it."""
        items = block.items
        consumed = end >= item_end(items[-1])
        self._cursor, self._seek = (block.next if consumed else block.start), False
        moved, self.position = end > self.position, end
        if isinstance(items[0], Batch):
            self._hint = (block.start.serial, items[0].offset)
        if moved:
            publisher, sequence = _newest(block, end)
            for replay in self.members.values():
                replay.step_to(block, end)
                if sequence:
                    replay.publisher, replay.sequence = publisher, sequence
        self._block_bytes = next_block_bytes(self._block_bytes, block, BLOCK_MAX_BYTES)

    def reached(self, end: int) -> list[Replay]:
        """Members that have to be looked at when the scan is at `end`."""
        if end < self.goal:
            return []
        return [replay for replay in self.members.values() if replay.members[0].goal <= end]

    def forget_goals(self) -> None:
        """Those that were reached are not members any more."""
        self.goal = min((one.members[0].goal for one in self.members.values()), default=U63_MAX)

    def check(self) -> None:
        """Asserts what is always true."""
        found = {key: one for same in self._topics.values() for key, one in same.items()}
        assert found == self.members
        assert all(self._topics.values())
        for key, replay in self.members.items():
            assert (replay.key, replay.position) == (key, self.position)
            assert replay.members[0].goal >= self.goal > self.position, replay
            assert self._names is None or replay.members[0].topic in self._names, replay


def _newest(block: Block, end: int) -> tuple[int, int]:
    """Publisher and sequence of the newest message before `end`, as far as the block says."""
    for item in reversed(block.items):
        if item_end(item) > end:
            continue
        if isinstance(item, Skipped) and item.sequence:
            return item.publisher, item.sequence
        if isinstance(item, Batch) and item.kind == KIND_PUBLISH:
            return item.publisher, item.sequence + item.end_position - item.position - 1
    return 0, 0


class WaitingScans:
    """Scans, and replays that are alone at their position, until it is their turn.

    queue: by position, who waited longest first. at_rest: scans at the end of the log.
    """

    def __init__(self, keys: Iterator[int], *, lowest_first: bool) -> None:
        """keys: of scans, all negative. lowest_first: every second turn."""
        self._keys, self._lowest_first = keys, lowest_first
        self.queue: OrderedDict[int, Replay | SharedScan] = OrderedDict()
        self.at_rest: list[SharedScan] = []
        #: by the key of a member, also while they are served
        self._scans: dict[int, SharedScan] = {}
        self._lowest: list[int] = []  # a heap of the positions, and of some of the past
        self._turn = 0

    # -- who waits ----------------------------------------------------------------------------

    def add(self, replay: Replay) -> None:
        """Waits with those at the same position, if there are any."""
        found = self.queue.get(replay.position)
        if found is None:
            self._put(replay)
            return
        if isinstance(found, Replay):
            scan = self.queue[replay.position] = SharedScan(next(self._keys), found)
            self._join(found, scan)
            found = scan
        self._join(replay, found)

    def _put(self, one: Replay | SharedScan) -> None:
        self.queue[one.position] = one
        if not self._lowest_first:
            return
        heappush(self._lowest, one.position)
        if len(self._lowest) > _SPARE + 4 * len(self.queue):
            self._lowest = list(self.queue)
            heapify(self._lowest)

    def _join(self, replay: Replay, scan: SharedScan) -> None:
        scan.add(replay)
        self._scans[replay.key] = scan

    def discard(self, replay: Replay) -> bool:
        """It does not wait any more; False if it did not."""
        scan = self._scans.pop(replay.key, None)
        if scan is None:
            found = self.queue.get(replay.position) is replay
            if found:
                del self.queue[replay.position]
            return found
        scan.discard(replay)
        if not scan.members and self.queue.get(scan.position) is scan:
            del self.queue[scan.position]
        return True

    def clear(self) -> list[Replay]:
        """Takes out all replays that wait."""
        found = list(self._all())
        for replay in found:
            self.discard(replay)
        self.at_rest.clear()
        return found

    def _all(self) -> Iterator[Replay]:
        for one in (*self.queue.values(), *self.at_rest):
            if isinstance(one, Replay):
                yield one
            else:
                yield from one.members.values()

    # -- whose turn it is ---------------------------------------------------------------------

    def first(self) -> tuple[Replay | SharedScan, int]:
        """Whose turn it is, and up to where it reads at most. Asking changes nothing."""
        if self._turn ^ self._lowest_first:
            position, limit = self._two_lowest()
        else:
            position, limit = next(iter(self.queue)), U63_MAX
        one = self.queue[position]
        if isinstance(one, SharedScan) and len(one.members) == 1:
            one = self.queue[position] = self._alone(one)
        return one, limit

    def _two_lowest(self) -> tuple[int, int]:
        """The lowest position at which somebody waits, and the next one above it."""
        heap, queue = self._lowest, self.queue
        while heap[0] not in queue:
            heappop(heap)
        if len(queue) == 1:
            return heap[0], U63_MAX
        lowest = heappop(heap)
        while heap[0] == lowest or heap[0] not in queue:
            heappop(heap)
        above = heap[0]
        heappush(heap, lowest)
        return lowest, above

    def _alone(self, scan: SharedScan) -> Replay:
        """The only member, which reads for itself from now on."""
        (alone,) = scan.members.values()
        del self._scans[alone.key]
        scan.discard(alone)
        return alone

    def take(self) -> Replay | SharedScan:
        """Takes out the one for which a block was read."""
        one, _ = self.first()
        self._turn ^= self._lowest_first
        del self.queue[one.position]
        return one

    def put_back(self, scan: SharedScan) -> None:
        """It waits again, with those at its position."""
        if not scan.members:
            return
        found = self.queue.get(scan.position)
        if found is None:
            self._put(scan)
        elif isinstance(found, Replay):
            self._join(found, scan)
            self.queue[scan.position] = scan
        else:
            small, large = sorted((found, scan), key=lambda one: len(one.members))
            for replay in list(small.members.values()):
                small.discard(replay)
                self._join(replay, large)
            self.queue[scan.position] = large

    def rest(self, scan: SharedScan) -> None:
        """It is at the end of the log, and stays together until there is more."""
        if scan.members:
            self.at_rest.append(scan)

    def wake(self, limit: int) -> None:
        """The log goes on up to `limit`."""
        for scan in [scan for scan in self.at_rest if scan.position < limit]:
            self.at_rest.remove(scan)
            self.put_back(scan)

    def check(self) -> None:
        """Asserts what is always true."""
        assert set(self.queue) <= set(self._lowest) or not self._lowest_first
        members: dict[int, SharedScan] = {}
        for position, one in self.queue.items():
            assert one.position == position, one
            if isinstance(one, SharedScan):
                assert one.members
        for scan in (*self.queue.values(), *self.at_rest):
            if isinstance(scan, SharedScan):
                scan.check()
                members |= dict.fromkeys(scan.members, scan)
        assert members == self._scans
        for replay in self._all():
            assert replay.queued, replay
            assert replay.shares, replay
