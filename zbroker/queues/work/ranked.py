"""Messages by priority: higher first, then older. Pure.

    bands, by rising priority      one priority each: taken lowest position first
                                   several (where there are very many): halved when they are large,
                                   and sorted when they are the topmost

So a few priorities cost a few bitmaps, and where each message has its own, only the topmost few
hundred are sorted. A message takes 12 bytes for its priority and some 2 to 10 in bitmaps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import itemgetter
from typing import Final

from msgspec import Struct, field
from pyroaring import BitMap64

from zbroker.limits import U63_MAX
from zbroker.queues.work.columns import NumberColumn
from zbroker.queues.work.ready import ReadyMessages
from zbroker.queues.work.sets import bytes_of, insert, lowest, remove, split, union
from zbroker.queues.work.values import Arrivals

LEVELS_MAX: Final = 1_024  # bands that have one priority from the start
BAND_MAX: Final = 4_096  # messages of a band that has several
SORTED_MAX: Final = 512  # messages of the topmost, when it has several


class _Band(Struct):
    """Messages with priorities from `low` to `high`. order: (-priority, position) of each, and of
    some that are not here any more; only of one that was the topmost."""

    low: int
    high: int
    members: BitMap64 = field(default_factory=BitMap64)
    order: list[tuple[int, int]] | None = None


class Ranked(ReadyMessages):
    """Higher first, then older."""

    def __init__(self) -> None:
        super().__init__()
        self._priorities = NumberColumn()
        self._bands: list[_Band] = []
        self._lows: list[int] = []

    def enter(self, entered: Arrivals) -> None:
        """New messages."""
        if entered.priorities is not None:
            self._priorities.put(entered.positions, entered.priorities)
        self.add(entered.positions)

    def add(self, positions: BitMap64) -> None:
        """They can be offered."""
        super().add(positions)
        for priority, part in self._by_priority(positions):
            self._put(priority, part)

    def discard(self, positions: BitMap64) -> None:
        """They cannot be offered for now."""
        part = positions & self.standing
        if not part:
            return
        remove(self.standing, part)
        for priority, some in self._by_priority(part):
            at = self._at(priority)
            remove(self._bands[at].members, some)
            self._clear(at)

    def forget(self, positions: BitMap64) -> None:
        """They left the queue; none of them is among the standing ones."""
        self._priorities.drop(positions)

    def take(
        self, count: int, stop: int = U63_MAX, among: BitMap64 | None = None
    ) -> list[BitMap64]:
        """The highest ones, a set for each priority. `stop` has no meaning here: the priority
        comes first."""
        taken = self._among(count, among) if among is not None else self._highest(count)
        if taken:
            remove(self.standing, union(taken))
        return taken

    def count(self, limit: int, stop: int = U63_MAX, among: BitMap64 | None = None) -> int:
        """How many `take` would give, up to `limit`."""
        part = self.standing if among is None else among & self.standing
        return len(lowest(part, limit))

    def dump(self) -> tuple[bytes, bytes] | None:
        """The priorities."""
        return self._priorities.dump()

    def load(self, known: tuple[bytes, bytes] | None, standing: BitMap64) -> None:
        """All messages of a queue. Raises: ValueError."""
        if known is not None:
            self._priorities.load(*known)
        self.add(standing)

    def memory_bytes(self) -> int:
        """Roughly."""
        rest = sum(150 + 120 * len(band.order or ()) for band in self._bands)
        members = bytes_of(self.standing, *(band.members for band in self._bands))
        return self._priorities.memory_bytes() + members + rest

    def check(self, here: BitMap64) -> None:
        """Asserts what is always true."""
        self._priorities.check()
        assert self.standing.issubset(here)
        assert self._priorities.known.issubset(here)
        assert self._lows == [band.low for band in self._bands]
        whole, top = BitMap64(), -1
        for band in self._bands:
            assert band.members.isdisjoint(whole)
            assert band.members
            assert top < band.low <= band.high
            top = band.high
            whole |= band.members
            for position in band.members:
                priority = self._priorities.get(position)
                assert band.low <= priority <= band.high
                assert band.order is None or (-priority, position) in band.order
        assert whole == self.standing

    # -- bands --------------------------------------------------------------------------------

    def _by_priority(self, positions: BitMap64) -> Iterable[tuple[int, BitMap64]]:
        priorities = self._priorities.of(positions)
        if len(set(priorities)) == 1:
            return [(priorities[0], positions)]
        found: dict[int, list[int]] = {}
        for position, priority in zip(positions, priorities, strict=True):
            found.setdefault(priority, []).append(position)
        return ((priority, BitMap64(many)) for priority, many in found.items())

    def _at(self, priority: int) -> int:
        """The band that has it, or the one below where it would be."""
        return bisect_right(self._lows, priority) - 1

    def _put(self, priority: int, positions: BitMap64) -> None:
        at = self._at(priority)
        if at < 0 or self._bands[at].high < priority:
            if len(self._bands) < LEVELS_MAX:
                at += 1
                self._bands.insert(at, _Band(priority, priority))
                self._lows.insert(at, priority)
            elif at < 0:
                at = 0
                self._bands[0].low = self._lows[0] = priority
            else:
                self._bands[at].high = priority
        band = self._bands[at]
        insert(band.members, positions)
        if band.order is not None:
            for position in positions:
                heappush(band.order, (-priority, position))
            if len(band.order) > 2 * BAND_MAX:
                band.order = None  # most of it is not here any more
        if band.low < band.high and len(band.members) > BAND_MAX:
            self._halve(at)

    def _halve(self, at: int) -> None:
        """Two bands of one: messages of one priority stay together."""
        band = self._bands[at]
        rows = sorted(zip(self._priorities.of(band.members), band.members, strict=True))
        middle = rows[len(rows) // 2][0]
        if middle == rows[0][0]:
            middle = next((row[0] for row in rows if row[0] > middle), middle)
        lower = [row for row in rows if row[0] < middle]
        upper = [row for row in rows if row[0] >= middle]
        made = [
            _Band(part[0][0], part[-1][0], BitMap64([position for _, position in part]))
            for part in (lower, upper)
            if part
        ]
        self._bands[at : at + 1] = made
        self._lows[at : at + 1] = [one.low for one in made]

    def _clear(self, at: int) -> None:
        """An empty band goes."""
        if not self._bands[at].members:
            del self._bands[at], self._lows[at]

    # -- taking -------------------------------------------------------------------------------

    def _highest(self, count: int) -> list[BitMap64]:
        taken: list[BitMap64] = []
        while count and self._bands:
            at = len(self._bands) - 1
            band = self._bands[at]
            if band.low < band.high and band.order is None:
                if len(band.members) > SORTED_MAX:
                    self._halve(at)
                    continue
                band.order = self._sorted(band.members)
                heapify(band.order)
            part = self._of(band, count)
            count -= len(part)
            taken.append(part)
            self._clear(at)
        return taken

    def _of(self, band: _Band, count: int) -> BitMap64:
        """Up to so many of the highest priority of the topmost band."""
        if band.low == band.high:
            return split(band.members, count)
        assert band.order is not None
        part, last = BitMap64(), None
        while count and band.members:
            rank, position = band.order[0]
            if position in band.members:
                if last not in (None, rank):
                    break
                last = rank
                part.add(position)
                band.members.remove(position)
                count -= 1
            heappop(band.order)
        return part

    def _among(self, count: int, among: BitMap64) -> list[BitMap64]:
        taken: list[BitMap64] = []
        for at in range(len(self._bands) - 1, -1, -1):
            band = self._bands[at]
            if not count:
                break
            if band.members.isdisjoint(among):
                continue
            part = among & band.members
            if band.low == band.high:
                found = [lowest(part, count)]
            else:
                found = _by_rank(self._sorted(part)[:count])
            for some in found:
                count -= len(some)
                remove(band.members, some)
            taken += found
            self._clear(at)
        return taken

    def _sorted(self, members: BitMap64) -> list[tuple[int, int]]:
        pairs = zip(self._priorities.of(members), members, strict=True)
        return sorted((-priority, position) for priority, position in pairs)


def _by_rank(rows: list[tuple[int, int]]) -> list[BitMap64]:
    """A set for each rank; rows are sorted."""
    ranks = groupby(rows, itemgetter(0))
    return [BitMap64([position for _, position in rank]) for _, rank in ranks]
