"""Messages in order."""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.queues.work.ready import ReadyMessages
from zbroker.queues.work.values import Arrivals


def plain(*positions: int) -> ReadyMessages:
    ready = ReadyMessages()
    ready.enter(Arrivals(BitMap64(positions)))
    return ready


def test_the_lowest_ones_are_taken() -> None:
    ready = plain(1, 2, 5, 9)
    assert ready.take(3) == [BitMap64([1, 2, 5])]
    assert ready.take(3) == [BitMap64([9])]
    assert ready.take(3) == []


def test_nothing_is_taken_from_behind() -> None:
    ready = plain(1, 2, 5, 9)
    assert ready.take(9, stop=5) == [BitMap64([1, 2])]
    assert ready.take(9, stop=5) == []
    assert ready.standing == BitMap64([5, 9])


def test_only_what_is_among_the_wanted_is_taken() -> None:
    ready = plain(1, 2, 5, 9)
    assert ready.count(9, among=BitMap64([2, 9, 10])) == 2
    assert ready.take(1, among=BitMap64([2, 9, 10])) == [BitMap64([2])]
    assert ready.standing == BitMap64([1, 5, 9])


def test_what_comes_back_is_reported_to_who_wants_to_know() -> None:
    ready = plain(1, 2)
    ready.appeared = BitMap64()
    ready.take(2)
    ready.add(BitMap64([2]))
    assert ready.appeared == BitMap64([2])
