"""Cuts a stretch of the log into half-open ranges of about equal bytes. Pure."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

Cut = tuple[int, int, int]


class SplitMark(NamedTuple):
    """There are `total` bytes of the log between the start of the stretch and `position`."""

    position: int
    total: int


def split(marks: list[SplitMark], parts: int) -> list[Cut]:
    """Half-open ranges [from, to, bytes] of about equal bytes, cut at marks.

    The same as a running instance cuts; fewer than `parts` when there are fewer marks.
    """
    first, last = marks[0], marks[-1]
    targets = [last.total * part // parts for part in range(1, parts)]
    inner = [marks[bisect_left(marks, total, key=attrgetter("total"))] for total in targets]
    return [
        (low.position, high.position, high.total - low.total)
        for low, high in pairwise([first, *inner, last])
        if low.position < high.position
    ]


def refine(cuts: list[Cut], parts: int) -> list[Cut]:
    """Halves the ranges with the most messages until there are `parts`, or one message in each."""
    while cuts and len(cuts) < parts:
        at = max(range(len(cuts)), key=lambda index: cuts[index][1] - cuts[index][0])
        first, end, size = cuts[at]
        middle = (first + end) // 2
        if middle == first:
            break
        share = size * (middle - first) // (end - first)
        cuts = [*cuts[:at], (first, middle, share), (middle, end, size - share), *cuts[at + 1 :]]
    return cuts


def at_most(cuts: list[Cut], messages: int) -> list[Cut]:
    """Cuts further, until no range has more than so many positions."""
    found = []
    for first, end, size in cuts:
        count = end - first
        parts = -(-count // messages)
        bounds = [first + count * part // parts for part in range(parts + 1)]
        found += [(low, high, size * (high - low) // count) for low, high in pairwise(bounds)]
    return found
