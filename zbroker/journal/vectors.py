"""Resume points that mean the same on every instance: what a vector covers of a log. Pure.

A vector {origin: position} covers a message if one of its origins is at or below the vector's entry
for that origin: the one it was stored with, or one of a tie (see origins.py). Who reads a log from
its beginning and leaves out what a vector covers gets exactly what the vector's owner did not see,
whatever the order in this log, once the log holds at least as much of every origin as the vector.

On a lone instance all messages have one origin and their positions are the log's own: nothing has
to be left out behind the vector's position.
"""

from __future__ import annotations

from collections.abc import Iterable

from zbroker.ids import Origin
from zbroker.journal import holes
from zbroker.journal.holes import Run
from zbroker.journal.origins import Tie
from zbroker.log.format import KIND_PUBLISH, KIND_TIE, Batch

Vector = dict[Origin, int]


class Cover:
    """What one vector covers; `ties` as the log knows them when it is asked."""

    def __init__(self, vector: Vector, ties: Iterable[Tie] = ()) -> None:
        self.vector = vector
        self._tied: dict[int, list[Run]] = {}
        for tie in ties:
            last = tie.first + vector.get(tie.origin, 0) - tie.position
            if last >= tie.first:
                run = (tie.first, min(last, tie.last))
                self._tied.setdefault(tie.publisher, []).append(run)

    def left(self, batch: Batch) -> list[Run]:
        """The runs of sequences of a publish batch that are not covered, rising."""
        first, last = batch.sequence, batch.sequence + batch.taken - 1
        origin = Origin(batch.origin_instance, batch.origin_generation)
        first += max(0, self.vector.get(origin, 0) - batch.origin_position + 1)
        if first > last:
            return []
        tied = self._tied.get(batch.publisher)
        return [(first, last)] if tied is None else _without(tied, first, last)

    def has(self, batch: Batch) -> bool:
        """True if all of a publish batch is covered."""
        return not self.left(batch)


def _without(tied: list[Run], first: int, last: int) -> list[Run]:
    left = [(first, last)]
    for begin, end in tied:
        cut = [(max(begin, a), min(end, b)) for a, b in left]
        left = [
            run
            for (a, b), part in zip(left, cut, strict=True)
            for run in (holes.held([part], a, b) if part[0] <= part[1] else [(a, b)])
        ]
    return left


def advance(vector: Vector, batch: Batch) -> None:
    """`vector` covers this batch from now on, too; for who reads a log in order."""
    if batch.kind in (KIND_PUBLISH, KIND_TIE):
        origin = Origin(batch.origin_instance, batch.origin_generation)
        last = batch.origin_position + batch.taken - 1
        vector[origin] = max(vector.get(origin, 0), last)


def dominates(vector: Vector, other: Vector) -> bool:
    """True if `vector` covers everything that `other` covers."""
    return all(vector.get(origin, 0) >= position for origin, position in other.items())
