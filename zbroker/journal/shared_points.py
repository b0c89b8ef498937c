"""The points that all instances have in common, as the log says. Pure.

    record that sets it --> there --record that ends it--> gone
    record that ends it --> remembered --record that sets it--> gone

Folded from KIND_SHARED_POINT records of all instances and from state snapshots, in any order: a
record sets one point, and ends those that it names, for good. So a removal removes what its writer
knew, and nothing that somebody else sets meanwhile.

An end is remembered until this log has the origin of the point up to the record that set it: then
that record was read, or never comes. The next snapshot is the last one that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from zbroker.ids import Origin
from zbroker.limits import MIB
from zbroker.log.format import Batch
from zbroker.log.point_records import PointId, SharedPointRow, decoded_point

# An instance sets no more than half of it, so only a peer that goes wrong gets there. Points beyond
# it are not kept: such a peer cannot push out those that people have set.
KEPT_MAX: Final = 20_000
KEPT_MAX_BYTES: Final = 32 * MIB  # of their vectors
ENDS_MAX: Final = 10_000  # some 100 bytes each


class SharedPoints:
    """Those of one log. changes: how often something became different."""

    def __init__(self, reached: Callable[[Origin], int]) -> None:
        """reached: how far this log has an origin."""
        self.changes = 0
        self._reached = reached
        self._points: dict[str, dict[PointId, SharedPointRow]] = {}
        self._ended: dict[tuple[str, PointId], None] = {}  # in the order in which they came
        self._count = self._bytes = 0

    def fold(self, batch: Batch) -> str:
        """Learns from one record. Returns: the name that it set; "" if it set none."""
        record = decoded_point(batch.body)
        if record is None:
            return ""
        for one in record.ends:
            self._end(record.name, one)
        if not record.covers:
            return ""
        made = batch.origin_instance, batch.origin_generation, batch.origin_position
        row = SharedPointRow(*made, record.name, record.number, record.covers, batch.position)
        return record.name if self._set(row) else ""

    def learn(self, row: SharedPointRow) -> str:
        """Learns from a snapshot, likewise."""
        if row.covers:
            return row.name if self._set(row) else ""
        self._end(row.name, row.id)
        return ""

    def _set(self, row: SharedPointRow) -> bool:
        if (row.name, row.id) in self._ended:
            return False
        known = self._points.get(row.name, {})
        if row.id in known:
            return True
        if self._count >= KEPT_MAX or self._bytes + len(row.covers) > KEPT_MAX_BYTES:
            return False
        self._points.setdefault(row.name, known)[row.id] = row
        self._count += 1
        self._bytes += len(row.covers)
        self.changes += 1
        return True

    def _end(self, name: str, one: PointId) -> None:
        row = self._points.get(name, {}).pop(one, None)
        if row is not None:
            self._count -= 1
            self._bytes -= len(row.covers)
            self.changes += 1
            if not self._points[name]:
                del self._points[name]
        elif self._may_come(one):
            self._ended[name, one] = None
            if len(self._ended) > ENDS_MAX:
                del self._ended[next(iter(self._ended))]

    def _may_come(self, one: PointId) -> bool:
        """The record that sets it was not read."""
        return self._reached(one.origin) < one.position

    def meant(self, name: str) -> SharedPointRow | None:
        """The point that has this name."""
        known = self._points.get(name)
        return max(known.values(), key=lambda row: row.rank) if known else None

    def rows(self) -> Iterator[SharedPointRow]:
        """All that are there, by name and rank, each as of the moment it is asked for."""
        for name in sorted(self._points):
            yield from sorted(self._points.get(name, {}).values(), key=lambda row: row.rank)

    def lasting(self) -> Iterator[SharedPointRow]:
        """All that has to be known after a start: for state snapshots.

        A point whose end is known may be read after the first part of the snapshot, and before this
        one; a start reads it again. So its end is in one more snapshot.
        """
        yield from self.rows()
        ended = list(self._ended)
        self._ended = {key: None for key in ended if self._may_come(key[1])}
        for name, one in ended:
            yield SharedPointRow(*one, name)
