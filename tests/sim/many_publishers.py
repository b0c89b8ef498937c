"""Publishers of the simulated instances: programs with a store, whose ingest is typed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zbroker.ids import publisher_id
from zbroker.ingest.chain import PrevTracker
from zbroker.wire import internal as m

if TYPE_CHECKING:
    from tests.sim.many_world import Instance


class Sent(NamedTuple):
    """A batch on its way to the journal, or durable there."""

    publisher: Publisher
    session: int
    last: int


class Publisher:
    """A program with a publish store: what is not acknowledged is sent again, wherever it goes."""

    def __init__(self, name: str, says_prev: bool) -> None:
        self.name, self.says_prev = name, says_prev
        self.id = publisher_id(name)
        self.sequence = self.discarded = self.chain = self.sent = 0
        self.unacked: list[tuple[int, bytes]] = []
        self.acked: dict[int, bytes] = {}
        self.at: Instance | None = None
        self.session = 0
        self.used = PrevTracker()  # as ingest has it, of one that does not say `prev`

    def leave(self) -> None:
        self.at, self.session = None, 0

    def opened(self, answer: m.Opened) -> None:
        self.session = answer.session
        self.sequence = max(self.sequence, answer.seq)
        self.used = PrevTracker()
        self.used.settled(answer.seq)
        first = self.unacked[0][0] if self.unacked else self.sequence + 1
        self.chain = min(self.discarded, answer.seq, first - 1)
        self.sent = 0

    def settle(self, through: int) -> list[int]:
        """What is acknowledged now."""
        found = []
        while self.unacked and self.unacked[0][0] <= through:
            sequence, payload = self.unacked.pop(0)
            self.acked[sequence] = payload
            self.discarded = sequence
            self.sent = max(0, self.sent - 1)
            found.append(sequence)
        return found
