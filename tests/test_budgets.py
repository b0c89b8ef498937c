"""What one principal may take of what all share (zbroker/budgets.py)."""

from __future__ import annotations

import pytest

from zbroker.budgets import (
    COMPILE_SAVED_MS,
    COMPILE_US,
    COMPILE_US_PER_CHAR,
    COMPILE_US_REFUSED,
    Account,
    Accounts,
    Budget,
)
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


# -- compiling --------------------------------------------------------------------------------


def spend(account: Account, chars: int = 1_000) -> int:
    """Compiles until no more is allowed; how often that was."""
    for count in range(1_000_000):
        try:
            account.compile(chars, lambda: None)
        except ClientError as error:
            if error.code == "too_many" and "compile_ms_per_principal" in error.hint:
                return count
            raise
    raise AssertionError("there is no end to it")


def test_compiling_is_bounded_and_time_gives_it_back() -> None:
    account = Accounts(Budget(compile_ms=100)).open("eve").account
    each_us = COMPILE_US + 1_000 * COMPILE_US_PER_CHAR
    assert spend(account) == -(-COMPILE_SAVED_MS * 100 // each_us)
    account.now_ms += 1_000
    per_second = 100_000 // each_us
    assert per_second - 1 <= spend(account) <= per_second + 1
    account.now_ms += 10 * COMPILE_SAVED_MS
    assert spend(account) == -(-COMPILE_SAVED_MS * 100 // each_us), "no more than that is saved up"


def test_what_is_known_already_costs_nothing() -> None:
    account = Accounts(Budget(compile_ms=1)).open("eve").account
    spend(account)
    assert account.compile(0, lambda: "known") == "known"


def test_a_text_that_is_refused_costs_more_and_the_error_is_passed_on() -> None:
    def refused() -> None:
        raise ClientError("bad_filter", "too large")

    account = Accounts(Budget()).open("eve").account
    with pytest.raises(ClientError, match="too large"):
        account.compile(1, refused)
    assert account.compiled_us == COMPILE_US + COMPILE_US_PER_CHAR + COMPILE_US_REFUSED


def test_another_connection_does_not_owe_less() -> None:
    accounts = Accounts(Budget(compile_ms=10))
    first = accounts.open("eve")
    assert spend(first.account)
    accounts.close(first)
    assert not spend(accounts.open("eve").account)
    assert spend(accounts.open("ann").account)


def test_everybody_without_security_may_compile() -> None:
    account = Accounts(Budget(compile_ms=1)).open("").account
    for _ in range(1_000):
        account.compile(8_000, lambda: None)
