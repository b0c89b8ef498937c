"""What the log says of exchanges, bindings and bound queues, for those who ask the journal. Pure.

Folded from KIND_EXCHANGE records of all instances and from state snapshots; the order does not
matter (zbroker.exchanges.exchange_table). A process that asked before gets what has changed since,
as long as that is among the last RECENT_MAX changes; else it gets everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from zbroker.exchanges.exchange_rows import Row, rows_of
from zbroker.exchanges.exchange_table import ExchangeTable
from zbroker.log.format import Batch

RECENT_MAX: Final = 1_000  # rows


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

    def fold(self, batch: Batch) -> None:
        """Learns from one record."""
        for row in rows_of(batch.body):
            self.learn(row)

    def learn(self, row: Row) -> None:
        """Learns a row, also of a snapshot."""
        before = self._table.version
        self._table.learn(row)
        if self._table.version != before:
            self.changes += 1
            self._recent.append(row)

    def rows(self) -> list[Row]:
        """All that has to be known."""
        return self._table.rows()

    def since(self, changes: int) -> NewRows:
        """The rows that have changed since there were so many changes; 0: all of them."""
        new = self.changes - changes
        if changes and 0 <= new <= len(self._recent):
            return NewRows([*self._recent][len(self._recent) - new :], whole=False)
        return NewRows(self.rows(), whole=True)
