"""One instance of the world of two: its journal, a link to it, publishers and readers; and bugs.

The journal process is the one that ships; what replication will do is typed here: see two_world.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

import msgspec

from tests.journal.build import sent
from tests.sim.disk import SimDisk
from tests.sim.journal_process import JournalProcess, SimNote, Start
from zbroker.checksums import crc32c
from zbroker.engine.effects import Answer
from zbroker.ids import Origin, format_vector, publisher_id
from zbroker.journal import holes
from zbroker.journal.core import JournalCore, JournalSettings
from zbroker.journal.effects import ForgetRemoved, MeasureSegments, Unlink, Where
from zbroker.journal.events import (
    PeersAnswered,
    Reserved,
    SegmentSize,
    SegmentsMeasured,
    Unlinked,
)
from zbroker.journal.fold import LogFold
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.link_sessions import LinkSession
from zbroker.journal.locate import Locator
from zbroker.journal.locate_vector import Cover, Vector, dominates
from zbroker.journal.replicas import Replicas
from zbroker.journal.segment_removal import remove_through
from zbroker.journal.sessions import PublisherRow
from zbroker.journal.start_question import Decision, PeerAnswer
from zbroker.limits import U63_MAX
from zbroker.log import records
from zbroker.log.format import (
    FLAG_LATE,
    KIND_NOOP,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    KIND_PURGE,
    STAYS,
    Batch,
)
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.wire import internal as m
from zbroker.wire.internal import Record

START_NS = 1_700_000_000_000_000_000
SEGMENT = 16 * 1024
INGEST, PEER, ADMIN = b"ingest", b"replication", b"admin"

Message = tuple[int, int]  # publisher, sequence


class Violation(AssertionError):
    """A promise was broken."""


class Held(NamedTuple):
    """One message as it is in a log."""

    payload: bytes
    origin: Origin
    position: int  # at its origin
    late: bool


class Clock:
    """What a writer sees of time."""

    def __init__(self, now: Callable[[], int], mono_ms: Callable[[], int]) -> None:
        self.wall_ns, self.mono_ms = now, mono_ms


class Outside(Protocol):
    """What a node sees of the world."""

    bug: str
    rng: Random
    restored: int
    notes: dict[str, SimNote]
    instances: dict[str, int]
    disks: dict[str, SimDisk]

    def salt(self) -> int: ...

    def number(self) -> int: ...

    def wall_ns(self, name: str) -> int: ...

    def clock(self, name: str) -> Clock: ...

    def demand(self, holds: bool, otherwise: str) -> None: ...


# -- publishers and subscribers ---------------------------------------------------------------


@dataclass
class App:
    """A publisher with its store: what is not acknowledged is sent again, wherever it goes."""

    name: str
    says_prev: bool
    sequence: int = 0
    unacked: list[tuple[int, bytes]] = field(default_factory=list)
    discarded: int = 0  # highest sequence that was acknowledged
    chain: int = 0  # `prev` of what comes next
    acked: set[int] = field(default_factory=set)
    node: Node | None = None
    session: int = 0
    sent: int = 0  # of `unacked`

    @property
    def id(self) -> int:
        return publisher_id(self.name)

    def leave(self) -> None:
        """The connection is gone, or left."""
        self.node, self.session = None, 0

    def opened(self, answer: m.Opened) -> None:
        self.session = answer.session
        self.settle(answer.acked)
        self.sequence = max(self.sequence, answer.seq)
        first = self.unacked[0][0] if self.unacked else self.sequence + 1
        self.chain = min(self.discarded, answer.seq, first - 1)
        self.sent = 0

    def settle(self, through: int) -> None:
        while self.unacked and self.unacked[0][0] <= through:
            sequence, _ = self.unacked.pop(0)
            self.acked.add(sequence)
            self.discarded = sequence
            self.sent = max(0, self.sent - 1)


@dataclass
class Reader:
    """A subscriber that keeps a vector and moves between the instances."""

    vector: Vector = field(default_factory=dict)
    node: Node | None = None
    cover: Cover | None = None
    cursor: Cursor | None = None
    position: int = 0
    seen: dict[Message, int] = field(default_factory=dict)
    pending: str = ""

    def leave(self) -> None:
        self.node = self.cover = self.cursor = None


# -- one instance -----------------------------------------------------------------------------


class NoIndex:
    """A bookmark index that knows nothing."""

    def at_or_before(self, position: int) -> None: ...

    def before_bookmark(self, publisher: int, sequence: int) -> None: ...

    def before_time(self, ns: int) -> None: ...


class Node(JournalProcess):
    """The journal process of one instance from a start to a crash."""

    def __init__(self, world: Outside, name: str) -> None:
        self.world, self.name = world, name
        self.instance, self._clock = world.instances[name], world.clock(name)
        settings = JournalSettings(self.instance, world.number(), peers=("peer",))
        start = Start(self._clock, SEGMENT, world.salt, note=world.notes[name])
        self.ordinals: dict[int, tuple[App, int, int]] = {}
        self.opens: dict[int, App] = {}
        self.ordinal = 1
        self.answers: list[m.ReceiptItem] = []  # to the other one's link
        self.peer_ordinal = 1
        self.met = False  # has spoken to the other one since the start
        super().__init__(world.disks[name], settings, start)
        self.log = Log(disk=self.disk)
        self.locator = Locator(self.log, NoIndex(), self.fold.sessions)  # type: ignore[arg-type]
        for rid, process in ((INGEST, "ingest"), (PEER, "replication"), (ADMIN, "admin")):
            self.hear(rid, m.Hello(process, 1))

    def plant_fold(self, fold: LogFold) -> None:
        plant_sessions(self.world.bug, fold)

    def plant_core(self, core: JournalCore) -> None:
        if self.world.bug == "generation not raised":
            core.raise_generation = lambda known=0: None  # type: ignore[method-assign]
        elif self.world.bug == "undecided, and it writes":
            core.question.state = Decision.CONFIRMED
            core.commit.decided, core.commit.fenced = True, False
        plant_core(self.world.bug, core.commit)

    def performers(self) -> dict[type, Callable[[Any], Any]]:
        return {
            **super().performers(), MeasureSegments: self._measure, Unlink: self._unlink,
            ForgetRemoved: lambda _: self.log.refresh(),
        }  # fmt: skip

    def boundary(self, name: str) -> None:
        self.disk.hook(name)  # type: ignore[attr-defined]

    @property
    def incarnation(self) -> int:
        return self.core.commit.settings.incarnation

    @property
    def vector(self) -> Vector:
        return self.core.commit.sessions.origins.vector

    @property
    def here(self) -> Origin:
        return Origin(self.instance, self.core.commit.generation)

    # -- turns --

    def answer(self, effect: Answer) -> None:
        message: Any = effect.message
        if isinstance(message, m.Opened):
            app = self.opens.pop(message.cid)
            if app.node is self:
                app.opened(message)
        elif isinstance(message, m.JournalReceipt):
            for item in message.items:
                if effect.rid == PEER:
                    self.answers.append(item)
                else:
                    self._receipt(item)

    def _receipt(self, item: m.ReceiptItem) -> None:
        app, session, last = self.ordinals.pop(item.ordinal, (None, 0, 0))
        if app is None or app.node is not self or app.session != session:
            return
        if item.code:
            app.leave()
        else:
            self.world.demand(item.position < self.core.persisted, "acknowledged before the sync")
            app.settle(last)

    # -- publishers --

    def open(self, app: App) -> None:
        cid = self.world.number()
        app.node, app.session, self.opens[cid] = self, 0, app
        self.hear(INGEST, m.Open(cid, self.incarnation, app.name, ""))

    def send(self, app: App) -> None:
        """What the app has not sent in this session, in batches of its mood."""
        rng = self.world.rng
        while app.session and app.sent < len(app.unacked):
            run = app.unacked[app.sent : app.sent + rng.choice((1, 2, 3, 5))]
            run = [item for n, item in enumerate(run) if item[0] == run[0][0] + n]
            body = msgspec.msgpack.encode([payload for _, payload in run])
            first, last = run[0][0], run[-1][0]
            prev = app.chain if app.says_prev else None
            entry = m.Entry(
                app.id, app.session, first, len(run), prev, crc32c(body), None, ["t"]
            )  # fmt: skip
            self.ordinals[self.ordinal] = (app, app.session, last)
            message = m.Append(self.incarnation, self.ordinal, self.ordinal - 1, [entry])
            self.hear(INGEST, message, [body])
            self.ordinal += 1
            app.chain = last
            app.sent += len(run)

    def purge(self, queue: str) -> None:
        """Everything that is here now is needed no more."""
        vector = format_vector(self.core.commit.sessions.origins.messages)
        if vector:
            record = records.PurgeRecord(queue, vector)
            self.core.commit.append_control(KIND_PURGE, records.encode(record))

    # -- a new generation --

    def raise_generation(self) -> None:
        """A person says that the disk is an old copy."""
        self.core.raise_generation()
        self.turn()

    def hear_peer(self, theirs: Vector) -> None:
        """The hello of the other one says how far it has this instance's records."""
        own = {o.generation: at for o, at in theirs.items() if o.instance == self.instance}
        before = self.core.commit.generation
        self._turn.hear(PeersAnswered([PeerAnswer("peer", own)]))
        self.turn()
        self.world.restored += self.core.commit.generation > before

    # -- a nearly full disk, and removal --

    def fill_disk(self) -> None:
        """Publishers are refused from now on, or not any more."""
        self.port.space_is = None if self.port.space_is else Reserved(False, True, U63_MAX)

    def remove(self, through: int) -> bool:
        """The admin asks for it, and the next beat does it. False: segments have to stay."""
        before = self.core.commit.log_start
        self.hear(ADMIN, m.Remove(1, self.incarnation, through))
        self.core.retention.due = True  # as the next beat does
        self.turn()
        return self.core.commit.log_start > before

    def _measure(self, effect: MeasureSegments) -> SegmentsMeasured:
        self.log.refresh()
        found = [SegmentSize(start.serial, start.position, 0) for start in self.log.starts]
        return SegmentsMeasured(effect.rid, effect.ask, found)

    def _unlink(self, effect: Unlink) -> Unlinked:
        return Unlinked(effect.through, remove_through(SegmentPlaces(self.disk), effect.through))

    # -- reading --

    def batches(self, start: int = 0) -> list[Batch]:
        """Everything durable, with bodies."""
        cursor, found = self.log.seek(max(start, self.log.first_position)), []
        while cursor.position < self.core.persisted:
            items, cursor = self.log.read(cursor, self.core.persisted, 1 << 20)
            for item in items:
                self.world.demand(not isinstance(item, Gap), f"{item} in an undamaged log")
                assert isinstance(item, Batch)
                found.append(item)
        return found

    def where(self) -> Where:
        return Where(
            self.instance, self.core.commit.generation, self.log.first_position,
            self.core.persisted, self.core.commit.fenced,
        )  # fmt: skip


def messages(batch: Batch) -> list[tuple[Message, Held]]:
    """The messages of a publish batch that count."""
    origin = Origin(batch.origin_instance, batch.origin_generation)
    payloads = msgspec.msgpack.decode(bytes(batch.body))[batch.skip : batch.count - batch.cut]
    return [
        (
            (batch.publisher, batch.sequence + n),
            Held(payload, origin, batch.origin_position + n, bool(batch.flags & FLAG_LATE)),
        )
        for n, payload in enumerate(payloads)
    ]


# -- a link -----------------------------------------------------------------------------------


class LinkTo:
    """One direction: reads the source's log, gives records to the target; begins with a talk."""

    def __init__(self, source: Node, target: Node) -> None:
        self.source, self.target = source, target
        self.known = dict(target.vector)  # of each origin: what the target has, or was sent
        self.named: set[int] = set()
        self.crcs: dict[Origin, int] = {}  # of each origin: content of its newest record so far
        self.position = source.log.first_position
        target.answers.clear()
        self._meet()
        self.number = target.world.number()
        ask = m.OpenLink(1, target.incarnation, source.instance, self.number, [".*"], [".*"])
        target.hear(PEER, ask)

    def _meet(self) -> None:
        """The target hears what the source holds of it: more than it does itself?"""
        target, theirs = self.target, self.source.vector
        target.hear_peer(theirs)
        own = {o: p for o, p in theirs.items() if o.instance == target.instance}
        self._waits_for = own if target.world.bug != "generation not raised" else {}

    def step(self, count: int) -> int:
        """Sends up to `count` batches; how many there were."""
        source, target = self.source, self.target
        refused = any(item.code for item in target.answers)  # known when more is under way
        target.answers.clear()
        if not target.met and dominates(target.vector, self._waits_for):
            target.met = True
            if target.core.commit.generation > 1:  # tells the others that the older ones have ended
                target.core.commit.append_control(KIND_NOOP, b"")
        batches = source.batches(self.position)[:count]
        for batch in batches:
            self._send(batch)
            self.position = batch.end_position
        if refused:
            raise LinkBroken
        commit = source.core.commit
        if self.position == commit.persisted == commit.next_position:
            self._cover()
        return len(batches)

    def _cover(self) -> None:
        """All was sent: says so, since what does not travel has positions, too."""
        covered = [
            m.Covered(*origin, self.known.get(origin, 0), position)
            for origin, position in self.source.vector.items()
            if position > self.known.get(origin, 0) and origin != self.target.here
        ]
        for one in covered:
            self.known[Origin(one.instance, one.generation)] = one.position
        if covered:
            self._hear([], [], covered)

    def _send(self, batch: Batch) -> None:
        origin, last = batch.origin, batch.origin_position + batch.taken - 1
        known = self.known.get(origin, 0)
        if batch.kind in STAYS:
            return
        crc, self.crcs[origin] = self.crcs.get(origin), batch.content_crc
        if last <= known:
            return
        if batch.kind == KIND_PUBLISH and batch.publisher not in self.named:
            self._name(batch)
        self.known[origin] = last
        self._give(*sent(batch, known, crc))

    def _name(self, batch: Batch) -> None:
        self.named.add(batch.publisher)
        known = self.source.core.commit.sessions.get(batch.publisher)
        self.source.world.demand(known is not None and bool(known.name), "a name was forgotten")
        assert known is not None
        body = records.encode(records.PublisherRecord(known.name, known.principal))
        self._give(Record(KIND_PUBLISHER, self.source.instance, 0, 0, 0, 0, batch.publisher), body)

    def _give(self, record: Record, body: bytes) -> None:
        self._hear([record], [body], [])

    def _hear(self, given: list[Record], bodies: list[bytes], covered: list[m.Covered]) -> None:
        target = self.target
        message = m.Replicate(
            target.incarnation, target.peer_ordinal, target.peer_ordinal - 1, given, self.number,
            covered,
        )  # fmt: skip
        data = msgspec.msgpack.encode(message)
        target.hear(PEER, msgspec.msgpack.decode(data, type=m.Replicate), bodies)
        target.peer_ordinal += len(given)


class LinkBroken(Exception):
    """The target refused something: talk again, later."""


# -- planted bugs -----------------------------------------------------------------------------

BUGS = (
    "undecided, and it writes",
    "no hole list",
    "dedupe by high only",
    "late not flagged",
    "generation not raised",
    "no ties",
    "no chain of an origin",
    "ties without their content",
    "snapshot without holes",
)


def plant_sessions(bug: str, fold: LogFold) -> None:
    sessions = fold.sessions
    if bug == "dedupe by high only":
        real = sessions.runs

        def runs(publisher: int, first: int, last: int) -> object:
            found = real(publisher, first, last)
            known = sessions.get(publisher)
            if known is None:
                return found
            above = [run for run in found[0] if run[0] > known.high]
            return above, holes.held(above, first, last), []

        sessions.runs = runs  # type: ignore[method-assign, assignment]


def plant_core(bug: str, core: GroupCommit) -> None:
    replicas: Replicas = core._replicas
    if bug == "no ties":
        tie = replicas._tie

        def nothing(record: Record, run: holes.Run) -> None:
            ties = replicas._origins.ties
            replicas._origins.ties = []
            tie(record, run)
            core.batches[-1].kind = KIND_NOOP
            replicas._origins.ties = ties

        replicas._tie = nothing  # type: ignore[method-assign]
    elif bug == "ties without their content":
        written = replicas._tie

        def without_content(record: Record, run: holes.Run) -> None:
            record.extra, crc, record.crc = [], record.crc, 0
            written(record, run)
            record.crc = crc

        replicas._tie = without_content  # type: ignore[method-assign]
    elif bug == "no chain of an origin":
        judge = replicas._judge
        of_new = judge._of_new

        def without(link: LinkSession, record: Record, *more: Any) -> tuple[str, str] | None:
            record.after, record.after_crc = more[1].crc_at, None
            return of_new(link, record, *more)

        judge._of_new = without  # type: ignore[method-assign]
    elif bug == "late not flagged":
        put = core.put

        def put_unflagged(batch: Batch) -> None:
            batch.flags &= ~FLAG_LATE
            put(batch)

        core.put = put_unflagged  # type: ignore[method-assign]


class Planted:
    """Bugs that are in modules; undone at the end."""

    def __init__(self, bug: str) -> None:
        self._bug = bug
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        if self._bug == "no hole list":
            self._set(holes, "opened", lambda *_args, **_names: None)
        elif self._bug == "snapshot without holes":
            rows = PublisherRow

            def row(*args: object) -> object:
                *before, _, wrote_in = args
                return rows(*before, [], wrote_in)  # type: ignore[call-arg, arg-type]

            from zbroker.journal import sessions

            self._set(sessions, "PublisherRow", row)

    def _set(self, module: object, name: str, value: object) -> None:
        old = getattr(module, name)
        setattr(module, name, value)
        self._undo.append(lambda: setattr(module, name, old))

    def __exit__(self, *_: object) -> None:
        for undo in self._undo:
            undo()
