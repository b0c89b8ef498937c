"""When messages are of no use any more. Pure. Units: wall ns.

Runs of positions that expire together, 24 bytes each, by the second. A run of messages that are
gone stays until its time, or until there are twice as many runs as a sweep had left.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final

from pyroaring import BitMap64

from zbroker.limits import U63_MAX
from zbroker.queues.work.sets import first_of, span
from zbroker.queues.work.values import Run

_SECOND: Final = 1_000_000_000
_SWEPT_MIN: Final = 10_000  # runs; fewer are not worth a sweep


class Expiry:
    """`next_ns`: when the next run expires. `here`: all that is in the queue."""

    def __init__(self, here: BitMap64) -> None:
        self.next_ns: int | None = None
        self._here = here
        self._at: dict[int, array[int]] = {}
        self._seconds: list[int] = []
        self._count = 0
        self._sweep: list[int] = []
        self._enough = _SWEPT_MIN

    def enter(self, runs: Sequence[Run]) -> None:
        """Messages that entered."""
        for expires_ns, first, stop in runs:
            self._put(min(max(expires_ns, 0), U63_MAX), first, stop)
        self._count += len(runs)
        self._tidy()

    def over(self, now_ns: int) -> BitMap64:
        """Takes out what has expired and is still here."""
        found = BitMap64()
        while self.next_ns is not None and self.next_ns <= now_ns:
            second = heappop(self._seconds)
            bucket = self._at.pop(second)
            left = array("q")
            for run in _runs(bucket):
                if run[0] <= now_ns:
                    found |= span(*run[1:]) & self._here
                    self._count -= 1
                else:
                    left.extend(run)
            if left:
                self._at[second] = left
                heappush(self._seconds, second)
            self._find_next()
        return found

    def forget(self, positions: BitMap64) -> None:
        """They expire no more. Looks at all runs: for what an operator asks."""
        old, self._at, self._seconds, self._count = self._at, {}, [], 0
        self.next_ns = None
        for bucket in old.values():
            for expires_ns, first, stop in _runs(bucket):
                at: int | None = first
                while at is not None and at < stop:
                    cut = first_of(positions, at)
                    end = stop if cut is None else min(cut, stop)
                    if at < end:
                        self._put(expires_ns, at, end)
                        self._count += 1
                    at = end + 1

    def dump(self) -> bytes:
        """The runs of what is here, for `load`."""
        return b"".join(self._kept(bucket).tobytes() for bucket in self._at.values())

    def load(self, data: bytes) -> None:
        """Raises: ValueError."""
        runs = array("q")
        runs.frombytes(data)
        if len(runs) % 3:
            raise ValueError(f"{len(runs)} numbers do not make runs")
        self.enter(list(_runs(runs)))

    def memory_bytes(self) -> int:
        """Roughly."""
        return 24 * self._count + 200 * len(self._at)

    def check(self) -> None:
        """Asserts what is always true."""
        assert set(self._at) <= set(self._seconds)
        assert self._count == sum(len(bucket) // 3 for bucket in self._at.values())
        ends = [expires for bucket in self._at.values() for expires, _, _ in _runs(bucket)]
        assert self.next_ns == min(ends, default=None)

    def _put(self, expires_ns: int, first: int, stop: int) -> None:
        second = expires_ns // _SECOND
        bucket = self._at.get(second)
        if bucket is None:
            self._at[second] = array("q", (expires_ns, first, stop))
            heappush(self._seconds, second)
        elif bucket[-3] == expires_ns and bucket[-1] == first:
            bucket[-1] = stop
            self._count -= 1
        else:
            bucket.extend((expires_ns, first, stop))
        if self.next_ns is None or expires_ns < self.next_ns:
            self.next_ns = expires_ns

    def _find_next(self) -> None:
        """Passes over seconds that were swept empty: these are left in the heap."""
        while self._seconds and self._seconds[0] not in self._at:
            heappop(self._seconds)
        self.next_ns = min(self._at[self._seconds[0]][::3]) if self._seconds else None

    def _kept(self, bucket: array[int]) -> array[int]:
        """The runs of which something is here."""
        kept = array("q")
        for run in _runs(bucket):
            first = first_of(self._here, run[1])
            if first is not None and first < run[2]:
                kept.extend(run)
        return kept

    def _tidy(self) -> None:
        """Sweeps one second at a time, so that no turn takes long."""
        if not self._sweep:
            if self._count <= self._enough:
                return
            self._sweep = list(self._at)
        second = self._sweep.pop()
        bucket = self._at.get(second)
        if bucket is not None:
            kept = self._kept(bucket)
            self._count -= (len(bucket) - len(kept)) // 3
            self._at[second] = kept
            if not kept:
                del self._at[second]
            self._find_next()
        if not self._sweep:
            self._enough = max(_SWEPT_MIN, 2 * self._count)


def _runs(bucket: array[int]) -> Iterator[Run]:
    return zip(bucket[::3], bucket[1::3], bucket[2::3], strict=True)
