"""Which sequences a session has used, to give `prev` to batches that come without it. Pure.

The journal accepts a batch only where the log holds what was sent before it, and `prev` says what
that is. A hand-written client may leave `prev` out; then ingest fills in the highest sequence below
that came from this session, whether it was taken or refused for now:

    client     5 6 7    5 6             (5 was refused, the client sends again)
    journal    5<-4 6<-5 7<-6    5<-4 6<-5

So a refusal of 5 refuses 6 and 7 until 5 came again, also by a journal that was restarted meanwhile
and knows nothing of it. A journal that had to remember the refusal would accept 6 after a restart,
and call 5, which it does not have, a duplicate. All of it ends with the session.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final, NamedTuple

RUNS_MAX: Final = 10_000  # that a session may have where one is refused; a run has 100 bytes


class PrevRun(NamedTuple):
    """Sequences [first, last], all of them used."""

    first: int
    last: int


class PrevTracker:
    """newest: the highest sequence used. After the logon say `settled` of what the log holds."""

    __slots__ = ("_in_log", "_runs", "newest")

    def __init__(self) -> None:
        self.newest = 0
        self._in_log = 0
        self._runs: deque[PrevRun] = deque()  # rising; one, unless the client leaves sequences out

    def __len__(self) -> int:
        """How many runs above the log there are."""
        return len(self._runs)

    def before(self, seq: int) -> int | None:
        """The sequence used before `seq`; None if nothing above the log was."""
        if seq > self.newest:
            return self.newest
        at = bisect_left(self._runs, seq, key=_last)
        if at < len(self._runs) and self._runs[at].first < seq:
            return seq - 1
        if at:
            return self._runs[at - 1].last
        return self._in_log if self._in_log < seq else None

    def use(self, first: int, last: int) -> None:
        """[first, last] came from the client, and were taken, or refused for now."""
        if last <= self.newest:
            return
        first = max(first, self.newest + 1)
        if self._runs and self._runs[-1].last == first - 1:
            first = self._runs.pop().first
        self._runs.append(PrevRun(first, last))
        self.newest = last

    def drop(self, first: int, last: int) -> None:
        """[first, last] was refused for good: these never come again."""
        if first > self.newest:
            return
        rest = [part for run in self._runs for part in _without(run, first, last)]
        self._runs = deque(rest)
        self.newest = rest[-1].last if rest else self._in_log

    def settled(self, last: int) -> None:
        """The log holds all that was used up to `last`."""
        while self._runs and self._runs[0].last <= last:
            self._runs.popleft()
        self._in_log = max(self._in_log, last)
        self.newest = max(self.newest, last)


def _last(run: PrevRun) -> int:
    return run.last


def _without(run: PrevRun, first: int, last: int) -> list[PrevRun]:
    parts = (
        PrevRun(run.first, min(run.last, first - 1)),
        PrevRun(max(run.first, last + 1), run.last),
    )
    if run.last < first or run.first > last:
        return [run]
    return [part for part in parts if part.first <= part.last]
