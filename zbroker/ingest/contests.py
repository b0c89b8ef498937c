"""Logons whose name another connection holds. Pure.

    waiting --the holder is gone--> may enter
            --it answers PROBES probes--> refused: the name is in use

A probe is a heartbeat to the holder: a send that fails shows that its connection is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from zbroker.ingest.clients import ClientConnection, ClientRegistry
from zbroker.ingest.identity import Who
from zbroker.wire.messages import Logon

PROBE_MS: Final = 25  # between heartbeats to an old connection that holds a wanted name
PROBES: Final = 8  # all of them could be sent: it lives, the name is in use


class Contest(NamedTuple):
    """A logon that waits until the holder of its name is probed `left` times more."""

    rid: bytes
    logon: Logon
    who: Who
    holder: ClientConnection
    next_ms: int
    left: int


class Contests:
    """All that wait."""

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients
        self._waiting: list[Contest] = []

    def begin(self, contest: Contest) -> None:
        """It waits; its first probe is to be sent now."""
        self._waiting.append(contest)

    def next_wake_ms(self) -> int | None:
        """When the first of them is to be looked at again."""
        return min((contest.next_ms for contest in self._waiting), default=None)

    def due(self, now_ms: int) -> Iterator[tuple[Contest, bool]]:
        """Those whose name is free, then True; and those to probe again or, `left` 0, to refuse."""
        waiting, self._waiting = self._waiting, []
        for contest in waiting:
            free = self._clients.by_name.get(contest.logon.client) is not contest.holder
            if free or now_ms >= contest.next_ms:
                yield contest, free
            else:
                self._waiting.append(contest)
