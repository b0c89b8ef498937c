"""What of each origin a cursor has passed: the vectors that delivery names. Pure.

A resume point is at the cursor, or before it: messages that are held, or not durable yet, come
again. So the steps since then are kept until nothing before them is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from zbroker.ids import Origin, Vector, raise_to
from zbroker.log.cover import PassedRun

STEPS_MAX: Final = 10_000  # of more, the older half is one step

_HERE: Final = Origin(0, 0)  # in logs of old releases


class Passage:
    """The vector of a cursor, which begins after `vector`."""

    __slots__ = ("_steps", "_vector")

    def __init__(self, vector: Mapping[Origin, int]) -> None:
        self._vector = dict(vector)
        self._steps: deque[PassedRun] = deque()

    def add(self, vector: Mapping[Origin, int]) -> None:
        """All of this is passed, and nothing of it is held."""
        raise_to(self._vector, vector)

    def go(self, steps: Iterable[PassedRun]) -> None:
        """The cursor goes on; something of it may be held."""
        self._steps.extend(steps)
        if len(self._steps) > STEPS_MAX:
            half = [self._steps.popleft() for _ in range(STEPS_MAX // 2)]
            end, newest = half[-1].end, {one.origin: _last(one) for one in half}
            self._steps.extendleft(PassedRun(end - 1, end, *one) for one in newest.items())

    def settle(self, position: int) -> None:
        """Nothing before `position` is held."""
        while self._steps and self._steps[0].end <= position:
            one = self._steps.popleft()
            raise_to(self._vector, {one.origin: _last(one)})

    def back(self, position: int) -> None:
        """The cursor goes back to a position that is not before what was settled."""
        kept = (one for one in self._steps if one.first < position)
        self._steps = deque(one._replace(end=min(one.end, position)) for one in kept)

    def copy(self) -> Passage:
        """The same for a cursor of its own."""
        made = Passage(self._vector)
        made._steps = self._steps.copy()
        return made

    def meet(self, other: Passage) -> None:
        """Only what both have passed: readers that go on together are at one place, but each may
        have seen more of what comes elsewhere.
        """
        theirs = other._vector
        self._vector = {o: min(at, theirs[o]) for o, at in self._vector.items() if o in theirs}

    def vector(self, position: int, here: Origin) -> Vector:
        """What covers all that is before `position`, and nothing that comes after it.

        It is never empty: an empty one would be asked for as the place where it began first.
        """
        found = dict(self._vector)
        for one in self._steps:
            if one.first >= position:
                break
            passed = one._replace(end=min(one.end, position))
            raise_to(found, {one.origin: _last(passed)})
        if _HERE in found:
            raise_to(found, {here: found.pop(_HERE)})
        return found or {here: 0}


def _last(step: PassedRun) -> int:
    """The newest position at the origin."""
    return step.at + step.end - step.first - 1
