"""How often messages were delivered and given back, for those that ever came back. Pure.

A Tally has a bitmap for each binary digit of its counts, so that any number of messages is counted
with a few operations, and what never came back costs nothing.
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from zbroker.queues.work.sets import bytes_of, insert, lowest, remove, without

DIGITS: Final = 16  # a count ends at 65,535, as it does on the wire
COUNT_MAX: Final = (1 << DIGITS) - 1


class DeliveryTally:
    """`counted`: positions whose count is not 0."""

    def __init__(self) -> None:
        self.counted = BitMap64()
        self._digits: list[BitMap64] = []

    def add(self, positions: BitMap64, count: int = 1) -> None:
        """Each of them counts so many more."""
        if not positions:
            return
        insert(self.counted, positions)
        for at in range(min(count, COUNT_MAX).bit_length()):
            if min(count, COUNT_MAX) >> at & 1:
                self._add_digit(positions, at)

    def _add_digit(self, positions: BitMap64, at: int) -> None:
        while len(self._digits) < at:
            self._digits.append(BitMap64())
        carry = positions.copy()
        for digit in self._digits[at:]:
            both = digit & carry
            insert(digit, carry)
            remove(digit, both)
            carry = both
            if not carry:
                return
        if len(self._digits) < DIGITS:
            self._digits.append(carry)
        else:
            for digit in self._digits:
                insert(digit, carry)

    def drop(self, positions: BitMap64) -> None:
        """They count nothing any more."""
        if not self.counted:
            return
        part = positions & self.counted
        if part:
            for digit in (self.counted, *self._digits):
                remove(digit, part)
        if not self.counted:
            self._digits.clear()

    def of(self, position: int) -> int:
        """The count of one."""
        if position not in self.counted:
            return 0
        return sum(1 << at for at, digit in enumerate(self._digits) if position in digit)

    def least(self, count: int, among: BitMap64) -> BitMap64:
        """Those of `among` that count so much at least; count > 0."""
        same, more = among & self.counted, BitMap64()
        for at in range(max(len(self._digits), count.bit_length()) - 1, -1, -1):
            digit = self._digits[at] if at < len(self._digits) else BitMap64()
            ones = same & digit
            if count >> at & 1:
                same = ones
            else:
                more |= ones
                same -= ones
        return more | same

    def dump(self) -> list[BitMap64]:
        """The digits, lowest first."""
        return self._digits

    def load(self, digits: list[BitMap64]) -> None:
        """What `dump` gave. Raises: ValueError."""
        if len(digits) > DIGITS:
            raise ValueError(f"{len(digits)} digits of a count")
        self._digits = digits
        self.counted = BitMap64.union(*digits) if digits else BitMap64()

    def memory_bytes(self) -> int:
        """Roughly."""
        return bytes_of(self.counted, *self._digits)


class DeliveryCounts:
    """The counts of one queue.

    failures: releases and ended leases, each of one delivery. cancels: releases. suspects: may
    have been delivered before the process started; counts as one delivery. uncounted: deliveries
    that came back without a record; they only flag what comes again, and end with the process.
    """

    def __init__(self) -> None:
        self.failures = DeliveryTally()
        self.cancels = DeliveryTally()
        self.uncounted = DeliveryTally()
        self.suspects = BitMap64()

    def failed(self, positions: BitMap64, why: str) -> None:
        """A delivery of each of them failed."""
        self.failures.add(positions)
        if why == "cancelled":
            self.cancels.add(positions)

    def drop(self, positions: BitMap64) -> None:
        """They are gone, or are counted from 0 again."""
        self.failures.drop(positions)
        self.cancels.drop(positions)
        self.uncounted.drop(positions)
        if self.suspects:
            remove(self.suspects, positions)

    def before(self, positions: BitMap64) -> BitMap64:
        """Those that were delivered before, or may have been."""
        found = BitMap64()
        for seen in (self.failures.counted, self.uncounted.counted, self.suspects):
            if seen:
                found |= positions & seen
        return found

    def deliveries(self, position: int) -> int:
        """How often it was delivered, and came back."""
        came_back = self.failures.of(position) + self.uncounted.of(position)
        return min(COUNT_MAX, came_back + (position in self.suspects))

    def delivered(self, count: int, among: BitMap64) -> BitMap64:
        """Those of which so many deliveries are recorded at least."""
        if count <= 0:
            return among
        found = self.failures.least(count, among)
        if self.suspects:
            suspects = among & self.suspects
            found |= self.failures.least(count - 1, suspects) if count > 1 else suspects
        return found

    def by_failures(self, positions: BitMap64, steps: int) -> list[tuple[int, BitMap64]]:
        """Positions by how often they failed before: 0, 1 ... the last step has all that failed
        more often, too."""
        found, rest = [], positions
        for step in range(steps - 1, 0, -1):
            part = self.failures.least(step, rest)
            if part:
                found.append((step, part))
                rest = without(rest, part)
        return [*found, (0, rest)] if rest else found

    def memory_bytes(self) -> int:
        """Roughly."""
        tallies = (self.failures, self.cancels, self.uncounted)
        return sum(one.memory_bytes() for one in tallies) + bytes_of(self.suspects)

    def check(self, here: BitMap64) -> None:
        """Asserts what is always true."""
        for tally in (self.failures, self.cancels, self.uncounted):
            assert tally.counted == BitMap64.union(BitMap64(), *tally.dump())
            assert tally.counted.issubset(here)
        assert self.suspects.issubset(here)
        for position in lowest(self.cancels.counted, 100):
            assert self.cancels.of(position) <= self.failures.of(position)
