"""What one instance said that it holds. Pure.

Only the instance itself speaks for itself: acknowledgements and removal count what came on its own
link. A statement that another one passed on serves tools, and the choice of a way.
Source: the design of replication, rule 4.
"""

from __future__ import annotations

from zbroker.ids import Origin
from zbroker.wire.replication import OriginPosition, Statement


class Holdings:
    """The newest statement of one instance. sources: instances that send to it now."""

    def __init__(self) -> None:
        self.instance = self.generation = 0
        self.rows: dict[Origin, OriginPosition] = {}
        self.sources: frozenset[int] = frozenset()
        self._newest = (0, 0)  # start of the journal that spoke, and its counter

    @property
    def heard(self) -> int:
        """The counter of the newest statement."""
        return self._newest[1]

    @property
    def started_ns(self) -> int:
        """When the journal that spoke last began."""
        return self._newest[0]

    def take(self, statement: Statement, *, whole: bool) -> bool:
        """False if a newer one was heard, or if a change is of a journal whose whole is not known.

        whole: of a Hello or Welcome: it counts whatever was said before, in older sessions. Rows
        that it does not have are gone, as after a disk was replaced.
        """
        said = statement.started_ns, statement.counter
        if not whole and (said <= self._newest or said[0] != self._newest[0]):
            return False
        if whole:
            self.rows = {}
        self.instance, self._newest = statement.instance, said
        self.generation = statement.generation
        self.sources = frozenset(statement.sources)
        for row in statement.rows:
            self.rows[Origin(row.instance, row.generation)] = row
        return True

    def generations_of(self, instance: int) -> list[tuple[int, int]]:
        """How far it has each generation of an instance."""
        rows = self.rows.items()
        return [(o.generation, row.position) for o, row in rows if o.instance == instance]

    def position(self, origin: Origin, digest: int) -> int:
        """Up to where it holds what this filter wants of an origin; 0 if by another filter."""
        row = self.rows.get(origin)
        return row.position if row is not None and row.digest == digest else 0

    def received(self, origin: Origin, position: int, digest: int) -> None:
        """A receipt says that a record is durable there."""
        row = self.rows.get(origin)
        if row is None:
            self.rows[origin] = OriginPosition(*origin, position, digest)
        elif row.digest == digest:
            row.position = max(row.position, position)
