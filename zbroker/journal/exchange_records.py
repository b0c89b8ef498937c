"""What the log says of exchanges, bindings and bound queues, for those who ask the journal. Pure.

Folded from KIND_EXCHANGE records of all instances and from state snapshots; the order does not
matter (zbroker.exchanges.exchange_table). A process that asked before gets what has changed since,
as long as that is among the last RECENT_MAX changes; else it gets everything.

An end is kept as long as a declaration that it is about may come after it, from another instance:

    exchange, local queue   ended by the instance that declared it: its records come in order, so
                            the declaration was here before. State snapshots leave it out
    exchange                ended by another instance: left out once its declaration was read here.
                            The next snapshot has it still: a start reads the log from the first
                            part of it on, so the declaration may be read again
    queue of several        kept: another instance may have bound it before it knew of the end, and
                            a binding for a queue that is not known counts
    binding taken back      kept: made again, it needs a version above the one that others know

The newest ENDS_MAX are kept so. What a row that comes later says of an older life holds then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeGuard

from zbroker.exchanges.exchange_rows import DeclaredQueue, ExchangeRow, Row, rows_of
from zbroker.exchanges.exchange_table import ExchangeTable
from zbroker.log.format import Batch
from zbroker.log.queue_records import QueueDeclaration

RECENT_MAX: Final = 1_000  # rows
ENDS_MAX: Final = 10_000  # in a snapshot, about 100 bytes each


class NewRows(NamedTuple):
    """What a process has to learn. whole: it is everything; else what has changed."""

    rows: Sequence[Row]
    whole: bool


class ExchangeRecords:
    """changes: how many rows have changed something; 0: there never was an exchange."""

    def __init__(self) -> None:
        self.changes = 0
        self._table = ExchangeTable()
        self._recent: deque[Row] = deque(maxlen=RECENT_MAX)
        self._declared: set[tuple[str, QueueDeclaration]] = set()  # lives of exchanges
        self._new: set[tuple[str, QueueDeclaration]] = set()  # of these, since the last snapshot

    def fold(self, batch: Batch) -> None:
        """Learns from one record."""
        for row in rows_of(batch.body):
            self.learn(row)

    def learn(self, row: Row) -> None:
        """Learns a row, also of a snapshot."""
        if isinstance(row, ExchangeRow) and row.definition is not None:
            life = row.name, row.life
            if life not in self._declared:
                self._declared.add(life)
                self._new.add(life)
        before = self._table.version
        self._table.learn(row)
        if self._table.version != before:
            self.changes += 1
            self._recent.append(row)

    def rows(self) -> list[Row]:
        """All that is known."""
        return self._table.rows()

    def lasting(self) -> list[Row]:
        """All that has to be known after a start: called once for each state snapshot."""
        rows = self.rows()
        ends = [row for row in rows if _is_end(row) and not self._is_over(row)]
        self._new.clear()
        kept = set(sorted(ends, key=lambda row: row.life)[-ENDS_MAX:])
        return [row for row in rows if not _is_end(row) or row in kept]

    def _is_over(self, row: ExchangeRow | DeclaredQueue) -> bool:
        """Nothing that comes later can be about what ended."""
        if isinstance(row, DeclaredQueue):
            return row.local
        life = row.name, row.life
        by_its_own = row.version.instance == row.life.instance
        return by_its_own or (life in self._declared and life not in self._new)

    def since(self, changes: int) -> NewRows:
        """The rows that have changed since there were so many changes; 0: all of them."""
        new = self.changes - changes
        if changes and 0 <= new <= len(self._recent):
            return NewRows([*self._recent][len(self._recent) - new :], whole=False)
        return NewRows(self.rows(), whole=True)


def _is_end(row: Row) -> TypeGuard[ExchangeRow | DeclaredQueue]:
    if isinstance(row, DeclaredQueue):
        return row.ended
    return isinstance(row, ExchangeRow) and row.definition is None
