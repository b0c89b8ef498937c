"""Who reads the log where: all queues follow its end, new ones catch up by themselves first. Pure.

    new queue --a walk of its own--> reaches another walk --> one walk for both

Each walk reads blocks in turn. A queue knows how far it was folded and takes nothing twice, so two
walks may be merged wherever one has passed the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import Read
from zbroker.limits import KIB
from zbroker.log.reader import Cursor

BLOCK_BYTES: Final = 512 * KIB


@dataclass(slots=True)
class Walk:
    """One cursor and who reads with it. `position`: what stands before it was read."""

    key: int
    cursor: Cursor
    position: int
    seek: bool = True
    members: set[str] = field(default_factory=set)


class LogFollowers:
    """All walks. `persisted`: positions below it may be read; 0 until the journal was heard of."""

    def __init__(self) -> None:
        self.persisted = 0
        self._walks: dict[int, Walk] = {}
        self._last_key = 0
        self._turn = 0

    def begin(self, member: str, position: int) -> Walk:
        """`member` reads from `position` on; with those who are there already, if there are."""
        walk = next((one for one in self._walks.values() if one.position == position), None)
        if walk is None:
            self._last_key += 1
            walk = Walk(self._last_key, Cursor(0, 0, position), position)
            self._walks[walk.key] = walk
        walk.members.add(member)
        return walk

    def end(self, member: str) -> None:
        """It reads no more."""
        for walk in list(self._walks.values()):
            walk.members.discard(member)
            if not walk.members:
                del self._walks[walk.key]

    def next_read(self) -> Read | None:
        """What to read next; walks take turns."""
        due = [walk for walk in self._walks.values() if walk.position < self.persisted]
        if not due:
            return None
        self._turn += 1
        walk = due[self._turn % len(due)]
        return Read(walk.key, walk.cursor, walk.seek, self.persisted, BLOCK_BYTES)

    def read(self, key: int, block: Block) -> tuple[Walk, Walk] | None:
        """Moves a walk behind what was read; one that reaches another joins it.

        The walk whose members had it read, and the one that they are in now; None: nobody had.
        """
        walk = self._walks.get(key)
        if walk is None:
            return None
        before = walk.position
        walk.cursor, walk.position, walk.seek = block.next, block.next.position, False
        passed = next(
            (one for one in self._walks.values() if before < one.position <= walk.position), walk
        )
        if passed is not walk:
            passed.members |= walk.members
            del self._walks[walk.key]
        return walk, passed

    @property
    def walks(self) -> Iterable[Walk]:
        """All of them."""
        return self._walks.values()

    @property
    def behind(self) -> int:
        """Positions that the slowest walk has not read."""
        return max((self.persisted - walk.position for walk in self._walks.values()), default=0)

    @property
    def lowest(self) -> int | None:
        """Where the slowest walk stands."""
        return min((walk.position for walk in self._walks.values()), default=None)

    def position_of(self, member: str) -> int:
        """How far the log was read for `member`."""
        return next(walk.position for walk in self._walks.values() if member in walk.members)

    def look_again(self) -> None:
        """The journal was started anew: files may differ, cursors are looked for by position."""
        for walk in self._walks.values():
            walk.seek = True
