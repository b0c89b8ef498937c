"""What this instance holds, as it tells its peers. Pure.

The journal says it once, when a link begins; from then on receipts and watermarks raise it. Only
what is durable counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from zbroker.ids import Origin
from zbroker.wire.replication import (
    CLOSED_SAID_MAX,
    ROWS_MAX,
    AskingInstance,
    ClosedGeneration,
    FarPosition,
    LaterGeneration,
    OriginPosition,
    Statement,
)


class OwnHoldings:
    """The rows of this instance's log. known: the journal has said them. closed: where generations
    ended that are whole here. closings: how often the journal has closed one."""

    def __init__(self, instance: int) -> None:
        self.instance = instance
        self.known = False
        self.takes_state = False  # the log is empty, and was never open
        self.filling = False  # it began like that, and gets what others hold
        self.far: list[FarPosition] = []  # see far_holdings.py
        self.awaits: list[str] | None = None  # peers, while the log asks what they hold
        self.asking: list[AskingInstance] = []  # see asking_instances.py
        self.later: list[LaterGeneration] = []  # see zbroker.journal.later_generations
        self.generation = 0
        self.started_ns = 0
        self.counter = 0  # of the newest change
        self.sources: frozenset[int] = frozenset()
        self.closed: dict[Origin, int] = {}
        self.closed_under: dict[Origin, int] = {}  # digests of their topics
        self.closings = 0
        self.forgotten: frozenset[str] = frozenset()
        self.open_generations = 0  # of this instance, without the newest
        self._said_closed: list[ClosedGeneration] = []
        self._closed_counter = 0  # of their newest change
        self._rows: dict[Origin, OriginPosition] = {}
        self._changed: dict[Origin, int] = {}  # counter of the newest change of each

    def begin(
        self,
        generation: int,
        started_ns: int,
        rows: Iterable[OriginPosition],
        closed: Iterable[ClosedGeneration] = (),
    ) -> None:
        """A journal says all of it; what another process of it said before counts no more."""
        self.known, self.generation, self.started_ns = True, generation, started_ns
        self._rows.clear()
        self._changed.clear()
        for row in rows:
            self._note(Origin(row.instance, row.generation), row)
        ends = list(closed)
        self.closed = {Origin(one.instance, one.generation): one.end for one in ends}
        self.closed_under = {Origin(one.instance, one.generation): one.digest for one in ends}
        self.counter += 1
        self._said_closed, self._closed_counter = _newest(ends), self.counter

    def lost(self) -> None:
        """The journal is gone: what it said may be more than its successor has."""
        self.known = False

    def raised(self, origin: Origin, position: int, digest: int) -> None:
        """Records of an origin are durable here up to this position, under these topics. How far a
        closed generation is taken again the journal says."""
        if origin in self.closed:
            return
        row = self._rows.get(origin)
        if row is None or row.position < position:
            begins = row.begins if row is not None else 0
            if row is not None and row.position and row.digest != digest:
                begins = row.position + 1
            self._note(origin, OriginPosition(*origin, position, digest, begins))

    def row(self, origin: Origin) -> OriginPosition | None:
        """How far an origin is here, and under which topics."""
        return self._rows.get(origin)

    def digest(self, origin: Origin) -> int:
        """The topics under which an origin is here, also one that is closed."""
        row = self._rows.get(origin)
        return row.digest if row is not None else self.closed_under.get(origin, 0)

    def receives_from(self, sources: Iterable[int]) -> None:
        """Instances whose records come on a live link."""
        found = frozenset(sources)
        if found != self.sources:
            self.sources = found
            self.counter += 1

    def position(self, origin: Origin) -> int:
        """Up to where the records of an origin are here."""
        row = self._rows.get(origin)
        return row.position if row is not None else 0

    def reach(self, origin: Origin) -> int:
        """The same, also of a generation that is closed."""
        return self.closed.get(origin, self.position(origin))

    def _note(self, origin: Origin, row: OriginPosition) -> None:
        self.counter += 1
        self._rows[origin] = row
        self._changed[origin] = self.counter

    def statement(self) -> Statement:
        """All of it."""
        return self._of(list(self._rows.values()), self._said_closed)

    def changed(self, since: int) -> Statement:
        """What changed after the statement with this counter."""
        rows = [self._rows[o] for o, counter in self._changed.items() if counter > since]
        return self._of(rows, self._said_closed if self._closed_counter > since else [])

    def _of(self, rows: list[OriginPosition], closed: list[ClosedGeneration]) -> Statement:
        self.counter += 1  # a repeated one is newer than what another link forwarded
        return Statement(
            self.instance, self.generation, self.started_ns, self.counter, rows,
            sorted(self.sources), closed, self.filling, self.far, self.asking,
            self.later,
        )  # fmt: skip


def _newest(ends: list[ClosedGeneration]) -> list[ClosedGeneration]:
    """Those that a statement names."""
    said: Counter[int] = Counter()
    found: list[ClosedGeneration] = []
    for one in sorted(ends, key=lambda each: -each.generation):
        if said[one.instance] < CLOSED_SAID_MAX and len(found) < ROWS_MAX:
            said[one.instance] += 1
            found.append(one)
    return found
