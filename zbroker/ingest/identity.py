"""Who logs on: the key of the connection, the name it asks for, and a password where one is set.

    logon --no password--> known                      Pure: checking a password takes 30 ms, so the
          --password----> Verify --verified--> known  loop does it beside its turns

A wrong password costs its user, with this key, a wait that doubles; who waits is refused without a
look. Others who share the key go on: whoever has it could keep all of them out otherwise.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zbroker.access.core import NOT_ACCEPTED, NOT_ACCEPTED_HINT, Access
from zbroker.access.passwords import NOBODY
from zbroker.errors import ClientError
from zbroker.ingest.contract import Verify
from zbroker.wire.messages import Logon

VERIFYING_MAX: Final = 16  # each takes a core for 30 ms; what is over has to come again
PENALTY_MIN_MS: Final = 500
PENALTY_MAX_MS: Final = 30_000
PENALTIES_MAX: Final = 10_000


class Who(NamedTuple):
    """Who a connection is, and by which key. Both are empty where security is off."""

    principal: str = ""
    key: str = ""


class Claim(NamedTuple):
    """A logon whose password is being looked at."""

    rid: bytes
    logon: Logon
    who: Who


class Identity:
    """The rules as they are now, and claims that wait."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._claims: dict[int, Claim] = {}
        self._last = 0
        self._penalties: dict[tuple[str, str], tuple[int, int]] = {}  # until when, how long it was

    def who(self, rid: bytes, logon: Logon, key: str, now_ms: int) -> Who | Verify:
        """Who logs on, or a password to be looked at first.

        Raises: ClientError auth_failed, not_entitled, too_many.
        """
        given = logon.credentials or {}
        user, password = given.get("user"), given.get("password")
        known = user is None or user in self.access.principals_of(key)
        if password is not None and now_ms < self._penalties.get((key, user or ""), (0, 0))[0]:
            raise ClientError("auth_failed", "too many wrong passwords: wait, then try again")
        if known or password is None or not self.access.principals_of(key):
            principal = self.access.identify(key, user)
            hashed = self.access.password_of(principal)
            if not hashed:
                self.access.check_name(principal, logon.client)
                return Who(principal, key)
        else:  # it has to take as long as for somebody who is there
            principal, hashed = "", NOBODY
        if password is None:
            raise ClientError("auth_failed", NOT_ACCEPTED, NOT_ACCEPTED_HINT)
        return self._verify(Claim(rid, logon, Who(principal, key)), password, hashed)

    def _verify(self, claim: Claim, password: str, hashed: str) -> Verify:
        if any(other.rid == claim.rid for other in self._claims.values()):
            raise ClientError("too_many", "a password of this connection is being looked at")
        if len(self._claims) >= VERIFYING_MAX:
            raise ClientError("too_many", f"{VERIFYING_MAX} passwords are being looked at")
        self._last += 1
        self._claims[self._last] = claim
        return Verify(self._last, password, hashed)

    def claim(self, number: int) -> Claim:
        """The logon whose password was looked at; it is no claim any more."""
        return self._claims.pop(number)

    def judge(self, claim: Claim, *, good: bool, now_ms: int) -> None:
        """Raises: ClientError auth_failed, if the password was wrong, or the rules have changed."""
        key = claim.who.key, (claim.logon.credentials or {}).get("user", "")
        if not good:
            _, before_ms = self._penalties.pop(key, (0, 0))
            wait_ms = min(max(2 * before_ms, PENALTY_MIN_MS), PENALTY_MAX_MS)
            if len(self._penalties) >= PENALTIES_MAX:
                del self._penalties[next(iter(self._penalties))]
            self._penalties[key] = (now_ms + wait_ms, wait_ms)
            raise ClientError("auth_failed", NOT_ACCEPTED, NOT_ACCEPTED_HINT)
        self._penalties.pop(key, None)
        self.check(claim.who, claim.logon.client)

    def check(self, who: Who, name: str) -> None:
        """Raises: ClientError, unless `who` may still be here under `name`."""
        if not self.access.holds(who.principal, who.key):
            raise ClientError("auth_failed", "this key does not stand for you any more")
        self.access.check_name(who.principal, name)
