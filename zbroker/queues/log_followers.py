"""The walks of queues over the log; queues that are at one place share one. Pure."""

from __future__ import annotations

from typing import Final

from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import Read
from zbroker.ids import Origin
from zbroker.limits import KIB, MIB
from zbroker.log.format import FLAG_UNIT, Batch
from zbroker.log.reader import Cursor
from zbroker.queues.queue_state import Walk

BLOCK_BYTES: Final = 512 * KIB
HEADERS_BYTES: Final = 2 * MIB  # of the log, of which only headers are read
WHOLE_BLOCKS: Final = 2  # are read in a row and used by no queue; then headers alone


class LogFollowers:
    """All walks. `persisted`: positions below it may be read; 0 until the journal was heard of."""

    def __init__(self) -> None:
        self.persisted = 0
        self.walks: dict[int, Walk] = {}
        self._last_key = 0
        self._turn = 0

    def begin(self, member: str, position: int) -> Walk:
        """`member` reads from `position` on; with those who are there already, if there are."""
        walks = (one for one in self.walks.values() if one.alone is None)
        walk = next((one for one in walks if one.position == position), None)
        if walk is None:
            self._last_key += 1
            walk = Walk(self._last_key, Cursor(0, 0, position), position)
            self.walks[walk.key] = walk
        walk.members.add(member)
        return walk

    def begin_alone(self, member: str, origin: Origin | None, position: int) -> Walk:
        """Records of this origin are read again from `position` on; no other walk joins that.
        None: all of them, for the names of what is in a local queue."""
        self._last_key += 1
        walk = Walk(self._last_key, Cursor(0, 0, position), position, alone=(member, origin))
        self.walks[walk.key] = walk
        return walk

    def end(self, member: str) -> None:
        """It reads no more."""
        for walk in list(self.walks.values()):
            walk.members.discard(member)
            if not walk.members and (walk.alone is None or walk.alone[0] == member):
                del self.walks[walk.key]

    def next_read(self) -> Read | None:
        """What to read next."""
        due = [walk for walk in self.walks.values() if walk.position < self.persisted]
        if not due:
            return None
        self._turn += 1
        walk = self._whose_turn(due)
        headers = walk.unused >= WHOLE_BLOCKS
        most = HEADERS_BYTES if headers else BLOCK_BYTES
        return Read(walk.key, walk.cursor, walk.seek, self.persisted, most, headers=headers)

    def _whose_turn(self, due: list[Walk]) -> Walk:
        """Each in turn, and between any two the newest and the oldest place: so queues that follow
        the end wait for few others, and many that begin at the start soon read together."""
        together = [walk for walk in due if walk.alone is None]
        choose = (None, max, min)[self._turn % 3]
        if choose is None or not together:
            return due[self._turn // 3 % len(due)]
        return choose(together, key=lambda walk: walk.position)

    def read(self, key: int, block: Block) -> tuple[Walk, Walk] | None:
        """Moves a walk to the end of a block; one that reaches another joins it.

        Returns: the walk that the block was read for, and the one that its members are in now;
        None: it is over.
        """
        walk = self.walks.get(key)
        if walk is None:
            return None
        before = walk.position
        walk.cursor, walk.position, walk.seek = block.next, block.next.position, False
        last = block.items[-1] if block.items else None
        walk.in_unit = isinstance(last, Batch) and bool(last.flags & FLAG_UNIT)
        others = () if walk.alone is not None else self.walks.values()
        passed = next(
            (
                one for one in others
                if one.alone is None and before < one.position <= walk.position
            ),
            walk,
        )  # fmt: skip
        if passed is not walk:
            passed.members |= walk.members
            del self.walks[walk.key]
        return walk, passed

    @property
    def lag(self) -> int:
        """Positions that the slowest walk has not read."""
        return max((self.persisted - walk.position for walk in self.walks.values()), default=0)

    @property
    def lowest(self) -> int | None:
        """The position of the slowest walk."""
        return min((walk.position for walk in self.walks.values()), default=None)

    def position_of(self, member: str) -> int:
        """How far the log was read for `member`."""
        return next(walk.position for walk in self.walks.values() if member in walk.members)

    def look_again(self) -> None:
        """The journal was started again: files may differ, cursors are looked for by position."""
        for walk in self.walks.values():
            walk.seek = True
