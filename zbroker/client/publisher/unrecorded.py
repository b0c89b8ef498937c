"""What the broker does not record, as its acks name it: topics, and sequences. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from zbroker.limits import TOPICS_MAX, U63_MAX

RUNS_MAX: Final = 100_000  # remembered: some 15 MB; then the older half is forgotten


class SequenceRuns:
    """Runs of sequences, as acks name them: those that a filter of the broker kept out of the log.

    Other threads ask, one adds: it changes the end of the list only; for all else it makes a new
    list, so that an index that somebody has just found stays right.
    """

    def __init__(self) -> None:
        self.forgotten = 0  # up to here nothing is known any more
        self._runs: list[tuple[int, int]] = []  # first and last, apart from each other, rising

    def __contains__(self, sequence: int) -> bool:
        runs = self._runs
        at = bisect_right(runs, (sequence, U63_MAX)) - 1
        return at >= 0 and sequence <= runs[at][1]

    def add(self, packed: bytes) -> None:
        """Learns what an ack says: first and last of each run, u64, little-endian."""
        for first, last in struct.iter_unpack("<QQ", packed[: len(packed) // 16 * 16]):
            self._add(first, last)
        self._forget()

    def add_run(self, first: int, last: int) -> None:
        """One run."""
        self._add(first, last)
        self._forget()

    def _forget(self) -> None:
        if len(self._runs) > RUNS_MAX:
            half = RUNS_MAX // 2
            self.forgotten = self._runs[half - 1][1]
            self._runs = self._runs[half:]

    def _add(self, first: int, last: int) -> None:
        """A run that touches others becomes one with them: a repeated message is reported again."""
        runs = self._runs
        start = bisect_right(runs, (first, 0)) - 1
        if start < 0 or runs[start][1] + 1 < first:
            start += 1
        end = bisect_right(runs, (last + 1, U63_MAX))
        if start < end:
            first, last = min(first, runs[start][0]), max(last, runs[end - 1][1])
        if start >= len(runs) - 1:
            runs[start:end] = [(first, last)]
        else:
            self._runs = [*runs[:start], (first, last), *runs[end:]]


class ReturnedMessages:
    """Mandatory messages that went to no queue; unknown: those of which the broker had no chance to
    say whether they did."""

    def __init__(self) -> None:
        self.known, self.unknown = SequenceRuns(), SequenceRuns()

    @property
    def forgotten(self) -> int:
        """Up to here nothing is known any more."""
        return max(self.known.forgotten, self.unknown.forgotten)


class Unrecorded:
    """`topics` is read by other threads; it stays the same set.

    The broker's settings may change with a restart. A topic that was not recorded is taken for
    recorded again once a batch of it is settled in a session in which the topic was not named.
    """

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.filtered = SequenceRuns()
        self._named: set[str] = set()

    def new_session(self) -> None:
        """The broker may be another one now."""
        self._named.clear()

    def named(self, topics: Iterable[str], filtered: bytes | None) -> None:
        """An ack says that these topics are not recorded, and these runs of sequences."""
        self.filtered.add(filtered or b"")
        for known in (self.topics, self._named):
            if len(known) >= TOPICS_MAX:
                known.clear()
            known.update(topics)

    def settled(self, topics: set[str]) -> None:
        """A batch is settled; its topics would have been named by now."""
        self.topics -= topics - self._named
