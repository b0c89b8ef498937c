"""A process's copy of the exchanges that the journal knows: when it asks, and what it learns. Pure.

    Welcome --AskExchanges--> asked --ExchangeRows--> known --watermarks: more changes--> asked

The first answer of a journal is everything; the table begins again with it: a journal that was
restarted may have lost what was not durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zbroker.exchanges.exchange_rows import decoded_rows
from zbroker.exchanges.exchange_table import ExchangeTable
from zbroker.wire.exchange_messages import AskExchanges, ExchangeRows

if TYPE_CHECKING:
    from zbroker.exchanges.exchange_table import Change
    from zbroker.wire.internal import Watermarks


class ExchangeFollower:
    """table: all that is known. known: some journal has said everything. position: of all records
    before it."""

    def __init__(self) -> None:
        self.table = ExchangeTable()
        self.known = False
        self.position = 0
        self._journal = self._changes = 0
        self._asked = False

    def welcome(self, journal: int) -> AskExchanges:
        """A journal listens; this is the first question to it."""
        self._journal, self._changes = journal, 0
        return self._ask()

    def _ask(self) -> AskExchanges:
        self._asked = True
        return AskExchanges(0, self._journal, self._changes)

    def watermarks(self, said: Watermarks) -> AskExchanges | None:
        """The next question, if there is something new."""
        if said.incarnation != self._journal or self._asked or said.exchanges == self._changes:
            return None
        return self._ask()

    def learn(self, said: ExchangeRows) -> list[Change]:
        """The changes, in order; after a whole answer all that a new router has to know."""
        self._asked, self.known = False, True
        self._changes, self.position = said.changes, said.position
        if said.whole:
            self.table = ExchangeTable()
        changes = [
            change for row in decoded_rows(said.rows) for change in self.table.learn(row).changes
        ]
        return self.table.changes() if said.whole else changes
