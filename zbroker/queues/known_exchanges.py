"""The exchanges that this process knows of, and commands that wait until ingest routes by them.
Pure.

    landed at a position --ingest routes by all before the next one--> answered

Rows of units of this process are learned when they land, all others from the journal. Dead letters
to exchanges are routed here, by all that is known when their unit is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from zbroker.exchanges.exchange_follower import ExchangeFollower
from zbroker.exchanges.exchange_rows import DeclaredQueue, Row
from zbroker.exchanges.exchange_table import Change, ExchangeTable
from zbroker.exchanges.router import Router
from zbroker.log.queue_records import QueueDeclaration, ReplicatedDefinition
from zbroker.log.records import DefinitionRecord
from zbroker.queues.commits import Done
from zbroker.wire.exchange_messages import ExchangeRows


class KnownExchanges:
    """changed: called after the table has changed."""

    def __init__(self) -> None:
        self.follower = ExchangeFollower()
        self.changed: Callable[[], None] = lambda: None
        self._landed = self._routed = 0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._until_known: list[Callable[[], None]] = []
        self._router: Router | None = None  # made when the first letter needs it

    @property
    def router(self) -> Router:
        """Routes by all that is known."""
        if self._router is None:
            self._router = Router()
            self._router.apply(self.table.changes(), self.table.version)
        return self._router

    def when_known(self, then: Callable[[], None]) -> None:
        """Calls `then` once a journal has said what exchanges there are."""
        if self.follower.known:
            then()
        else:
            self._until_known.append(then)

    @property
    def table(self) -> ExchangeTable:
        """All that is known."""
        return self.follower.table

    def take(self, said: ExchangeRows) -> None:
        """Rows of the journal."""
        changes = self.follower.learn(said)
        if said.whole:
            self._router = None
        self._routes_by(changes)
        self.changed()
        waiting, self._until_known = self._until_known, []
        for then in waiting:
            then()

    def _routes_by(self, changes: Iterable[Change]) -> None:
        if self._router is not None:
            self._router.apply(changes, self.table.version)

    def learn(self, rows: Iterable[Row], position: int) -> None:
        """Rows that have landed, up to a position."""
        self._landed = max(self._landed, position + 1)
        for row in rows:
            self._routes_by(self.table.learn(row).changes)
        self.changed()

    def landing(self, rows: Sequence[Row], done: Done) -> Done:
        """`done` of a unit that has these rows; they are known before it is called."""

        def landed(code: str, reason: str, position: int) -> None:
            if not code:
                self.learn(rows, position)
            done(code, reason, position)

        return landed

    @property
    def position(self) -> int:
        """All that is known was written before it."""
        return max(self._landed, self.follower.position)

    def when_routed(self, position: int, then: Callable[[], None]) -> None:
        """Calls `then` once ingest routes by all records before a position."""
        if position <= self._routed:
            then()
        else:
            self._waiting.append((position, then))

    def routed(self, position: int) -> None:
        """ingest routes by all before it. A journal that has just begun does not know that yet."""
        if position <= self._routed:
            return
        self._routed = position
        due = [then for at, then in self._waiting if at <= position]
        self._waiting = [one for one in self._waiting if one[0] > position]
        for then in due:
            then()


def declared(
    record: DefinitionRecord | ReplicatedDefinition, *, is_bound: bool
) -> list[DeclaredQueue]:
    """What all instances have to know of a queue that is bound: that it is made, or ends; of others
    nothing. is_bound: the queue that it ends was."""
    over = record.definition is None
    if not (is_bound if over else record.definition and record.definition.get("bound")):
        return []
    if isinstance(record, ReplicatedDefinition):
        return [DeclaredQueue(record.name, record.life, over)]
    assert record.routes is not None, "a bound queue has a life"
    return [DeclaredQueue(record.name, QueueDeclaration(*record.routes), over, local=True)]
