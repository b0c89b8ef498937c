"""What one instance said that it holds. Pure.

Only the instance itself speaks for itself: acknowledgements and removal count what came on its own
link. A statement that another one passed on serves tools, and the choice of a way.
Source: the design of replication, rule 4.
"""

from __future__ import annotations

from zbroker.ids import Origin
from zbroker.wire.replication import CLOSED_SAID_MAX, OriginPosition, Statement


class Holdings:
    """The newest statement of one instance. sources: instances that send to it now. closed: where
    generations ended that are whole there."""

    def __init__(self) -> None:
        self.instance = self.generation = 0
        self.rows: dict[Origin, OriginPosition] = {}
        self.sources: frozenset[int] = frozenset()
        self.closed: dict[Origin, int] = {}
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
            self.rows, self.closed = {}, {}
        self.instance, self._newest = statement.instance, said
        self.generation = statement.generation
        self.sources = frozenset(statement.sources)
        if statement.closed:
            ends = ((Origin(one.instance, one.generation), one.end) for one in statement.closed)
            self.closed = dict(ends)
        for row in statement.rows:
            self.rows[Origin(row.instance, row.generation)] = row
        return True

    def generations_of(self, instance: int) -> list[tuple[int, int]]:
        """How far it has each generation of an instance."""
        held = {o: row.position for o, row in self.rows.items()} | self.closed
        return [(o.generation, at) for o, at in held.items() if o.instance == instance]

    def has_all_of(self, origin: Origin) -> bool:
        """Whether a generation that is closed here is so old that a statement need not name it."""
        said = [one.generation for one in self.closed if one.instance == origin.instance]
        return len(said) >= CLOSED_SAID_MAX and origin.generation < min(said)

    def position(self, origin: Origin, digest: int) -> int:
        """Up to where it holds what this filter wants of an origin; 0 if by another filter."""
        if (end := self.closed.get(origin)) is not None:
            return end
        row = self.rows.get(origin)
        return row.position if row is not None and row.digest == digest else 0

    def received(self, origin: Origin, position: int, digest: int) -> None:
        """A receipt says that a record is durable there."""
        row = self.rows.get(origin)
        if row is None:
            self.rows[origin] = OriginPosition(*origin, position, digest)
        elif row.digest == digest:
            row.position = max(row.position, position)
