"""Facts wait for their messages, by origin and position; the bound counts what waits."""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.ids import Origin
from zbroker.log.queue_records import Moved, OriginsFailed, OriginsGone, OriginsNoted
from zbroker.queues.replicated.early_facts import EarlyFact, EarlyFacts
from zbroker.queues.replicated.ownership import OwnerClaim

A, B = Origin(1, 1), Origin(2, 1)
CLAIM = OwnerClaim(1, False, 3, 1, 9, 4)


def gone(*positions: int, at: int = 1) -> EarlyFact:
    return EarlyFact(OriginsGone([]), BitMap64(positions), at)


def failed(*positions: int, at: int = 1) -> EarlyFact:
    return EarlyFact(OriginsFailed([], "lease_ended"), BitMap64(positions), at)


def test_what_waited_comes_as_far_as_the_log_was_read() -> None:
    early = EarlyFacts()
    early.add(A, gone(5, 6, 9, at=3))
    early.add(A, failed(5, 9, at=4))
    taken, others, since = early.take(A, 6)
    assert (taken, since) == (BitMap64([5, 6]), 3)
    assert [one.positions for one in others] == [BitMap64([5])]
    assert early.waits(A)
    taken, others, _ = early.take(A, 100)
    assert (taken, [one.positions for one in others]) == (BitMap64([9]), [BitMap64([9])])
    assert not early.waits(A)
    early.check()
    assert early.bytes == 0


def test_the_log_is_needed_from_the_oldest_fact_on() -> None:
    early = EarlyFacts()
    lows = [early.lowest]
    early.add(A, gone(5, at=30))
    early.add(B, gone(5, at=20))
    early.add(A, gone(6, at=40))
    lows.append(early.lowest)
    early.take(B, 5)
    lows.append(early.lowest)
    assert lows == [None, 20, 30]


def test_acknowledgements_of_an_origin_are_one_set() -> None:
    early = EarlyFacts()
    early.add(A, gone(*range(1_000)))
    before = early.bytes
    for first in range(1_000, 100_000, 1_000):
        early.add(A, gone(*range(first, first + 1_000)))
    assert early.bytes < 20 * before
    early.check()


def test_marks_of_an_origin_are_one_set_beside_that() -> None:
    early = EarlyFacts()
    early.add(A, gone(5, at=3))
    for position in (6, 7, 8):
        early.add(A, EarlyFact(OriginsNoted([]), BitMap64([position]), position))
    early.check()
    taken, [marks], since = early.take(A, 7)
    assert (taken, marks.positions, marks.at, since) == (BitMap64([5]), BitMap64([6, 7]), 3, 3)
    assert isinstance(marks.fact, OriginsNoted)
    again = EarlyFacts()
    again.load(early.dump())
    again.check()
    assert [one.positions for one in again.take(A, 8)[1]] == [BitMap64([8])]
    assert (again.bytes, again.lowest) == (0, None)


def test_it_is_full_at_its_bound_and_has_room_at_half_of_it() -> None:
    early = EarlyFacts(max_bytes=3_000)
    number = 0
    seen = []
    while not early.full:
        number += 1
        early.add(A, failed(number))
    seen.append((early.full, early.roomy))
    early.take(A, 1)
    seen.append((early.full, early.roomy))
    early.take(A, number // 2 + 1)
    seen.append((early.full, early.roomy))
    assert seen == [(True, False), (False, False), (False, True)]


def test_a_dump_is_the_same_again() -> None:
    early, again = EarlyFacts(), EarlyFacts()
    early.add(A, gone(5, 6, at=3))
    early.add(B, EarlyFact(Moved([], 4, 1), BitMap64([8]), 5, CLAIM))
    again.load(early.dump())
    assert (again.dump(), again.bytes, again.lowest) == (early.dump(), early.bytes, 3)
    again.check()
    [one] = again.take(B, 8)[1]
    assert (one.claim, one.at) == (CLAIM, 5)
