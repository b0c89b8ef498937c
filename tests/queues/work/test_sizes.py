"""zbroker/queues/work/sizes.py: how many bytes messages have."""

from __future__ import annotations

from array import array

from pyroaring import BitMap64

from zbroker.queues.work.sizes import MessageSizes
from zbroker.queues.work.values import Arrivals


def _arrived(positions: list[int], sizes: list[int]) -> Arrivals:
    return Arrivals(BitMap64(positions), sizes=array("Q", sizes))


def test_the_total_follows_what_enters_and_leaves() -> None:
    sizes = MessageSizes()
    sizes.enter(_arrived([3, 4, 9], [10, 0, 5]))
    assert (sizes.total, sizes.of(BitMap64([3, 4, 9]))) == (15, [10, 0, 5])
    sizes.drop(BitMap64([3, 7]))
    assert sizes.total == 5
    sizes.check(BitMap64([4, 9]))


def test_what_has_no_size_counts_as_empty() -> None:
    sizes = MessageSizes()
    sizes.enter(Arrivals(BitMap64([1, 2])))
    assert not sizes
    assert sizes.of(BitMap64([1, 2])) == [0, 0]


def test_a_dump_is_loaded() -> None:
    sizes, again = MessageSizes(), MessageSizes()
    sizes.enter(_arrived([3, 9], [10, 5]))
    again.load(*sizes.dump())
    assert (again.total, again.of(BitMap64([3, 9]))) == (15, [10, 5])


def test_a_part_of_what_arrived_keeps_its_sizes() -> None:
    part = _arrived([3, 4, 9], [10, 7, 5]).part(BitMap64([3, 9]))
    assert part.sizes == array("Q", [10, 5])
