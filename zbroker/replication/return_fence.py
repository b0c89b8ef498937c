"""What this instance has to hold before its queues offer again, after it was away. Pure.

    waiting --every destination said what it holds, all of that is durable here--> read
            --the time is over--> read, but for what some have --they answer after all--> read

While it was away another instance may have taken messages over, and have them done: that is in
records which a peer holds. The queues ask once they are there, and offer nothing of replicated
queues before the answer. A queues process that dies alone waits for nothing: the links were up.
Source: the design of ownership, "Return".
"""

from __future__ import annotations

from collections.abc import Mapping

from zbroker.ids import Origin
from zbroker.replication.outgoing_link import OutgoingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire.owner_requests import PeersRead


class ReturnFence:
    """Since this process began. wait_ms: for peers, from the first question on."""

    def __init__(
        self, outgoing: Mapping[str, OutgoingLink], own: OwnHoldings, wait_ms: int
    ) -> None:
        self._outgoing, self._own, self._wait_ms = outgoing, own, wait_ms
        self._end_ms: int | None = None
        self._held: dict[str, dict[Origin, int]] = {}  # what a peer said first
        self.over = False

    def look(self, now_ms: int) -> PeersRead | None:
        """The answer to queues that ask; None: not yet."""
        if self._end_ms is None:
            self._end_ms = now_ms + self._wait_ms
        if not self._own.known:
            return None
        missing = [] if self.over else self._missing()
        self.over = not missing
        return PeersRead(missing) if self.over or now_ms >= self._end_ms else None

    def _missing(self) -> list[str]:
        """Destinations that did not answer, or have something that is not here."""
        found = []
        for name, link in self._outgoing.items():
            if name not in self._held and link.is_up:
                rows = link.peer.rows.items()
                self._held[name] = {at: row.position for at, row in rows if not row.digest}
            held = self._held.get(name)
            if held is None:
                lacks = name not in self._own.forgotten
            else:
                lacks = any(self._lacks(origin, position) for origin, position in held.items())
            if lacks:
                found.append(name)
        return found

    def _lacks(self, origin: Origin, position: int) -> bool:
        return origin not in self._own.closed and self._own.position(origin) < position
