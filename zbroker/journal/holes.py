"""Sequences of one publisher that are below its highest one and not in this log. Pure.

    1 2 3 . . . 7 8 9 . . . . 14          high 14, holes 4-6 and 10-13

A publisher that fails over to another instance goes on there with its unacknowledged messages;
those that the first one acknowledged follow by replication, perhaps later. So a batch can arrive
after a higher one. "Below the highest" does not mean "is here": a message that falls into a hole is
stored, flagged late; only one that is in the log is a duplicate.

A hole is noted where a batch says that something was issued before it which is not here (`prev`
above the highest), and where a new session begins further up, since what an older session wrote on
another instance is not known here. Within a session `prev` proves that there is nothing between.

A staged part is a hole, too: it has sequences of its publisher and is not one of its messages, so
an instance where these are messages may still bring them.

All are bounded. A hole that is given up is forgotten, not filled: a replicated batch that
arrives there is refused with `hole_given_up`. Calling it a duplicate would confirm to the sender,
and through a sync destination to the publisher, that this host holds what it does not hold.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import Final, NamedTuple

HOLES_MAX: Final = 64  # per publisher; each needs a failover of its own
POSSIBLE_MAX: Final = 16  # of those of which no sequence is known to have been issued


class Hole(NamedTuple):
    """Sequences [first, last]. issued: the highest of them known to have been issued, 0: none."""

    first: int
    last: int
    issued: int = 0


Holes = list[Hole]  # rising, apart from each other
Run = tuple[int, int]  # sequences [first, last]


def opened(high: int, first: int, prev: int, *, new_session: bool) -> Hole | None:
    """The hole that a batch from `first` on leaves above `high`, if it does."""
    if first == high + 1:
        return None
    if new_session:
        return Hole(high + 1, first - 1, prev if prev > high else 0)
    return Hole(high + 1, prev, prev) if prev > high else None


def missing(holes: Holes, high: int, first: int, last: int) -> list[Run]:
    """The runs of [first, last] that are not in the log: parts of holes, then what is above."""
    found = [
        (max(hole.first, first), min(hole.last, last))
        for hole in holes[_at(holes, first) :]
        if hole.first <= last
    ]
    if last > high:
        found.append((max(first, high + 1), last))
    return found


def held(runs: list[Run], first: int, last: int) -> list[Run]:
    """The rest of [first, last] without `runs`, which are in it."""
    found: list[Run] = []
    for begin, end in runs:
        if begin > first:
            found.append((first, begin - 1))
        first = end + 1
    return [*found, (first, last)] if first <= last else found


def skip(holes: Holes, first: int, last: int, issued: int) -> Holes:
    """[first, last], above all others, are in the log and not as messages. Returns: given up."""
    if holes and holes[-1].last == first - 1:
        holes[-1] = Hole(holes[-1].first, last, issued or holes[-1].issued)
        return []
    holes.append(Hole(first, last, issued))
    return give_up(holes)


def fill(holes: Holes, first: int, last: int, prev: int) -> None:
    """[first, last] arrived, after `prev`; the hole around it shrinks, splits or goes."""
    at = _at(holes, first)
    while at < len(holes) and holes[at].first <= last:
        hole = holes.pop(at)
        for rest in _rest(hole, first, last, prev):
            holes.insert(at, rest)
            at += 1


def _rest(hole: Hole, first: int, last: int, prev: int) -> list[Hole]:
    found = []
    if hole.first < first:
        issued = prev if hole.first <= prev else 0
        if hole.issued < first:
            issued = max(issued, hole.issued)
        found.append(Hole(hole.first, first - 1, issued))
    if last < hole.last:
        found.append(Hole(last + 1, hole.last, hole.issued if hole.issued > last else 0))
    return found


def give_up(holes: Holes) -> Holes:
    """Takes out what is too much, the lowest first, those that may be no holes before others."""
    gone: Holes = []
    possible = [hole for hole in holes if not hole.issued]
    while len(holes) > HOLES_MAX or len(possible) > POSSIBLE_MAX:
        hole = possible.pop(0) if possible else holes[0]
        holes.remove(hole)
        gone.append(hole)
    return gone


def check(holes: Holes, high: int) -> None:
    """Asserts what is always true."""
    last = 0
    for hole in holes:
        assert last < hole.first <= hole.last <= high, (hole, high)
        assert hole.issued == 0 or hole.first <= hole.issued <= hole.last, hole
        last = hole.last


def _at(holes: Holes, sequence: int) -> int:
    """The first hole that ends at or above `sequence`."""
    return bisect_left(holes, sequence, key=attrgetter("last"))


def within(runs: list[Run], first: int, last: int) -> list[Run]:
    """The parts of runs that are from `first` to `last`."""
    return [(max(a, first), min(b, last)) for a, b in runs if a <= last and first <= b]


def joined(runs: list[Run]) -> list[Run]:
    """The same sequences as rising runs, apart from each other."""
    found: list[Run] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
