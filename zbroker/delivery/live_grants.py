"""How much ingest may send of what is not recorded: delivery's end of that link. Pure.

    a Hello --> the newest ingest is granted bytes --GRANT_BYTES taken, or a beat--> granted anew

The link begins with a Hello: ZeroMQ hands frames that were queued for a dead delivery to this one,
which knows neither them nor their sender, drops them and asks for a Hello. While no client is
logged on nothing is granted, so ingest sends nothing. It is granted from the first logon on, so
long before the first subscription is answered, and a while longer than any client stays.
"""

from __future__ import annotations

from typing import Final

from zbroker.delivery.effects import GrantLive
from zbroker.delivery.events import LiveReceived
from zbroker.limits import BEAT_MS, LIVE_CREDIT_BYTES
from zbroker.wire.internal import Hello, LiveCredit

WANTED_MS: Final = 10_000  # longer than the last client stays: most come back
GRANT_BYTES: Final = LIVE_CREDIT_BYTES // 4  # taken since the last grant: then it is time for one


class LiveGrants:
    """Which ingest process said Hello last, and how much was taken from it."""

    def __init__(self, incarnation: int) -> None:
        self._mine = incarnation
        self._requester: bytes | None = None
        self._theirs = 0
        self._taken = self._ungranted = 0  # bytes: since its Hello, since the last grant
        self._wanted = True
        self._wanted_until_ms = self.next_wake_ms = 0

    def answer(self, received: LiveReceived) -> GrantLive | None:
        """The answer to a Hello, or to a stranger; None: these batches are taken."""
        rid, message = received.rid, received.message
        if isinstance(message, Hello):  # a new ingest, or a new socket of it
            self._requester, self._theirs, self._taken = rid, message.incarnation, 0
            return self._grant(rid)
        if rid != self._requester or message.incarnation != self._mine:
            return GrantLive(rid, LiveCredit(self._mine, 0, 0, 0))
        self._taken += received.size
        self._ungranted += received.size
        return None

    def taken(self) -> list[GrantLive]:
        """A new grant, if so much was taken that it is time for one."""
        return self._grants() if self._ungranted >= GRANT_BYTES else []

    def tick(self, now_ms: int, *, wanted: bool) -> list[GrantLive]:
        """A grant on each beat, as ingest takes silence for death, and when `wanted` changes.

        wanted: a client is logged on.
        """
        if wanted:
            self._wanted_until_ms = now_ms + WANTED_MS
        before, self._wanted = self._wanted, now_ms < self._wanted_until_ms
        if before is self._wanted and now_ms < self.next_wake_ms:
            return []
        self.next_wake_ms = now_ms + BEAT_MS
        return self._grants()

    def _grants(self) -> list[GrantLive]:
        return [] if self._requester is None else [self._grant(self._requester)]

    def _grant(self, rid: bytes) -> GrantLive:
        self._ungranted = 0
        credit = LIVE_CREDIT_BYTES if self._wanted else 0
        return GrantLive(rid, LiveCredit(self._mine, self._theirs, self._taken, credit))
