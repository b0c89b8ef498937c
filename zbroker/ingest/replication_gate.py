"""Acknowledgements wait here until enough synchronous destinations have the messages. Pure.

    receipt, commit of stages --position below `through`--> answered
                              --else--> waits, in its order; publishers wait within their windows

How far that is says the replication process: see ReplicatedMark.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from zbroker.engine.replicated_mark import ReplicatedMark
from zbroker.wire.internal import Entry, ReceiptItem
from zbroker.wire.stages import StagesDone

Body = bytes | memoryview


class Outstanding(NamedTuple):
    """A batch for which no receipt came yet."""

    ordinal: int
    entry: Entry
    body: Body


Settled = tuple[Outstanding, ReceiptItem]


class ReplicationGate(ReplicatedMark):
    """What waits for the mark; without synchronous destinations nothing ever does."""

    def __init__(self, *, on: bool) -> None:
        super().__init__(on=on)
        self._receipts: deque[Settled] = deque()
        self._commits: deque[tuple[int, StagesDone]] = deque()

    @property
    def holds(self) -> bool:
        """True if something waits."""
        return bool(self._receipts or self._commits)

    def covers(self, position: int) -> bool:
        """True if what is at this position may be acknowledged."""
        return position < self.through

    def receipts(self, settled: list[Settled]) -> list[Settled]:
        """Adds what is durable here. Returns: what may be answered now, in order.

        A batch that was refused has position 0, and waits only for those before it.
        """
        waiting = self._receipts
        # bodies are not needed any more: a lagging destination must not cost the memory of them
        waiting += [(out._replace(body=b""), item) for out, item in settled]
        done: list[Settled] = []
        while waiting and waiting[0][1].position < self.through:
            done.append(waiting.popleft())
        return done

    def commit(self, done: StagesDone, last: int) -> list[StagesDone]:
        """The same for a commit of stages, whose last message is at `last`."""
        self._commits.append((last, done))
        return self.commits()

    def commits(self) -> list[StagesDone]:
        """Those that may be answered now."""
        done: list[StagesDone] = []
        while self._commits and self._commits[0][0] < self.through:
            done.append(self._commits.popleft()[1])
        return done
