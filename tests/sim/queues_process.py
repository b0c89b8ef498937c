"""The queues process of the queues world: the core, Turn and performers that ship, simulated ports.

It may be killed at any step of a turn. What it saves is a copy of the moment, and is there a while
later, as where a thread writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from tests.sim.ports import JournalLink, Killed, Listener, Mailbox, Ordered, draw, mortal
from tests.sim.queues_bugs import TURNS
from tests.sim.queues_journal import JOURNAL, WATERMARKS_AT
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import Read
from zbroker.engine.contract import Limit, Now, TurnPlan
from zbroker.engine.effects import Exit, Follow, Reconnect, Say, Send, Tell
from zbroker.engine.events import Asked, Commands, StopAsked
from zbroker.engine.turn import Turn
from zbroker.errors import StorageError
from zbroker.queues import snapshots
from zbroker.queues.core import QueuesCore
from zbroker.queues.effects import (
    Effect,
    Give,
    Load,
    PublishFull,
    SaveTables,
    TablesLoaded,
    TablesSaved,
    TrackDeliveries,
)
from zbroker.queues.log_work import LogWork
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry
from zbroker.recording import Recording
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire.internal import Holds

if TYPE_CHECKING:
    from tests.sim.queues_world import World

QUEUES = "tcp-queues"
KEY = b"k" * 32
NOTED_LATE = "what is sent is noted later"
CLIENTS_MAX = 100
SAVES_MS = (100, 400, 2_000, 5_000)  # until the next save: rare ones are old when they are read


class Log:
    """The log as it is read: message by message (key 0) that may fail for a while."""

    extents = ()

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self, read: Read) -> Block:
        if not read.key and self._world.at.now_ms < self._world.unreadable_until_ms:
            raise StorageError("damaged", "the disk fails")
        return self._world.log.read(read)

    def reset(self) -> None:
        pass

    def let_go(self) -> None:
        pass


class Watched(Ordered):
    """The core, and the judge who hears what it hears and sees what it decides."""

    def __init__(self, process: ProcessNode) -> None:
        super().__init__(process.core, lambda wrong: process.world.judge.demand(False, wrong))
        self._process, self._judge = process, process.world.judge

    def handle(self, event: Any, now: Now) -> Any:
        if isinstance(event, Commands):
            for received in event.received:
                self._judge.commanded(self._process, received)
        elif isinstance(event, Asked):
            self._judge.asked(self._process, event.question)
        effects = super().handle(event, now)
        self._process.watch()
        return effects

    def tick(self, now: Now, *, drained: bool) -> Any:
        effects = super().tick(now, drained=drained)
        self._judge.offered(self._process, effects)
        return effects


class ProcessNode:
    """The process from one start to its end."""

    def __init__(self, world: World) -> None:
        self.world, self.alive = world, True
        self.incarnation = next(world.incarnations)
        recording = Recording([])
        manager = QueueRegistry(self.incarnation, world.configs, world.recording())
        settings = ListenerSettings(KEY, CLIENTS_MAX, self.incarnation, recording)
        self.core: QueuesCore = world.core_of(settings, manager)
        self.journal = JournalLink(world.net, JOURNAL, WATERMARKS_AT)
        self.clients, self.admin = Listener(world.net, QUEUES), Mailbox()
        self._work = LogWork(
            Log(world), self._sent, recording.type_of, self._sending, sees_all=True
        )
        self._given: Give | None = None  # what is being sent
        self._done = False
        watched = Watched(self)
        performers = watched.performers(mortal(self._performers(), self._point))
        sources = [(each, Limit(1)) for each in (self.journal, self.clients, self.admin)]
        self._plan = TurnPlan(sources, get_args(Effect), read_slice_ms=1_000)
        turn = TURNS.get(world.bug, Turn)
        self._turn = turn(watched, self._plan, performers, lambda: self.now)
        self._turn_at(0)

    def _performers(self) -> dict[type, Any]:
        performers: dict[type, Any] = dict.fromkeys(get_args(Effect), lambda effect: None)
        performers |= self._work.performers
        performers |= {
            Give: self._give, Send: self._send, Say: self._say, Load: self._load,
            Tell: lambda effect: self.world.admin.reported(effect.answer),
            TrackDeliveries: self._track, SaveTables: self._save, Exit: self._exit,
            PublishFull: lambda effect: self.world.ingest_hears(effect.message),
            Reconnect: self.journal.reconnect,
            Follow: self.journal.follow,
        }  # fmt: skip
        return performers

    # -- one turn -----------------------------------------------------------------------------

    def _turn_at(self, delay_ms: int) -> None:
        self.world.at.after(delay_ms, self._next_turn)

    def _next_turn(self) -> None:
        world = self.world
        if not self.alive:
            return
        if world.at.now_ms < world.slow_until_ms:
            self._turn_at(world.slow_until_ms - world.at.now_ms)
            return
        draw(self._plan, world.rng)
        snapshots.SAVE_MS = world.rng.choice(SAVES_MS)  # type: ignore[misc]
        try:
            wait_ms = self._turn.run({})
        except Killed:
            world.kill_process()
            return
        self.core.check()
        world.judge.compare(self)
        if self._done:
            world.end_process()
            return
        if wait_ms == 0:
            self._turn_at(world.rng.choice((0, 0, 1, 5)))
        else:
            self._turn_at(world.poll_ms if wait_ms is None else min(wait_ms, world.poll_ms))

    @property
    def now(self) -> Now:
        return Now(self.world.at.now_ms, self.world.wall_ns())

    def _point(self, _boundary: str = "") -> None:
        """It may die here."""
        self.world.deaths -= 1
        if self.world.deaths == 0:
            raise Killed

    def watch(self) -> None:
        """Queues that begin are watched."""
        for one in self.core.manager.running.values():
            self.world.judge.began(self, one)

    # -- performers ---------------------------------------------------------------------------

    def _say(self, effect: Say) -> None:
        if isinstance(effect.message, Holds):
            self.world.judge.held(self, effect.message)
        self.journal.say(effect)

    def _send(self, effect: Send) -> Any:
        self.world.judge.answered(self, effect)
        return self.clients.send(effect)

    def _give(self, give: Give) -> Any:
        done = self._work.give(give)
        if self.world.bug == NOTED_LATE:
            self._note(give)
        return done

    def _sending(self, give: Give) -> None:
        self._given = give
        if self.world.bug != NOTED_LATE:
            self._note(give)

    def _note(self, give: Give) -> None:
        key = give.to.queue, give.declaration
        self.world.noted[key] = max(self.world.noted.get(key, 0), give.positions.max() + 1)

    def _sent(self, send: Send) -> bool:
        """A part of what is being given."""
        assert self._given is not None
        if not self.clients.sent(send):
            return False
        self.world.judge.sent(self, self._given, send)
        self._point()
        return True

    def _track(self, effect: TrackDeliveries) -> None:
        self.world.noted[effect.queue, effect.declaration] = effect.position

    def _load(self, effect: Load) -> TablesLoaded:
        self._work.begin(effect.announced, effect.persisted)
        noted, self.world.noted = self.world.noted, {}
        if self.world.rng.random() < 0.2:
            noted = {}  # as after a reboot
        saved = self.world.tables_up_to(effect.persisted)
        return TablesLoaded(saved, lambda name, declaration: noted.get((name, declaration)))

    def _save(self, effect: SaveTables) -> None:
        """A thread writes it, or cannot, and says so a while later."""
        rng = self.world.rng
        error = "the disk is full" if rng.random() < 0.05 else ""

        def written() -> None:
            if self.alive:
                if not error:
                    self.world.write_tables(effect.taken)
                self.admin.put(TablesSaved(error))

        self.world.at.after(rng.choice((0, 5, 50)), written)

    # -- the rest -----------------------------------------------------------------------------

    def _exit(self, _effect: Exit) -> None:
        self._done = True

    def stop(self) -> None:
        """The supervisor asks it to end."""
        self.admin.put(StopAsked())

    def ask(self, question: Any) -> None:
        """The admin asks."""
        self.admin.put(Asked(b"admin", question))

    def running(self, name: str) -> QueueState | None:
        return self.core.manager.running.get(name)

    def die(self) -> None:
        self.alive = False
        self.clients.close()
        self.journal.close()


__all__ = ["KEY", "QUEUES", "ProcessNode"]
