"""Vectors {origin: position}, what they cover, and how readers of the log move them on. Pure.

A vector covers a message if one of its origins is at or below the vector's entry for that origin:
the one that it is stored with, one of a tie, or a former one (former_names.py). What a reader has
passed is a vector of the newest messages of each origin. Control records do not count: not all of
them are copied, so another instance may never be as far as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from zbroker.ids import Origin, Vector
from zbroker.log.format import KIND_PUBLISH, KIND_TIE, Batch
from zbroker.log.former_names import former_names
from zbroker.log.headers import Item, Skipped

_Run = tuple[int, int]  # sequences [first, last]

_MESSAGES: Final = (KIND_PUBLISH, KIND_TIE)


class Tied(Protocol):
    """Messages [first, last] of a publisher have this origin, too: zbroker.journal.origins.Tie."""

    @property
    def publisher(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def position(self) -> int: ...
    @property
    def at(self) -> int: ...


class TiedRun(NamedTuple):
    """Messages [first, last] of a publisher that a vector covers by a tie."""

    publisher: int
    first: int
    last: int


def tied_runs(vector: Mapping[Origin, int], ties: Iterable[Tied], at: int = 0) -> Iterator[TiedRun]:
    """What a vector covers by ties; of messages from position `at` on all, of others some.

    A tie comes after its messages.
    """
    for tie in ties:
        last = tie.first + vector.get(tie.origin, 0) - tie.position
        if last >= tie.first and tie.at >= at:
            yield TiedRun(tie.publisher, tie.first, min(last, tie.last))


class Cover:
    """What one vector covers; `ties` as the log knows them when it is asked.

    tied: what it covers by ties, if that is known already. end: nothing from that position on is
    covered.
    """

    def __init__(
        self, vector: Mapping[Origin, int], ties: Iterable[Tied] = (),
        tied: Iterable[tuple[int, int, int]] = (), end: int = 0,
    ) -> None:  # fmt: skip
        self.vector, self.end = vector, end
        self._tied: dict[int, list[_Run]] = {}
        for publisher, first, last in (*tied_runs(vector, ties), *tied):
            self._tied.setdefault(publisher, []).append((first, last))

    def left(self, batch: Batch) -> list[_Run]:
        """The runs of sequences of a publish batch that are not covered, rising."""
        first, last = batch.sequence, batch.sequence + batch.taken - 1
        first += max(0, self.vector.get(batch.origin, 0) - batch.origin_position + 1)
        for name in former_names(batch.extra) if batch.extra else ():
            first = max(first, name.covered(self.vector.get(name.origin, 0)) + 1)
        if first > last:
            return []
        tied = self._tied.get(batch.publisher)
        return [(first, last)] if tied is None else _without(tied, first, last)

    def picks(self, batch: Batch, picks: Sequence[int]) -> Sequence[int]:
        """Those messages of a body, by their places in it, that are not covered."""
        ahead = batch.skip - batch.sequence
        left = [(first + ahead, last + ahead) for first, last in self.left(batch)]
        if len(left) == 1 and picks and left[0][0] <= picks[0] and picks[-1] <= left[0][1]:
            return picks
        return [pick for pick in picks if any(first <= pick <= last for first, last in left)]


def _without(tied: list[_Run], first: int, last: int) -> list[_Run]:
    left = [(first, last)]
    for begin, end in tied:
        parts = (part for a, b in left for part in ((a, min(b, begin - 1)), (max(a, end + 1), b)))
        left = [(a, b) for a, b in parts if a <= b]
    return left


def dominates(vector: Mapping[Origin, int], other: Mapping[Origin, int]) -> bool:
    """True if `vector` covers everything that `other` covers."""
    return all(vector.get(origin, 0) >= position for origin, position in other.items())


class PassedRun(NamedTuple):
    """Positions [first, end) of the log are of one origin, and begin there at `at`."""

    first: int
    end: int
    origin: Origin
    at: int


def steps(items: Iterable[Item], first: int, end: int) -> Iterator[PassedRun]:
    """How a reader that goes from position `first` to `end` over these items moves its vector.

    Only the newest message of a skipped stretch is known.
    """
    for item in items:
        if isinstance(item, Batch):
            if item.kind not in _MESSAGES or item.position >= end or item.end_position <= first:
                continue
            at = item.origin_position if item.origin_instance else item.position
            yield PassedRun(item.position, min(item.end_position, end), item.origin, at)
        elif isinstance(item, Skipped) and item.origin is not None and first < item.end <= end:
            at = item.origin_position if item.origin.instance else item.end - 1
            yield PassedRun(item.end - 1, item.end, item.origin, at)


def passed(items: Sequence[Item], first: int, end: int) -> Vector:
    """The newest message of each origin between two positions.

    From the end on: the positions of an origin rise, so its other batches need no look.
    """
    found: Vector = {}
    for item in reversed(items):
        if type(item) is Batch and (item.origin_instance, item.origin_generation) in found:
            continue
        for one in steps((item,), first, end):
            if one.origin not in found:
                found[one.origin] = one.at + one.end - one.first - 1
    return found
