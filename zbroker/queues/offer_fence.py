"""An instance that was away offers messages of replicated queues once it has read what peers hold.

    returning --QueuesHere--> replication --PeersRead--> the end of the log is looked up
              --read up to there--> offers

While it was away its messages may have been taken over, and done elsewhere. Where some peers are
missing, queues offer what they have flagged; those of at-most-once queues wait on. Pure.
Source: the design of ownership, "Return".
"""

from __future__ import annotations

from typing import Final

from zbroker.engine.contract import Now
from zbroker.engine.effects import Note
from zbroker.ids import NOW
from zbroker.limits import BEAT_MS, U63_MAX
from zbroker.queues.context import QueuesContext
from zbroker.queues.effects import SayReplication
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue
from zbroker.wire.internal import Located
from zbroker.wire.owner_requests import PeersRead, QueuesHere

MISSING: Final = (
    "replicated queues offer messages before all peers said what they hold: %s; any of them may "
    "have been done elsewhere, so they are flagged as redelivered; at-most-once queues wait on"
)


class OfferFence:
    """Since this process began. on: false: the instance has no links, and nothing to wait for."""

    def __init__(self, shared: QueuesContext, *, on: bool) -> None:
        self._shared, self._on = shared, on
        self._over = not on
        self._beat_ms = 0
        self._looks = False  # for the end of the log
        self._noted: list[str] = []
        shared.manager.return_to = U63_MAX if on else 0

    def tick(self, now: Now) -> None:
        """Says where requests go, and asks."""
        wake_ms = self.next_wake_ms()
        if wake_ms is not None and now.mono_ms >= wake_ms:
            self._beat_ms = now.mono_ms + BEAT_MS
            self._shared.out.append(SayReplication(QueuesHere(not self._over)))

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._beat_ms if self._on else None

    def read(self, said: PeersRead) -> None:
        """What peers hold is in the log; or some of them did not answer."""
        if self._over or self._looks:
            return
        if said.missing and said.missing != self._noted:
            self._noted = said.missing
            which = ", ".join(said.missing)
            self._shared.out.append(
                Note("queues.peers_missing", MISSING % which, values={"missing": which})
            )
        self._looks = True
        self._shared.locate(NOW, lambda found: self._located(found, said.missing))

    def _located(self, found: Located, missing: list[str]) -> None:
        self._looks = False
        if found.code:
            return  # the next answer comes within a beat
        manager = self._shared.manager
        self._over = not missing
        if self._over:
            manager.return_to = found.position
        for one in manager.folding.replicated.values():
            if not isinstance(one.replicated, ReplicatedQueue):
                continue  # another instance takes nothing from it
            once = one.definition.config.semantics == "at-most-once"
            if one.return_to < U63_MAX or (missing and once):
                continue
            one.return_to, one.doubted = found.position, bool(missing)
            manager.folding.await_position(one, found.position)
