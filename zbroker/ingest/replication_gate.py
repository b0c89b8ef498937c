"""Acknowledgements wait here until enough synchronous destinations have the messages. Pure.

    receipt, commit of stages --position below `through`--> answered
                              --else--> waits, in its order; publishers wait within their windows

How far that is says the replication process, for the positions of one journal. Until it has said so
of the journal that listens now, nothing is answered.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from zbroker.limits import U63_MAX
from zbroker.wire.internal import Entry, ReceiptItem
from zbroker.wire.replicas import Replicated
from zbroker.wire.stages import StagesDone

Body = bytes | memoryview


class Outstanding(NamedTuple):
    """A batch for which no receipt came yet."""

    ordinal: int
    entry: Entry
    body: Body


Settled = tuple[Outstanding, ReceiptItem]


class ReplicationGate:
    """on: there are synchronous destinations; else nothing ever waits."""

    def __init__(self, *, on: bool) -> None:
        self.on = on
        self.needed = 0  # how many destinations are waited for
        self._through = 0 if on else U63_MAX
        self._journal = 0
        self._said: Replicated | None = None  # the newest, maybe of a journal that is not known yet
        self._receipts: deque[Settled] = deque()
        self._commits: deque[tuple[int, StagesDone]] = deque()

    @property
    def holds(self) -> bool:
        """True if something waits."""
        return bool(self._receipts or self._commits)

    def journal_begins(self, journal: int) -> None:
        """Another journal listens: its positions may be others."""
        if self.on and journal != self._journal:
            self._journal, self._through = journal, 0
            if self._said is not None:
                self.moved(self._said)

    def moved(self, said: Replicated) -> bool:
        """Takes note of how far the log is replicated; False if that changes nothing."""
        self._said = said
        if not self.on or said.journal != self._journal:
            return False
        self.needed = said.needed
        if said.through == self._through:
            return False
        self._through = said.through
        return True

    def covers(self, position: int) -> bool:
        """True if what is at this position may be acknowledged."""
        return position < self._through

    def receipts(self, settled: list[Settled]) -> list[Settled]:
        """Adds what is durable here. Returns: what may be answered now, in order.

        A batch that was refused has position 0, and waits only for those before it.
        """
        waiting = self._receipts
        # bodies are not needed any more: a lagging destination must not cost the memory of them
        waiting += [(out._replace(body=b""), item) for out, item in settled]
        done: list[Settled] = []
        while waiting and waiting[0][1].position < self._through:
            done.append(waiting.popleft())
        return done

    def commit(self, done: StagesDone, last: int) -> list[StagesDone]:
        """The same for a commit of stages, whose last message is at `last`."""
        self._commits.append((last, done))
        return self.commits()

    def commits(self) -> list[StagesDone]:
        """Those that may be answered now."""
        done: list[StagesDone] = []
        while self._commits and self._commits[0][0] < self._through:
            done.append(self._commits.popleft()[1])
        return done
