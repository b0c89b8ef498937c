"""The journal process of the world of publishers: the one that ships, on a simulated net and disk.

It may die before and after each effect and at each operation of its disk. A sync ends at once, or
some turns later, as when a helper thread does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.disk import SimCrash
from tests.sim.journal_process import JournalProcess, RigLog, Start
from tests.sim.ports import WatermarksPublisher, draw
from zbroker.engine import effects as e
from zbroker.engine.events import Gone, Synced
from zbroker.journal import effects as je
from zbroker.journal import events as ev
from zbroker.journal.core import JournalSettings
from zbroker.journal.fold import LogFold
from zbroker.journal.named_records import NamedRecords
from zbroker.journal.sessions import PublisherState, Sessions
from zbroker.wire import codec
from zbroker.wire import internal as i

if TYPE_CHECKING:
    from tests.sim.net import Listener
    from tests.sim.world import World

INSTANCE = 9
SEGMENT = 16_384
TURN_MS = 2
JOURNAL, MARKS = "ipc-journal", "ipc-marks"
SLOW_SYNCS = 0.2  # the share of syncs that end later
SYNC_MS = (1, 5, 40)


class WorldLog(RigLog):
    """Space is what the world says; bugs of the writer's order are planted here."""

    node: JournalNode

    def reserve(self, effect: je.Reserve) -> ev.Reserved:
        world = self.node.world
        room = world.rng.choice((2_000, 4_000, 1 << 20))
        return ev.Reserved(not world.disk_nearly_full, True, room)

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
    """One life."""

    port: WorldLog

    def __init__(self, world: World) -> None:
        self.world, self.alive = world, True
        settings = JournalSettings(INSTANCE, next(world.incarnations), credit_bytes=400)
        super().__init__(world.disk, settings, Start(world.clock, SEGMENT, world.salt))
        self.listener = world.net.bind(JOURNAL, self._receive)
        self.marks = WatermarksPublisher(world.net, MARKS, lambda: self.done.put(ev.Subscribed()))
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

    def _next_turn(self) -> None:
        world = self.world
        if not self.alive:
            return
        draw(self.plan, world.rng)
        try:
            wait_ms = self.turn()
            if world.rng.random() < 0.3:
                self.writer.prepare_step()
        except SimCrash:
            world.crashed(self)
            return
        world.at.after(world.rng.choice((0, TURN_MS)) if wait_ms == 0 else TURN_MS, self._next_turn)

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
        if self.world.bug == "no hello" and not isinstance(message, i.Hello):
            message = _as_if_welcomed(self, rid, message)
        self.inbox.put(ev.Incoming(rid, message, list(frame[1])))

    def answer(self, effect: e.Answer) -> Gone | None:
        return self._send(self.listener, effect.rid, effect.message)

    def publish_all(self, effect: je.PublishWatermarks) -> None:
        for rid in self.marks.readers(effect):
            self._send(self.marks.listener, rid, effect.message)

    def _send(self, listener: Listener, rid: bytes, message: Any) -> Gone | None:
        if self.world.rng.random() < self.world.receipt_loss and isinstance(
            message, i.JournalReceipt
        ):
            return None  # the design says that a receipt may be lost
        sent = self.world.net.answer(listener, rid, codec.encode(message))
        return None if sent else Gone(rid)

    def die(self) -> None:
        self.alive = False
        self.world.net.die(self.listener)
        self.world.net.die(self.marks.listener)


# -- planted bugs -----------------------------------------------------------------------------


def _judge_without_prev(sessions: Sessions) -> Any:
    judge = type(sessions).judge

    def without(entry: i.Entry) -> Any:
        if entry.prev is not None:
            entry.prev = None
        return judge(sessions, entry)

    return without


def _as_if_welcomed(node: JournalNode, rid: bytes, message: Any) -> Any:
    """A journal that does not ask for a hello takes frames of any process."""
    commit = node.core.commit
    if rid not in commit._requesters:
        commit.receive(rid, i.Hello("ingest", 0, []), [])
    if hasattr(message, "incarnation"):
        message.incarnation = commit.settings.incarnation
    if isinstance(message, i.Append):
        for entry in message.entries:
            known = commit.sessions.get(entry.publisher)
            if known is None or known.session < entry.session:
                commit.sessions._publishers.setdefault(
                    entry.publisher, known or PublisherState(entry.publisher, f"?{entry.publisher}")
                ).session = entry.session
    return message
