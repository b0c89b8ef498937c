"""ingest's part of its session with the journal: what was sent and not receipted. Pure.

What is on its way when the journal dies is kept here and sent again, in order, with the ordinals it
had; the journal drops what it holds already. See zbroker.engine.journal_session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from zbroker.engine.effects import JOURNAL, Reconnect, Say
from zbroker.engine.journal_session import JournalSession
from zbroker.limits import JOURNAL_CREDIT_BYTES
from zbroker.wire import internal as m
from zbroker.wire.stages import AbortStages, CommitStages, StagesDone

Body = bytes | memoryview
CONFIRM_MS: Final = 500  # the journal repeats receipts until they are confirmed


class Outstanding(NamedTuple):
    ordinal: int
    entry: m.Entry
    body: Body


LinkEffect = Reconnect | Say


class AppendLink:
    """Appends and logons that wait for the journal."""

    def __init__(self, incarnation: int, sessions: Callable[[], list[m.OpenSession]]) -> None:
        """sessions: those that are open now."""
        self._session = JournalSession(
            incarnation, lambda number: m.Hello("ingest", incarnation, sessions(), number)
        )
        self._ordinal = 1
        self._confirmed = 0
        self._confirm_ms = 0
        self._outstanding: deque[Outstanding] = deque()
        self._sent = 0  # how many of them, from the left, are on the wire
        self._opens: dict[int, tuple[str, str]] = {}
        self._asks: dict[int, CommitStages | AbortStages] = {}
        self.bytes = 0
        self.credit_bytes = JOURNAL_CREDIT_BYTES
        self.welcome: m.Welcome | None = None  # the newest

    @property
    def up(self) -> bool:
        """True while the journal is known to listen."""
        return self._session.welcomed_by != 0

    @property
    def full(self) -> bool:
        """True when nothing more may be forwarded before receipts come."""
        return self.bytes >= self.credit_bytes

    def append(self, entry: m.Entry, body: Body) -> int:
        """Takes one batch to forward; returns its ordinal."""
        ordinal = self._ordinal
        self._ordinal += 1
        self._outstanding.append(Outstanding(ordinal, entry, body))
        self.bytes += len(body)
        return ordinal

    def open(self, cid: int, name: str, principal: str) -> list[LinkEffect]:
        """Asks the journal for a session, after everything appended so far."""
        effects = self.flush()
        self._opens[cid] = (name, principal)
        return [*effects, self._opening(cid)] if self.up else effects

    def _opening(self, cid: int) -> Say:
        name, principal = self._opens[cid]
        return Say(JOURNAL, m.Open(cid, self._session.welcomed_by, name, principal))

    def ask(self, ask: CommitStages | AbortStages) -> list[LinkEffect]:
        """Asks the journal, after everything appended so far, and the next one if it dies."""
        effects = self.flush()
        self._asks[ask.cid] = ask
        return [*effects, self._asking(ask)] if self.up else effects

    def _asking(self, ask: CommitStages | AbortStages) -> Say:
        return Say(JOURNAL, replace(ask, incarnation=self._session.welcomed_by))

    def close(self, name: str, session: int) -> list[LinkEffect]:
        """Reports that a session is over; nothing is lost if the journal is down."""
        effects = self.flush()
        if not self.up:
            return effects
        return [*effects, Say(JOURNAL, m.Close(self._session.welcomed_by, name, session))]

    def flush(self) -> list[LinkEffect]:
        """One Append with everything that is not on the wire yet."""
        if not self.up or self._sent == len(self._outstanding):
            return []
        fresh = list(islice(self._outstanding, self._sent, None))
        self._sent = len(self._outstanding)
        append = m.Append(
            self._session.welcomed_by, fresh[0].ordinal, self._confirmed,
            [one.entry for one in fresh],
        )  # fmt: skip
        return [Say(JOURNAL, append, [one.body for one in fresh])]

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[LinkEffect]:
        """Says Hello while the journal is down; confirms receipts while it listens."""
        if not self.up:
            return [*self._session.tick(now_ms)]
        if now_ms < self._confirm_ms:
            return []
        self._confirm_ms = now_ms + CONFIRM_MS
        return [Say(JOURNAL, m.Confirm(self._session.welcomed_by, self._confirmed))]

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._confirm_ms if self.up else self._session.next_wake_ms()

    # -- what the journal says ----------------------------------------------------------------

    def on_watermarks(self, marks: m.Watermarks, now_ms: int) -> list[LinkEffect]:
        """Watermarks of another incarnation mean that the journal was restarted."""
        return [*self._session.watermarks(marks.incarnation, now_ms)]

    def on_welcome(self, welcome: m.Welcome) -> list[LinkEffect] | None:
        """The journal listens: everything outstanding is sent, logons after it.

        Returns: None if the message is for a process before this one.
        """
        renewed = self._session.welcome(welcome)
        if renewed is None:
            return None
        self.welcome = welcome
        self.credit_bytes = welcome.credit_bytes
        self._sent = 0
        return [
            *renewed, *self.flush(), *map(self._opening, self._opens),
            *map(self._asking, self._asks.values()),
        ]  # fmt: skip

    def on_opened(self, opened: m.Opened) -> bool:
        """False for an answer that was already given."""
        return self._opens.pop(opened.cid, None) is not None

    def on_done(self, done: StagesDone) -> bool:
        """False for an answer that was already given."""
        return self._asks.pop(done.cid, None) is not None

    def on_receipt(self, receipt: m.JournalReceipt) -> list[tuple[Outstanding, m.ReceiptItem]]:
        """The batches that are settled now, in order; repeated items are left out."""
        if receipt.incarnation != self._session.welcomed_by:
            return []
        settled = []
        for item in receipt.items:
            if not self._outstanding or item.ordinal != self._outstanding[0].ordinal:
                continue  # repeated, or a receipt was lost before it: the beat repeats that one
            out = self._outstanding.popleft()
            self._sent -= 1
            self._confirmed = item.ordinal
            self.bytes -= len(out.body)
            settled.append((out, item))
        return settled

    def check(self) -> None:
        """Asserts what is always true."""
        assert 0 <= self._sent <= len(self._outstanding)
        assert self.bytes == sum(len(o.body) for o in self._outstanding)
