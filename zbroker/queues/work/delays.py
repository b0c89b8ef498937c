"""Messages that are not offered before a time. Pure. Units: wall ns: they outlive the process.

Times are rounded up to a 1024th of the delay when it is decided (`due_of`), so that many messages
share one; the newest time of a message is the one that counts.

A time that is further ahead than the longest delay that was ever asked for was decided by a process
that began while its clock was wrong: that message waits for the longest delay from now on.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from pyroaring import BitMap64

from zbroker.queues.work.columns import NumberColumn
from zbroker.queues.work.sets import bytes_of, insert, remove
from zbroker.queues.work.values import MS_NS

_PARTS: Final = 1_024  # a delay is over at most a 1024th of it late
UNKNOWN_MS: Final = 366 * 86_400_000  # of a delay of an earlier release: the longest there can be


def due_of(now_ns: int, delay_ms: int) -> int:
    """When a delay that begins now is over; 0: there is none."""
    if not delay_ms:
        return 0
    grain = max(1, delay_ms // _PARTS) * MS_NS
    return -(-(now_ns + delay_ms * MS_NS) // grain) * grain


class Delays:
    """waiting: what cannot be offered because of its time. `dues` has the times also of what is
    going, in case that it comes back."""

    def __init__(self) -> None:
        self.longest_ms = 0  # of all delays since the queue began
        self._last_ns = 0  # no time is later than that
        self.waiting = BitMap64()
        self.dues = NumberColumn()
        self._at: dict[int, BitMap64] = {}
        self._times: list[int] = []

    def put(self, positions: BitMap64, due_ns: int, delay_ms: int = 0) -> None:
        """Their time is that, whatever it was before. They do not wait for it yet.

        delay_ms: how long they were to wait; 0: it is not known.
        """
        self.longest_ms = max(self.longest_ms, delay_ms or UNKNOWN_MS)
        self._last_ns = max(self._last_ns, due_ns)
        self.dues.put(positions, [due_ns] * len(positions))
        bucket = self._at.get(due_ns)
        if bucket is None:
            self._at[due_ns] = positions.copy()
            heappush(self._times, due_ns)
        else:
            insert(bucket, positions)

    def wait(self, positions: BitMap64) -> BitMap64:
        """Those that have a time wait for it. Returns: those."""
        part = positions & self.dues.known
        insert(self.waiting, part)
        return part

    def pause(self, positions: BitMap64) -> None:
        """They do not wait; they may again."""
        if self.waiting:
            remove(self.waiting, positions)

    def drop(self, positions: BitMap64) -> None:
        """They have no time any more."""
        if self.dues.known:
            remove(self.waiting, positions)
            self.dues.drop(positions)
            if not self.dues.known:
                self._at.clear()
                self._times.clear()

    def over(self, now_ns: int) -> BitMap64:
        """Takes out what has waited long enough."""
        self._correct(now_ns)
        found = BitMap64()
        while self._times and self._times[0] <= now_ns:
            due = heappop(self._times)
            ended = self._pop(due)
            self.dues.drop(ended)
            found |= ended & self.waiting
            remove(self.waiting, ended)
        return found

    def _pop(self, due_ns: int) -> BitMap64:
        """Takes a bucket out. Returns: those of it that have no newer time."""
        bucket = self._at.pop(due_ns) & self.dues.known
        dues = zip(bucket, self.dues.of(bucket), strict=True)
        return BitMap64([position for position, its in dues if its == due_ns])

    def _correct(self, now_ns: int) -> None:
        """No time is further ahead than the longest delay."""
        latest_ns = due_of(now_ns, self.longest_ms)
        if self._last_ns <= latest_ns:
            return
        self._last_ns = latest_ns
        for due_ns in [each for each in self._at if each > latest_ns]:
            self.put(self._pop(due_ns), latest_ns, 1)
        self._times = list(self._at)
        heapify(self._times)

    @property
    def next_ns(self) -> int | None:
        """When the next one is over."""
        return self._times[0] if self._times else None

    def wake_ns(self, now_ns: int) -> int | None:
        """When to ask what is over: now, if a clock was wrong."""
        if not self._times:
            return None
        wrong = self._last_ns > due_of(now_ns, self.longest_ms)
        return now_ns if wrong else self._times[0]

    def by_due(self) -> Iterator[tuple[int, BitMap64]]:
        """What waits, by its time."""
        for due_ns, bucket in self._at.items():
            waiting = bucket & self.waiting
            dues = zip(waiting, self.dues.of(waiting), strict=True)
            newest = BitMap64([position for position, its in dues if its == due_ns])
            if newest:
                yield due_ns, newest

    def due(self, position: int) -> int | None:
        """Until when one waits."""
        return self.dues.get(position) or None

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """For `load`."""
        return *self.dues.dump(), self.longest_ms.to_bytes(8, "little")

    def load(self, positions: bytes, dues: bytes, longest: bytes | None = None) -> None:
        """Nothing waits for its time yet. longest: None in tables of an earlier release.

        Raises: ValueError.
        """
        self.dues.load(positions, dues)
        self.longest_ms = UNKNOWN_MS if longest is None else int.from_bytes(longest, "little")
        by_due: dict[int, list[int]] = {}
        for position, due in self.dues.rows(0):
            by_due.setdefault(due, []).append(position)
        self._at = {due: BitMap64(many) for due, many in by_due.items()}
        self._times = list(self._at)
        self._last_ns = max(self._times, default=0)
        heapify(self._times)

    def memory_bytes(self) -> int:
        """Roughly."""
        return self.dues.memory_bytes() + bytes_of(self.waiting, *self._at.values())

    def check(self) -> None:
        """Asserts what is always true."""
        self.dues.check()
        assert sorted(self._times) == sorted(self._at)
        assert all(each <= self._last_ns for each in self._times)
        assert self.waiting.issubset(self.dues.known)
        for position in self.dues.known:
            assert position in self._at[self.dues.get(position)]
