"""ingest's side of its link to the journal: what was sent and not receipted. Pure.

    down --Welcome--> up --other incarnation, or silence--> down (new socket, Hello, all again)

What is on its way when the journal dies is kept here and sent again, in order, with the ordinals it
had; the journal drops what it holds already.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from zbroker.limits import JOURNAL_CREDIT_BYTES
from zbroker.wire import internal as m
from zbroker.wire.stages import AbortStages, CommitStages, StagesDone

Body = bytes | memoryview
WELCOME_WAIT_MS: Final = 1_000  # then a new socket: the Hello may have gone to a dead journal


class Forward(NamedTuple):
    """Effect: send this to the journal, bodies behind the header."""

    message: m.InternalMessage
    bodies: list[Body]


class Reconnect(NamedTuple):
    """Effect: throw the socket to the journal away, make a new one, then send what follows."""


class Outstanding(NamedTuple):
    ordinal: int
    entry: m.Entry
    body: Body


LinkEffect = Forward | Reconnect


class Link:
    """Appends and logons that wait for the journal."""

    def __init__(self, incarnation: int) -> None:
        self._mine = incarnation
        self._hellos = 0
        self._journal = 0  # incarnation that welcomed us; 0: down
        self._said_hello_ms: int | None = None
        self._ordinal = 1
        self._confirmed = 0
        self._outstanding: deque[Outstanding] = deque()
        self._sent = 0  # how many of them, from the left, are on the wire
        self._opens: dict[int, tuple[str, str]] = {}
        self._asks: dict[int, CommitStages | AbortStages] = {}
        self.bytes = 0
        self.credit_bytes = JOURNAL_CREDIT_BYTES
        self.welcome: m.Welcome | None = None

    @property
    def up(self) -> bool:
        """True while the journal is known to listen."""
        return self._journal != 0

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
        """Asks the journal for a session, behind everything appended so far."""
        effects = self.flush()
        self._opens[cid] = (name, principal)
        if self.up:
            effects.append(Forward(m.Open(cid, self._journal, name, principal), []))
        return effects

    def ask(self, ask: CommitStages | AbortStages) -> list[LinkEffect]:
        """Asks the journal, behind everything appended so far, and the next one if it dies."""
        effects = self.flush()
        self._asks[ask.cid] = ask
        return [*effects, self._asking(ask)] if self.up else effects

    def _asking(self, ask: CommitStages | AbortStages) -> Forward:
        return Forward(replace(ask, incarnation=self._journal), [])

    def on_done(self, done: StagesDone) -> bool:
        """False for an answer that was already given."""
        return self._asks.pop(done.cid, None) is not None

    def close(self, name: str, session: int) -> list[LinkEffect]:
        """Tells the journal that a session is over; nothing is lost if it is down."""
        effects = self.flush()
        return (
            [*effects, Forward(m.Close(self._journal, name, session), [])] if self.up else effects
        )

    def flush(self) -> list[LinkEffect]:
        """One Append with everything that is not on the wire yet."""
        if not self.up or self._sent == len(self._outstanding):
            return []
        fresh = list(islice(self._outstanding, self._sent, None))
        self._sent = len(self._outstanding)
        append = m.Append(
            self._journal, fresh[0].ordinal, self._confirmed, [o.entry for o in fresh]
        )
        return [Forward(append, [o.body for o in fresh])]

    def tick(self, now_ms: int, sessions: list[m.OpenSession]) -> list[LinkEffect]:
        """Says Hello on a new socket when the link is down and no answer came in time."""
        if self.up or (
            self._said_hello_ms is not None and now_ms - self._said_hello_ms < WELCOME_WAIT_MS
        ):
            return []
        self._said_hello_ms = now_ms
        self._hellos += 1
        return [Reconnect(), Forward(m.Hello("ingest", self._mine, sessions, self._hellos), [])]

    def confirm(self) -> list[LinkEffect]:
        """On the beat: which receipts were seen."""
        return [Forward(m.Confirm(self._journal, self._confirmed), [])] if self.up else []

    def on_marks(self, incarnation: int) -> None:
        """The marks tell that another journal process lives than the one that welcomed us."""
        if self.up and incarnation != self._journal:
            self._journal = 0
            self._said_hello_ms = None

    def on_welcome(self, welcome: m.Welcome) -> list[LinkEffect]:
        """The journal listens: everything outstanding is sent, logons behind it."""
        if welcome.echo != self._mine:
            return []
        self.welcome = welcome
        self._journal = welcome.incarnation
        self.credit_bytes = welcome.credit_bytes
        self._sent = 0
        effects = self.flush()
        for cid, (name, principal) in self._opens.items():
            effects.append(Forward(m.Open(cid, self._journal, name, principal), []))
        return [*effects, *map(self._asking, self._asks.values())]

    def on_opened(self, opened: m.Opened) -> bool:
        """False for an answer that was already given."""
        return self._opens.pop(opened.cid, None) is not None

    def on_receipt(self, receipt: m.JournalReceipt) -> list[tuple[Outstanding, m.ReceiptItem]]:
        """The batches that are settled now, in order; repeated items are left out."""
        if receipt.incarnation != self._journal:
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
