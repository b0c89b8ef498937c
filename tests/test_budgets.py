"""What one principal may take of what all share (zbroker/budgets.py)."""

from __future__ import annotations

import pytest

from zbroker.budgets import Accounts, Budget
from zbroker.errors import ClientError

SMALL = Budget(connections=2, subscriptions=3, credit_bytes=100)


def test_one_principal_does_not_take_the_connections_of_another() -> None:
    accounts = Accounts(SMALL)
    accounts.open("eve")
    accounts.open("eve")
    with pytest.raises(ClientError, match="2 clients") as caught:
        accounts.open("eve")
    assert caught.value.code == "too_many"
    accounts.open("ann")


def test_everybody_without_security_is_no_principal() -> None:
    accounts = Accounts(SMALL)
    uses = [accounts.open("") for _ in range(9)]
    for use in uses:
        use.account.check_subscription()
        use.subscribe()
        use.promise(1 << 40)
    assert uses[0].account.credit_left > 1 << 40


def test_what_connections_have_counts_together() -> None:
    accounts = Accounts(SMALL)
    first, second = accounts.open("eve"), accounts.open("eve")
    first.promise(60)
    second.promise(30)
    assert first.account.credit_left == 10
    first.subscribe()
    second.subscribe(2)
    with pytest.raises(ClientError, match="3 subscriptions"):
        second.account.check_subscription()
    second.promise(80)
    assert first.account.credit_left == 0, "each may have a little more, so that it cannot stall"


def test_what_a_connection_had_is_free_when_it_is_over() -> None:
    accounts = Accounts(SMALL)
    first, second = accounts.open("eve"), accounts.open("eve")
    first.promise(60)
    first.subscribe(3)
    accounts.close(first)
    assert (second.account.credit_left, second.account.subscriptions) == (100, 0)
    accounts.open("eve")
    first.subscribe(-1)  # what ends later is nobody's any more
    assert second.account.subscriptions == 0


def test_who_has_nothing_is_forgotten() -> None:
    accounts = Accounts(SMALL)
    accounts.close(accounts.open("eve"))
    assert not accounts
