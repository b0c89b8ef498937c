"""A delivery core and its Turn, a log in memory, a journal that answers at once, and clients.

Clients expand what they get by the rules of the wire protocol alone, so that a test compares what
a subscriber sees with what was published.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar, get_args

from tests.sim.ports import Ordered
from zbroker.access.core import Access
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import BlockRead, Read
from zbroker.checksums import crc32c
from zbroker.clock import is_time, parse_time
from zbroker.delivery.contract import Effect, LiveReceived, PlanRanges
from zbroker.delivery.core import DeliveryCore, DeliverySettings
from zbroker.engine.contract import Now, TurnPlan
from zbroker.engine.effects import Note, Say, Send
from zbroker.engine.events import Commands, Gone, ReadFailed
from zbroker.engine.turn import Turn
from zbroker.errors import StorageError
from zbroker.filters import BUILT_IN, Vocabulary
from zbroker.ids import EPOCH, NOW, Origin, is_vector, parse_bookmark, parse_vector, point_name
from zbroker.log.format import KIND_NOOP, KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor, Gap, Item, Skipped
from zbroker.recording import Recording
from zbroker.server.budgets import DEFAULT, Budget
from zbroker.server.peers import Received
from zbroker.topics import Matcher
from zbroker.wire import bodies, codec, token
from zbroker.wire import messages as m
from zbroker.wire.internal import Entry, Hello, Live, Locate, Located, Watermarks, Welcome

KEY = b"k" * 32
EVERYTHING = Recording([])
INSTANCE, GENERATION = 0xABC, 1
HERE = Origin(INSTANCE, GENERATION)
ANN = b"\0ann1"
BOB = b"\0bob1"
INGEST = b"\0ing1"
MINE = 0  # incarnation of the process
STEP_NS = 1_000_000_000
NOW_S = 1_000.0


class Seen(NamedTuple):
    """One message as a subscriber sees it."""

    publisher: int
    seq: int
    position: int
    topic: str
    time_ns: int
    data: bytes


def _wrong(what: str) -> None:
    raise AssertionError(what)


class World:
    """Everything around one core. checks: of the core, after each step."""

    checks = True
    turn_class: type[Turn[Any, Any]] = Turn

    def __init__(
        self,
        clients_max: int = 100,
        budget: Budget = DEFAULT,
        recording: Recording = EVERYTHING,
        access: Access | None = None,
        vocabulary: Vocabulary = BUILT_IN,
        *,
        replicated: bool = False,
    ) -> None:
        settings = DeliverySettings(
            KEY, clients_max, MINE, recording, access or Access.off(), budget,
            vocabulary=vocabulary, replicated=replicated,
        )  # fmt: skip
        self.core = DeliveryCore(settings)
        self.turn_plan = TurnPlan([], (Read, *get_args(Effect)), read_slice_ms=1 << 40)
        ordered = Ordered(self.core, _wrong)
        performers = ordered.performers(self._performers())
        self.turn = self.turn_class(ordered, self.turn_plan, performers, self._now)
        self.keys: dict[bytes, str] = {}  # of the connections that have one
        self.passed: list[tuple[bytes, bytes, bytes]] = []  # rid, header, body: all that went out
        self.log: list[Batch | Gap] = []
        self.next_position = 1
        self.log_start = 1
        self.persisted = 1
        self.generation = GENERATION
        self.written = 1
        self.time_ns = 0
        self.incarnation = 7
        self.now_ms = 0
        self.wall_ns = int(NOW_S * 1e9)
        self.up = True
        self.asleep = False  # the core is not asked for reads until `pump` is called by the test
        self.published: list[Seen] = []
        self.answers: list[tuple[bytes, Any]] = []
        self.seen: dict[tuple[bytes, str], list[Seen]] = {}
        self.arrived: list[tuple[str, Seen]] = []  # with the sid, in the order of arrival
        self.batches: list[tuple[bytes, str, int]] = []  # rid, sid, body bytes
        self.sent: list[Send] = []  # messages, as they are on the wire
        self.notes: list[Note] = []
        self.failing = 0  # so many reads fail
        self.done: list[Any] = []  # all other effects
        self.reads: list[Read] = []
        self.steps_max = 1 << 30  # items that one read looks at
        self.cache: dict[Hashable, Block] = {}  # who reads the same shares what is made
        self.plans: list[PlanRanges] = []
        self.asked: list[Locate] = []
        self.points: dict[str, int] = {}  # positions, by name
        self.unreachable: set[bytes] = set()
        self.sequences: dict[int, int] = {}

    # -- the log ------------------------------------------------------------------------------

    def publish(
        self,
        *topics: str,
        publisher: int = 1,
        size: int = 10,
        zstd: bool = False,
        skip: int = 0,
        times: list[int] | None = None,
        payloads: list[bytes] | None = None,
        headers: list[dict[str, Any] | None] | None = None,
        origin: tuple[int, int, int] = (0, 0, 0),
    ) -> Batch:
        """One batch with a message per topic given; the first `skip` of them do not count."""
        names = sorted(set(topics))
        count, first = len(topics), self.sequences.get(publisher, 0) + 1
        self.sequences[publisher] = first + count - skip - 1
        self.time_ns += STEP_NS
        data = [b"%d/%d" % (publisher, first + i - skip) for i in range(count)]
        data = payloads or [one.ljust(size, b".") for one in data]
        body = plain = bodies.pack(data)
        if zstd:
            import zstandard

            body = zstandard.compress(plain)
        columns = m.Columns() if len(names) > 1 or times or headers else None
        if columns and len(names) > 1:
            columns.index = array("H", [names.index(topic) for topic in topics]).tobytes()
        if columns and times:
            columns.time = array("q", times).tobytes()
            self.time_ns = times[-1]
        if columns and headers:
            columns.headers = codec.encode(headers)
        batch = Batch(
            KIND_PUBLISH, self.next_position, publisher, 1, first, first - 1, count, self.time_ns,
            names, body, crc32c(body), len(body), skip, int(zstd), *origin, columns,
            offset=len(self.log), header_length=112,
        )  # fmt: skip
        self.log.append(batch)
        for i in range(skip, count):
            at = times[i] if times else self.time_ns
            position = self.next_position + i - skip
            seen = Seen(publisher, first + i - skip, position, topics[i], at, data[i])
            self.published.append(seen)
        self.next_position = batch.end_position
        return batch

    def control(self) -> None:
        """One record that subscribers do not see."""
        batch = Batch(
            KIND_NOOP, self.next_position, 0, 0, 0, 0, 1, self.time_ns, [], b"", 0, 0,
            offset=len(self.log),
        )  # fmt: skip
        self.log.append(batch)
        self.next_position += 1

    def damage(self, count: int) -> None:
        """Positions that cannot be read."""
        self.log.append(Gap(self.next_position, self.next_position + count, "damaged"))
        self.next_position += count

    def persist(self) -> None:
        """Makes everything durable, says so, and lets the core read."""
        self.persisted = self.next_position
        self.say_watermarks()
        self.pump()

    def write(self) -> None:
        """Everything is written, not durable yet; who wants that is informed."""
        self.written = self.next_position
        self.say_watermarks()
        self.pump()

    def say_watermarks(self) -> None:
        self.hear(Watermarks(
            self.incarnation, INSTANCE, self.generation, self.log_start,
            max(self.written, self.persisted), self.persisted, 1, self.time_ns,
        ))  # fmt: skip

    def welcome(self) -> None:
        self.hear(self.greeting())

    def greeting(self) -> Welcome:
        return Welcome(
            self.incarnation, MINE, INSTANCE, self.generation, 0, "disk", self.log_start,
            self.persisted, self.persisted,
        )  # fmt: skip

    def read(self, read: Read) -> Block:
        self.reads.append(read)
        at = read.cursor.offset
        if read.seek:
            ends = [item.end if isinstance(item, Gap) else item.end_position for item in self.log]
            at = next((i for i, end in enumerate(ends) if end > read.cursor.position), len(ends))
        items: list[Item] = []
        size, end = 0, at
        while end < len(self.log) and size < read.max_bytes and end - at < self.steps_max:
            item = self.log[end]
            if _first(item) >= read.limit:
                break
            end += 1
            if read.wants is not None and _unwanted(item, read.wants):
                _skip(items, item)
                continue
            items.append(item)
            size += getattr(item, "body_length", 0) + 112
        key: Hashable = (at, read.wants_key) if read.wants else tuple(map(id, items))
        if not items:
            return Block(self._cursor(at), items, self._cursor(end), size)
        return self.cache.setdefault(key, Block(self._cursor(at), items, self._cursor(end), size))

    def _cursor(self, at: int) -> Cursor:
        return Cursor(1, at, _first(self.log[at]) if at < len(self.log) else self.next_position)

    # -- the journal --------------------------------------------------------------------------

    def locate(self, locate: Locate) -> Located:
        located = Located(locate.cid, log_start=self.log_start, persisted=self.persisted)
        value = locate.value
        if value == EPOCH:
            located.position = self.log_start
        elif value == NOW:
            located.position = self.persisted
        elif is_time(value):
            self._locate_time(located, parse_time(value) + (locate.cut == "behind"))
        elif is_vector(value):
            vector = parse_vector(value)
            located.position = vector.get(HERE, 0) + (locate.cut != "at")
            if HERE not in vector:
                located.code, located.reason = "bookmark_not_found", "not of this log"
            if located.position > self.persisted:
                located.code = "bookmark_pending"
        elif (name := point_name(value)) is not None:
            located.position = self.points.get(name, 0)
            if name not in self.points:
                located.code, located.reason = "unknown_point", f"no point {name!r}"
        else:
            self._locate_bookmark(located, *parse_bookmark(value), locate.cut)
        if not located.code and located.position < self.log_start:
            located.code, located.reason = "bookmark_expired", "too old"
        return located

    def _locate_time(self, located: Located, time_ns: int) -> None:
        durable = [seen for seen in self.published if seen.position < self.persisted]
        found = [seen.position for seen in durable if seen.time_ns >= time_ns]
        located.position = found[0] if found else self.persisted
        located.time_ns = None if found else time_ns

    def _locate_bookmark(self, located: Located, publisher: int, sequence: int, cut: str) -> None:
        for seen in self.published:
            if (seen.publisher, seen.seq) == (publisher, sequence):
                located.position = seen.position + (cut != "at")
        if not located.position:
            known = self.sequences.get(publisher, 0)
            late = known and sequence > known
            located.code = "bookmark_pending" if late else "bookmark_not_found"

    # -- clients ------------------------------------------------------------------------------

    def logon(self, rid: bytes = ANN, heartbeat_s: float | None = None) -> None:
        self.logon_as("ann", "", rid, heartbeat_s)

    def logon_as(
        self, principal: str, key: str, rid: bytes = ANN, heartbeat_s: float | None = None
    ) -> None:
        """With the key of a connection."""
        self.keys[rid] = key
        said = token.Token(principal or "ann", principal, "i", 1, self.wall_ns // 10**9 + 60, key)
        self.send(m.ListenerLogon(token.make(KEY, said), "1", heartbeat_s), rid)

    def send(self, command: m.ClientCommand, rid: bytes = ANN) -> None:
        self.frames([codec.encode(command)], rid)

    def frames(self, frames: list[bytes], rid: bytes = ANN, *, over: bool = False) -> None:
        self.hear(Commands([Received(rid, frames, over, self.keys.get(rid, ""))]))
        if not self.asleep:
            self.pump()

    def subscribe(self, topic: str = "t", sid: str = "s", rid: bytes = ANN, **more: Any) -> None:
        more.setdefault("bookmark", EPOCH)
        self.send(m.Subscribe(sid, topic, f"c-{sid}", **more), rid)

    def pass_on(self, entries: list[Entry], bodies: list[bytes]) -> None:
        """ingest sends what is not recorded."""
        self.hear(LiveReceived(INGEST, Hello("ingest", 5), [], 0))
        size = sum(map(len, bodies))
        self.hear(LiveReceived(INGEST, Live(MINE, entries), bodies, size))
        self.core.check()

    def hear(self, event: Any) -> None:
        """One event, and all that follows from it."""
        self.turn.hear(event)

    def pump(self, turns: int = 10_000) -> None:
        """Lets the core read until it has nothing to do, or so many blocks."""
        self.turn_plan.reads_max = turns
        self.turn.run({})
        if self.checks:
            self.core.check()

    def wake_until(self, end_ms: int) -> None:
        """Time passes up to `end_ms`; the core is woken whenever it wants to be."""
        while self.now_ms < end_ms:
            wake_ms = self.core.next_wake_ms()
            at_ms = end_ms if wake_ms is None else min(end_ms, max(wake_ms, self.now_ms + 1))
            self.pass_time(at_ms - self.now_ms)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.turn_plan.reads_max = 0
        self.turn.run({})
        self.pump()

    def _now(self) -> Now:
        return Now(self.now_ms, self.wall_ns)

    def _performers(self) -> dict[type, Callable[[Any], Any]]:
        kinds = get_args(Effect)
        performers: dict[type, Callable[[Any], Any]] = dict.fromkeys(kinds, self._do)
        return performers | {
            Read: self._read, Send: self._deliver, Say: self.say, PlanRanges: self._plan,
            Note: lambda note: self.notes.append(note),
        }  # fmt: skip

    def _do(self, effect: Effect) -> None:
        self.done.append(effect)

    def _read(self, read: Read) -> BlockRead | ReadFailed:
        if self.fails(read):
            return ReadFailed(read, StorageError("damaged", "EIO"))
        return BlockRead(read, self.read(read))

    def fails(self, _read: Read) -> bool:
        """Whether the disk fails when this is read."""
        failing, self.failing = self.failing, max(0, self.failing - 1)
        return failing > 0

    def say(self, effect: Say) -> Located | None:
        """The journal hears it, and answers if it is up."""
        if not isinstance(effect.message, Locate):
            self._do(effect)
            return None
        self.asked.append(effect.message)
        return self.locate(effect.message) if self.up else None

    def _plan(self, plan: PlanRanges) -> None:
        self.plans.append(plan)

    def _deliver(self, send: Send) -> Gone | None:
        if send.rid in self.unreachable:
            return Gone(send.rid)
        answer = codec.decode(codec.ANSWERS, send.header)
        if isinstance(answer, m.Msg):
            assert send.body is not None
            self.sent.append(send)
            self.batches.append((send.rid, answer.sid, len(send.body)))
            self.passed.append((send.rid, send.header, _plain(answer, send.body)))
            found = expand(answer, send.body)
            self.seen.setdefault((send.rid, answer.sid), []).extend(found)
            self.arrived += [(answer.sid, seen) for seen in found]
        else:
            self.answers.append((send.rid, answer))
        return None

    def last(self) -> Any:
        return self.answers[-1][1]

    def errors(self) -> list[str]:
        return [answer.code for _, answer in self.answers if isinstance(answer, m.Error)]

    def acks(self, kind: str) -> list[m.Ack]:
        found = [answer for _, answer in self.answers if isinstance(answer, m.Ack)]
        return [ack for ack in found if ack.type == kind and ack.sid is not None]

    def got(self, sid: str = "s", rid: bytes = ANN) -> list[Seen]:
        return self.seen.get((rid, sid), [])

    def wanted(self, topic: str = "t", first: int = 1, last: int | None = None) -> list[Seen]:
        """What was published on `topic` at positions `first` to `last` (exclusive)."""
        end = self.persisted if last is None else last
        return [one for one in self.published if one.topic == topic and first <= one.position < end]


def _plain(msg: m.Msg, body: bytes) -> bytes:
    return bytes(bodies.inflate(body, msg.codec, 1 << 30))


W = TypeVar("W", bound=World)


def ready(
    *,
    logon: bool = True,
    recording: Recording = EVERYTHING,
    kind: type[W] = World,  # type: ignore[assignment]
) -> W:
    """A world whose core knows the journal, with one client logged on."""
    world = kind(recording=recording)
    world.welcome()
    if logon:
        world.logon()
    return world


def expand(msg: m.Msg, body: bytes) -> list[Seen]:
    """The messages of one msg command, by docs/reference/wire.md."""
    assert msg.crc == crc32c(body)
    data = bodies.unpack(body, msg.codec, msg.count, 1 << 30)
    columns = msg.columns or m.Columns()
    last = msg.count if msg.take is None else msg.skip + msg.take
    seen = []
    for i in range(msg.skip, last):
        ahead = bodies.offsets(columns.offset)[i] if columns.offset else i - msg.skip
        topic = msg.topic or msg.topics[bodies.indexes(columns.index)[i]]  # type: ignore[index]
        time_ns = bodies.times(columns.time)[i] if columns.time else msg.time_ns
        if i == msg.skip:
            assert time_ns == msg.time_ns
        seen.append(
            Seen(
                msg.publisher, msg.seq + ahead, msg.position and msg.position + ahead, topic,
                time_ns, data[i],
            )
        )  # fmt: skip
    return seen


def _first(item: Batch | Gap) -> int:
    return item.first if isinstance(item, Gap) else item.position


def _unwanted(item: Batch | Gap, wants: Matcher) -> bool:
    if not isinstance(item, Batch) or item.kind != KIND_PUBLISH:
        return False
    return not any(map(wants, item.topics))


def _skip(items: list[Item], item: Batch | Gap) -> None:
    """Like the reader: one item for a run of what is not wanted."""
    assert isinstance(item, Batch)
    sequence = item.sequence + item.end_position - item.position - 1
    run = Skipped(item.position, item.end_position, item.publisher, sequence)
    if items and isinstance(items[-1], Skipped):
        run = run._replace(first=items.pop().first)  # type: ignore[union-attr]
    items.append(run)
