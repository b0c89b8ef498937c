"""What this instance tells its peers of its log."""

from __future__ import annotations

from tests.replication.build import HERE, THIRD
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire.replication import OriginPosition


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
