"""Messages that can be offered: in order, by priority (ranked), one of each key (grouped). Pure.

enter, add --> standing --take--> with a consumer
                  ^    --discard--> here, and somewhere else
                  +-------add-------- both
forget: out of the queue
"""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.limits import U63_MAX
from zbroker.queues.work.sets import bytes_of, insert, lowest, remove
from zbroker.queues.work.values import Arrivals


class ReadyMessages:
    """The messages that can be offered, in the order of their positions.

    standing: those that neither a consumer has nor another place. appeared: those that can be
    offered since it was last emptied; None: that is not noted.
    """

    def __init__(self) -> None:
        self.standing = BitMap64()
        self.appeared: BitMap64 | None = None

    def enter(self, entered: Arrivals) -> None:
        """New messages."""
        self.add(entered.positions)

    def add(self, positions: BitMap64) -> None:
        """They can be offered, as far as others of their key let them."""
        insert(self.standing, positions)
        if self.appeared is not None:
            insert(self.appeared, positions)

    def discard(self, positions: BitMap64) -> None:
        """They cannot be offered for now."""
        remove(self.standing, positions)

    def forget(self, positions: BitMap64) -> None:
        """They left the queue; none of them is among the standing ones."""

    def take(
        self, count: int, stop: int = U63_MAX, among: BitMap64 | None = None
    ) -> list[BitMap64]:
        """The next `count`, of those before `stop` that are `among` these: one set after the
        other, each in the order of its positions."""
        if among is not None:
            part = lowest(among & self.standing, count, stop)
            remove(self.standing, part)
            return [part] if part else []
        part = lowest(self.standing, count, stop)
        if not part:
            return []
        # no other one is between the first and the last of them
        self.standing.remove_range(part.min(), part.max() + 1)
        return [part]

    def count(self, limit: int, stop: int = U63_MAX, among: BitMap64 | None = None) -> int:
        """How many `take` would give, up to `limit`."""
        part = self.standing if among is None else among & self.standing
        return len(lowest(part, limit, stop))

    def candidates(self, count: int, stop: int, at: int) -> BitMap64:
        """The lowest ones from `at` on that can be offered."""
        return lowest(self.standing, count, stop, at)

    def waits(self, position: int) -> bool:
        """True if a standing one waits for another of its key."""
        return False

    def waiting(self, stop: int = U63_MAX) -> int:
        """How many before `stop` wait for another of their key, as far as was looked."""
        return 0

    def dump(self) -> tuple[bytes, bytes] | None:
        """The numbers that are known of messages."""
        return None

    def load(self, known: tuple[bytes, bytes] | None, standing: BitMap64) -> None:
        """All messages of a queue; nothing else was done before. Raises: ValueError."""
        self.standing = standing

    def memory_bytes(self) -> int:
        """Roughly."""
        return bytes_of(self.standing)

    def check(self, here: BitMap64) -> None:
        """Asserts what is always true."""
        assert self.standing.issubset(here)
