"""Group commit: what waits becomes a group, and receipts leave when it is durable. Pure.

    receive --queued--> group() --written_to()--> synced(): receipts, watermarks

A logon, its end, a question for names and a commit of stages wait in line after what was sent
before them, and are answered after its sync. What a batch
becomes is decided in group_builder.py, replicas.py and units.py.

After `want_state` groups begin with parts of a state snapshot, one of them at a time, so that a
large table delays no publisher; `state_serial` is the segment of the newest one that is durable.

Failures: a lost receipt is repeated on the beat until it is confirmed; incarnations tell a
requester or journal that restarted from the one before it (see zbroker.wire.internal); messages to
an older one are dropped here and sent again there.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from zbroker.engine.effects import Answer
from zbroker.ids import Origin
from zbroker.journal.effects import PublishWatermarks, WriteGroup
from zbroker.journal.first_state import FirstState, StateReceiver
from zbroker.journal.generation_closer import ClosableGeneration
from zbroker.journal.group_builder import (
    BATCH_BYTES,
    Body,
    GroupBuilder,
    JournalSettings,
    LogEnd,
    columns_bytes,
)
from zbroker.journal.question_answers import Question, QuestionAnswers
from zbroker.journal.record_judge import RecordUnit
from zbroker.journal.replicas import CoveredBy, Replicas
from zbroker.journal.replicated_stages import is_commit
from zbroker.journal.requesters import Control, InFlight, Requester, demand, pair
from zbroker.journal.sessions import Sessions
from zbroker.journal.shared_cpu import SharedCpu
from zbroker.journal.snapshot import SnapshotWriter
from zbroker.journal.units import CommitUnit, Units, units_of
from zbroker.limits import GROUP_BUFFERS_MAX, GROUP_MAX_BYTES, STATE_BODY_BYTES, U63_MAX
from zbroker.log import records
from zbroker.log.format import KIND_CLOSED, KIND_PUBLISH, SEQUENCED
from zbroker.wire import internal as m
from zbroker.wire import replicas as w
from zbroker.wire.branches import AskBranches
from zbroker.wire.exchange_messages import ExchangesUsed
from zbroker.wire.transactions import AskSession, AskSessions
from zbroker.wire.units import AskNamed, CommitUnits

REPLICATION: Final = "replication"  # the process that may append records of other instances
INGEST: Final = "ingest"  # the process that routes
QUEUES: Final = "queues"  # the process that may commit units

_GROUP_BYTES: Final = 1024  # a group's header, and zeros up to where it may begin


#: An item in line for a group: its sender; an entry, record, unit or control record, or a
#: question; its ordinal and body; the bytes of log that it takes at most (more only where it falls
#: into several holes). A plain tuple, since there is one for each batch.
Item = (
    m.Entry | RecordUnit | CoveredBy | CommitUnit | Control | ClosableGeneration
    | Question | FirstState | w.SkipMissing
)  # fmt: skip
Waiting = tuple[Requester, Item, int, Body, int]


Effect = Answer | PublishWatermarks


class GroupCommit(GroupBuilder):
    """Group commit of a journal. written, persisted: all below is in the file; is durable.
    sendable: all below is in the file, and durable but for messages: a power cut may take them
    here, and then they come back as those of an older generation. routed: ingest routes by all that
    is said of exchanges below."""

    def __init__(self, settings: JournalSettings, sessions: Sessions, end: LogEnd) -> None:
        super().__init__(settings, sessions, end)
        self.log_start = end.log_start
        self.written = self.persisted = self.sendable = end.next_position
        self._sent_early = False  # may links send the newest group before it is durable?
        self.serial = end.serial  # of the segment that holds the newest group
        self.state_serial = end.state_serial
        self.raised: list[tuple[int, int]] = []  # generations since the start, with their begins
        self._reached: dict[Origin, int] = {}
        self.travels = sessions.origins.get(self._origin).crc_at  # durable, of this generation
        self._before: dict[Origin, int] = {}
        self._stored_before: dict[Origin, int] = {}
        self._replicas = Replicas(self)
        self._units = Units(self)
        self._answers = QuestionAnswers(self, self._replicas.forks)
        self._snapshots = SnapshotWriter(self)
        self.states = StateReceiver(self)
        self.began_with_state = False  # in this process
        self.routed = 0
        self.cpu = SharedCpu()
        self._exchanges_said = sessions.exchanges.changes
        self._queue: deque[Waiting] = deque()
        self._queued_bytes = 0
        self._requesters: dict[bytes, Requester] = {}
        self._closing: set[int] = set()  # generations in line to be closed
        self._own = Requester(b"", "journal", settings.incarnation)  # of control records
        self._in_flight: deque[InFlight] = deque()

    # -- what arrives -------------------------------------------------------------------------

    def receive(self, rid: bytes, message: m.InternalMessage, bodies: list[Body]) -> list[Effect]:
        """Takes one message; its bodies belong to the entries of an Append, in order."""
        if isinstance(message, m.Hello):
            return self._hello(rid, message)
        requester = self._requesters.get(rid)
        if requester is None or getattr(message, "incarnation", 0) != self.settings.incarnation:
            return []  # said to another incarnation; its sender knows, or will say Hello
        if isinstance(message, m.Append):
            self._append(requester, message, bodies)
        elif isinstance(message, m.Replicate):
            demand(requester, REPLICATION)
            self._replicate(requester, message, bodies)
        elif isinstance(message, m.OpenLink):
            demand(requester, REPLICATION)
            return [Answer(rid, self._replicas.links.open(message))]
        elif isinstance(message, w.TakeState | w.SkipMissing):
            demand(requester, REPLICATION)
            return self._of_link(requester, message, bodies)
        elif isinstance(message, CommitUnits):
            demand(requester, QUEUES)
            self._commit(requester, message, bodies)
        elif isinstance(message, Question):
            return self._question(requester, message)
        elif isinstance(message, m.Confirm | ExchangesUsed):
            return self._seen(requester, message)
        return []

    def _seen(self, requester: Requester, said: m.Confirm | ExchangesUsed) -> list[Effect]:
        """What a process has seen. All hear how far ingest routes by what the log says."""
        if isinstance(said, m.Confirm):
            self._confirmed(requester, said.confirmed)
            return []
        demand(requester, INGEST)
        if said.position <= self.routed:
            return []
        self.routed = said.position
        return [self.watermarks(of_commit=True), self.watermarks()]

    def _question(self, requester: Requester, ask: Question) -> list[Effect]:
        """It waits in line, after what was sent before it."""
        if isinstance(ask, AskNamed | AskSession | AskSessions | AskBranches):
            demand(requester, QUEUES)
        elif isinstance(ask, w.AskOrigins | w.AskPublishers | w.ForgetPeer | w.ForkOrigin):
            demand(requester, REPLICATION)
        if isinstance(ask, m.Open) and self.waits:
            refused = m.Opened(ask.cid, ask.name, code="not_ready", reason=self.waits)
            return [Answer(requester.rid, refused)]
        if isinstance(ask, w.AskOrigins | AskNamed) and not self.decided:
            answer = self._answers.answer(
                ask
            )  # nothing is placed before that, and it may take long
            return [Answer(requester.rid, answer)] if answer is not None else []
        self._queue.append((requester, ask, 0, b"", 0))
        return []

    def _hello(self, rid: bytes, hello: m.Hello) -> list[Effect]:
        for old in [r for r in self._requesters.values() if r.process == hello.process]:
            if old.incarnation == hello.incarnation and old.number > hello.number:
                return []  # of a socket that it has given up since; ZeroMQ reads both in any order
            del self._requesters[old.rid]
        heard = (self._own.rid, *self._requesters)
        self._queue = deque(waiting for waiting in self._queue if waiting[0].rid in heard)
        self._queued_bytes = sum(size for *_, size in self._queue)
        self._requesters[rid] = Requester(rid, hello.process, hello.incarnation, hello.number)
        if hello.process == QUEUES:
            self._units.begin()
        elif hello.process == REPLICATION:
            self._replicas.links.begin()
        resume = self.sessions.resume
        ended = [s.name for s in hello.sessions if not resume(s.name, s.principal, s.session)]
        settings = self.settings
        names = settings.incarnation, hello.incarnation, settings.instance, self.generation
        extent = self.log_start, self.written, self.persisted
        begins = self.sessions.origins.history.begins
        welcome = m.Welcome(
            *names, settings.credit_bytes, settings.durability, *extent, ended, begins
        )
        return [Answer(rid, welcome)]

    def _append(self, requester: Requester, append: m.Append, bodies: list[Body]) -> None:
        pair(append.entries, bodies)
        self.cpu.appended(append.cpu)
        self._confirmed(requester, append.confirmed)
        wait, ordinal, total = self._queue.append, append.ordinal, 0
        for entry, body in zip(append.entries, bodies, strict=True):
            size = len(body) + BATCH_BYTES + len(entry.routes)
            if entry.columns is not None or len(entry.topics) > 1:
                size += columns_bytes(entry)
            wait((requester, entry, ordinal, body, size))
            ordinal += 1
            total += size
        self._queued_bytes += total

    def _replicate(self, requester: Requester, sent: m.Replicate, bodies: list[Body]) -> None:
        pair(sent.records, bodies)
        self._confirmed(requester, sent.confirmed)
        ordinal = sent.ordinal
        for unit in self._replicas.units(sent, bodies):
            self._wait(requester, unit, ordinal, unit.size)
            ordinal += len(unit.records)
        self._queue.extend((requester, what, 0, b"", 0) for what in self._replicas.covers(sent))

    def _of_link(
        self, requester: Requester, ask: w.TakeState | w.SkipMissing, bodies: list[Body]
    ) -> list[Effect]:
        """The last part of a state is answered after the sync."""
        if isinstance(ask, w.SkipMissing):
            self._wait(requester, ask, 0, BATCH_BYTES)
            return []
        pair([ask], bodies)
        link = self._replicas.links.get(ask.link)
        found = self.states.take(link, ask.part, bodies[0], last=ask.last)
        if isinstance(found, FirstState):
            self._wait(requester, found, ask.link, found.size)
            return []
        code, reason = found or ("", "")
        taken = w.StateTaken(ask.link, self.states.parts, code=code, reason=reason)
        return [Answer(requester.rid, taken)]

    def _wait(self, requester: Requester, what: Item, ordinal: int, size: int) -> None:
        self._queue.append((requester, what, ordinal, b"", size))
        self._queued_bytes += size

    def _begin_with(self, state: FirstState, link: int) -> w.StateTaken:
        code, reason = self.states.place(state) or ("", "")
        self.began_with_state = self.began_with_state or not code
        return w.StateTaken(link, 0, done=not code, code=code, reason=reason)

    def close_generation(self, what: ClosableGeneration) -> None:
        """After what waits, an older generation of this instance is closed."""
        assert not self.fenced, "a caller looks at it first"
        if what.generation not in self._closing:
            self._closing.add(what.generation)
            self._wait(self._own, what, 0, BATCH_BYTES)

    def _own_record(self, what: Control | ClosableGeneration) -> None:
        if isinstance(what, Control):
            self.control(*what)
            return
        self._closing.discard(what.generation)
        record = what.record(self.sessions.origins, self.generation)
        if record is not None:
            self.control(KIND_CLOSED, records.encode(record))
            self._replicas.closed()

    def _commit(self, requester: Requester, commit: CommitUnits, bodies: list[Body]) -> None:
        self._confirmed(requester, commit.confirmed)
        for ordinal, unit in enumerate(units_of(commit, bodies), commit.ordinal):
            self._wait(requester, unit, ordinal, unit.size)

    def append_control(self, kind: int, body: bytes) -> None:
        """A point or a purge of this instance, after everything that waits already."""
        assert not self.fenced, "a caller looks at it first"
        self._wait(self._own, Control(kind, body), 0, len(body) + BATCH_BYTES)

    def _confirmed(self, requester: Requester, ordinal: int) -> None:
        items = requester.unconfirmed
        while len(items) > requester.fresh and items[0].ordinal <= ordinal:
            items.popleft()

    # -- group commit -------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """How much waits for a group: entries, and a part of a snapshot."""
        return len(self._queue) or int(self._snapshots.active and self._snapshots.due)

    def next_group_bytes(self) -> int:
        """Bytes of log that the next group takes at most."""
        size = self._queued_bytes
        if size > GROUP_MAX_BYTES:
            size = 0
            for *_, needs in self._queue:
                size += needs
                if size >= GROUP_MAX_BYTES:
                    break
        stated = STATE_BODY_BYTES if self._snapshots.active and self._snapshots.due else 0
        return size + stated + _GROUP_BYTES

    def want_state(self) -> None:
        """The next groups shall begin with a state snapshot, for the segment that was begun."""
        self._snapshots.want()

    def group(self, wall_ns: int) -> WriteGroup | None:
        """Judges what waits and gives positions; None when nothing new is to be written.

        Call `written_to` after the write and `synced` after the sync, in the order of the groups.
        Call only `synced` after None.
        """
        self._reached = self.sessions.origins.open_vector
        self._before = self.sessions.origins.messages
        self._stored_before = self.sessions.origins.stored
        self.begin(wall_ns)
        batches = self.batches
        items: list[tuple[Requester, m.ReceiptItem]] = []
        opened: list[Answer] = []
        stated = self._snapshots.place() if self._snapshots.active and self._snapshots.due else 0
        size, left, units = stated, self._left_for_units(stated), self._units.taken
        of_peers = 0
        while self._queue and size < GROUP_MAX_BYTES and len(batches) < GROUP_BUFFERS_MAX // 4:
            waiting = self._queue.popleft()
            requester, what, ordinal, body, needs = waiting
            size += needs
            if isinstance(what, m.Entry):
                items.append((requester, self.place(ordinal, what, body)))
            elif isinstance(what, RecordUnit | CommitUnit | FirstState) and size > max(
                GROUP_MAX_BYTES, stated + needs
            ):
                self._queue.appendleft(waiting)  # it would be the first to go over the limit
                size -= needs
                break
            elif isinstance(what, RecordUnit):
                if self.sessions.stages.placing and is_commit(what.records[0]):
                    self._queue.appendleft(waiting)  # it says where its parts are: once written
                    size -= needs
                    break
                placed = self._replicas.place(ordinal, what, fits=needs <= left)
                items += [(requester, item) for item in placed]
                of_peers += not placed[0].code
                left -= needs if not placed[0].code else 0
            elif isinstance(what, CommitUnit):
                items.append((requester, self._units.place(ordinal, what, fits=needs <= left)))
                left -= needs if not items[-1][1].code else 0
            else:
                answer = self._place_other(what, ordinal)
                opened += [Answer(requester.rid, answer)] if answer is not None else []
                left -= needs
        self._snapshots.other_bytes += size - stated
        self._queued_bytes -= size - stated
        own = self.sessions.origins.note_own(batches, self.generation)
        self._sent_early = own and all(batch.kind == KIND_PUBLISH for batch in batches)
        durable = [(b.publisher, b.sequence + b.taken - 1) for b in batches if b.kind in SEQUENCED]
        # records of peers without messages, too: what a consumer did there is read at once
        moved = bool(durable or of_peers) or self._units.taken > units
        travels = self.sessions.origins.get(self._origin).crc_at
        self._in_flight.append(InFlight(self.next_position, items, opened, durable, moved, travels))
        return WriteGroup(batches, self.log_time, self.next_position) if batches else None

    def _place_other(
        self,
        what: CoveredBy | Control | ClosableGeneration | Question | FirstState | w.SkipMissing,
        ordinal: int,
    ) -> m.InternalMessage | None:
        """Places a rare item. Returns: its answer, which leaves after the sync."""
        if isinstance(what, Control | ClosableGeneration):
            self._own_record(what)
        elif isinstance(what, CoveredBy):
            self._replicas.cover(what)
        elif isinstance(what, w.SkipMissing):
            self._replicas.skip(what)
        elif isinstance(what, FirstState):
            return self._begin_with(what, ordinal)
        else:
            return self._answers.answer(what)
        return None

    def _left_for_units(self, stated: int) -> int:
        """Bytes of log that units may take in this group, whose snapshot part takes `stated`."""
        if self.accepting:
            return U63_MAX
        return self.left_bytes - _GROUP_BYTES - stated - self._snapshots.reserved

    @property
    def _origin(self) -> Origin:
        return Origin(self.settings.instance, self.generation)

    def begin_generation(self, generation: int, serial: int) -> None:
        """Batches that are placed from now on are of this generation, in a new segment."""
        assert not self._in_flight, "between two groups"
        begin = generation, self.next_position
        self.generation, self.serial = generation, serial
        self.travels = 0
        self.raised.append(begin)
        self.sessions.origins.meet([begin])
        self.sessions.origins.begin_segment(serial)
        self.want_state()

    @property
    def durable_origins(self) -> tuple[dict[Origin, int], dict[Origin, int]]:
        """How far each origin is durable here: in records, and in messages."""
        origins = self.sessions.origins
        if self._in_flight:
            return origins.with_closed(self._reached), dict(self._before)
        return origins.vector, origins.messages

    def written_to(self, position: int, serial: int) -> None:
        """The group that ends at `position` is in this segment's file, and not durable yet."""
        if serial != self.serial:
            self.serial = serial
            self.want_state()
        self.written = position
        if self._sent_early:
            self.sendable = position
        origins = self.sessions.origins
        if self.serial != origins.begun_serial:  # its first group: what it began with
            origins.segment_began(self.serial, self._before, self._stored_before)
        self.sessions.stages.written(self.serial)
        self._snapshots.written(position, self.serial)

    def synced(self, position: int) -> list[Effect]:
        """Everything below `position` is durable: receipts and watermarks may leave.

        Call it with the end of the group, or with `written` if there was nothing to write.
        """
        self.persisted = max(self.persisted, position)
        self.sendable = max(self.sendable, self.persisted)
        if self._snapshots.active:
            self.state_serial = self._snapshots.synced(self.persisted) or self.state_serial
        touched: dict[bytes, Requester] = {}
        answers: list[Effect] = []
        moved = False
        while self._in_flight and self._in_flight[0][0] <= self.persisted:
            done = self._in_flight.popleft()
            self.travels = done.travels
            moved = moved or done.moved
            answers += (one for one in done.opened if one.rid in self._requesters)
            for publisher, sequence in done.durable:
                self.sessions.durable(publisher, sequence)
            for requester, item in done.items:
                requester.unconfirmed.append(item)
                requester.fresh += 1
                touched[requester.rid] = requester
        here = (r for r in touched.values() if r.rid in self._requesters)
        answers += (self._receipt(r, r.fresh) for r in here)
        if moved:
            answers.append(self.watermarks(of_commit=True))
        if self.sessions.exchanges.changes != self._exchanges_said:  # ingest listens to beats alone
            self._exchanges_said = self.sessions.exchanges.changes
            answers.append(self.watermarks())
        return answers

    def _receipt(self, requester: Requester, count: int) -> Answer:
        items = list(requester.unconfirmed)[-count:] if count else []
        requester.fresh = 0
        receipt = m.JournalReceipt(self.settings.incarnation, self.persisted, items)
        return Answer(requester.rid, receipt)

    def beat(self) -> list[Effect]:
        """Every receipt item that is not confirmed, and watermarks: losing one costs time only."""
        late = [r for r in self._requesters.values() if r.unconfirmed and not r.fresh]
        return [*(self._receipt(r, len(r.unconfirmed)) for r in late), self.watermarks()]

    def watermarks(self, *, of_commit: bool = False, of_write: bool = False) -> PublishWatermarks:
        """The one frame that tells readers how far the log goes."""
        return PublishWatermarks(
            m.Watermarks(
                self.settings.incarnation, self.settings.instance, self.generation, self.log_start,
                self.written, self.persisted, self.serial, self.log_time, self.raised, self.travels,
                self.sessions.origins.closed.changes + self.sessions.forgotten_peers.changes
                + self.later.changes,
                self.sessions.named.changes, self.sessions.exchanges.changes,
                self.routed, self.sendable,
            ),
            of_commit, of_write,
        )  # fmt: skip

    def knows(self, rid: bytes) -> bool:
        """False if no process said Hello on this connection, or one did on a newer one."""
        return rid in self._requesters

    def process_of(self, rid: bytes) -> str:
        """Which process said Hello on this connection; "" if none did, or it did on a newer one."""
        requester = self._requesters.get(rid)
        return requester.process if requester is not None else ""

    def gone(self, rid: bytes) -> None:
        """A requester's connection is gone; what it had queued is judged all the same."""
        self._requesters.pop(rid, None)

    def check(self) -> None:
        """Asserts what is always true."""
        assert self.log_start <= self.persisted <= self.written <= self.next_position
        assert self.persisted <= self.sendable <= self.written
        assert self.decided or self.fenced
        self.sessions.check()
