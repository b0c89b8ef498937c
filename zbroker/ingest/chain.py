"""The line of one publisher session where not everything is recorded. Pure.

A client chains all its messages by `prev`; the journal sees the recorded ones only. So `prev` is
checked here, against what was taken in this session, and linked anew: the journal gets the last
recorded sequence forwarded before.

    client     1r <- 2r <- 3u <- 4u <- 5r          journal    1r <- 2r <- 5r

When the journal refuses a batch, all that came behind it in the session is refused as well, so the
line goes back to what is settled: a new *epoch*. Refusals of what was sent in an older epoch change
nothing any more; unrecorded messages of it that still wait for what stood before them are refused.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from zbroker.errors import ClientError
from zbroker.wire.internal import Entry


class AckRequest(NamedTuple):
    """What a publish asked for, and what its refusal names: its `cid` and, if not 0, its `seq`."""

    persisted: bool
    cid: str | None
    processed: bool = False
    seq: int = 0

    @property
    def any(self) -> bool:
        """True if its publisher wants to hear when it is settled, recorded or not."""
        return self.persisted or self.processed


class WaitingBatch(NamedTuple):
    """An unrecorded batch that was passed on: settled once ordinal `behind` is.

    topics: those of it that are never recorded. filtered: its first and last sequence, if a filter
    kept something of it out of the log.
    """

    behind: int
    seq: int
    last: int
    topics: list[str]
    filtered: tuple[int, int] | None
    bytes: int
    ask: AckRequest
    epoch: int


@dataclass(slots=True)
class Chain:
    """handled: the highest sequence taken. linked: the highest recorded one forwarded.

    passed: the highest unrecorded one that went to delivery in this session: a resend does not go
    there again. waiting: unrecorded batches in front of which something is not settled.
    """

    handled: int
    linked: int
    passed: int = 0
    epoch: int = 0
    waiting: deque[WaitingBatch] = field(default_factory=deque)

    def follow(self, seq: int, count: int, prev: int | None) -> None:
        """Takes a publish. Raises: ClientError sequence_gap."""
        if prev is not None and prev > self.handled:
            raise ClientError(
                "sequence_gap",
                f"sequence {prev} is missing before {seq}; the line ends at {self.handled}",
            )
        self.handled = max(self.handled, seq + count - 1)

    def link(self, entry: Entry) -> None:
        """Gives a recorded batch its `prev`; one that comes again keeps what its client said."""
        if entry.prev is not None and entry.seq > self.linked:
            entry.prev = self.linked
        self.linked = max(self.linked, entry.seq + entry.count - 1)

    def passes(self, entry: Entry) -> bool:
        """True if an unrecorded batch goes to delivery: not when it did before."""
        last = entry.seq + entry.count - 1
        if last <= self.passed:
            return False
        self.passed = last
        return True

    def settled(self, last: int) -> None:
        """The log holds everything recorded up to `last`."""
        self.handled = max(self.handled, last)
        self.linked = max(self.linked, last)

    def broken(self, high: int, acked: int) -> None:
        """The journal, which holds `high`, refused what follows `acked`."""
        self.epoch += 1
        self.linked = high
        self.handled = max(high, acked)
