"""The log, its index and its publishers, as locating looks at them. Each look is bounded.

An index entry leads to a batch at or before what is wanted; from there at most NEAR_BATCHES headers
are read. Only an index that says nothing, or not all, makes anybody read on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from zbroker.bookmarks.index import Hint, Index
from zbroker.errors import unknown_point
from zbroker.ids import Origin, parse_vector
from zbroker.journal.effects import Where
from zbroker.journal.sessions import Sessions
from zbroker.log.format import Batch
from zbroker.log.reader import Gap, Log
from zbroker.log.records import POINT

NEAR_BATCHES: Final = 1_000  # more than one block of the index holds


class Lookup(Struct, frozen=True):
    """The log, its index and its publishers, together."""

    log: Log
    index: Index
    sessions: Sessions

    def batches(self, hint: Hint | None, now: Where) -> Iterator[Batch]:
        """Batch headers from a verified hint on, damaged stretches left out."""
        if hint is None:
            cursor = self.log.seek(now.log_start)
        else:
            cursor = self.log.seek(hint.position, hint.serial, hint.offset)
        found = self.log.headers(cursor, now.persisted)
        return (item[0] for item in found if not isinstance(item, Gap))

    def near(self, hint: Hint, now: Where) -> Iterator[Batch]:
        """Those of the hint's block, and some more."""
        return islice(self.batches(hint, now), NEAR_BATCHES)

    def place(self, position: int) -> Hint | None:
        """A batch at or before `position`: the index's, or else the first one of the segment."""
        hint = self.index.at_or_before(position)
        if hint is not None:
            return hint
        starts = (start for start in reversed(self.log.starts) if start.position <= position)
        start = next(starts, None)
        return Hint(start.serial, start.offset, start.position) if start is not None else None

    def point(self, name: str) -> dict[Origin, int]:
        """The vector of the place with that name. Raises: ClientError unknown_point."""
        row = self.sessions.named.points.get(name)
        vector = POINT.decode(row.body).vector if row is not None else ""
        if not vector:
            raise unknown_point(name)
        return parse_vector(vector)

    def whole(self, now: Where) -> bool:
        """True if the index knows the log to its end, so that what it lacks is not there."""
        index = self.index
        if index.at_or_before(now.persisted) is None:
            return False
        return not index.damaged and index.end >= now.persisted
