"""A damaged range that a link has read: which origins lack nothing of it at the destination. Pure.

It is not known which records it had. The next complete state snapshot says how far each origin was
at its place: a destination that has all of that needs nothing of the range.
"""

from __future__ import annotations

from collections.abc import Callable

from zbroker.ids import Origin
from zbroker.replication.snapshot_rows import Rows, SnapshotRows


class DamagedRange:
    """The newest one since reading began, if there was any."""

    def __init__(self) -> None:
        self._rows: SnapshotRows | None = None
        self._whole: set[Origin] = set()  # of which nothing is missing since then

    def forget(self) -> None:
        """Reading begins again."""
        self._rows = None
        self._whole.clear()

    def begin(self) -> None:
        """It is read now."""
        self._rows = SnapshotRows()
        self._whole.clear()

    def proved(self, body: bytes | memoryview) -> Rows:
        """Takes a part of a state snapshot; what the snapshot says of origins if that completes the
        first one after the range."""
        rows = self._rows
        if rows is None or rows.complete is not None or not rows.add(body):
            return {}
        return rows.complete or {}

    def is_whole(self, origin: Origin, held: int) -> bool:
        """Whether a destination that holds so much of this origin lacks nothing of the range."""
        if self._rows is None or origin in self._whole:
            return True
        rows = self._rows.complete
        if rows is None or held < rows.get(origin, (0, 0))[0]:
            return False
        self._whole.add(origin)
        return True

    def is_covered(self, held: Callable[[Origin], int]) -> bool:
        """Whether one that holds so much of each origin needs nothing of the range."""
        rows = self._rows.complete if self._rows is not None else None
        return rows is not None and all(held(origin) >= at for origin, (at, _) in rows.items())
