"""What one principal may take of what all clients of a listener share. Pure.

Connections, subscriptions (consumers), credit and look-ups are bounded for each connection; without
a bound for all connections of a principal together, one key could use them up for everybody. While
security is off everybody is principal "" and only the bounds of the listener hold.

Compiling a filter or a pattern takes up to some 100 ms, in which all others wait. What it may take
is estimated from the text: a measured time would make the same commands succeed or fail by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from msgspec import Struct, field

from zbroker.errors import ClientError
from zbroker.limits import (
    CLIENTS_MAX,
    COMPILE_MS,
    LOOKUPS_MAX,
    PRINCIPAL_CREDIT_BYTES,
    PRINCIPAL_SUBSCRIPTIONS_MAX,
    QUEUES_OF_ONE_MAX,
    U63_MAX,
)

if TYPE_CHECKING:
    from zbroker.config import LimitsConfig

T = TypeVar("T")

#: What compiling takes, measured: filters of many fields 13 us per character, unions of classes 15;
#: a pattern that is refused for its size 15 ms, whatever its length.
COMPILE_US: Final = 200
COMPILE_US_PER_CHAR: Final = 15
COMPILE_US_REFUSED: Final = 15_000
COMPILE_SAVED_MS: Final = 10_000  # so that many subscriptions may come back at once


class Budget(NamedTuple):
    """What a principal may have at a time, of one listener; compile_ms: of each second."""

    connections: int = CLIENTS_MAX
    subscriptions: int = PRINCIPAL_SUBSCRIPTIONS_MAX
    credit_bytes: int = PRINCIPAL_CREDIT_BYTES
    lookups: int = LOOKUPS_MAX
    compile_ms: int = COMPILE_MS
    queues: int = QUEUES_OF_ONE_MAX


def budget_of(limits: LimitsConfig) -> Budget:
    """What the configuration says."""
    return Budget(
        limits.clients_of_one, limits.subscriptions_per_principal,
        limits.credit_bytes_per_principal, limits.lookups_per_principal,
        limits.compile_ms_per_principal, limits.queues_per_principal,
    )  # fmt: skip


DEFAULT: Final = Budget()
_EVERYBODY: Final = Budget(U63_MAX, U63_MAX, U63_MAX, U63_MAX, U63_MAX, U63_MAX)


class Account(Struct, eq=False):
    """What a principal has. credit: bytes that were promised and may be on their way.

    now_ms: when one of its connections was heard last. compiled_us: what compiling took, less what
    time has given back.
    """

    principal: str = ""
    budget: Budget = _EVERYBODY
    connections: int = 0
    subscriptions: int = 0
    credit: int = 0
    now_ms: int = 0
    compiled_us: int = 0
    _compiled_ms: int = 0

    @property
    def credit_left(self) -> int:
        return max(0, self.budget.credit_bytes - self.credit)

    def check_connection(self) -> None:
        """Raises: ClientError too_many."""
        self._check(self.connections, self.budget.connections, "clients")

    def check_subscription(self) -> None:
        """Raises: ClientError too_many."""
        self._check(self.subscriptions, self.budget.subscriptions, "subscriptions")

    def check_queue(self, declared: int) -> None:
        """For one more name of a queue. Raises: ClientError too_many."""
        self._check(declared, self.budget.queues, "queues")

    def compile(self, chars: int, make: Callable[[], T]) -> T:
        """What `make` makes of so many characters of a client; of none it costs nothing.

        Raises: ClientError too_many, or what `make` raises.
        """
        if not chars:
            return make()
        self._check_compile()
        self.compiled_us += COMPILE_US + COMPILE_US_PER_CHAR * chars
        try:
            return make()
        except ClientError:
            self.compiled_us += COMPILE_US_REFUSED
            raise

    def _check_compile(self) -> None:
        rate = self.budget.compile_ms  # ms of each second: us of each ms
        given_back = (self.now_ms - self._compiled_ms) * rate
        self.compiled_us = max(0, self.compiled_us - given_back)
        self._compiled_ms = self.now_ms
        over_us = self.compiled_us - COMPILE_SAVED_MS * rate
        if over_us >= 0:
            reason = f"compiling filters and patterns of {self.principal!r} takes too long"
            hint = f"again in {1 + over_us // rate} ms; see limits.compile_ms_per_principal"
            raise ClientError("too_many", reason, hint)

    def _check(self, has: int, most: int, what: str) -> None:
        if has >= most:
            reason = f"{self.principal!r} has {has} {what} here, at most {most} are allowed"
            raise ClientError("too_many", reason, f"limits.{what}_per_principal says how many")


class ConnectionUse(Struct):
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
    """Those that are in use, or owe time, by principal: as many as there are principals."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget

    def open(self, principal: str) -> ConnectionUse:
        """For one more connection. Raises: ClientError too_many."""
        account = self.get(principal)
        if account is None:
            account = Account(principal, self._budget if principal else _EVERYBODY)
        account.check_connection()
        self[principal] = account
        account.connections += 1
        return ConnectionUse(account)

    def close(self, use: ConnectionUse) -> None:
        """A connection is over."""
        account = use.account
        use.close()
        if not account.connections and not account.compiled_us:  # else a new one would owe nothing
            self.pop(account.principal, None)
