"""The sequences of one publisher session: links between batches, and which were used. Pure.

A client chains all its messages by `prev`; the journal sees the recorded ones only. So where not
everything is recorded a Chain checks `prev` against what was taken in this session, and replaces
it: the journal gets the last recorded sequence forwarded before.

    client     1r <- 2r <- 3u <- 4u <- 5r          journal    1r <- 2r <- 5r

When the journal refuses a batch, all later ones of the session are refused as well, so the chain
goes back to the settled part: a new *epoch*. Refusals of batches of an older epoch change nothing
any more; its unrecorded messages that still wait for those before them are refused.

Clients may leave `prev` out; then the journal is given the sequence that this session used before,
whether its batch was taken or refused for now (PrevTracker):

    client     5 6 7    5 6             (5 was refused, the client sends again)
    journal    5<-4 6<-5 7<-6    5<-4 6<-5

So a refusal of 5 refuses 6 and 7 until 5 came again, also by a journal that was restarted meanwhile
and does not know of the refusal: it would accept 6, and call 5, which it lacks, a duplicate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct, field

from zbroker.errors import ClientError
from zbroker.wire.internal import Entry

RUNS_MAX: Final = 10_000  # that a session may have where one is refused; a run has 100 bytes

_LAST: Final = attrgetter("last")


class AckRequest(NamedTuple):
    """The acks that a publish asked for; its refusal names `cid` and, if not 0, `seq`.

    returned: runs of sequences that are mandatory and go to no queue; an ack names these, whether
    one was asked for or not.
    """

    persisted: bool
    cid: str | None
    processed: bool = False
    seq: int = 0
    returned: Sequence[tuple[int, int]] = ()

    @property
    def any(self) -> bool:
        """True if its publisher wants an ack when it is settled, recorded or not."""
        return self.persisted or self.processed


class WaitingBatch(NamedTuple):
    """An unrecorded batch that was passed on: settled once ordinal `after` is.

    topics: those of it that are never recorded. filtered: its first and last sequence, if a filter
    kept something of it out of the log.
    """

    after: int
    seq: int
    last: int
    topics: list[str]
    filtered: tuple[int, int] | None
    bytes: int
    ask: AckRequest
    epoch: int


class Chain(Struct):
    """handled: the highest sequence taken. linked: the highest recorded one forwarded.

    passed: the highest unrecorded one that went to delivery in this session: a resend does not go
    there again. waiting: unrecorded batches that come after some that are not settled.
    """

    handled: int
    linked: int
    passed: int = 0
    epoch: int = 0
    waiting: deque[WaitingBatch] = field(default_factory=deque)

    def follow(self, seq: int, count: int, prev: int | None) -> None:
        """Takes a publish. Raises: ClientError sequence_gap."""
        if prev is not None and prev > self.handled:
            reason = f"sequence {prev} is missing before {seq}; the line ends at {self.handled}"
            raise ClientError("sequence_gap", reason)
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


class PrevRun(NamedTuple):
    """Sequences [first, last], all of them used."""

    first: int
    last: int


class PrevTracker:
    """newest: the highest sequence used. After the logon call `settled` with that of the log."""

    __slots__ = ("_in_log", "_runs", "newest")

    def __init__(self) -> None:
        self.newest = 0
        self._in_log = 0
        self._runs: deque[PrevRun] = deque()  # rising; one, unless the client leaves sequences out

    def __len__(self) -> int:
        """How many runs above the log there are."""
        return len(self._runs)

    def before(self, seq: int) -> int | None:
        """The sequence used before `seq`; None if nothing above the log was."""
        if seq > self.newest:
            return self.newest
        at = bisect_left(self._runs, seq, key=_LAST)
        if at < len(self._runs) and self._runs[at].first < seq:
            return seq - 1
        if at:
            return self._runs[at - 1].last
        return self._in_log if self._in_log < seq else None

    def use(self, first: int, last: int) -> None:
        """[first, last] came from the client, and was taken, or refused for now."""
        if last <= self.newest:
            return
        first = max(first, self.newest + 1)
        if self._runs and self._runs[-1].last == first - 1:
            first = self._runs.pop().first
        self._runs.append(PrevRun(first, last))
        self.newest = last

    def drop(self, first: int, last: int) -> None:
        """[first, last] was refused for good and never comes again."""
        if first > self.newest:
            return
        rest = [part for run in self._runs for part in _without(run, first, last)]
        self._runs = deque(rest)
        self.newest = rest[-1].last if rest else self._in_log

    def settled(self, last: int) -> None:
        """The log holds all used sequences up to `last`."""
        while self._runs and self._runs[0].last <= last:
            self._runs.popleft()
        self._in_log = max(self._in_log, last)
        self.newest = max(self.newest, last)


def _without(run: PrevRun, first: int, last: int) -> list[PrevRun]:
    """The parts of a run outside [first, last]."""
    before = PrevRun(run.first, min(run.last, first - 1))
    after = PrevRun(max(run.first, last + 1), run.last)
    return [part for part in (before, after) if part.first <= part.last]
