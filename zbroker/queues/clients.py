"""Connections of the queues door and their consumers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from zbroker.filters import Filter
from zbroker.limits import CREDIT_MAX_BYTES, KIB
from zbroker.server.peers import Peer

#: what a consumer gets even when its connection's credit is used up, so that it cannot stall
CREDIT_MIN_BYTES: Final = 64 * KIB
ENDED_MAX: Final = 64  # sids remembered because commands for them may still be on their way


@dataclass(slots=True)
class RemoteConsumer:
    """Somebody who takes from a queue. holder: its name over reconnects, for its leases."""

    key: int
    rid: bytes
    sid: str
    client: str
    queue: str
    credit: int
    holder: str = ""
    backlog: int = 0
    zstd: bool = False
    filter: Filter | None = None
    opened: bool = True
    examining: bool = False
    delivered: int = 0
    acked: int = 0
    sid_packed: bytes = b""


@dataclass(slots=True)
class QueuesConnection(Peer):
    """One logged-on client."""

    consumers: dict[str, RemoteConsumer] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    windows: dict[str, int] = field(default_factory=dict)

    def grant(self, sid: str, asked: int, credit: int = 0) -> int:
        """How much of the credit asked for a consumer, or more of it, may be given."""
        window = self.windows.get(sid, 0)
        left = min(CREDIT_MAX_BYTES - self.use.credit, self.use.account.credit_left)
        most = max(CREDIT_MIN_BYTES, window + left)
        given = min(asked, max(0, most - max(credit, 0)))
        if credit + given > window:
            self.windows[sid] = credit + given
            self.use.promise(credit + given - window)
        return given

    def end(self, sid: str) -> None:
        """Remembers that a consumer is over."""
        del self.consumers[sid]
        self.use.subscribe(-1)
        self.use.promise(-self.windows.pop(sid, 0))
        if len(self.ended) >= ENDED_MAX:
            del self.ended[next(iter(self.ended))]
        self.ended[sid] = None
