"""How old the messages of a queue are, and how much of the log they are: marks along it. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

STEP: Final = 1_000  # positions between two marks
MARKS_MAX: Final = 20_000  # then every second one is forgotten


class Ages:
    """Of one queue: positions with their log time, and the bytes that stand before them.

    total: bytes of everything that entered since the marks began.
    """

    def __init__(self) -> None:
        self.total = 0
        self._step = STEP
        self._positions = array("q")
        self._times = array("q")
        self._bytes = array("q")

    def add(self, position: int, log_time: int, size: int) -> None:
        """A batch, in log order."""
        if not self._positions or position >= self._positions[-1] + self._step:
            if len(self._positions) >= MARKS_MAX:
                self._thin()
            self._positions.append(position)
            self._times.append(log_time)
            self._bytes.append(self.total)
        self.total += size

    def _thin(self) -> None:
        self._step *= 2
        for one in (self._positions, self._times, self._bytes):
            one[:] = one[::2]

    def at(self, position: int) -> tuple[int | None, int]:
        """Log time at a position, or a little before it; bytes that stand before that."""
        found = bisect_right(self._positions, position) - 1
        if found < 0:
            return None, 0
        return self._times[found], self._bytes[found]

    def forget(self, position: int) -> None:
        """Nobody asks about what stands before this position any more."""
        passed = bisect_right(self._positions, position) - 1
        if passed > 0:
            for one in (self._positions, self._times, self._bytes):
                del one[:passed]

    def dump(self) -> bytes:
        """For the tables."""
        head = array("q", [self.total, self._step, len(self._positions)])
        return b"".join(one.tobytes() for one in (head, self._positions, self._times, self._bytes))

    def load(self, data: bytes) -> None:
        """From the tables."""
        numbers = array("q")
        numbers.frombytes(data)
        self.total, self._step, count = numbers[:3]
        self._positions = numbers[3 : 3 + count]
        self._times = numbers[3 + count : 3 + 2 * count]
        self._bytes = numbers[3 + 2 * count :]
