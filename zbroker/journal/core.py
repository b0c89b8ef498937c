"""The journal's decisions: sessions, positions, log time, group commit, receipts, marks. No I/O.

One turn: take what came (`receive`), build at most one group from what waits (`group`); the loop
writes it, says `written`, syncs it, says `synced`; receipts and marks leave only then.

    append --queued--> in a group --written--> --synced--> receipt, marks, index

Failures: a lost receipt is repeated on the beat until confirmed; a requester or journal that
restarts is told apart by incarnations (see zbroker.wire.internal); what belongs to an older one is
dropped here and sent again there. A failed write or sync ends the process: nothing was promised.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Final, NamedTuple

from google_crc32c import value as crc32c
from msgspec import Struct, msgpack

from zbroker.errors import Bug
from zbroker.journal.format import FLAG_ZSTD, KIND_PUBLISH, KIND_PUBLISHER, Batch
from zbroker.journal.sessions import Sessions, Verdict
from zbroker.limits import GROUP_BUFFERS_MAX, GROUP_MAX_BYTES, JOURNAL_CREDIT_BYTES
from zbroker.wire import internal as m
from zbroker.wire.messages import Columns

Body = bytes | memoryview

_HEADER_BYTES_GUESS: Final = 256  # what a batch takes besides body and columns, for the group limit


class Send(NamedTuple):
    """Effect: one message to one requester, or to everybody (`rid` None: the marks)."""

    rid: bytes | None
    message: m.Message


class Group(Struct, gc=False):
    """Effect: write these batches with one write, sync once, then call `synced`."""

    batches: list[Batch]
    log_time: int
    end_position: int


@dataclass(slots=True)
class Requester:
    """A process that appends: only the newest connection of each room is listened to."""

    rid: bytes
    room: str
    incarnation: int
    unconfirmed: deque[m.ReceiptItem] = field(default_factory=deque)
    fresh: int = 0  # items at the right end that were not sent yet


class Waiting(NamedTuple):
    """What stands in line for a group: an entry with its ordinal and body, or an Open or Close."""

    requester: Requester
    what: m.Entry | m.Open | m.Close
    ordinal: int = 0
    body: Body = b""


class InFlight(NamedTuple):
    """What leaves once everything below `position` is durable."""

    position: int
    items: list[tuple[Requester, m.ReceiptItem]]
    opened: list[Send]
    durable: list[tuple[int, int]]  # publisher, its highest sequence in the group


class Settings(NamedTuple):
    """What the core needs to know of its instance."""

    instance: int
    incarnation: int
    durability: str = "disk"
    publisher_time: bool = False
    credit_bytes: int = JOURNAL_CREDIT_BYTES


class JournalCore:
    """The single writer's mind."""

    def __init__(
        self,
        settings: Settings,
        sessions: Sessions,
        generation: int,
        next_position: int,
        last_log_time: int,
    ) -> None:
        self.settings = settings
        self.sessions = sessions
        self.generation = generation
        self.floor = 1
        self.next_position = next_position  # of the next message to be placed
        self.written = next_position
        self.persisted = next_position
        self.log_time = last_log_time
        self.serial = 0  # the loop knows it
        self.accepting = True  # False while the disk is nearly full
        self.conflicts = 0
        self.refused = 0
        self.duplicates = 0
        self.messages = 0
        self._queue: deque[Waiting] = deque()
        self._requesters: dict[bytes, Requester] = {}
        self._in_flight: deque[InFlight] = deque()

    # -- what arrives -------------------------------------------------------------------------

    def receive(self, rid: bytes, message: m.Message, bodies: list[Body]) -> list[Send]:
        """Takes one message; its bodies belong to the entries of an Append, in order.

        A logon or its end stands in line behind what was forwarded before it.
        """
        if isinstance(message, m.Hello):
            return self._hello(rid, message)
        requester = self._requesters.get(rid)
        if requester is None or getattr(message, "incarnation", 0) != self.settings.incarnation:
            return []  # said to another incarnation; its sender knows, or will say Hello
        if isinstance(message, m.Append):
            self._append(requester, message, bodies)
        elif isinstance(message, m.Open | m.Close):
            self._queue.append(Waiting(requester, message))
        elif isinstance(message, m.Confirm):
            self._confirmed(requester, message.confirmed)
        return []

    def _hello(self, rid: bytes, hello: m.Hello) -> list[Send]:
        for old in [r for r in self._requesters.values() if r.room == hello.room]:
            del self._requesters[old.rid]
        self._queue = deque(w for w in self._queue if w.requester.rid in self._requesters)
        self._requesters[rid] = Requester(rid, hello.room, hello.incarnation)
        ended = [
            s.name
            for s in hello.sessions
            if not self.sessions.resume(s.name, s.principal, s.session)
        ]
        settings = self.settings
        return [
            Send(
                rid,
                m.Welcome(
                    settings.incarnation,
                    hello.incarnation,
                    settings.instance,
                    self.generation,
                    settings.credit_bytes,
                    settings.durability,
                    self.floor,
                    self.written,
                    self.persisted,
                    ended,
                ),
            )
        ]

    def _append(self, requester: Requester, append: m.Append, bodies: list[Body]) -> None:
        if len(bodies) != len(append.entries):
            raise Bug(f"{len(append.entries)} entries came with {len(bodies)} bodies")
        self._confirmed(requester, append.confirmed)
        for index, entry in enumerate(append.entries):
            self._queue.append(Waiting(requester, entry, append.ordinal + index, bodies[index]))

    def _confirmed(self, requester: Requester, ordinal: int) -> None:
        items = requester.unconfirmed
        while len(items) > requester.fresh and items[0].ordinal <= ordinal:
            items.popleft()

    # -- group commit -------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Entries that wait for a group."""
        return len(self._queue)

    def group(self, wall_ns: int) -> Group | None:
        """Judges what waits and gives positions; None when nothing new is to be written.

        Call `written` after the write and `synced` after the sync, in the order of the groups.
        """
        batches: list[Batch] = []
        items: list[tuple[Requester, m.ReceiptItem]] = []
        opened: list[Send] = []
        size = 0
        while self._queue and size < GROUP_MAX_BYTES and len(batches) < GROUP_BUFFERS_MAX // 4:
            waiting = self._queue.popleft()
            what = waiting.what
            if isinstance(what, m.Entry):
                items.append(
                    (
                        waiting.requester,
                        self._place(waiting.ordinal, what, waiting.body, batches, wall_ns),
                    )
                )
                size += len(waiting.body) + _HEADER_BYTES_GUESS
            elif isinstance(what, m.Open):
                opened.append(Send(waiting.requester.rid, self._open(what, wall_ns)))
            else:
                self.sessions.close(what.name, what.session)
        durable = [
            (b.publisher, b.sequence + b.taken - 1) for b in batches if b.kind == KIND_PUBLISH
        ]
        self._in_flight.append(InFlight(self.next_position, items, opened, durable))
        return Group(batches, self.log_time, self.next_position) if batches else None

    def _open(self, ask: m.Open, wall_ns: int) -> m.Opened:
        """The answer leaves after the sync of what stands before it, so `seq` is durable then."""
        known = self.sessions.open(ask.name, ask.principal, wall_ns)
        if known is None:
            reason = f"the name {ask.name!r} has the publisher id of another name"
            return m.Opened(ask.cid, ask.name, code="publisher_collision", reason=reason)
        return m.Opened(ask.cid, ask.name, known.id, known.session, known.high, known.high)

    def _place(
        self, ordinal: int, entry: m.Entry, body: Body, batches: list[Batch], wall_ns: int
    ) -> m.ReceiptItem:
        verdict = self.sessions.judge(entry)
        if verdict.what == "accept" and not self.accepting:
            self.sessions.hold(entry)
            verdict = Verdict("refuse", code="disk_full", reason="the disk is nearly full")
        if verdict.what == "refuse":
            self.refused += 1
            known = self.sessions.get(entry.publisher)
            high = known.high if known is not None else 0
            return m.ReceiptItem(ordinal, 0, high, 0, verdict.code, verdict.reason)
        if verdict.what == "duplicate":
            self.conflicts += verdict.conflict
            self.duplicates += entry.count
            return m.ReceiptItem(
                ordinal, verdict.position, entry.seq + entry.count - 1, entry.count
            )
        self._name_once(entry.publisher, batches, wall_ns)
        batch = self._batch(entry, body, verdict.skip, wall_ns)
        batches.append(batch)
        self.next_position = batch.end_position
        self.messages += batch.taken
        self.duplicates += verdict.skip
        self.sessions.accepted(entry, self.next_position - 1)
        return m.ReceiptItem(
            ordinal, self.next_position - 1, entry.seq + entry.count - 1, verdict.skip
        )

    def _name_once(self, publisher: int, batches: list[Batch], wall_ns: int) -> None:
        known = self.sessions.get(publisher)
        if known is None or known.named:
            return
        known.named = True
        body = msgpack.encode({"name": known.name, "principal": known.principal})
        batches.append(
            Batch(
                KIND_PUBLISHER,
                self.next_position,
                publisher,
                known.session,
                0,
                0,
                1,
                self._now(wall_ns),
                [],
                body,
                crc32c(body),
                len(body),
                origin_instance=self.settings.instance,
                origin_generation=self.generation,
                origin_position=self.next_position,
            )
        )
        self.next_position += 1

    def _now(self, wall_ns: int) -> int:
        """Log time of what is placed now: never back; the publishers' own where so configured."""
        if not self.settings.publisher_time:
            self.log_time = max(wall_ns, self.log_time)
        return self.log_time

    def _batch(self, entry: m.Entry, body: Body, skip: int, wall_ns: int) -> Batch:
        known = self.sessions.get(entry.publisher)
        assert known is not None
        columns, log_time = self._times(entry, wall_ns)
        position = self.next_position
        return Batch(
            KIND_PUBLISH,
            position,
            entry.publisher,
            entry.session,
            entry.seq + skip,
            known.high,
            entry.count,
            log_time,
            entry.topics,
            body,
            entry.crc,
            len(body),
            skip,
            FLAG_ZSTD if entry.codec else 0,
            self.settings.instance,
            self.generation,
            position,
            columns,
        )

    def _times(self, entry: m.Entry, wall_ns: int) -> tuple[Columns | None, int]:
        """Columns as they go to disk and the log time of the last message."""
        columns = entry.columns
        index = columns.index if columns is not None else None
        times = columns.time if columns is not None else None
        if not self.settings.publisher_time or times is None:
            if self.settings.publisher_time and entry.time_ns is not None:
                self.log_time = max(entry.time_ns, self.log_time)
            log_time = self._now(wall_ns)
            return (Columns(index) if index is not None else None), log_time
        rising = array("q", accumulate(chain((self.log_time,), array("q", times)), max))[1:]
        self.log_time = rising[-1]
        return Columns(index, rising.tobytes()), self.log_time

    def written_to(self, position: int) -> None:
        """The group that ends at `position` is in the file, not durable yet."""
        self.written = position

    def synced(self, position: int) -> list[Send]:
        """Everything below `position` is durable: receipts and marks may leave.

        Call it with the group's end position, or with `written` when a group was empty.
        """
        self.persisted = max(self.persisted, position)
        touched: dict[bytes, Requester] = {}
        sends: list[Send] = []
        moved = False
        while self._in_flight and self._in_flight[0][0] <= self.persisted:
            done = self._in_flight.popleft()
            moved = moved or bool(done.durable)
            sends += (send for send in done.opened if send.rid in self._requesters)
            for publisher, sequence in done.durable:
                self.sessions.durable(publisher, sequence)
            for requester, item in done.items:
                requester.unconfirmed.append(item)
                requester.fresh += 1
                touched[requester.rid] = requester
        sends += (self._receipt(r, r.fresh) for r in touched.values() if r.rid in self._requesters)
        return [*sends, self.marks()] if moved else sends

    def _receipt(self, requester: Requester, count: int) -> Send:
        items = list(requester.unconfirmed)[-count:] if count else []
        requester.fresh = 0
        return Send(requester.rid, m.Receipt(self.settings.incarnation, self.persisted, items))

    def beat(self) -> list[Send]:
        """Marks again, and every receipt item that is not confirmed: losing one costs time only."""
        late = [r for r in self._requesters.values() if r.unconfirmed and not r.fresh]
        return [*(self._receipt(r, len(r.unconfirmed)) for r in late), self.marks()]

    def marks(self) -> Send:
        """The one frame that tells all readers how far the log goes."""
        return Send(
            None,
            m.Marks(
                self.settings.incarnation,
                self.settings.instance,
                self.generation,
                self.floor,
                self.written,
                self.persisted,
                self.serial,
                self.log_time,
            ),
        )

    def gone(self, rid: bytes) -> None:
        """A requester's connection is gone; what it had queued is judged all the same."""
        self._requesters.pop(rid, None)

    def check(self) -> None:
        """Asserts what is always true."""
        assert self.floor <= self.persisted <= self.written <= self.next_position
        self.sessions.check()
