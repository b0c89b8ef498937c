"""Publisher sessions and de-duplication: which batch is accepted, cut, repeated or refused.

"Highest sequence seen" alone loses data whenever something arrives out of order, therefore:

- A logon opens a session with a number never given before; batches of older sessions are refused.
- A batch says `prev`, the sequence its publisher issued before it. It is accepted iff
  prev <= high < last. What overlaps is cut (`skip`); prev > high is a `sequence_gap`.
- Without `prev` a publisher is held by temporary refusals only: what follows a refused sequence is
  refused too, until that sequence comes again or the publisher logs on anew.

The table is folded from batch headers when the journal starts; nothing else is a source for it.
Source: seed 002, "Guaranteed Publishing"; docs/reference/wire.md, "Sequences".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from zbroker.ids import publisher_id
from zbroker.journal.format import KIND_PUBLISH, Batch
from zbroker.limits import U63_MAX
from zbroker.wire.internal import Entry

RECENT_MAX: Final = 64  # batches per publisher whose content is compared when they come again


class Recent(NamedTuple):
    """A batch that this process accepted lately."""

    first: int
    messages: int
    crc: int
    last_position: int


@dataclass(slots=True)
class Publisher:
    """One client name: what the log holds of it and which session may go on."""

    id: int
    name: str
    principal: str = ""
    high: int = 0  # highest sequence in the log
    high_position: int = 0  # the position of that message
    acked: int = 0  # highest sequence known durable
    session: int = 0  # newest session; batches of others are refused
    held: int = 0  # the sequence that must come again first; 0: none
    named: bool = False  # its publisher record is in the log
    recent: deque[Recent] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))


class Verdict(NamedTuple):
    """accept: `skip` messages are cut. duplicate: in the log up to `position`. refuse: `code`."""

    what: Literal["accept", "duplicate", "refuse"]
    skip: int = 0
    position: int = 0
    code: str = ""
    reason: str = ""
    conflict: bool = False


class Sessions:
    """The publisher table of one journal."""

    def __init__(self) -> None:
        self._publishers: dict[int, Publisher] = {}

    def __len__(self) -> int:
        return len(self._publishers)

    def get(self, publisher: int) -> Publisher | None:
        """The publisher with this id, if it has a session or messages in the log."""
        return self._publishers.get(publisher)

    def fold(self, batch: Batch) -> None:
        """Learns from one batch of the log, in log order, all of it durable."""
        if batch.kind != KIND_PUBLISH:
            return
        known = self._publishers.get(batch.publisher)
        if known is None:
            known = self._publishers[batch.publisher] = Publisher(batch.publisher, "")
        known.high = max(known.high, batch.sequence + batch.taken - 1)
        known.high_position = batch.end_position - 1
        known.acked = known.high
        known.session = max(known.session, batch.session)

    def fold_name(self, publisher: int, name: str, principal: str) -> None:
        """Learns from a publisher record of the log."""
        known = self._publishers.setdefault(publisher, Publisher(publisher, name, principal))
        known.name, known.principal, known.named = name, principal, True

    def open(self, name: str, principal: str, wall_ns: int) -> Publisher | None:
        """Opens a session of `name`; None when another name has the same publisher id."""
        known = self._find(name, principal)
        if known is not None:
            known.session = max(known.session + 1, wall_ns)
            known.held = 0
            known.principal = principal
        return known

    def resume(self, name: str, principal: str, session: int) -> bool:
        """Takes over a session that ingest held open while the journal was down.

        Returns: False when it has ended: the log knows a newer session.
        """
        known = self._find(name, principal)
        if known is None or session < known.session:
            return False
        known.session = session
        return True

    def close(self, name: str, session: int) -> None:
        """Forgets a session; a name that never published leaves no trace."""
        known = self._publishers.get(publisher_id(name))
        if known is not None and known.session == session and known.high == 0:
            del self._publishers[known.id]

    def _find(self, name: str, principal: str) -> Publisher | None:
        wanted = publisher_id(name)
        known = self._publishers.setdefault(wanted, Publisher(wanted, name, principal))
        if known.name == "":  # folded from batches whose publisher record is gone
            known.name = name
        return known if known.name == name else None

    def judge(self, entry: Entry) -> Verdict:
        """What becomes of a batch. Changes nothing but `held`."""
        known = self._publishers.get(entry.publisher)
        if known is None or entry.session != known.session:
            return Verdict(
                "refuse", code="session_ended", reason="a newer session of this publisher is open"
            )
        last = entry.seq + entry.count - 1
        if last > U63_MAX or (entry.prev is not None and entry.prev >= entry.seq):
            return Verdict(
                "refuse",
                code="bad_field",
                reason="key `prev` must be below `seq`, both below 2**63",
            )
        if last <= known.high:
            return _duplicate(known, entry)
        missing = (
            entry.prev
            if entry.prev is not None
            else (known.held if entry.seq > known.held > 0 else 0)
        )
        if missing > known.high:
            reason = (
                f"sequence {missing} is missing before {entry.seq}; the log ends at {known.high}"
            )
            return Verdict("refuse", code="sequence_gap", reason=reason)
        known.held = 0
        return Verdict("accept", skip=max(0, known.high - entry.seq + 1))

    def hold(self, entry: Entry) -> None:
        """After a temporary refusal: without `prev`, this sequence must come again first."""
        known = self._publishers.get(entry.publisher)
        if known is not None and entry.prev is None and (known.held == 0 or entry.seq < known.held):
            known.held = entry.seq

    def accepted(self, entry: Entry, last_position: int) -> None:
        """Records that the batch is in the log, its last message at `last_position`."""
        known = self._publishers[entry.publisher]
        known.high = entry.seq + entry.count - 1
        known.high_position = last_position
        known.recent.append(Recent(entry.seq, entry.count, entry.crc, last_position))

    def durable(self, publisher: int, sequence: int) -> None:
        """Everything of this publisher up to `sequence` survives a power loss."""
        known = self._publishers.get(publisher)
        if known is not None and sequence > known.acked:
            known.acked = sequence

    def check(self) -> None:
        """Asserts what is always true."""
        for known in self._publishers.values():
            assert known.acked <= known.high, known
            assert known.held == 0 or known.held > known.high, known


def _duplicate(known: Publisher, entry: Entry) -> Verdict:
    """A duplicate inherits its original's position: it is acknowledged when the original may be."""
    for recent in known.recent:
        if recent.first == entry.seq and recent.messages == entry.count:
            return Verdict(
                "duplicate", position=recent.last_position, conflict=recent.crc != entry.crc
            )
    return Verdict("duplicate", position=known.high_position)
