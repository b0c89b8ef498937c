"""A process's session with the journal: which incarnation listens, and when to say Hello. Pure.

    down --Welcome to this process--> up --watermarks of another incarnation--> down
                             or UnknownRequester
    down --no Welcome for WELCOME_WAIT_MS, then for twice as long, ...--> down

Whenever it is down it says Hello on a new socket: ZeroMQ would hand what is queued in the old one
to the journal's successor, and a Hello may have gone to a journal that died. It waits longer each
time, or on a busy machine every answer would come to a socket that is closed by then. The
subscription to the watermarks is renewed at a Welcome, since watermarks of the dead journal may
wait in it.

A process has the watermarks of each commit only while something in it waits for the log: see
`follow`. Those of the beat say whether the journal is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbroker.engine.effects import JOURNAL, WATERMARKS, Follow, Reconnect, Say
from zbroker.engine.news_need import NewsNeed
from zbroker.wire.internal import Hello, Welcome

WELCOME_WAIT_MS: Final = 1_000
WELCOME_WAITS: Final = 8  # as many times longer does it wait at most


class JournalSession:
    """welcomed_by: the incarnation that listens; 0: none is known to."""

    def __init__(self, incarnation: int, hello: Callable[[int], Hello]) -> None:
        """hello: the message with this number; asked for each time, since it may name sessions."""
        self.welcomed_by = 0
        self._mine = incarnation
        self._hello, self._hellos = hello, 0
        self._next_hello_ms: int | None = 0
        self._waits = 1  # for the next answer
        self._need = NewsNeed()

    def tick(self, now_ms: int) -> list[Reconnect | Say]:
        """Says Hello if that is due."""
        if self._next_hello_ms is None or now_ms < self._next_hello_ms:
            return []
        self._next_hello_ms = now_ms + self._waits * WELCOME_WAIT_MS
        self._waits = min(WELCOME_WAITS, 2 * self._waits)
        self._hellos += 1
        return [Reconnect(JOURNAL), Say(JOURNAL, self._hello(self._hellos))]

    def next_wake_ms(self) -> int | None:
        """When the next Hello is due; None while the journal listens."""
        return self._next_hello_ms

    def follow(self, now_ms: int, *, needed: bool) -> list[Follow]:
        """needed: something waits for the end of the log."""
        return [Follow(needed)] if self._need.changed(now_ms, needed=needed) else []

    def watermarks(self, incarnation: int, now_ms: int) -> list[Reconnect | Say]:
        """Watermarks of this incarnation arrived: if it is another one, the session is over."""
        return [] if incarnation == self.welcomed_by else self.over(now_ms)

    def over(self, now_ms: int) -> list[Reconnect | Say]:
        """The journal that welcomed this process does not listen to it any more."""
        if self.welcomed_by == 0:
            return []
        self.welcomed_by, self._next_hello_ms = 0, now_ms
        return self.tick(now_ms)

    def welcome(self, welcome: Welcome) -> list[Reconnect | Say] | None:
        """A journal listens. None: its Welcome is for a process before this one."""
        if welcome.echo != self._mine:
            return None
        renew = welcome.incarnation != self.welcomed_by
        self.welcomed_by, self._next_hello_ms, self._waits = welcome.incarnation, None, 1
        return [Reconnect(WATERMARKS)] if renew else []
