"""What this instance tells its peers of its log."""

from __future__ import annotations

from tests.replication.build import HERE, THIRD
from zbroker.ids import Origin
from zbroker.replication.holdings import Holdings
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire.replication import (
    CLOSED_SAID_MAX,
    ClosedGeneration,
    LaterGeneration,
    OriginPosition,
)


def rows(own: OwnHoldings, since: int | None = None) -> list[tuple[int, int]]:
    said = own.statement() if since is None else own.changed(since)
    return [(row.instance, row.position) for row in said.rows]


def test_a_change_is_told_until_the_peer_has_heard_it() -> None:
    own = OwnHoldings(HERE.instance)
    own.begin(5, 1, [OriginPosition(*HERE, 3)])
    heard = own.statement().counter
    own.raised(THIRD, 4, 0)
    assert rows(own, heard) == [(THIRD.instance, 4)]
    assert rows(own, heard) == [(THIRD.instance, 4)]
    assert rows(own, own.changed(heard).counter) == []


def test_each_statement_is_newer_than_the_one_before() -> None:
    own = OwnHoldings(HERE.instance)
    own.begin(5, 1, [])
    counters = [own.statement().counter, own.changed(0).counter, own.statement().counter]
    assert counters == sorted(set(counters))


def test_rows_only_rise_while_a_journal_speaks() -> None:
    own = OwnHoldings(HERE.instance)
    own.begin(5, 1, [OriginPosition(*THIRD, 9)])
    own.raised(THIRD, 4, 0)
    assert own.position(THIRD) == 9


def test_another_journal_says_it_all_again() -> None:
    """It may hold less than the one before had received."""
    own = OwnHoldings(HERE.instance)
    own.begin(5, 1, [OriginPosition(*THIRD, 9)])
    own.lost()
    own.begin(5, 2, [OriginPosition(*THIRD, 7)])
    assert own.known
    assert own.position(THIRD) == 7


def test_closed_generations_are_told_once_the_newest_of_each_instance() -> None:
    own = OwnHoldings(HERE.instance)
    many = [ClosedGeneration(HERE.instance, one, 9) for one in range(1, CLOSED_SAID_MAX + 2)]
    own.begin(500, 1, [], [*many, ClosedGeneration(THIRD.instance, 1, 4)])
    said = own.statement()
    assert len(said.closed) == CLOSED_SAID_MAX + 1
    assert min(one.generation for one in said.closed if one.instance == HERE.instance) == 2
    assert own.changed(0).closed == said.closed
    assert own.changed(said.counter).closed == []
    assert own.closed[Origin(HERE.instance, 1)] == 9


def test_what_readers_have_seen_is_in_each_statement() -> None:
    own, peer = OwnHoldings(HERE.instance), Holdings()
    own.begin(5, 1, [])
    peer.take(own.statement(), whole=True)
    own.later = [LaterGeneration(*THIRD)]
    assert peer.take(own.changed(peer.heard), whole=False)
    assert (peer.later, peer.news) == ([LaterGeneration(*THIRD)], True)
    peer.take(own.changed(peer.heard), whole=False)
    assert not peer.news


def test_a_log_that_fills_says_so_in_each_statement() -> None:
    own = OwnHoldings(HERE.instance)
    own.begin(5, 1, [])
    own.filling = True
    peer = Holdings()
    assert peer.take(own.statement(), whole=True)
    assert peer.filling
    own.filling = False
    assert peer.take(own.changed(peer.heard), whole=False)
    assert not peer.filling
