"""ingest's links: batches to the journal, unrecorded messages to the delivery workers. Pure.

Batches that are on their way when the journal dies are kept here and sent again, in order, with the
ordinals they had; the journal drops those that it holds. See zbroker.engine.journal_session.

    down --Grant to our Hello--> up --other incarnation, or silence--> down (new socket, Hello)

Each delivery worker has a link and a credit of its own. Unrecorded messages go to all workers that
are up and want them; a worker without clients grants 0. They are never kept: without a worker, or
without credit, they are dropped and counted, so that they never hold up what is recorded. Messages
to a worker that died are lost and not counted, since it did not report them. An empty message on
each beat makes a restarted worker ask for a Hello.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from zbroker.cpus import ANY_CPU
from zbroker.engine.effects import JOURNAL, Reconnect, Say
from zbroker.engine.journal_session import JournalSession
from zbroker.ingest.replication_gate import Body, Outstanding, ReplicationGate, Settled
from zbroker.limits import BEAT_MS, JOURNAL_CREDIT_BYTES
from zbroker.wire import internal as m
from zbroker.wire.stages import AbortStages, CommitStages, StagesDone

CONFIRM_MS: Final = 500  # the journal repeats receipts until they are confirmed


LinkEffect = Reconnect | Say


class AppendLink:
    """Appends and logons that wait for the journal."""

    def __init__(
        self, incarnation: int, sessions: Callable[[], list[m.OpenSession]], *,
        replicated: bool = False,
    ) -> None:  # fmt: skip
        """sessions: those that are open now. replicated: there are synchronous destinations."""
        self.gate = ReplicationGate(on=replicated)
        self._session = JournalSession(
            incarnation, lambda number: m.Hello("ingest", incarnation, sessions(), number)
        )
        self._ordinal = 1
        self._confirmed = 0
        self._confirm_ms = 0
        self._has_receipts = False  # came since the last Confirm
        self._outstanding: deque[Outstanding] = deque()
        self._sent = 0  # how many of them, from the left, are on the wire
        self._opens: dict[int, m.Open] = {}
        self._asks: dict[int, CommitStages | AbortStages] = {}
        self.bytes = 0
        self.credit_bytes = JOURNAL_CREDIT_BYTES
        self.welcome: m.Welcome | None = None  # the newest
        self.cpu = ANY_CPU  # see Append

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
        ask = self._opens[cid] = m.Open(cid, 0, name, principal)
        return self._after_appends(self._asking(ask))

    def ask(self, ask: CommitStages | AbortStages) -> list[LinkEffect]:
        """Asks the journal, after everything appended so far, and the next one if it dies."""
        self._asks[ask.cid] = ask
        return self._after_appends(self._asking(ask))

    def _after_appends(self, say: Say) -> list[LinkEffect]:
        return [*self.flush(), say] if self.up else []

    def _asking(self, ask: m.Open | CommitStages | AbortStages) -> Say:
        return Say(JOURNAL, replace(ask, incarnation=self._session.welcomed_by))

    def close(self, name: str, session: int) -> list[LinkEffect]:
        """Reports that a session is over; nothing is lost if the journal is down."""
        return self._after_appends(Say(JOURNAL, m.Close(self._session.welcomed_by, name, session)))

    def flush(self) -> list[LinkEffect]:
        """One Append with everything that is not on the wire yet."""
        if not self.up or self._sent == len(self._outstanding):
            return []
        fresh = list(islice(self._outstanding, self._sent, None))
        self._sent = len(self._outstanding)
        append = m.Append(
            self._session.welcomed_by, fresh[0].ordinal, self._confirmed,
            [one.entry for one in fresh], self.cpu,
        )  # fmt: skip
        return [Say(JOURNAL, append, [one.body for one in fresh])]

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[LinkEffect]:
        """Says Hello while the journal is down; confirms receipts while it listens."""
        if not self.up:
            return [*self._session.tick(now_ms)]
        if now_ms < self._confirm_ms or not self._may_confirm:
            return []
        self._has_receipts, self._confirm_ms = False, now_ms + CONFIRM_MS
        return [Say(JOURNAL, m.Confirm(self._session.welcomed_by, self._confirmed))]

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        if not self.up:
            return self._session.next_wake_ms()
        return self._confirm_ms if self._may_confirm else None

    @property
    def _may_confirm(self) -> bool:
        """Also while answers are missing: the journal says if it does not know us any more."""
        return bool(self._has_receipts or self._outstanding or self._opens or self._asks)

    # -- what the journal says ----------------------------------------------------------------

    def on_watermarks(self, watermarks: m.Watermarks, now_ms: int) -> list[LinkEffect]:
        """Watermarks of another incarnation mean that the journal was restarted."""
        return [*self._session.watermarks(watermarks.incarnation, now_ms)]

    def on_unknown(self, now_ms: int) -> list[LinkEffect]:
        """The journal lives and does not know this process."""
        return [*self._session.over(now_ms)]

    def on_welcome(
        self, welcome: m.Welcome, ask_first: Callable[[int], Say] | None = None
    ) -> list[LinkEffect] | None:
        """The journal listens: everything outstanding is sent, then what is asked first of this
        journal, logons after it.

        Returns: None if the message is for a process before this one.
        """
        renewed = self._session.welcome(welcome)
        if renewed is None:
            return None
        self.welcome = welcome
        self.gate.journal_begins(welcome.incarnation)
        self.credit_bytes = welcome.credit_bytes
        self._sent = 0
        return [
            *renewed, *self.flush(),
            *([ask_first(welcome.incarnation)] if ask_first is not None else []),
            *map(self._asking, self._opens.values()),
            *map(self._asking, self._asks.values()),
        ]  # fmt: skip

    def on_opened(self, opened: m.Opened) -> bool:
        """False for an answer that was already given. What destinations do not have yet counts as
        not acknowledged: its publisher sends it again, and is answered as soon as they have it."""
        if not self.gate.covers(opened.position):
            opened.acked = 0
        return self._opens.pop(opened.cid, None) is not None

    def on_done(self, done: StagesDone) -> bool:
        """False for an answer that was already given."""
        return self._asks.pop(done.cid, None) is not None

    def on_receipt(self, receipt: m.JournalReceipt) -> list[Settled]:
        """The batches that are settled now, in order; repeated items are left out."""
        if receipt.incarnation != self._session.welcomed_by:
            return []
        self._has_receipts = True  # a repeated one as well: the last Confirm was not heard
        settled = []
        for item in receipt.items:
            if not self._outstanding or item.ordinal != self._outstanding[0].ordinal:
                continue  # repeated, or a receipt was lost before it: the beat repeats that one
            out = self._outstanding.popleft()
            self._sent -= 1
            self._confirmed = item.ordinal
            self.bytes -= len(out.body)
            settled.append((out, item))
        return self.gate.receipts(settled) if self.gate.on else settled

    def check(self) -> None:
        """Asserts what is always true."""
        assert 0 <= self._sent <= len(self._outstanding)
        assert self.bytes == sum(len(o.body) for o in self._outstanding)


HELLO_WAIT_MS: Final = 1_000  # then a new socket: the Hello may have gone to a dead delivery
SILENCE_MS: Final = 6 * BEAT_MS  # grants come on each beat


class LiveLink:
    """The links to all delivery workers."""

    def __init__(self, incarnation: int, links: Sequence[str] = ("live",)) -> None:
        """links: the name of the link to each worker."""
        self._links = [_WorkerLink(incarnation, link) for link in links]
        self.passed = 0  # messages handed over, each once, and those that no worker wanted

    @property
    def up(self) -> bool:
        """True while a delivery is known to listen."""
        return any(link.up for link in self._links)

    @property
    def dropped(self) -> int:
        """Messages given up for lack of a delivery or of credit, per worker."""
        return sum(link.dropped for link in self._links)

    def take(self, entry: m.Entry, body: Body) -> None:
        """Hands one batch over to the workers that want it, or drops it where it cannot go."""
        taken = [link.take(entry, body) for link in self._links if link.wants]
        if not taken or any(taken):
            self.passed += entry.count

    def flush(self) -> list[LinkEffect]:
        """One message per worker with everything that was handed over."""
        return [effect for link in self._links for effect in link.flush()]

    def on_grant(self, grant: m.LiveCredit, worker: int = 0) -> list[LinkEffect]:
        """How much more may go to this worker; they are counted from 0. Nothing follows at once."""
        self._links[worker].on_grant(grant)
        return []

    def tick(self, now_ms: int) -> list[LinkEffect]:
        """Notices silence, beats, says Hello: each link for itself."""
        return [effect for link in self._links for effect in link.tick(now_ms)]

    def next_wake_ms(self) -> int:
        """When `tick` has something to do."""
        return min(link.next_wake_ms() for link in self._links)

    def check(self) -> None:
        """Asserts what is always true."""
        for link in self._links:
            link.check()


class _WorkerLink:
    """What may still go to one worker, and what goes there in this turn."""

    def __init__(self, incarnation: int, link: str) -> None:
        self.dropped = 0  # messages
        self._mine, self._link = incarnation, link
        self._delivery = 0  # incarnation that granted; 0: down
        self._hello_ms: int | None = None
        self._heard_ms = self._beat_ms = 0
        self._heard = False  # since the last tick
        self._used = 0  # bytes sent since the Hello
        self._taken = 0  # of these
        self._credit = 0
        self._entries: list[m.Entry] = []
        self._bodies: list[Body] = []

    @property
    def up(self) -> bool:
        """True while the worker is known to listen."""
        return self._delivery != 0

    @property
    def wants(self) -> bool:
        """False if it said that it wants nothing; True also while it cannot say anything."""
        return not self.up or self._credit > 0

    def take(self, entry: m.Entry, body: Body) -> bool:
        """False if it had to be dropped. With nothing under way one of any size may go."""
        under_way = self._used - self._taken
        if not self.up or (under_way and under_way + len(body) > self._credit):
            self.dropped += entry.count
            return False
        self._used += len(body)
        self._entries.append(entry)
        self._bodies.append(body)
        return True

    def flush(self) -> list[LinkEffect]:
        if not self._entries:
            return []
        live = Say(self._link, m.Live(self._delivery, self._entries), self._bodies)
        self._entries, self._bodies = [], []
        return [live]

    def on_grant(self, grant: m.LiveCredit) -> None:
        """A grant from another incarnation means: say Hello to that one."""
        if grant.echo != self._mine or grant.incarnation != (self._delivery or grant.incarnation):
            self._down()
            return
        self._delivery, self._heard = grant.incarnation, True
        self._taken = max(self._taken, grant.taken_bytes)
        self._credit = grant.credit_bytes

    def tick(self, now_ms: int) -> list[LinkEffect]:
        """Notices silence; beats, or says Hello on a new socket when no answer came in time."""
        if self._heard:
            self._heard, self._heard_ms = False, now_ms
        elif self.up and now_ms - self._heard_ms > SILENCE_MS:
            self._down()
        waits = self._hello_ms is not None and now_ms - self._hello_ms < HELLO_WAIT_MS
        if self.up and now_ms >= self._beat_ms:
            self._beat_ms = now_ms + BEAT_MS
            return [Say(self._link, m.Live(self._delivery, []))]
        if self.up or waits:
            return []
        self._hello_ms, self._beat_ms = now_ms, now_ms + BEAT_MS
        self._used = self._taken = self._credit = 0
        hello = m.Hello("ingest", self._mine, [])
        return [Reconnect(self._link), Say(self._link, hello)]

    def next_wake_ms(self) -> int:
        """When it beats next, or says Hello; silence is noticed at a beat."""
        if self.up:
            return self._beat_ms
        return 0 if self._hello_ms is None else self._hello_ms + HELLO_WAIT_MS

    def _down(self) -> None:
        self.dropped += sum(entry.count for entry in self._entries)
        self._entries, self._bodies = [], []
        if self.up:
            self._delivery, self._hello_ms = 0, None

    def check(self) -> None:
        """Asserts what is always true."""
        assert 0 <= self._taken <= self._used
        assert len(self._entries) == len(self._bodies)
        assert self.up or not self._entries
