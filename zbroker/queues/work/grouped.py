"""Messages of which one of each key is under way at a time, in order. Pure.

    position   1 2 3 4 5 6 | 7 8 9 ...       linked up to `upto`; the rest is looked at when needed
    key        a b a 0 b a | a c b ...       0: no key
    heads      * *   *                       can be offered; when 1 is taken, a is busy until it is
                                             gone or comes back

A message takes 12 bytes for its key and some 4 in bitmaps; while it is linked, and is not alone
with its key, 2 to 20 more. Each key with linked messages takes about 150. Only as many are linked
as it takes to find messages that can be offered.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from pyroaring import BitMap64

from zbroker.limits import U63_MAX
from zbroker.queues.work.columns import NumberColumn
from zbroker.queues.work.ready import ReadyMessages
from zbroker.queues.work.sets import bytes_of, first_of, insert, lowest, remove, without
from zbroker.queues.work.values import Arrivals

STEP: Final = 512  # messages that are linked at a time


class Grouped(ReadyMessages):
    """The head of each key that is not busy, and whatever has no key."""

    def __init__(self) -> None:
        super().__init__()
        self._heads = BitMap64()
        self._keys = NumberColumn("q")
        self._chains: dict[int, int | BitMap64] = {}  # all of a key that is linked
        self._busy: dict[int, int] = {}
        self._upto = 0
        self._last = -1  # the highest position with a key

    def enter(self, entered: Arrivals) -> None:
        """New messages."""
        if entered.groups is not None:
            self._keys.put(entered.positions, entered.groups)
            keyed = entered.positions & self._keys.known
            if keyed:
                self._last = max(self._last, keyed.max())
                for position, key in self._linked(keyed):
                    self._link(position, key)
        self.add(entered.positions)

    def add(self, positions: BitMap64) -> None:
        """They can be offered, as far as others of their key let them."""
        insert(self.standing, positions)
        self._appear(without(positions, self._keys.known))
        for position, key in self._linked(positions & self._keys.known):
            if self._busy.get(key) == position:
                del self._busy[key]
            self._look(key)

    def discard(self, positions: BitMap64) -> None:
        """They cannot be offered for now."""
        remove(self.standing, positions)
        remove(self._heads, positions)

    def forget(self, positions: BitMap64) -> None:
        """They left the queue; none is among the standing ones. The next of their keys follow."""
        keyed = positions & self._keys.known
        for position, key in self._linked(keyed):
            if self._busy.get(key) == position:
                del self._busy[key]
            self._unlink(position, key)
        self._keys.drop(keyed)

    def take(
        self, count: int, stop: int = U63_MAX, among: BitMap64 | None = None
    ) -> list[BitMap64]:
        """The lowest heads; their keys are busy then."""
        part = self._next(count, stop, 0, among)
        if not part:
            return []
        keyed = part & self._keys.known
        for position, key in zip(keyed, self._keys.of(keyed), strict=True):
            self._busy[key] = position
        self.discard(part)
        return [part]

    def count(self, limit: int, stop: int = U63_MAX, among: BitMap64 | None = None) -> int:
        """How many `take` would give, up to `limit`."""
        return len(self._next(limit, stop, 0, among))

    def candidates(self, count: int, stop: int, at: int) -> BitMap64:
        """The lowest heads from `at` on."""
        return self._next(count, stop, at, None)

    def waits(self, position: int) -> bool:
        """True if it waits for another of its key, as far as was looked."""
        return position < self._upto and position not in self._heads

    def waiting(self, stop: int = U63_MAX) -> int:
        """How many before `stop` wait for another of their key, as far as was looked."""
        end = min(stop, self._upto) if self._last >= self._upto else stop
        return self.standing.rank(end - 1) - self._heads.rank(end - 1) if end else 0

    def dump(self) -> tuple[bytes, bytes] | None:
        """The keys."""
        return self._keys.dump()

    def load(self, known: tuple[bytes, bytes] | None, standing: BitMap64) -> None:
        """All messages of a queue. Raises: ValueError."""
        if known is not None:
            self._keys.load(*known)
        if self._keys.known:
            self._last = self._keys.known.max()
        self.add(standing)

    def memory_bytes(self) -> int:
        """Roughly."""
        bitmaps = bytes_of(self.standing, self._heads) + self._keys.memory_bytes()
        chains = sum(
            110 + (32 if isinstance(chain, int) else bytes_of(chain))
            for chain in self._chains.values()
        )
        return bitmaps + chains + 100 * len(self._busy)

    def check(self, here: BitMap64) -> None:
        """Asserts what is always true."""
        self._keys.check()
        assert self.standing.issubset(here)
        assert self._heads.issubset(self.standing)
        assert self._keys.known.issubset(here)
        linked = dict(self._linked(self._keys.known))
        for key, chain in self._chains.items():
            members = BitMap64([chain]) if isinstance(chain, int) else chain
            assert members
            for position in members:
                assert linked.pop(position) == key
            head = members.min()
            offered = members & self._heads
            assert offered in (BitMap64(), BitMap64([head]))
            assert bool(offered) == (head in self.standing and key not in self._busy)
            if key in self._busy:
                assert self._busy[key] in members
                assert self._busy[key] not in self.standing
        assert not linked
        assert set(self._busy) <= set(self._chains)

    # -- linking ------------------------------------------------------------------------------

    def _linked(self, keyed: BitMap64) -> list[tuple[int, int]]:
        """Position and key of those that are linked, or should be."""
        first = first_of(keyed)
        if first is None or first >= self._upto:
            return []
        pairs = zip(keyed, self._keys.of(keyed), strict=True)
        return [pair for pair in pairs if pair[0] < self._upto]

    def _link(self, position: int, key: int) -> None:
        """Adds it after the others of its key, or before them if it comes late."""
        chain = self._chains.get(key)
        if chain is None:
            self._chains[key] = position
            return
        if isinstance(chain, int):
            chain = self._chains[key] = BitMap64([chain])
        head = first_of(chain)
        chain.add(position)
        if head is not None and position < head:
            self._heads.discard(head)

    def _unlink(self, position: int, key: int) -> None:
        chain = self._chains[key]
        if isinstance(chain, int):
            del self._chains[key]
            return
        chain.discard(position)
        if len(chain) == 1:
            self._chains[key] = chain.min()
        self._look(key)

    def _look(self, key: int) -> None:
        """Its head can be offered, if it is standing and nothing of its key is under way."""
        chain = self._chains[key]
        head = chain if isinstance(chain, int) else first_of(chain)
        if head is not None and key not in self._busy and head in self.standing:
            self._heads.add(head)
            if self.appeared is not None:
                self.appeared.add(head)

    def _appear(self, free: BitMap64) -> None:
        insert(self._heads, free)
        if self.appeared is not None:
            insert(self.appeared, free)

    def _next(self, count: int, stop: int, at: int, among: BitMap64 | None) -> BitMap64:
        """The lowest heads; links more until there are enough of them."""
        if among is not None and not among:
            return BitMap64()
        last = U63_MAX if among is None else among.max()
        while True:
            heads = self._heads if among is None else among & self._heads
            end = min(stop, self._upto) if self._last >= self._upto else stop
            part = lowest(heads, count, end, at)
            if len(part) >= count or end == stop or last < self._upto:
                return part
            self._link_more()

    def _link_more(self) -> None:
        rows = list(islice(self._keys.rows(self._upto), STEP))
        self._upto = rows[-1][0] + 1 if len(rows) == STEP else self._last + 1
        for position, key in rows:
            self._link(position, key)
            self._look(key)
