"""What one principal may take of what all clients of a listener share. Pure.

Connections, subscriptions (consumers), credit and look-ups are bounded for each connection; without
a bound for all connections of a principal together, one key could use them up for everybody. While
security is off everybody is principal "" and only the bounds of the listener hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.limits import (
    CLIENTS_MAX,
    LOOKUPS_MAX,
    PRINCIPAL_CREDIT_BYTES,
    PRINCIPAL_SUBSCRIPTIONS_MAX,
    U63_MAX,
)

if TYPE_CHECKING:
    from zbroker.config import LimitsConfig


class Budget(NamedTuple):
    """What a principal may have at a time, of one listener."""

    connections: int = CLIENTS_MAX
    subscriptions: int = PRINCIPAL_SUBSCRIPTIONS_MAX
    credit_bytes: int = PRINCIPAL_CREDIT_BYTES
    lookups: int = LOOKUPS_MAX


def budget_of(limits: LimitsConfig) -> Budget:
    """What the configuration says."""
    return Budget(
        limits.clients_of_one, limits.subscriptions_per_principal,
        limits.credit_bytes_per_principal, limits.lookups_per_principal,
    )  # fmt: skip


DEFAULT: Final = Budget()
_EVERYBODY: Final = Budget(U63_MAX, U63_MAX, U63_MAX, U63_MAX)


@dataclass(slots=True, eq=False)
class Account:
    """What a principal has. credit: bytes that were promised and may be on their way."""

    principal: str = ""
    budget: Budget = _EVERYBODY
    connections: int = 0
    subscriptions: int = 0
    credit: int = 0

    @property
    def credit_left(self) -> int:
        return max(0, self.budget.credit_bytes - self.credit)

    def check_connection(self) -> None:
        """Raises: ClientError too_many."""
        self._check(self.connections, self.budget.connections, "clients")

    def check_subscription(self) -> None:
        """Raises: ClientError too_many."""
        self._check(self.subscriptions, self.budget.subscriptions, "subscriptions")

    def _check(self, has: int, most: int, what: str) -> None:
        if has >= most:
            reason = f"{self.principal!r} has {has} {what} here, at most {most} are allowed"
            raise ClientError("too_many", reason, f"limits.{what}_per_principal says how many")


@dataclass(slots=True)
class Use:
    """What one connection has of its principal's account."""

    account: Account = field(default_factory=Account)
    subscriptions: int = 0
    credit: int = 0

    def subscribe(self, change: int = 1) -> None:
        """One more, or one less."""
        self.subscriptions += change
        self.account.subscriptions += change

    def promise(self, change: int) -> None:
        """So many bytes more, or less."""
        self.credit += change
        self.account.credit += change

    def close(self) -> None:
        """The connection is over: all of it is free again."""
        self.promise(-self.credit)
        self.subscribe(-self.subscriptions)
        self.account.connections -= 1
        self.account = Account()


class Accounts(dict[str, Account]):
    """Those that are in use, by principal."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget

    def open(self, principal: str) -> Use:
        """For one more connection. Raises: ClientError too_many."""
        account = self.get(principal)
        if account is None:
            account = Account(principal, self._budget if principal else _EVERYBODY)
        account.check_connection()
        self[principal] = account
        account.connections += 1
        return Use(account)

    def close(self, use: Use) -> None:
        """A connection is over."""
        account = use.account
        use.close()
        if not account.connections:
            self.pop(account.principal, None)
