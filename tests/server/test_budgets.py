"""What one principal may take of what all share (zbroker/server/budgets.py)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pytest

from zbroker.errors import ClientError
from zbroker.server.budgets import (
    COMPILE_SAVED_MS,
    COMPILE_US,
    COMPILE_US_PER_CHAR,
    COMPILE_US_REFUSED,
    Account,
    Accounts,
    Budget,
    ConnectionUse,
)

T = TypeVar("T")
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
    first.subscribe(-1)  # what ends later is no one's any more
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


# -- histories --------------------------------------------------------------------------------

SEEDS_OF_BUG: Final = 500  # within so many a planted bug is found


@dataclass(eq=False)
class Had:
    """A connection, and what it has."""

    use: ConnectionUse
    subscriptions: int = 0
    credit: int = 0


class Histories:
    """Connections of three principals come, take and go, in any order."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.accounts = Accounts(SMALL)
        self.open: dict[str, list[Had]] = {"ann": [], "bob": [], "eve": []}
        self.over: list[ConnectionUse] = []

    def run(self) -> None:
        steps = (self.come, self.come, self.subscribe, self.subscribe, self.promise, self.go)
        for _ in range(40):
            self.rng.choice((*steps, self.end_late))()
            self.compare()

    def come(self) -> None:
        who = self.rng.choice(sorted(self.open))
        use = self.allowed(lambda: self.accounts.open(who), len(self.open[who]), 2)
        if use is not None:
            self.open[who].append(Had(use))

    def allowed(self, ask: Callable[[], T], has: int, most: int) -> T | None:
        """What is given, which is nothing exactly if there is no more."""
        found = None
        with contextlib.suppress(ClientError):
            found = ask()
        assert (found is None) == (has >= most)
        return found

    def one(self) -> tuple[str, Had] | None:
        found = [(who, had) for who, many in self.open.items() for had in many]
        return self.rng.choice(found) if found else None

    def subscribe(self) -> None:
        """One more, or one less."""
        if (found := self.one()) is None:
            return
        who, had = found
        if had.subscriptions and self.rng.random() < 0.3:
            had.use.subscribe(-1)
            had.subscriptions -= 1
            return

        def ask() -> bool:
            had.use.account.check_subscription()
            return True

        if self.allowed(ask, sum(each.subscriptions for each in self.open[who]), 3):
            had.use.subscribe()
            had.subscriptions += 1

    def promise(self) -> None:
        if (found := self.one()) is not None:
            had = found[1]
            size = self.rng.randint(-had.credit, 60)
            had.use.promise(size)
            had.credit += size

    def go(self) -> None:
        if (found := self.one()) is not None:
            who, had = found
            self.open[who].remove(had)
            self.accounts.close(had.use)
            self.over.append(had.use)

    def end_late(self) -> None:
        """What a connection had ends after it."""
        if self.over:
            self.over.pop().subscribe(-1)

    def compare(self) -> None:
        for who, many in self.open.items():
            assert (who in self.accounts) == bool(many)
            left = max(0, SMALL.credit_bytes - sum(had.credit for had in many))
            assert {had.use.account.credit_left for had in many} <= {left}


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_what_principals_have_is_what_their_connections_have(start: int) -> None:
    for seed in range(start, start + 50):
        try:
            Histories(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def _one_account(self: Accounts, _principal: str) -> ConnectionUse:
    return _OPEN(self, "everybody")


def _credit_kept(self: ConnectionUse) -> None:
    self.credit = 0
    _CLOSE(self)


def _subscriptions_kept(self: ConnectionUse) -> None:
    self.subscriptions = 0
    _CLOSE(self)


def _account_kept(self: ConnectionUse) -> None:
    account = self.account
    _CLOSE(self)
    self.account = account


def _connection_kept(self: ConnectionUse) -> None:
    self.account.connections += 1
    _CLOSE(self)


def _account_of_its_own(self: Accounts, principal: str) -> ConnectionUse:
    use = _OPEN(self, principal)
    use.account = Account(principal, SMALL, use.account.connections)
    return use


_OPEN, _CLOSE = Accounts.open, ConnectionUse.close

#: owner, method, and what is done instead
BUGS: Final[dict[str, tuple[type, str, Callable[..., Any]]]] = {
    "all principals have one budget": (Accounts, "open", _one_account),
    "each connection has a budget of its own": (Accounts, "open", _account_of_its_own),
    "credit of a closed connection stays promised": (ConnectionUse, "close", _credit_kept),
    "subscriptions of a closed connection count": (ConnectionUse, "close", _subscriptions_kept),
    "what ends late is taken off again": (ConnectionUse, "close", _account_kept),
    "connections that are over count": (ConnectionUse, "close", _connection_kept),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[bug])
    for seed in range(SEEDS_OF_BUG):
        try:
            Histories(seed).run()
        except AssertionError:
            return
    pytest.fail(f"{bug!r} was not found within {SEEDS_OF_BUG} seeds")
