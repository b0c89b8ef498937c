"""The points that the queues process knows: places in this log, and those of all instances. Pure.

The journal keeps them, and says all of them when a shared one has changed; what this process writes
itself counts as soon as it has landed. A name is that of one point: a shared one takes the place of
a local one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from zbroker.errors import unknown_point
from zbroker.log.point_records import (
    ENDED_AT_ONCE_MAX,
    PointId,
    SharedPointRecord,
    SharedPointRow,
    decoded_row,
)
from zbroker.log.records import POINT, PointRecord
from zbroker.wire.queue_surveys import PointRow
from zbroker.wire.units import NamedRows


class KnownPoints(Mapping[str, PointRow]):
    """Those of one instance, by name. covers_bytes: size of the vectors of all shared ones."""

    def __init__(self, position_of: Callable[[str], int]) -> None:
        """position_of: the place in this log that a vector of it means."""
        self._position_of = position_of
        self._local: dict[str, PointRow] = {}
        self._shared: dict[str, dict[PointId, SharedPointRow]] = {}
        self._last_number = 0
        self.covers_bytes = 0

    def __getitem__(self, name: str) -> PointRow:
        known = self._shared.get(name)
        return _meant(known.values()) if known else self._local[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._local
        yield from self._shared

    def __len__(self) -> int:
        return len(self._local) + len(self._shared)

    def named(self, name: str) -> PointRow:
        """The point with this name. Raises: ClientError unknown_point."""
        row = self.get(name)
        if row is None:
            raise unknown_point(name)
        return row

    def is_shared(self, name: str) -> bool:
        """It is the same point on every instance."""
        return name in self._shared

    def set_by(self, name: str) -> list[PointId]:
        """The records that set the shared points of this name, the oldest first."""
        rows = sorted(self._shared.get(name, {}).values(), key=lambda row: row.rank)
        return [row.id for row in rows][:ENDED_AT_ONCE_MAX]

    def next_number(self, name: str, wall_ns: int) -> int:
        """The number of a point that is set now: above all that are known, or on their way from
        here."""
        known = max((row.number for row in self._shared.get(name, {}).values()), default=0)
        self._last_number = max(known + 1, wall_ns, self._last_number + 1)
        return self._last_number

    # -- what the log says --------------------------------------------------------------------

    def learn(self, named: NamedRows) -> None:
        """All that the log has. What landed here after that is said later: the journal answers in
        its order."""
        self._local, self._shared, self.covers_bytes = {}, {}, 0
        for row in named.points:
            self.set_local(POINT.decode(row.body), row.position)
        for row in named.shared:
            self._set(decoded_row(row.body))

    def set_local(self, record: PointRecord, set_at: int) -> None:
        """A place in this log has landed."""
        name, vector = record.name, record.vector
        if name not in self._shared:
            place = self._position_of(vector)
            self._local[name] = PointRow(name, place, vector, set_at, record.covers)

    def remove_local(self, name: str) -> None:
        """Its removal has landed."""
        self._local.pop(name, None)

    def shared_landed(self, record: SharedPointRecord, made: PointId, position: int) -> None:
        """A record of this process has landed. made: its identity."""
        known = self._shared.get(record.name, {})
        for one in record.ends:
            row = known.pop(one, None)
            self.covers_bytes -= len(row.covers) if row is not None else 0
        if not known:
            self._shared.pop(record.name, None)
        if record.covers:
            number, covers = record.number, record.covers
            self._set(SharedPointRow(*made, record.name, number, covers, position))

    def _set(self, row: SharedPointRow) -> None:
        self._shared.setdefault(row.name, {})[row.id] = row
        self._local.pop(row.name, None)
        self.covers_bytes += len(row.covers)


def _meant(rows: Iterable[SharedPointRow]) -> PointRow:
    """The one that its name means: it has no place here before it is looked up."""
    row = max(rows, key=lambda row: row.rank)
    return PointRow(row.name, 0, "", row.position, row.covers, shared=True)
