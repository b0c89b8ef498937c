"""Judges the sequences of publishers in one log: gaps, repeats, order. Pure.

    gap       sequences that were issued before a message, as that says, and are not in the log
    jump      sequences are left out, and it is unknown whether they were issued (a URL, see below)
    repeat    a sequence is in the log twice
    order     a sequence is after a higher one, and did not come late by a failover
    damaged   positions that cannot be read

Headers in a directory say what was issued before (`prev`): sequences that a publisher never used
are not a gap. A subscription does not say it, so over a URL a sequence that is left out is a jump.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

Kind = Literal[
    "gap", "jump", "repeat", "order", "damaged", "only_here", "only_there", "different", "unlike"
]
UNSAID: Final = -1


class SequenceRun(NamedTuple):
    """Sequences [first, last] of a publisher, which begin at `position`.

    prev: what it had issued before, or UNSAID. late: stored after higher ones on purpose.
    """

    publisher: int
    first: int
    last: int
    position: int
    prev: int = UNSAID
    late: bool = False


class SequenceFinding(NamedTuple):
    """Something about sequences [first, last], at or before `position`; damaged: positions."""

    kind: Kind
    publisher: int
    first: int
    last: int
    position: int

    @property
    def fails(self) -> bool:
        """False for what proves nothing."""
        return self.kind != "jump"

    def as_dict(self) -> dict[str, object]:
        """With stable keys; a publisher is a text, since it is larger than numbers of JSON."""
        return {**self._asdict(), "publisher": str(self.publisher)}


def joined(runs: Iterable[SequenceRun]) -> list[SequenceRun]:
    """The same runs, those of a publisher that go on without a break put together."""
    found: list[SequenceRun] = []
    newest: dict[int, int] = {}  # publisher -> index of its last run
    for run in runs:
        at = newest.get(run.publisher)
        before = found[at] if at is not None else None
        if before is not None and at is not None and _goes_on(before, run):
            found[at] = before._replace(last=run.last)
        else:
            newest[run.publisher] = len(found)
            found.append(run)
    return found


def _goes_on(before: SequenceRun, run: SequenceRun) -> bool:
    """`prev` can only say more where something was issued in between."""
    return run.first == before.last + 1 and run.prev <= before.last and run.late == before.late


def judge(runs: Iterable[SequenceRun]) -> list[SequenceFinding]:
    """Everything that is wrong with runs in the order of the log."""
    lines: dict[int, _PublisherRuns] = {}
    for run in runs:
        lines.setdefault(run.publisher, _PublisherRuns()).take(run)
    found = [finding for line in lines.values() for finding in line.findings()]
    return sorted(found, key=lambda one: (one.position, one.publisher, one.first))


class _PublisherRuns:
    """Judges the runs of one publisher, which come in the order of the log."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []  # sequences that are there, rising, apart
        self._holes: list[SequenceFinding] = []
        self._others: list[SequenceFinding] = []

    def take(self, run: SequenceRun) -> None:
        high = self._spans[-1][1] if self._spans else None
        if high is not None:
            self._look_before(run, high)
        if high is None or run.first > high + 1:
            self._spans.append((run.first, run.last))
        elif run.first == high + 1:
            self._spans[-1] = (self._spans[-1][0], run.last)
        else:
            self._look_below(run, high)
            self._spans = _with(self._spans, (run.first, run.last))

    def _look_before(self, run: SequenceRun, high: int) -> None:
        if run.prev > high:
            self._holes.append(_finding("gap", run, high + 1, run.prev))
        elif run.prev == UNSAID and run.first > high + 1:
            self._holes.append(_finding("jump", run, high + 1, run.first - 1))

    def _look_below(self, run: SequenceRun, high: int) -> None:
        end = min(run.last, high)
        for first, last in _common(self._spans, run.first, end):
            self._others.append(_finding("repeat", run, first, last))
        for first, last in _absent(self._spans, run.first, end) if not run.late else ():
            self._others.append(_finding("order", run, first, last))

    def findings(self) -> list[SequenceFinding]:
        """All findings; a hole without the sequences that came later."""
        left = [
            hole._replace(first=first, last=last)
            for hole in self._holes
            for first, last in _absent(self._spans, hole.first, hole.last)
        ]
        return [*left, *self._others]


def _finding(kind: Kind, run: SequenceRun, first: int, last: int) -> SequenceFinding:
    return SequenceFinding(kind, run.publisher, first, last, run.position)


def _common(spans: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """What of [first, last] is in `spans`."""
    at = bisect_left(spans, first, key=lambda span: span[1])
    found = []
    while at < len(spans) and spans[at][0] <= last:
        found.append((max(first, spans[at][0]), min(last, spans[at][1])))
        at += 1
    return found


def _absent(spans: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """What of [first, last] is not."""
    found = []
    for begin, end in _common(spans, first, last):
        if first < begin:
            found.append((first, begin - 1))
        first = end + 1
    return [*found, (first, last)] if first <= last else found


def _with(spans: list[tuple[int, int]], new: tuple[int, int]) -> list[tuple[int, int]]:
    """`spans` and one more; neighbours are put together."""
    first, last = new
    low = bisect_left(spans, first - 1, key=lambda span: span[1])
    high = low
    while high < len(spans) and spans[high][0] <= last + 1:
        first, last = min(first, spans[high][0]), max(last, spans[high][1])
        high += 1
    return [*spans[:low], (first, last), *spans[high:]]
