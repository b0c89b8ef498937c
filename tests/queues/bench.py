"""A queues core with a log in memory, a journal that does what the test says, and clients.

By itself everything happens at once: what was published is durable and read, units land and are
read, look-ups and readings are answered. A test takes hold of what it is about:

    holding    units that were sent wait for `land` or `refuse`      receipts  False: none are sent
    reading    False: the log is not read before `fold`              silent    look-ups wait
    later      types of effects that wait for `go_on`                unreadable  positions
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar, get_args

from msgspec import Raw, msgpack
from msgspec.structs import replace
from pyroaring import BitMap64

from zbroker.access.core import Access
from zbroker.access.format import parse
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import BlockRead, Read
from zbroker.checksums import crc32c
from zbroker.clock import is_time, parse_time
from zbroker.config import QueueConfig
from zbroker.config.queue_links import QueueLinks
from zbroker.engine.contract import Limit, Now, TurnPlan
from zbroker.engine.effects import FollowMark, Note, Say, Send, Tell
from zbroker.engine.events import Asked, Commands, Gone, ReadFailed
from zbroker.engine.turn import Turn
from zbroker.errors import ClientError, StorageError
from zbroker.exchanges import BoundQueue, route_column
from zbroker.exchanges.router import numbered
from zbroker.ids import EPOCH, NOW, Origin, format_bookmark, is_vector, parse_bookmark, parse_vector
from zbroker.journal.exchange_records import ExchangeRecords
from zbroker.journal.named_records import NamedRecords, is_removal, name_of
from zbroker.journal.origins import Origins
from zbroker.journal.stages import Stages
from zbroker.journal.transaction_table import TransactionTable
from zbroker.log.format import (
    COLUMN_ROUTES,
    KIND_BRANCH,
    KIND_DEFINITION,
    KIND_EXCHANGE,
    KIND_NOOP,
    KIND_POINT,
    KIND_PUBLISH,
    KIND_QUEUE,
    KIND_SHARED_POINT,
    KIND_TRANSACTION,
    KIND_WIRING,
    Batch,
)
from zbroker.log.reader import Cursor
from zbroker.log.records import BRANCH, QUEUE, TRANSACTION, AnyFact, ends_of
from zbroker.queues.core import AGAIN_MS, QueuesCore
from zbroker.queues.effects import (
    Effect,
    Give,
    Given,
    Load,
    LogReading,
    PublishFull,
    SaveTables,
    SayReplication,
    TablesLoaded,
    TablesSaved,
)
from zbroker.queues.log_work import FoundMessages, LogWork, Slice
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.saved_queue import SavedQueue
from zbroker.queues.work.values import MS_NS
from zbroker.recording import Recording
from zbroker.server.budgets import DEFAULT, Budget
from zbroker.server.peers import Received
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire import bodies, codec, token
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.branches import AskBranches, BranchesFound
from zbroker.wire.exchange_messages import AskExchanges, ExchangeRows
from zbroker.wire.full_queues import FullQueues
from zbroker.wire.internal import (
    Holds,
    JournalReceipt,
    Locate,
    Located,
    ReceiptItem,
    Watermarks,
    Welcome,
)
from zbroker.wire.owner_requests import PeersRead
from zbroker.wire.transactions import AskSession, AskSessions, SessionFound, SessionList
from zbroker.wire.units import AskNamed, CommitUnits, NamedRow, NamedRows, UnitPart

KEY = b"k" * 32
HERE = Origin(0xABC, 1)
ANN, BOB = b"\0ann1", b"\0bob1"
PUBLISHER, BROKER, SHOWS = 11, 99, 98
WALL_NS = 1_000 * 1_000_000_000  # when the tests begin
STEP_NS = 1_000_000
AFTER_LEASE_MS = 31_000  # by default; ends of leases are rounded up
JOURNAL, PROCESS = 7, 70  # incarnations
KEY_A, KEY_B = "a" * 40, "b" * 40  # of connections

Unit = tuple[list[UnitPart], list[bytes]]
Question = Locate | AskSession | AskSessions | AskBranches
_ANSWERS: Final[dict[type, Any]] = {
    Locate: Located, AskSession: SessionFound, AskSessions: SessionList, AskBranches: BranchesFound,
}  # fmt: skip
T = TypeVar("T")


class Got(NamedTuple):
    """A message as a consumer was given it."""

    position: int
    deliveries: int = 1
    barrier: bool = False
    acked: bool | None = None


class Bench:
    """Everything around one core. position: of what is published next."""

    def __init__(
        self,
        *configs: QueueConfig,
        access: Access | None = None,
        record: Recording | None = None,
        clients_max: int = 100,
        welcome: bool = True,
        budget: Budget = DEFAULT,
        replicates: bool = False,
        sync: bool = False,
    ) -> None:
        self.configs = list(configs)
        self.access = access or Access.off()
        self.record = record or Recording([])
        self.clients_max = clients_max
        self.budget = budget
        self.replicates, self.sync = replicates, sync
        self.destinations = {"other": True}  # whether the whole log goes there
        self.to_replication: list[Any] = []
        self.followed: list[bool] = []  # marks of the replication process
        self.full: list[FullQueues] = []  # what ingest heard
        self.log: list[Batch] = []
        self.position = 1
        self.log_start = 1
        self.persisted = 1
        self.journal = JOURNAL
        self.generations, self.raised = [(HERE.generation, 1)], []
        self.definitions = self.routed = 0
        self.routes_at_once = True
        self.origin = HERE
        self.incarnation = PROCESS
        self.now = Now(0, WALL_NS)
        self.up = True
        self.holding = self.silent = False
        self.reading = self.receipts = self.durable = True
        self.later: tuple[type, ...] = ()
        self.waiting: list[Effect] = []
        self.unreadable = BitMap64()
        self.under_way: list[tuple[int, Unit]] = []
        self.lookups: list[Question] = []
        self.gives: list[tuple[str, Give]] = []
        self.answers: list[tuple[bytes, Any]] = []
        self.bodies: list[bytes | None] = []  # of the answers
        self.reported: list[tuple[bytes, Any]] = []
        self.inbox: list[Any] = []  # what other processes have sent meanwhile
        self.notes: list[Note] = []
        self.keys: dict[bytes, str] = {}
        self.sequences: dict[int, int] = {}
        self._begin({})
        if welcome:
            self.welcome()

    def _begin(self, saved: dict[tuple[str, int], SavedQueue]) -> None:
        self.manager = QueueRegistry(self.incarnation, self.configs, self.record, "me")
        self.saved = saved
        settings = ListenerSettings(
            KEY, self.clients_max, self.incarnation, self.record, self.access, self.budget
        )
        self.core = QueuesCore(
            settings, self.manager, peers=lambda rid: (f"at {rid[1:4]!r}", 0),
            links=QueueLinks("me", self.destinations, self.replicates, self.sync),
        )  # fmt: skip
        self.core.shared.now = self.now
        self.plan = TurnPlan([(self, Limit(1))], get_args(Effect), 1_000_000)
        self.turn = Turn[Any, Effect](self.core, self.plan, self._performers(), lambda: self.now)

    def _performers(self) -> dict[type, Any]:
        """What is to be noticed of the others is noticed by what follows from them."""
        performers: dict[type, Any] = dict.fromkeys(get_args(Effect), lambda effect: None)
        performers |= {
            Send: self._send, Give: self._give, Say: self._said, Note: self.notes.append,
            Tell: lambda effect: self.reported.append((effect.rid, effect.answer)),
            Load: lambda effect: TablesLoaded(self.saved), Read: self._block,
            SaveTables: lambda effect: TablesSaved(),
            SayReplication: lambda effect: self.to_replication.append(effect.message),
            FollowMark: lambda effect: self.followed.append(effect.on),
            PublishFull: lambda effect: self.full.append(effect.message),
            **dict.fromkeys(get_args(LogReading), self._read),
        }  # fmt: skip
        return {kind: self._unless_later(do) for kind, do in performers.items()}

    def _unless_later(self, do: Any) -> Any:
        def perform(effect: Any) -> Any:
            if not isinstance(effect, self.later):
                return do(effect)
            self.waiting.append(effect)
            return None

        return perform

    # -- the source of its turn -----------------------------------------------------------------

    drained = True

    def events(self, ready: Any, limit: Limit) -> Iterator[Any]:
        while self.inbox:
            yield self.inbox.pop(0)

    def next_wake_ms(self) -> int | None:
        return 0 if self.inbox else None

    # -- the log ------------------------------------------------------------------------------

    def publish(
        self,
        *payloads: bytes,
        topic: str = "t",
        topics: Sequence[str] = (),
        keys: list[bytes | None] | None = None,
        headers: list[dict[str, Any] | None] | None = None,
        expiry: list[int] | None = None,
        routes: list[list[BoundQueue]] | None = None,
    ) -> list[int]:
        """One batch, durable; the positions of its messages. topics: of each, instead of one.
        routes: of each the queues that it goes to."""
        names, columns = [topic], m.Columns()
        if topics:
            names = sorted(set(topics))
            columns.index = bodies.to_little(array("H", [names.index(one) for one in topics]))
        columns.keys = codec.encode(keys) if keys is not None else None
        columns.headers = codec.encode(headers) if headers is not None else None
        columns.expiry = bodies.to_little(array("q", expiry)) if expiry is not None else None
        first = self.position
        body = bodies.pack(payloads)
        self._put(
            KIND_PUBLISH, body, PUBLISHER, names, len(payloads),
            columns if columns != m.Columns() else None,
        )  # fmt: skip
        if routes is not None:
            column = route_column.encode(numbered([frozenset(one) for one in routes]))
            self.log[-1].extra = [(COLUMN_ROUTES, column)]
        self.persist()
        return list(range(first, first + len(payloads)))

    def many(self, count: int, topic: str = "t") -> list[int]:
        """So many messages that no one looks into."""
        return self.publish(*[b"%d" % number for number in range(count)], topic=topic)

    def _put(
        self, kind: int, body: bytes, publisher: int = 0, topics: Sequence[str] = (),
        count: int = 1, columns: m.Columns | None = None,
    ) -> None:  # fmt: skip
        sequence = self.sequences.get(publisher, 0) + 1
        self.sequences[publisher] = sequence + count - 1
        self.log.append(Batch(
            kind, self.position, publisher, 1, sequence, sequence - 1, count,
            WALL_NS + self.position * STEP_NS, list(topics), body, crc32c(body), len(body),
            origin_instance=self.origin.instance, origin_generation=self.origin.generation,
            origin_position=self.position, columns=columns, offset=len(self.log),
        ))  # fmt: skip
        self.position += count

    def noop(self) -> None:
        """A record that no queue looks at."""
        self._put(KIND_NOOP, b"")
        self.persist()

    def record_of(self, kind: int, body: bytes, origin: Origin = HERE) -> None:
        """A control record that this process did not write."""
        self._put(kind, body)
        self.log[-1].origin_instance, self.log[-1].origin_generation = origin
        self.persist()

    def bookmark(self, position: int) -> str:
        """Of a message."""
        batch = next(one for one in self.log if one.position <= position < one.end_position)
        return format_bookmark(batch.publisher, batch.sequence + position - batch.position)

    def payload(self, position: int) -> bytes:
        """Of a message."""
        batch = next(one for one in self.log if one.position <= position < one.end_position)
        return bodies.unpack(batch.body, None, batch.count, 1 << 30)[position - batch.position]

    def persist(self) -> None:
        """All of the log is durable; says so, and everything follows from it."""
        self.persisted = self.position
        if self.up:
            self.watermarks()
        self.run()

    def watermarks(self) -> None:
        self.turn.hear(self._watermarks())

    def _watermarks(self) -> Watermarks:
        extent = self.log_start, self.position, self.persisted
        return Watermarks(
            self.journal,
            *self.origin,
            *extent,
            1,
            0,
            self.raised,
            definitions=self.definitions,
            exchanges=self._exchanges().changes,
            routed=self.position if self.routes_at_once else self.routed,
        )

    def watermarks_say(self, *, definitions: int) -> None:
        """Definitions of replicated queues have changed so often."""
        self.definitions = definitions
        self.persist()

    def fold(self) -> None:
        """The log is read as far as it may be."""
        while (read := self.core.next_read()) is not None:
            done = self._block(read)
            if done is None:
                return
            self.turn.hear(done)

    def _block(self, read: Read) -> BlockRead | None:
        position = read.cursor.position
        items = [
            replace(one, body=b"") if read.headers else one
            for one in self.log
            if one.end_position > position and one.position < min(read.limit, self.persisted)
        ]  # fmt: skip
        if not items:
            return None
        behind = items[-1].end_position
        return BlockRead(read, Block(read.cursor, items, Cursor(1, behind, behind)))

    # -- the journal --------------------------------------------------------------------------

    def welcome(self, persisted: int | None = None, generation: int = HERE.generation) -> None:
        end = self.persisted if persisted is None else persisted
        self.up = True
        written = max(end, self.position) if persisted is None else end
        self.turn.hear(Welcome(
            self.journal, self.incarnation, HERE.instance, generation, 0, "disk", self.log_start,
            written, end, [], self.generations,
        ))  # fmt: skip
        self.run()

    def raise_generation(self, generation: int) -> None:
        """One begins while the journal runs."""
        self.raised.append((generation, self.position))
        self.origin = HERE._replace(generation=generation)
        self.persist()

    def die(self) -> None:
        """The journal is gone, with what it was sent and did not write."""
        self.up = False
        self.under_way.clear()
        self.journal += 1
        self.watermarks()

    def come_back(self) -> None:
        """A journal again."""
        self.welcome()

    def doubt(self, what: Callable[[], object], *, landed: bool) -> None:
        """The journal dies with the unit that this makes under way, in the log or not."""
        self.holding, self.receipts = True, False
        what()
        if landed:
            self.land()
        self.die()
        self.holding, self.receipts = False, True
        self.come_back()

    def restart(self, saved: dict[tuple[str, int], SavedQueue] | None = None) -> None:
        """This process begins again. saved: what its tables hold."""
        self.incarnation += 1
        self.under_way.clear()
        self.waiting.clear()
        self.lookups.clear()
        self._begin(saved or {})
        self.welcome()

    def named(self, ask: AskNamed) -> NamedRows:
        """What the journal says is defined."""
        named = self._named_records()
        shared = [
            NamedRow(row.name, row.position, msgpack.encode(row)) for row in named.shared.rows()
        ]
        wiring, points = self._rows(KIND_WIRING), list(named.points.rows())
        return NamedRows(
            ask.cid, self.position, wiring, points, list(named.definitions.rows()), shared
        )

    def _named_records(self) -> NamedRecords:
        named = NamedRecords(self._reached)
        for one in self.log:
            if one.kind in (KIND_DEFINITION, KIND_POINT, KIND_SHARED_POINT):
                named.fold(one)
        return named

    def _reached(self, origin: Origin) -> int:
        """How far the log has it."""
        return max((one.origin_position for one in self.log if one.origin == origin), default=0)

    def _exchanges(self) -> ExchangeRecords:
        records = ExchangeRecords()
        for one in self.log:
            if one.kind == KIND_EXCHANGE:
                records.fold(one)
        return records

    def route(self) -> None:
        """ingest routes by all that the log says of exchanges."""
        self.routed = self.position
        self.watermarks()
        self.run()

    def _rows(self, kind: int) -> list[NamedRow]:
        found = {
            name_of(one.body): NamedRow(name_of(one.body), one.position, bytes(one.body))
            for one in self.log
            if one.kind == kind
        }
        return [found[name] for name in sorted(found) if not is_removal(kind, found[name].body)]

    def _commit(self, commit: CommitUnits, sent: Sequence[bytes | memoryview]) -> None:
        for number, parts in enumerate(commit.units):
            unit_bodies = [bytes(body) for body in sent[: len(parts)]]
            sent = sent[len(parts) :]
            self.under_way.append((commit.ordinal + number, (parts, unit_bodies)))
        if not self.holding:
            self._write()

    def land(self, count: int | None = None) -> None:
        """The first units that are under way are in the log."""
        self._write(count)
        self.run()

    def _write(self, count: int | None = None) -> None:
        many, self.under_way = _split(self.under_way, count)
        items = []
        for ordinal, (parts, unit_bodies) in many:
            first = self.position
            for part, body in zip(parts, unit_bodies, strict=True):
                assert part.crc == crc32c(body)
                publisher = BROKER if part.kind == KIND_PUBLISH else 0
                if count := _shown(part, body):
                    self._put(KIND_PUBLISH, bodies.pack([b"shown"] * count), SHOWS, ["out"], count)
                self._put(part.kind, body, publisher, part.topics, part.count, part.columns)
                if part.routes:
                    self.log[-1].extra = [(COLUMN_ROUTES, part.routes)]
            items.append(ReceiptItem(ordinal, self.position - 1, first))
        if self.durable:
            self.persisted = self.position
        if self.receipts:
            self.inbox.append(JournalReceipt(self.journal, self.persisted, items))
        self.inbox.append(self._watermarks())

    def refuse(self, code: str = "too_large", count: int | None = None) -> None:
        """The first units that are under way are refused."""
        many, self.under_way = _split(self.under_way, count)
        items = [ReceiptItem(ordinal, 0, 0, 0, code, "no") for ordinal, _ in many]
        self.turn.hear(JournalReceipt(self.journal, self.persisted, items))
        self.run()

    def locate(self, ask: Locate) -> Located:
        """What the journal says of a look-up."""
        found = Located(ask.cid, log_start=self.log_start, persisted=self.persisted)
        value = ask.value
        if value == EPOCH:
            found.position = self.log_start
        elif value == NOW:
            found.position = self.persisted
        elif is_time(value):
            later = [one.position for one in self.log if one.log_time >= parse_time(value)]
            found.position = later[0] if later else self.persisted
        elif is_vector(value):
            found.position = parse_vector(value).get(HERE, 0) + (ask.cut != "at")
        else:
            self._locate_bookmark(found, value, ask.cut)
        return found

    def _locate_bookmark(self, found: Located, value: str, cut: str) -> None:
        publisher, sequence = parse_bookmark(value)
        for one in self.log:
            ahead = sequence - one.sequence
            if one.publisher == publisher and 0 <= ahead < one.count:
                found.position = one.position + ahead + (cut != "at")
                return
        found.code, found.reason = "bookmark_not_found", "the log does not hold it"

    def answer(self, code: str = "", reason: str = "") -> None:
        """The look-ups that wait are answered."""
        asks, self.lookups = self.lookups, []
        for ask in asks:
            refused = _ANSWERS[type(ask)](ask.cid, code=code, reason=reason)
            self.turn.hear(refused if code else self.found(ask))
        self.run()

    # -- units as they were sent, and facts as they are in the log ---------------------------

    def sent_facts(self) -> list[AnyFact]:
        """Of all units that are under way."""
        return [
            fact
            for _, (parts, unit_bodies) in self.under_way
            for part, body in zip(parts, unit_bodies, strict=True)
            if part.kind == KIND_QUEUE
            for fact in QUEUE.decode(body).facts
        ]

    def facts(self, of: type[T]) -> list[T]:
        """Of the log."""
        records = [QUEUE.decode(one.body) for one in self.log if one.kind == KIND_QUEUE]
        return [fact for record in records for fact in record.facts if isinstance(fact, of)]

    def kinds(self) -> list[int]:
        """Of everything that this process wrote and that is under way."""
        return [part.kind for _, (parts, _) in self.under_way for part in parts]

    def letters(self) -> list[tuple[str, bytes, dict[str, Any]]]:
        """Dead letters of the log: topic, payload, headers."""
        found = []
        for batch in self.log:
            if batch.publisher != BROKER:
                continue
            data = bodies.unpack(batch.body, None, batch.count, 1 << 30)
            assert batch.columns is not None
            assert batch.columns.headers is not None
            headers = msgpack.decode(batch.columns.headers)
            found += [(batch.topics[0], *pair) for pair in zip(data, headers, strict=True)]
        return found

    # -- clients ------------------------------------------------------------------------------

    def logon(
        self, rid: bytes = ANN, name: str = "", *, principal: str = "", key: str = "",
        heartbeat_s: float | None = None,
    ) -> None:  # fmt: skip
        """name: by default that of the routing id."""
        name = name or rid[1:4].decode()
        self.keys[rid] = key
        expires = self.now.wall_ns // 1_000_000_000 + 60
        said = token.Token(name, principal or name, "i", 1, expires, key)
        self.send(m.ListenerLogon(token.make(KEY, said), "logon", heartbeat_s), rid=rid)

    def send(self, *commands: m.ClientCommand, rid: bytes = ANN) -> None:
        """In one turn."""
        self.frames([[codec.encode(command)] for command in commands], rid)

    def frames(self, many: list[list[bytes]], rid: bytes = ANN, *, over: bool = False) -> None:
        key = self.keys.get(rid, "")
        self.turn.hear(Commands([Received(rid, frames, over, key) for frames in many]))
        self.run()

    def consume(self, queue: str = "q", sid: str = "s", rid: bytes = ANN, **more: Any) -> None:
        self.send(q.Consume(sid, queue, f"c-{sid}", **more), rid=rid)

    def ack(self, *positions: int, sid: str | None = "s", rid: bytes = ANN, **more: Any) -> None:
        self.settle(q.Settle, positions, sid, rid, **more)

    def release(self, *positions: int, sid: str | None = "s", **more: Any) -> None:
        self.settle(q.Release, positions, sid, **more)

    def reject(self, *positions: int, sid: str | None = "s", **more: Any) -> None:
        self.settle(q.RejectMessages, positions, sid, **more)

    def extend(self, *positions: int, sid: str | None = "s", **more: Any) -> None:
        self.settle(q.Extend, positions, sid, **more)

    def settle(
        self, verb: type[q.Settle], positions: Sequence[int], sid: str | None, rid: bytes = ANN,
        **more: Any,
    ) -> None:  # fmt: skip
        more.setdefault("ends", ends_of(BitMap64(positions)))
        more.setdefault("cid", "c")
        self.send(verb(sid=sid, **more), rid=rid)

    def fail(self, give: Give) -> None:
        """It cannot be read, and is tried again."""
        self.turn.hear(ReadFailed(give, StorageError("damaged", "the disk fails")))
        self.pass_ms(AGAIN_MS)

    def holds(self, wall_ms: int = 0) -> Holds:
        """What the journal would hear now."""
        return self.core.journal.holds(wall_ms)

    def lose(self, rid: bytes = ANN) -> None:
        """A peer cannot be reached any more."""
        self.turn.hear(Gone(rid))
        self.run()

    def ask(self, question: Any) -> Any:
        """The admin asks; its answer, or None as long as there is none."""
        count = len(self.reported)
        self.turn.hear(Asked(b"admin", question))
        self.run()
        assert len(self.reported) <= count + 1
        return self.reported[-1][1] if len(self.reported) > count else None

    # -- time and turns -----------------------------------------------------------------------

    def peers_read(self, *missing: str) -> None:
        """The replication process says that what peers hold is here."""
        self.turn.hear(PeersRead([*missing]))
        self.run()

    def pass_ms(self, ms: int) -> None:
        self.now = Now(self.now.mono_ms + ms, self.now.wall_ns + ms * MS_NS)
        self.run()

    def run(self) -> None:
        """Turns, until there is nothing to do."""
        for _ in range(10_000):
            self.plan.reads_max = 1_000 if self.reading else 0
            wait_ms = self.turn.run({})
            self.core.check()
            if wait_ms != 0:
                return
        raise AssertionError("it does not come to rest")

    def go_on(self) -> None:
        """Does what was put off."""
        waiting, self.waiting, later, self.later = self.waiting, [], self.later, ()
        performers = self._performers()
        for effect in waiting:
            done = performers[type(effect)](effect)
            if done is not None:
                self.turn.hear(done)
        self.later = later
        self.run()

    def _send(self, send: Send) -> None:
        self.answers.append((send.rid, codec.decode(codec.QUEUES_ANSWERS, send.header)))
        self.bodies.append(send.body)

    def _give(self, give: Give) -> Given:
        sent, size = BitMap64(), 0
        found = self._found(give.positions - self.unreadable)
        part = Slice(found, give.positions, give.bytes_max)
        for one in part:
            payloads = sum(len(self.payload(position)) for position in one.positions)
            part.handled(payloads)
            sent |= one.positions
            size += payloads
        self.gives.append((give.to.sid, replace(give, positions=sent)))
        return Given(give, size, give.positions - sent, part.end)

    def _said(self, effect: Say) -> Any:
        message: Any = effect.message
        if not self.up:
            return None
        if isinstance(message, AskNamed):
            return self.named(message)
        if isinstance(message, CommitUnits):
            return self._commit(message, effect.bodies)
        if isinstance(message, AskExchanges):
            records = self._exchanges()
            rows, whole = records.since(message.after)
            packed = [Raw(msgpack.encode(row)) for row in rows]
            return ExchangeRows(0, records.changes, self.position, packed, whole)
        if not isinstance(message, Question):
            return None
        if self.silent:
            self.lookups.append(message)
            return None
        return self.found(message)

    def found(self, ask: Question) -> Located | SessionFound | SessionList | BranchesFound:
        """What the journal says."""
        if isinstance(ask, AskSessions):
            return self._sessions().listed(ask)
        if isinstance(ask, AskBranches):
            return self._sessions().branches.found(ask)
        return self.locate(ask) if isinstance(ask, Locate) else self._sessions().found(ask)

    def _sessions(self) -> TransactionTable:
        known = TransactionTable(Stages(Origins(HERE.instance)))
        for one in self.log:
            if one.kind == KIND_TRANSACTION:
                known.fold(one)
            elif one.kind == KIND_BRANCH:
                known.branches.fold(one)
        return known

    def _read(self, effect: Any) -> Any:
        found = self._found(effect.positions - self.unreadable)
        return perform_on(found, effect, self.record.type_of)

    def _found(self, positions: BitMap64) -> list[FoundMessages]:
        found = []
        for batch in self.log:
            mine = positions & BitMap64(range(batch.position, batch.end_position))
            if batch.kind == KIND_PUBLISH and mine:
                cursor = Cursor(1, batch.offset, batch.position)
                block = Block(cursor, [batch], Cursor(1, batch.offset + 1, batch.end_position))
                found.append(FoundMessages(block, 0, batch, mine))
        return found

    # -- what was seen ------------------------------------------------------------------------

    def got(self, sid: str = "s") -> list[int]:
        """Positions that were given to a consumer."""
        return [at for to, give in self.gives if to == sid for at in give.positions]

    def seen(self, sid: str = "s") -> list[Got]:
        """The same with what is said of each."""
        found = []
        for to, give in self.gives:
            for number, at in enumerate(give.positions if to == sid else ()):
                count = give.deliveries[number] if give.deliveries is not None else 1
                acked = at in give.acked if give.acked is not None else None
                found.append(Got(at, count, give.barrier, acked))
        return found

    def say(self, command: Any, rid: bytes = ANN) -> Any:
        """What a client is answered to a command, other than jobs; None as long as it waits."""
        count = len(self.answers)
        self.send(command, rid=rid)
        said = [one for to, one in self.answers[count:] if to == rid and not isinstance(one, q.Job)]
        return said[-1] if said else None

    def last(self) -> Any:
        """The last answer to a client."""
        return self.answers[-1][1]

    def of(self, kind: type[T], rid: bytes | None = None) -> list[T]:
        """Answers of one kind."""
        return [
            one for to, one in self.answers if isinstance(one, kind) and rid in (None, to)
        ]  # fmt: skip

    def errors(self) -> list[tuple[str, str | None, str | None]]:
        """Code, cid and sid of all errors."""
        return [(one.code, one.cid, one.sid) for one in self.of(m.Error)]

    def codes(self) -> list[str]:
        return [one.code for one in self.of(m.Error)]

    def settled(self) -> list[tuple[int, int]]:
        """taken and ignored of all that was answered."""
        return [(one.taken, one.ignored) for one in self.of(q.Settled)]

    def one(self, name: str = "q") -> QueueState:
        return self.manager.running[name]

    def here(self, name: str = "q") -> list[int]:
        """The messages of a queue."""
        return list(self.one(name).queue.here)

    def state(self, position: int, name: str = "q") -> str:
        """Where a message is."""
        return self.one(name).queue.where(position, self.now).state


def perform_on(many: Iterable[FoundMessages], effect: Any, type_of: Any) -> Any:
    """What comes of an effect if this is all that is found in the log."""
    source: Any = None
    done = LogWork(source, lambda send: True, type_of, lambda give: None, sees_all=True)
    done._find = lambda positions: iter(many)  # type: ignore[method-assign]
    return done.performers[type(effect)](effect)


def work(name: str = "q", topic: str = "t", **more: Any) -> QueueConfig:
    """The config of a work queue."""
    return QueueConfig(name, topic, **more)


def replayable(name: str = "q", topic: str = "t", **more: Any) -> QueueConfig:
    return QueueConfig(name, topic, kind="replayable", **more)


def bench(*configs: QueueConfig, **more: Any) -> Bench:
    """One whose queues run, with ann logged on."""
    made = Bench(*(configs or (work(),)), **more)
    made.logon()
    return made


def rules(*queues: str, more: str = "") -> Access:
    """Access rules under which ann, with KEY_A, may consume these queues. more: of the grant."""
    names = ", ".join(f'"{name}"' for name in queues)
    return parse(
        f'[principal.ann]\nkeys = ["{KEY_A}"]\nroles = ["r"]\n'
        f'[[role.r.allow]]\nactions = ["consume"]\ntopics = [{names}]\n{more}',
        "access.toml",
    )


def code_of(call: Any) -> str:
    """The code of the error that a call raises."""
    try:
        call()
    except ClientError as error:
        return error.code
    raise AssertionError("it was not refused")


def _shown(part: UnitPart, body: bytes) -> int:
    """How many staged messages a unit shows that begins with this."""
    if part.kind == KIND_TRANSACTION:
        return TRANSACTION.decode(body).messages
    if part.kind != KIND_BRANCH:
        return 0
    said = BRANCH.decode(body)
    return said.messages if said.state == "committed" else 0


def _split(many: list[T], count: int | None) -> tuple[list[T], list[T]]:
    at = len(many) if count is None else count
    return many[:at], many[at:]
