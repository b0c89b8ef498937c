"""What one instance said that it holds. Pure.

Only the instance itself speaks for itself: acknowledgements and removal count what came on its own
link. A statement that another one passed on serves tools, and the choice of a way.
Source: the design of replication, rule 4.
"""

from __future__ import annotations

from zbroker.ids import Origin
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire.replication import (
    CLOSED_SAID_MAX,
    AskingInstance,
    FarPosition,
    LaterGeneration,
    OriginPosition,
    Statement,
)


class Holdings:
    """The newest statement of one instance. sources: instances that send to it now. closed: where
    generations ended that are whole there. filling: it does not hold yet what belongs there."""

    def __init__(self) -> None:
        self.instance = self.generation = 0
        self.filling = False
        self.far: list[FarPosition] = []  # what others hold of which it has less, as it says
        self.asking: list[AskingInstance] = []  # it, and those of which it has heard
        self.later: list[LaterGeneration] = []  # of which it has heard
        self.news = False  # by its newest statement any of these is another
        self.rows: dict[Origin, OriginPosition] = {}
        self.sources: frozenset[int] = frozenset()
        self.closed: dict[Origin, int] = {}
        self._closed_whole = True  # of all topics
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
            self.rows, self.closed, self._closed_whole = {}, {}, True
        self.instance, self._newest = statement.instance, said
        self.generation = statement.generation
        same = (statement.far, statement.filling, statement.asking, statement.later) == (
            self.far, self.filling, self.asking, self.later
        )  # fmt: skip
        self.news = bool(statement.rows) or not same
        self.far, self.filling, self.asking = statement.far, statement.filling, statement.asking
        self.later = statement.later
        self.sources = frozenset(statement.sources)
        if statement.closed:
            ends = ((Origin(one.instance, one.generation), one.end) for one in statement.closed)
            self.closed = dict(ends)
            self._closed_whole = not any(one.digest for one in statement.closed)
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
        """Up to where it holds what the topics with this digest want of an origin; 0 if it has it
        under others. A row of everything has that of all topics."""
        if (end := self.closed.get(origin)) is not None:
            return end
        row = self.rows.get(origin)
        return row.position if row is not None and row.digest in (0, digest) else 0

    def any_position(self, origin: Origin) -> int:
        """The same, whatever its topics are."""
        if (end := self.closed.get(origin)) is not None:
            return end
        row = self.rows.get(origin)
        return row.position if row is not None else 0

    def reaches(self, origin: Origin, position: int) -> bool:
        """Whether it holds an origin up to there, whatever its topics are."""
        return self.any_position(origin) >= position or self.has_all_of(origin)

    def safe_position(self, origin: Origin) -> int:
        """The same as it is after a crash there, at least."""
        if (end := self.closed.get(origin)) is not None:
            return end
        row = self.rows.get(origin)
        return row.safe if row is not None else 0

    def whole_of(self, instance: int) -> list[tuple[int, int]]:
        """How far it has each generation of an instance with all topics: that can come back."""
        rows = {o: row.position for o, row in self.rows.items() if not row.digest} | self.closed
        return [(o.generation, at) for o, at in rows.items() if o.instance == instance]

    def more_than(self, own: OwnHoldings) -> list[OriginPosition]:
        """What it holds of other instances with all topics, and that one does not."""
        ends = [OriginPosition(*one, end) for one, end in self.closed.items()]
        return [
            row for row in [*self.rows.values(), *ends]
            if row.instance != own.instance and not row.digest
            and (one := Origin(row.instance, row.generation)) not in own.closed
            and row.position > own.position(one)
        ]  # fmt: skip

    def far_of(self, own: OwnHoldings) -> list[FarPosition]:
        """What others hold, as it says, and that one does not."""
        return [
            far for far in self.far
            if far.instance != own.instance and far.origin not in own.closed
            and far.position > own.position(far.origin)
            and not self.reaches(far.origin, far.position)
        ]  # fmt: skip

    @property
    def is_whole(self) -> bool:
        """True if it has no origin under some topics only."""
        return self._closed_whole and not any(row.digest for row in self.rows.values())

    def received(self, origin: Origin, position: int, digest: int) -> None:
        """A receipt says that a record is durable there."""
        if origin in self.closed:  # taken again beyond its end
            self.closed[origin] = max(position, self.closed[origin])
            return
        row = self.rows.get(origin)
        if row is None:
            self.rows[origin] = OriginPosition(*origin, position, digest)
        elif row.digest == digest:
            row.position = max(row.position, position)
            row.kept = row.kept and max(row.kept, position)
        elif position > row.position:  # it is taken under these topics from there on
            begins = row.position + 1 if row.position else 0
            self.rows[origin] = OriginPosition(*origin, position, digest, begins)
