"""The journal process without sockets: the core, turn and log port that ship, on any disk.

A world gives it a net and kills it; a rig calls `hear` and `commit` by itself. Its answers and
watermarks go to two methods; `boundary` is called before and after each effect, with its name.

JournalNode is the one of the world of publishers (world.py). It may die before and after each
effect and at each operation of its disk. A sync ends at once, or some turns later, as when a helper
thread does it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, get_args

from tests.sim.disk import SimCrash
from tests.sim.ports import Mailbox, Ordered, WatermarksPublisher, draw, mortal
from zbroker.clock import Clock
from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Now, Ready, TurnPlan
from zbroker.engine.events import Gone, Synced
from zbroker.engine.turn import Turn
from zbroker.journal import effects as je
from zbroker.journal import events as ev
from zbroker.journal.core import JournalCore, JournalSettings, RetentionSettings
from zbroker.journal.end_note import GroupEnd
from zbroker.journal.fold import LogFold
from zbroker.journal.group_builder import Body
from zbroker.journal.log_port import LogPort, Space
from zbroker.journal.named_records import NamedRecords
from zbroker.journal.sessions import PublisherState, Sessions
from zbroker.journal.startup import core_of
from zbroker.limits import SEGMENT_BYTES
from zbroker.log.disk import Disk
from zbroker.log.format import Batch
from zbroker.log.recovery import Recovered, recover
from zbroker.log.segments import random_salt
from zbroker.log.writer import Writer
from zbroker.wire import codec
from zbroker.wire import internal as m

if TYPE_CHECKING:
    from tests.sim.net import Listener
    from tests.sim.world import World


#: of the world of publishers
INSTANCE = 9
SEGMENT = 16_384
TURN_MS = 2
JOURNAL, WATERMARKS_AT = "ipc-journal", "ipc-marks"
SLOW_SYNCS = 0.2  # the share of syncs that end later
SYNC_MS = (1, 5, 40)
BURST_MAX = 1_000  # messages of one turn, unless a world draws another limit


class SimNote:
    """Where the log ended last, as the memory of a host keeps it."""

    before: GroupEnd | None = None

    def write(self, end: GroupEnd) -> None:
        self.before = end


class Start(NamedTuple):
    """What recovery and writer are given."""

    clock: Clock
    segment_bytes: int = SEGMENT_BYTES
    salt: Callable[[], int] = random_salt
    archive: Disk | None = None
    accept_loss: bool = False
    note: SimNote | None = None


class Inbox(Mailbox):
    """What other processes said: a burst of it is one event."""

    def mix(self, rng: Random) -> None:
        """ZeroMQ reads connections in any order, each of them in its own."""
        queues: dict[bytes, deque[ev.Incoming]] = {}
        for one in self.waiting:
            queues.setdefault(one.rid, deque()).append(one)
        order = [one.rid for one in self.waiting]
        rng.shuffle(order)
        self.waiting = deque(queues[rid].popleft() for rid in order)

    def events(self, ready: Ready, limit: Limit) -> Iterator[ev.Requested]:
        burst = list(super().events(ready, limit))
        if burst:
            yield ev.Requested(burst)


class RigLog(LogPort):
    """held: a sync begins, and ends with `end_sync`. lies: it syncs nothing and says it did.

    space_is: what there is for a group, whatever the disk has.
    """

    held = lies = False
    space_is: ev.Reserved | None = None

    def reserve(self, effect: je.Reserve) -> ev.Reserved:
        return self.space_is or super().reserve(effect)

    def look_for_space(self, effect: je.LookForSpace) -> ev.SpaceFound:
        found = super().look_for_space(effect)
        given = self.space_is
        return found if given is None else ev.SpaceFound(given.accepting, given.state_fits)

    def sync(self, effect: e.Sync) -> Synced | None:
        if self.held:
            return None
        return Synced(effect.position) if self.lies else super().sync(effect)


class Port(Protocol):
    """See LogPort: performers of Reserve, LookForSpace, WriteGroup, Sync and KeepFrom."""

    performers: dict[type, Callable[[Any], Any]]


class SimJournal:
    """Core and turn of one life. port: what performs the steps of a commit."""

    turn_of: type[Turn[Any, Any]] = Turn

    def __init__(self, core: JournalCore, port: Port, clock: Clock) -> None:
        self.core, self.clock = core, clock
        self.plant_core(core)
        self.inbox, self.done = self.inbox_of(), Mailbox()
        self.sent: list[e.Answer] = []  # since it was looked at
        self.published: list[m.Watermarks] = []
        watched = self._watched = Ordered(core, _wrong)
        self.plan = TurnPlan(
            [(self.inbox, Limit(BURST_MAX)), (self.done, Limit(BURST_MAX))], get_args(je.Effect)
        )
        done = {**self.performers(), **port.performers}
        performers = watched.performers(mortal(done, self.boundary, name_of))
        self._turn = self.turn_of(watched, self.plan, performers, self.now)

    # -- what is overridden -------------------------------------------------------------------

    def plant_core(self, core: JournalCore) -> None:
        """A bug, before the first turn."""

    def inbox_of(self) -> Inbox:
        """Where messages arrive."""
        return Inbox()

    def performers(self) -> dict[type, Callable[[Any], Any]]:
        """What is beside the log does nothing here."""
        return {
            **dict.fromkeys(get_args(je.Effect), _nothing),
            je.KeepConflicts: lambda _: ev.ConflictsKept(),
            e.Answer: self.answer,
            je.PublishWatermarks: self.publish_all,
        }

    def answer(self, effect: e.Answer) -> Any:
        """An answer leaves."""
        self.sent.append(effect)

    def publish_all(self, effect: je.PublishWatermarks) -> None:
        """Watermarks leave."""
        self.published.append(effect.message)

    def boundary(self, name: str) -> None:
        """It may die here."""

    # -- turns --------------------------------------------------------------------------------

    def now(self) -> Now:
        return Now(self.clock.mono_ms(), self.clock.wall_ns())

    def hear(self, rid: bytes, message: m.InternalMessage, bodies: Sequence[Body] = ()) -> None:
        """Another process says something."""
        self._turn.hear(ev.Requested([ev.Incoming(rid, message, list(bodies))]))

    def turn(self) -> int | None:
        """One turn: what arrived, then at most one commit."""
        wait_ms = self._turn.run({})
        self._watched.check()
        return wait_ms

    def commit(self) -> list[e.Answer]:
        """Turns until nothing waits for a commit that may begin; what was answered."""
        if self.core.question.open:
            self.turn()
        while self.core.commit.backlog and not self.core.question.open:
            self.turn()
        return self.taken()

    def taken(self) -> list[e.Answer]:
        """What was answered since the last call."""
        sent, self.sent = self.sent, []
        return sent


class CountedFold(LogFold):
    """batches: how many of the log it has read."""

    batches = 0

    def __call__(self, batch: Batch, serial: int) -> None:
        self.batches += 1
        super().__call__(batch, serial)


class JournalProcess(SimJournal):
    """The same over a disk: recovery and writer are the product's own, too."""

    def __init__(
        self, disk: Disk, settings: JournalSettings, start: Start, readers: tuple[str, ...] = ()
    ) -> None:
        disk.lock()
        self.disk, self.clock, self.fold = disk, start.clock, CountedFold(settings.instance)
        self.recovered: Recovered = recover(
            disk, settings.instance, archive=start.archive, accept_loss=start.accept_loss,
            on_batch=self.fold, begin=self.fold.begin, clock=start.clock,
            segment_bytes=start.segment_bytes, salt=start.salt,
        )  # fmt: skip
        self.writer = Writer(
            disk, self.recovered.tail, segment_bytes=start.segment_bytes, clock=start.clock,
            salt=start.salt,
        )  # fmt: skip
        self.plant_fold(self.fold)
        retention = RetentionSettings(readers, settings.staged_max_bytes)
        core = core_of(
            settings,
            retention,
            self.fold,
            self.recovered,
            self.writer,
            start.note and start.note.before,
        )
        self.port = self.port_of()
        self.port.note = start.note  # type: ignore[assignment]
        super().__init__(core, self.port, start.clock)

    def plant_fold(self, fold: LogFold) -> None:
        """A bug, in what recovery found out."""

    def port_of(self) -> RigLog:
        """How the log is written."""
        space = Space(self.writer, Path(), logging.getLogger("zbroker.rig"))
        return RigLog(self.writer, space, self.clock.mono_ms)

    def end_sync(self) -> list[e.Answer]:
        """The sync that was begun ends; what was answered."""
        self._turn.hear(Synced(self.writer.sync()))
        return self.taken()


def name_of(effect: Any) -> str:
    """How a boundary is called."""
    if isinstance(effect, e.Answer):
        return f"send:{effect.message.__struct_config__.tag}"
    return "send:marks" if isinstance(effect, je.PublishWatermarks) else type(effect).__name__


def _nothing(_effect: Any) -> None:
    pass


def _wrong(what: str) -> None:
    raise AssertionError(what)


class WorldLog(RigLog):
    """Space is what the world says; bugs of the writer's order are planted here."""

    node: JournalNode

    def reserve(self, effect: je.Reserve) -> ev.Reserved:
        world = self.node.world
        process = world.rng.choice((2_000, 4_000, 1 << 20))
        return ev.Reserved(not world.disk_nearly_full, True, process)

    def look_for_space(self, effect: je.LookForSpace) -> ev.SpaceFound:
        return ev.SpaceFound(not self.node.world.disk_nearly_full, True)

    def write(self, effect: je.WriteGroup) -> ev.Written:
        if self.node.world.bug != "a unit is split" or len(effect.batches) < 2:
            return super().write(effect)
        half = len(effect.batches) // 2
        self.writer.write(effect.batches[:half], effect.log_time)
        self.writer.write(effect.batches[half:], effect.log_time)
        return ev.Written(self.writer.serial)

    def sync(self, effect: e.Sync) -> Synced | None:
        world = self.node.world
        if world.bug == "ack before sync":
            return Synced(effect.position)
        if world.rng.random() >= SLOW_SYNCS:
            return super().sync(effect)
        world.at.after(world.rng.choice(SYNC_MS), self.node.end_slow_sync)
        return None


class JournalNode(JournalProcess):
    """One life. addresses: where it listens, and publishes watermarks. idle_ms: from a turn to the
    next one if nothing waits."""

    port: WorldLog
    idle_ms = TURN_MS

    def __init__(
        self,
        world: World,
        instance: int = INSTANCE,
        addresses: tuple[str, str] = (JOURNAL, WATERMARKS_AT),
        peers: tuple[str, ...] = (),
        note: SimNote | None = None,
    ) -> None:
        self.world, self.alive = world, True
        self._hangs_until_ms = 0
        settings = JournalSettings(
            instance, next(world.incarnations), credit_bytes=400, peers=peers
        )
        start = Start(world.clock, SEGMENT, world.salt, note=note)
        super().__init__(world.disk, settings, start)
        self.listener = world.net.bind(addresses[0], self._receive)
        self.watermarks = WatermarksPublisher(
            world.net, addresses[1], lambda: self.done.put(ev.Subscribed())
        )
        world.at.after(0, self._next_turn)

    def plant_fold(self, fold: LogFold) -> None:
        bug = self.world.bug
        if bug == "dedupe not rebuilt":
            fold.sessions = Sessions()
        elif bug == "names are not folded":
            fold.sessions.named = NamedRecords()
        elif bug == "no prev check":
            fold.sessions.judge = _judge_without_prev(fold.sessions)  # type: ignore[method-assign]

    def port_of(self) -> WorldLog:
        log = WorldLog(self.writer, None, self.clock.mono_ms)  # type: ignore[arg-type]
        log.node = self
        return log

    def boundary(self, name: str) -> None:
        """A named step of the journal: it may die here, as at every operation of its disk."""
        self.world.disk.visited.add(name)
        self.world.disk.hook(name)

    # -- turns --------------------------------------------------------------------------------

    def hang(self, ms: int) -> None:
        """It takes no turn for so long."""
        self._hangs_until_ms = self.world.at.now_ms + ms

    def _next_turn(self) -> None:
        world = self.world
        if not self.alive:
            return
        if (ms := self._hangs_until_ms - world.at.now_ms) > 0:
            world.at.after(ms, self._next_turn)
            return
        if self._hangs_until_ms:
            self._hangs_until_ms = 0
            self.inbox.mix(world.rng)
        draw(self.plan, world.rng)
        try:
            wait_ms = self.turn()
            if world.rng.random() < 0.3:
                self.writer.prepare_step()
        except SimCrash:
            world.crashed(self)
            return
        idle = wait_ms != 0
        world.at.after(self.idle_ms if idle else world.rng.choice((0, TURN_MS)), self._next_turn)

    def end_slow_sync(self) -> None:
        """In a helper thread."""
        if not self.alive:
            return
        try:
            self.done.put(Synced(self.writer.sync()))
        except SimCrash:
            self.world.crashed(self)

    # -- the net ------------------------------------------------------------------------------

    def _receive(self, rid: bytes, frame: tuple[bytes, list[bytes]]) -> None:
        message = codec.TO_JOURNAL.decode(frame[0])
        if self.world.bug == "no hello" and not isinstance(message, m.Hello):
            message = _as_if_welcomed(self, rid, message)
        self.inbox.put(ev.Incoming(rid, message, list(frame[1])))

    def answer(self, effect: e.Answer) -> Gone | None:
        if self.world.bug == "no answer to strangers" and isinstance(
            effect.message, m.UnknownRequester
        ):
            return None
        return self._send(self.listener, effect.rid, effect.message)

    def publish_all(self, effect: je.PublishWatermarks) -> None:
        for rid in self.watermarks.readers(effect):
            self._send(self.watermarks.listener, rid, effect.message)

    def _send(self, listener: Listener, rid: bytes, message: Any) -> Gone | None:
        if self.world.rng.random() < self.world.receipt_loss and isinstance(
            message, m.JournalReceipt
        ):
            return None  # the design says that a receipt may be lost
        sent = self.world.net.answer(listener, rid, codec.encode(message))
        return None if sent else Gone(rid)

    def die(self) -> None:
        self.alive = False
        self.world.net.die(self.listener)
        self.world.net.die(self.watermarks.listener)


# -- planted bugs -----------------------------------------------------------------------------


def _judge_without_prev(sessions: Sessions) -> Any:
    judge = type(sessions).judge

    def without(entry: m.Entry) -> Any:
        if entry.prev is not None:
            entry.prev = None
        return judge(sessions, entry)

    return without


def _as_if_welcomed(node: JournalNode, rid: bytes, message: Any) -> Any:
    """A journal that does not ask for a hello takes frames of any process."""
    commit = node.core.commit
    if rid not in commit._requesters:
        commit.receive(rid, m.Hello("ingest", 0, []), [])
    if hasattr(message, "incarnation"):
        message.incarnation = commit.settings.incarnation
    if isinstance(message, m.Append):
        for entry in message.entries:
            known = commit.sessions.get(entry.publisher)
            if known is None or known.session < entry.session:
                commit.sessions._publishers.setdefault(
                    entry.publisher, known or PublisherState(entry.publisher, f"?{entry.publisher}")
                ).session = entry.session
    return message
