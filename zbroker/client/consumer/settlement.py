"""What becomes of messages and is not known to be durable: verbs, merged and repeated. Pure.

    open --send--> sent --settled--> forgotten
      ^              |
      +-- lost ------+      refused for good: forgotten, and raised where a thread waits

What piled up goes as one command per verb and turn, as runs of positions. An ack that was lost with
its connection is sent again: it counts whoever holds the lease. The others mean one lease, so they
are repeated only for what the broker says is still held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from msgspec import Struct
from pyroaring import BitMap64

from zbroker.errors import ZBrokerError
from zbroker.log.records import ends_of, of_ends
from zbroker.wire.queue_messages import Extend, RejectMessages, Release, Settle

#: of one command: 9 bytes for each end, so that its header stays below HEADER_MAX_BYTES
RUNS_MAX: Final = 3_000
AGAIN_MS: Final = 500  # after a refusal that does not last
_NEVER: Final = 1 << 62


class Verb(NamedTuple):
    """The fate of messages: ack, release, reject, extend. ms: the delay, or the lease."""

    kind: str
    ms: int = 0
    reason: str = ""


ACK: Final = Verb("ack")
EXTEND: Final = Verb("extend")


class Whose(NamedTuple):
    """The consumer of a queue that settles. generation: of the origin of the positions."""

    sid: str
    queue: str
    generation: int


class SettlementPart(Struct, eq=False):
    """Messages with the same verb. first: the number of the oldest of what was asked for them."""

    verb: Verb
    positions: BitMap64
    first: int
    sent_ms: int = 0


class PendingSettlements:
    """All that is not settled, by verb while it is open, by cid when it was sent."""

    def __init__(self) -> None:
        self.number = 0  # counts what was asked for
        self.refusal: ZBrokerError | None = None  # the first since one was raised
        self._open: dict[Verb, SettlementPart] = {}
        self._sent: dict[str, SettlementPart] = {}
        self._again_ms = 0

    # -- what is asked for --------------------------------------------------------------------

    def add(self, verb: Verb, positions: BitMap64) -> None:
        """More of it. The caller gives `positions` away."""
        self.number += 1
        part = self._open.get(verb)
        if part is None:
            first = _NEVER if verb.kind == "extend" else self.number  # no thread waits for those
            self._open[verb] = SettlementPart(verb, positions, first)
        else:
            part.positions |= positions

    def refuse(self, error: ZBrokerError) -> None:
        """Something that was asked for cannot be done any more."""
        self.refusal = self.refusal or error

    # -- what goes over the wire --------------------------------------------------------------

    def due(self, cid: Callable[[], str], whose: Whose, now_ms: int) -> list[Settle]:
        """The commands for all that is open."""
        if not self._open or now_ms < self._again_ms:
            return []
        parts = [piece for part in self._open.values() for piece in _pieces(part)]
        self._open.clear()
        for part in parts:
            part.sent_ms = now_ms
        return [self._command(part, cid(), whose) for part in parts]

    def next_wake_ms(self) -> int | None:
        """When something is due; a new request is so at once."""
        return self._again_ms if self._open else None

    def waits_since_ms(self) -> int | None:
        """When the oldest extension without an answer was sent: those are answered at once.

        The others are answered when they are durable, and a full disk may last.
        """
        times = (part.sent_ms for part in self._sent.values() if part.verb.kind == "extend")
        return min(times, default=None)

    def settled(self, cid: str) -> SettlementPart | None:
        """That one is done. None: it is not known here."""
        return self._sent.pop(cid, None)

    def refused(self, cid: str, error: ZBrokerError, *, again: bool, now_ms: int) -> bool:
        """False if that is not one of them. again: it is tried again, a little later."""
        part = self._sent.pop(cid, None)
        if part is None:
            return False
        if again:
            self._reopen(part)
            self._again_ms = now_ms + AGAIN_MS
        elif part.verb.kind != "extend":
            self.refuse(error)
        return True

    # -- connections --------------------------------------------------------------------------

    def lost(self) -> None:
        """No answer comes any more."""
        sent, self._sent = self._sent, {}
        for part in sent.values():
            self._reopen(part)
        self._again_ms = 0

    def keep(self, kept: BitMap64) -> None:
        """Only what is still held is released, rejected or extended."""
        for verb, part in list(self._open.items()):
            if verb.kind != "ack":
                part.positions &= kept
                if not part.positions:
                    del self._open[verb]

    def clear(self) -> int:
        """Forgets all. Returns: how many messages were to be settled."""
        count = len(self.under_way("ack", "release", "reject"))
        self._open.clear()
        self._sent.clear()
        return count

    # -- what is known of messages ------------------------------------------------------------

    def under_way(self, *kinds: str) -> BitMap64:
        """The messages with these verbs."""
        found = BitMap64()
        for part in self._parts():
            if part.verb.kind in kinds:
                found |= part.positions
        return found

    def came_again(self, positions: BitMap64) -> None:
        """They have new leases: those that were to be released came back already."""
        for part in self._parts():
            if part.verb.kind == "release":
                part.positions -= positions
        self._open = {verb: part for verb, part in self._open.items() if part.positions}

    def through(self, number: int) -> bool:
        """True if all that was asked for up to `number` is durable, or refused."""
        return all(part.first > number for part in self._parts())

    def __len__(self) -> int:
        return len(self.under_way("ack", "release", "reject"))

    def __bool__(self) -> bool:
        """True if something is to be sent, or under way."""
        return bool(self._open or self._sent)

    # -- helpers ------------------------------------------------------------------------------

    def _parts(self) -> Iterator[SettlementPart]:
        yield from self._open.values()
        yield from self._sent.values()

    def _reopen(self, part: SettlementPart) -> None:
        there = self._open.get(part.verb)
        if there is None:
            self._open[part.verb] = part
        else:
            there.positions |= part.positions
            there.first = min(there.first, part.first)

    def _command(self, part: SettlementPart, cid: str, whose: Whose) -> Settle:
        self._sent[cid] = part
        verb, ends = part.verb, ends_of(part.positions)
        if verb.kind == "release":
            command: Settle = Release(cid, whose.sid, delay_ms=verb.ms)
        elif verb.kind == "reject":
            command = RejectMessages(cid, whose.sid, reason=verb.reason)
        elif verb.kind == "extend":
            command = Extend(cid, whose.sid, lease_ms=verb.ms)
        else:
            command = Settle(cid, whose.sid, whose.queue)  # it counts also without a consumer
        command.ends, command.generation = ends, whose.generation
        return command


def _pieces(part: SettlementPart) -> Iterator[SettlementPart]:
    """As many as it takes for each to fit a header."""
    ends = ends_of(part.positions)
    if len(ends) <= 2 * RUNS_MAX:
        yield part
        return
    for start in range(0, len(ends), 2 * RUNS_MAX):
        yield SettlementPart(part.verb, of_ends(ends[start : start + 2 * RUNS_MAX]), part.first)
