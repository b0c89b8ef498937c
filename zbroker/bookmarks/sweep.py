"""Takes entries of removed segments out of LMDB, a bounded number at a time.

In each line (positions, times, the runs of one publisher) entries rise with the log, but for those
of late batches; so only the beginning of each line is looked at. After an early late entry a few
may
stay until that one is removed: they cost space, and no look-up gives a place below the floor.

    p, r of the 1st publisher, r of the 2nd, ..., t     each: delete while below, then the next line
"""

from __future__ import annotations

from typing import Final

import lmdb

from zbroker.bookmarks import keys
from zbroker.bookmarks.keys import BadKey

STEPS: Final = 4_000  # entries deleted and lines begun in one transaction: some 20 ms of it
COST_BYTES: Final = STEPS * 4 * 4_096  # of map: in the worst case each touches a path of its own


class Sweep:
    """Everything whose batch begins below `floor`; `done` when nothing is left to look at."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self._next = keys.POSITION

    @property
    def done(self) -> bool:
        """All lines were looked at."""
        return not self._next

    def step(self, txn: lmdb.Transaction, steps: int = STEPS) -> bytes | BadKey:
        """Goes on for some steps; where to go on, for `advance` once the transaction is safe."""
        cursor = txn.cursor()
        found = cursor.set_range(self._next)
        while found:
            key = bytes(cursor.key())
            if steps <= 0:
                return key
            steps -= 1
            if key == keys.STAMP:
                found = cursor.next()
                continue
            place = keys.decode_place(key, bytes(cursor.value()))
            if isinstance(place, BadKey):
                return place
            if place.position < self.floor:
                found = cursor.delete() and bool(cursor.key())
            else:
                line = keys.next_line(key)
                found = bool(line) and cursor.set_range(line)
        return b""

    def advance(self, key: bytes) -> None:
        """What `step` did is committed; it goes on at `key`, nowhere if that is empty."""
        self._next = key
