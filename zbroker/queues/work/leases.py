"""Leases: which messages are with consumers, and when that ends. Pure.

Ends are rounded up to a 128th of the lease, so that a few buckets hold all of them. The latest
bucket that has a message is the one that counts. So acknowledging costs no look into buckets, and
neither does extending; only what comes back is taken out of them.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from pyroaring import BitMap64

from zbroker.queues.work.sets import bytes_of, insert, remove, without

_PARTS: Final = 128  # a lease ends at most a 128th of it late


def end_of(now_ms: int, lease_ms: int) -> int | None:
    """When a lease that begins now ends; None: it has no end."""
    if not lease_ms:
        return None
    grain = max(1, lease_ms // _PARTS)
    return -(-(now_ms + lease_ms) // grain) * grain


class MessageLeases:
    """`leased`: messages that consumers have. Units: monotonic ms."""

    def __init__(self) -> None:
        self.leased = BitMap64()
        self._at: dict[int, BitMap64] = {}
        self._ends: list[int] = []

    def give(self, positions: BitMap64, end: int | None) -> None:
        """Messages that are in no bucket are leased."""
        insert(self.leased, positions)
        if end is not None:
            self._put(positions, end)

    def move(self, positions: BitMap64, end: int | None) -> None:
        """Leased ones end then, sooner or later than before."""
        for at in [at for at in self._at if end is None or at > end]:
            self._take(at, positions)
        if end is not None and positions:
            self._put(positions, end)

    def cap(self, positions: BitMap64, end: int) -> None:
        """Leased ones end then at the latest."""
        sooner, later = BitMap64(), BitMap64()
        for at in list(self._at):
            if at > end:
                later |= self._take(at, positions)
            else:
                sooner |= self._at[at] & positions
        capped = without(positions, sooner - later)
        if capped:
            self._put(capped, end)

    def done(self, positions: BitMap64) -> None:
        """They are not leased any more, and never again unless `forget` is called."""
        remove(self.leased, positions)
        if not self.leased:
            self._at.clear()
            self._ends.clear()

    def forget(self, positions: BitMap64) -> None:
        """They may be leased again: no old end is to count for them."""
        if self._at:
            self.move(positions, None)

    def over(self, now_ms: int) -> BitMap64:
        """Leases that have ended. They stay leased until `done`."""
        found = BitMap64()
        while self._ends and self._ends[0] <= now_ms:
            ended = self._at.pop(heappop(self._ends), None)
            if ended is None:
                continue
            ended &= self.leased
            for later in self._at.values():
                if not ended:
                    break
                ended -= ended & later
            found |= ended
        return found

    @property
    def next_ms(self) -> int | None:
        """When to ask what is over."""
        while self._ends and self._ends[0] not in self._at:
            heappop(self._ends)
        return self._ends[0] if self._ends and self.leased else None

    def end(self, position: int) -> int | None:
        """When the lease of one ends."""
        return max((at for at, bucket in self._at.items() if position in bucket), default=None)

    def first_end(self, positions: BitMap64) -> int | None:
        """When the first lease of these ends."""
        found, rest = None, positions & self.leased
        for at in sorted(self._at, reverse=True):
            part = rest & self._at[at]
            if part:
                found = at
                rest -= part
        return found

    def memory_bytes(self) -> int:
        """Roughly."""
        return bytes_of(self.leased, *self._at.values())

    def check(self, free: BitMap64) -> None:
        """Asserts what is always true. free: what may be leased next."""
        assert set(self._at) <= set(self._ends)
        assert len(self._ends) == len(set(self._ends))
        for bucket in self._at.values():
            assert bucket.isdisjoint(free)

    def _put(self, positions: BitMap64, end: int) -> None:
        bucket = self._at.get(end)
        if bucket is None:
            self._at[end] = positions.copy()
            if end not in self._ends:
                heappush(self._ends, end)
        else:
            insert(bucket, positions)

    def _take(self, at: int, positions: BitMap64) -> BitMap64:
        """Takes them out of one bucket."""
        bucket = self._at[at]
        if bucket.isdisjoint(positions):
            return BitMap64()
        part = bucket & positions
        bucket -= part
        if not bucket:
            del self._at[at]
        return part
