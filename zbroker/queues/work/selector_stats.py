"""What a consumer with a filter knows of the messages of its queue, and asks of others. Pure.

    can be offered here         --near--> compared --fits--> offered
    of another instance, late   --far---> compared --fits--> named to its owner, which may give it

A message is compared once, wherever it is then; so one that was given to this instance is offered
at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct, field
from pyroaring import BitMap64

from zbroker.queues.work.ready import ReadyMessages
from zbroker.queues.work.sets import first_of, insert, lowest, remove, without
from zbroker.wire.replication import WANT_NAMES_MAX

ASK_AGAIN_MS: Final = 200  # a request that nothing came of; twice as long after each round,
ASK_AGAIN_MAX_MS: Final = 1_600  # at most
AHEAD_LEAST: Final = 1 / 4  # of what could be used, while more is on its way


def again_ms(rounds: int) -> int:
    """How long a request is waited for, after so many rounds of which nothing came."""
    return min(ASK_AGAIN_MS << min(rounds, 8), ASK_AGAIN_MAX_MS)


class UnlookedSweep(Struct):
    """A walk over messages, by which each is compared once. All before `cursor` were, save what is
    `missed`: it was somewhere else when the cursor passed."""

    missed: BitMap64 = field(default_factory=BitMap64)
    cursor: int = 0

    def next(
        self, looked: BitMap64, there: BitMap64, limit: int, stop: int,
        following: Callable[[int, int, int], BitMap64],
    ) -> BitMap64:  # fmt: skip
        """The lowest of those that are `there`, before `stop`, and were not looked at.

        following: the lowest ones: how many, before which position, and from which on.
        """
        self.missed &= there
        found = lowest(self.missed, limit, stop)
        at, passed = self.cursor, True
        while len(found) < limit:
            chunk = following(limit - len(found), stop, at)
            if not chunk:
                break
            new, at = without(chunk, looked), chunk.max() + 1
            passed = passed and not new
            found |= new
            if passed:
                self.cursor = at
        return found

    def appeared(self, new: BitMap64) -> None:
        """These are there now, and were not looked at."""
        if new and new.min() < self.cursor:
            missed = new.copy()
            missed.remove_range(self.cursor, max(self.cursor, new.max()) + 1)
            insert(self.missed, missed)


class NextNames(NamedTuple):
    """What a consumer asks for now: `most` of these; or until when it waits; None: for nothing."""

    names: BitMap64
    most: int = 0
    wake_ms: int | None = None


class NamedDemand(Struct):
    """The messages of other instances that a consumer asks for, by name.

    named: in its last request, which began at the position `begin`; `left` of them were to come.
    What did not come in time may be with consumers of the owner, or the owner may be away. So later
    ones are named next, and after the last ones it begins again; the oldest are always among them.
    rounds: from the first to the last one, of which nothing came.
    """

    named: BitMap64 = field(default_factory=BitMap64)
    begin: int = 0
    left: int = 0
    asked_ms: int = 0
    rounds: int = 0

    def next(
        self, fits: BitMap64, foreign: BitMap64, free: int, names_max: int, now_ms: int
    ) -> NextNames:
        """fits: of those that are `foreign`, what it could take. free: how many of them."""
        if not fits:
            self.named, self.begin, self.left, self.rounds = BitMap64(), 0, 0, 0
            return NextNames(BitMap64())
        came = len(self.named) - len(self.named & foreign)
        left = max(0, self.left - came)
        if left:
            later = first_of(fits, self.named.max() + 1) is not None
            due_ms = self.asked_ms + (ASK_AGAIN_MS if later else again_ms(self.rounds))
            if now_ms < due_ms:
                free = min(free, len(fits)) - left
                if free <= 0 or free < AHEAD_LEAST * (free + left):  # not one by one
                    return NextNames(BitMap64(), wake_ms=due_ms)
            else:
                self._go_on(came, later=later)
                left = 0
        else:
            self.rounds = 0
        self.named = self._names(fits, names_max)
        self.asked_ms = now_ms
        most = min(free, len(self.named))
        self.left = min(left + most, len(self.named))
        return NextNames(self.named, most, now_ms + ASK_AGAIN_MS)

    def _go_on(self, came: int, *, later: bool) -> None:
        if came:
            self.rounds = 0
        elif not later:
            self.rounds += 1
        self.begin = self.named.max() + 1 if later else 0

    def _names(self, fits: BitMap64, names_max: int) -> BitMap64:
        oldest = lowest(fits, names_max // 4)
        after = oldest.max() + 1 if oldest else 0
        if first_of(fits, max(self.begin, after)) is None:
            self.begin = 0
        return oldest | lowest(fits, names_max - len(oldest), at=max(self.begin, after))


class SelectorStats(Struct):
    """looked: was compared; matching: of it, what fits."""

    looked: BitMap64 = field(default_factory=BitMap64)
    matching: BitMap64 = field(default_factory=BitMap64)
    near: UnlookedSweep = field(default_factory=UnlookedSweep)
    far: UnlookedSweep = field(default_factory=UnlookedSweep)
    demand: NamedDemand = field(default_factory=NamedDemand)

    def next_near(self, ready: ReadyMessages, stop: int, limit: int, enough: int) -> BitMap64:
        """The lowest messages before `stop` that can be offered and were not looked at; none if
        `enough` are known to fit."""
        if ready.count(enough, stop, self.matching) >= enough:
            return BitMap64()
        return self.near.next(self.looked, ready.standing, limit, stop, ready.candidates)

    def next_far(self, foreign: BitMap64, stop: int, limit: int) -> BitMap64:
        """The same of messages of other instances; none if another request could be made of those
        that are known to fit."""
        fits, named = self.matching & foreign, self.demand.named
        after = named.max() + 1 if named else 0
        if len(lowest(fits, WANT_NAMES_MAX, stop, after)) >= WANT_NAMES_MAX:
            return BitMap64()
        return self.far.next(
            self.looked,
            foreign,
            limit,
            stop,
            lambda count, end, at: lowest(foreign, count, end, at),
        )

    def learn(self, positions: BitMap64, known: BitMap64, matching: BitMap64) -> None:
        """It was compared with `positions`. known: of these, what is still in the queue."""
        insert(self.looked, known)
        insert(self.matching, known & matching)
        for sweep in (self.near, self.far):
            remove(sweep.missed, positions)

    def gone(self, positions: BitMap64) -> None:
        """They left the queue: nothing about them needs to be known."""
        for known in (self.looked, self.matching, self.near.missed, self.far.missed):
            remove(known, positions)

    def check(self) -> None:
        """Asserts what is always true."""
        assert self.matching.issubset(self.looked)
        for sweep in (self.near, self.far):
            assert sweep.missed.isdisjoint(self.looked)
