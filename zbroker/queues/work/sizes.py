"""How many bytes messages have, of a queue that limits them. Pure.

14 bytes a message. What entered before the queue had a limit, or was brought back from the dead
letters, has no size here and counts as empty.
"""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.queues.work.columns import NumberColumn
from zbroker.queues.work.values import Arrivals


class MessageSizes:
    """`total`: bytes of all messages that are here, as far as they are known."""

    def __init__(self) -> None:
        self.total = 0
        self._sizes = NumberColumn()

    def __bool__(self) -> bool:
        return bool(self._sizes.known)

    def enter(self, entered: Arrivals) -> None:
        """New messages."""
        if entered.sizes is not None:
            self._sizes.put(entered.positions, entered.sizes)
            self.total += sum(entered.sizes)

    def drop(self, positions: BitMap64) -> None:
        """They left the queue."""
        known = positions & self._sizes.known
        if known:
            self.total -= sum(self._sizes.of(known))
            self._sizes.drop(known)

    def of(self, positions: BitMap64) -> list[int]:
        """The bytes of each."""
        return self._sizes.of(positions)

    def dump(self) -> tuple[bytes, bytes]:
        """For `load`."""
        return self._sizes.dump()

    def load(self, positions: bytes, sizes: bytes) -> None:
        """What `dump` gave. Raises: ValueError."""
        self._sizes.load(positions, sizes)
        self.total = sum(self._sizes.of(self._sizes.known))

    def memory_bytes(self) -> int:
        """Roughly."""
        return self._sizes.memory_bytes()

    def check(self, here: BitMap64) -> None:
        """Asserts what is always true."""
        assert self._sizes.known.issubset(here)
        assert self.total == sum(self._sizes.of(self._sizes.known))
