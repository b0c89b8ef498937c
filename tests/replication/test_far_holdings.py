"""What is heard of instances that no link leads to."""

from __future__ import annotations

from tests.replication.build import HERE, THERE, THIRD
from zbroker.ids import Origin
from zbroker.replication.far_holdings import SAID_MAX, far_rows
from zbroker.replication.holdings import Holdings
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire.replication import (
    HOPS_MAX,
    ClosedGeneration,
    FarPosition,
    OriginPosition,
    Statement,
)

LOST = Origin(9, 4)


class Instances:
    """A few, each of which hears its neighbours in turn."""

    def __init__(self, count: int) -> None:
        self.own = [OwnHoldings(number + 1) for number in range(count)]
        for own in self.own:
            own.begin(1, 1, [])
        self.heard = [dict[int, Holdings]() for _ in range(count)]

    def beat(self, *links: tuple[int, int]) -> None:
        """Each says to the other ones of its links what it holds and has heard."""
        for own, heard in zip(self.own, self.heard, strict=True):
            own.far = far_rows(own, heard.values())
        for one, other in [*links, *(link[::-1] for link in links)]:
            heard = self.heard[other].setdefault(one, Holdings())
            heard.take(self.own[one].statement(), whole=True)

    def far(self, number: int) -> list[tuple[int, int]]:
        heard = self.heard[number].values()
        return [(far.position, far.hops) for far in far_rows(self.own[number], heard)]


RING = (0, 1), (1, 2), (2, 3), (3, 0)


def test_it_is_passed_on_over_the_instances_in_between() -> None:
    at = Instances(4)
    at.own[2].raised(LOST, 25, 0)
    at.beat(*RING)
    assert at.far(1) == at.far(3) == [(25, 1)]
    assert at.far(0) == []
    at.beat(*RING)
    assert at.far(0) == [(25, 2)]
    peer = at.heard[0][1]
    assert [far.position for far in peer.far_of(at.own[0])] == [25]


def test_what_is_here_by_then_is_not_far() -> None:
    at = Instances(4)
    at.own[2].raised(LOST, 25, 0)
    at.beat(*RING)
    at.beat(*RING)
    at.own[0].raised(LOST, 25, 0)
    assert at.far(0) == []
    assert not at.heard[0][1].far_of(at.own[0])


def test_what_is_nowhere_any_more_is_forgotten_also_where_instances_repeat_each_other() -> None:
    at = Instances(4)
    at.own[2].raised(LOST, 25, 0)
    for _ in range(3):
        at.beat(*RING)
    at.own[2].begin(1, 2, [])
    assert at.far(0)
    for _ in range(HOPS_MAX + 1):
        at.beat(*RING)
    assert [at.far(number) for number in range(4)] == [[], [], [], []]


def test_it_goes_over_so_many_instances_at_most() -> None:
    line = [(number, number + 1) for number in range(HOPS_MAX + 2)]
    at = Instances(HOPS_MAX + 3)
    at.own[0].raised(LOST, 25, 0)
    for _ in range(2 * HOPS_MAX):
        at.beat(*line)
    assert at.far(HOPS_MAX) == [(25, HOPS_MAX)]
    assert at.far(HOPS_MAX + 1) == []


def test_own_closed_and_narrowed_ones_do_not_count() -> None:
    own = OwnHoldings(HERE.instance)
    own.begin(HERE.generation, 1, [], [ClosedGeneration(*LOST, 20)])
    peer = Holdings()
    far = [FarPosition(*HERE, 90, 1), FarPosition(*LOST, 25, 1)]
    rows = [OriginPosition(*THIRD, 7, digest=3)]
    peer.take(Statement(*THERE, 1, 1, rows, far=far), whole=True)
    assert far_rows(own, [peer]) == []


def test_the_farthest_place_counts_and_the_nearest_word_of_it() -> None:
    own = OwnHoldings(HERE.instance)
    own.begin(HERE.generation, 1, [])
    peers = [Holdings(), Holdings(), Holdings()]
    said = FarPosition(*LOST, 25, 3), FarPosition(*LOST, 25, 2), FarPosition(*LOST, 24, 1)
    for peer, far in zip(peers, said, strict=True):
        peer.take(Statement(*THERE, 1, 1, [], far=[far]), whole=True)
    assert far_rows(own, peers) == [FarPosition(*LOST, 25, 3)]


def test_no_more_are_said_than_fit_a_statement() -> None:
    own = OwnHoldings(HERE.instance)
    own.begin(HERE.generation, 1, [])
    peer = Holdings()
    rows = [OriginPosition(9, number, 5) for number in range(1, SAID_MAX + 9)]
    peer.take(Statement(*THERE, 1, 1, rows), whole=True)
    assert len(far_rows(own, [peer])) == SAID_MAX
