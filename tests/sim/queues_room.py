"""The queues room of the queues world: its core, manager and readers, moved as its loop moves them.

It may be killed at any step of a turn. What it saves is a copy of the moment, and is there a while
later, as where a thread writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64

from tests.sim.net import Pipe
from tests.sim.queues_journal import JOURNAL, MARKS
from zbroker.blocks.making import Block, Maker
from zbroker.blocks.read import Read
from zbroker.engine.contract import Now
from zbroker.engine.effects import Note, Send
from zbroker.errors import StorageError
from zbroker.filters import Payloads
from zbroker.limits import BEAT_MS
from zbroker.peers import Received
from zbroker.queues import giving
from zbroker.queues.core import Core, Settings
from zbroker.queues.effects import Ask, Effect, Give, LogReading, Tell
from zbroker.queues.finding import Finder, Found
from zbroker.queues.manager import Manager
from zbroker.queues.readings import Matcher, Slice, read_for
from zbroker.queues.running import Running
from zbroker.queues.snapshots import Snapshot, Snapshots
from zbroker.recording import Recording
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire.queueing import Job
from zbroker.wire.units import Named

if TYPE_CHECKING:
    from tests.sim.queues_world import World

QUEUES = "tcp-queues"
KEY = b"k" * 32
WELCOME_WAIT_MS = 200
NOTED_LATE = "what is sent is noted later"
AGAIN_MS = 60  # after a read that failed
CLIENTS_MAX = 100
GIVE_BYTES = 300  # of replayable queues in one turn: messages here are small


class Killed(Exception):
    """The room died at this step."""


class Failing:
    """The log as messages are read from it one by one, which may fail for a while."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self, read: Read) -> Block:
        """Raises: StorageError."""
        if self._world.at.now_ms < self._world.unreadable_until_ms:
            raise StorageError("damaged", "the disk fails")
        return self._world.log.read(read)


class RoomNode:
    """One life of the process. `answers`: to the admin, by the id of the question."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self.incarnation, self._hellos = next(world.incarnations), 0
        recording = Recording([])
        manager = Manager(self.incarnation, world.configs, world.recording())
        settings = Settings(KEY, CLIENTS_MAX, self.incarnation, recording)
        self.core = world.core_of(settings, manager)
        self._matcher = Matcher(recording.type_of, Payloads)
        self._finder = Finder(Failing(world))  # type: ignore[arg-type]
        self._giving: giving.Giving | None = None
        self._inbox: list[Received] = []
        self._asked: list[tuple[bytes, Any]] = []
        self._marks_told: i.Marks | None = None
        self._told: list[Any] = []
        self._welcomed_by = self._holds_ms = self._told_floor = 0
        self._save_ms = self._later_ms = 0
        self._snapshots = Snapshots()
        self._writing: Snapshot | None = None
        self._later: list[Give | LogReading] = []
        self._dealer: Pipe | None = None
        self._marks: Pipe | None = None
        self._hello()
        self._subscribe()
        self.listener = world.net.bind(QUEUES, self._receive)
        self._turn_at(0)

    # -- the journal --------------------------------------------------------------------------

    def _hello(self) -> None:
        if self._dealer is not None:
            self.world.net.close(self._dealer)
        self._told = []
        dealer = Pipe(JOURNAL, lambda frame: self._on_journal(dealer, frame))
        self._dealer = self.world.net.dealer(dealer)
        self._hello_ms, self._welcomed_by = self.world.at.now_ms, 0
        self._hellos += 1
        self._say(i.Hello("queues", self.incarnation, number=self._hellos))

    def _subscribe(self) -> None:
        if self._marks is not None:
            self.world.net.close(self._marks)
        self._marks_told = None
        marks = Pipe(
            MARKS, self._on_marks, on_connected=lambda: self.world.net.send(marks, b"")
        )  # fmt: skip
        self._marks = self.world.net.dealer(marks)

    def _say(self, message: Any, bodies: Any = ()) -> None:
        assert self._dealer is not None
        frame = codec.encode(message), [bytes(body) for body in bodies]
        self.world.net.send(self._dealer, frame)

    def _on_marks(self, frame: bytes) -> None:
        self._marks_told = codec.MARKS.decode(frame)

    def _on_journal(self, dealer: Pipe, frame: bytes) -> None:
        if dealer is self._dealer:
            self._told.append(codec.FROM_JOURNAL.decode(frame))

    def _read_journal(self) -> None:
        now_ms = self.world.at.now_ms
        if not self._welcomed_by and now_ms - self._hello_ms >= WELCOME_WAIT_MS:
            self._hello()
        told, self._told = self._told, []
        for answer in told:
            self._point()
            if isinstance(answer, i.Welcome):
                self._welcome(answer)
            elif isinstance(answer, Named):
                self._named(answer)
            elif isinstance(answer, i.Receipt):
                self.core.receipts(answer)
            elif isinstance(answer, i.Located):
                self.core.located(answer)
        marks, self._marks_told = self._marks_told, None
        if marks is not None:
            if self._welcomed_by not in (0, marks.incarnation):
                self._hello()
            self.core.marks(marks)

    def _welcome(self, welcome: i.Welcome) -> None:
        if welcome.echo != self.incarnation:
            return
        if welcome.incarnation != self._welcomed_by:
            self._subscribe()
            self._finder.forget()
            self._holds_ms = 0
        self._welcomed_by = welcome.incarnation
        self.core.welcomed(welcome)

    def _named(self, named: Named) -> None:
        manager = self.core.manager
        assert manager.here is not None
        if not manager.known:
            noted, self.world.noted = self.world.noted, {}
            if self.world.rng.random() < 0.2:
                noted = {}  # as after a reboot
            saved = self.world.tables_up_to(manager.following.persisted)
            manager.restore(saved, lambda name, life: noted.get((name, life)))
            self._giving = giving.Giving(Maker(manager.here, Job))
        self.core.named(named)

    def _hold(self) -> None:
        floor, now_ms = self.core.manager.floor, self.world.at.now_ms
        if not self._welcomed_by or (floor == self._told_floor and now_ms < self._holds_ms):
            return
        holds = self.core.holds(self.world.wall_ns() // 1_000_000)
        self.world.judge.held(self, holds)
        self._say(holds)
        self._say(i.Confirm(self._welcomed_by, self.core.manager.commits.confirmed))
        self._told_floor, self._holds_ms = floor, now_ms + BEAT_MS // 5

    # -- one turn -----------------------------------------------------------------------------

    def _turn_at(self, delay_ms: int) -> None:
        self.world.at.after(delay_ms, self._turn)

    def _turn(self) -> None:
        if not self.alive:
            return
        if self.world.at.now_ms < self.world.slow_until_ms:
            self._turn_at(self.world.slow_until_ms - self.world.at.now_ms)
            return
        try:
            self._one_turn()
        except Killed:
            self.world.kill_room()
            return
        self._turn_at(self._wait_ms())

    def _wait_ms(self) -> int:
        now_ms, wait_ms = self.world.at.now_ms, self.world.poll_ms
        if self.core.busy or self.core.next_read() is not None:
            return self.world.rng.choice((0, 0, 1, 5))
        wake_ms = self.core.next_wake_ms()
        if wake_ms is not None:
            wait_ms = max(0, min(wait_ms, wake_ms - now_ms))
        return max(1, wait_ms)

    def _one_turn(self) -> None:
        core, now = self.core, self.now
        core.shared.now = now
        self._read_journal()
        self._watch()
        self._hold()
        self._point()
        inbox, self._inbox = self._inbox, []
        for received in inbox:
            self.world.judge.commanded(self, received)
        core.turn(inbox, now)
        asked, self._asked = self._asked, []
        for rid, question in asked:
            self.world.judge.asked(self, question)
            core.managing.ask(rid, question)
        self._follow()
        core.tick(now)
        self._watch()
        self._try_again()
        effects = core.finish()
        self.world.judge.offered(self, effects)
        self._point()
        for one in core.manager.began:
            self.world.noted[one.name, one.definition.life] = one.suspected_to
        core.manager.began.clear()
        self._perform(effects)
        self._point()
        persisted = core.manager.following.persisted
        while (taken := core.manager.commits.take(now.mono_ms, persisted)) is not None:
            self._say(*taken)
        connections = core.shared.connections
        connections.left.clear()
        connections.came.clear()
        self._save()
        if inbox or effects or asked:
            core.check()
        self.world.judge.compare(self)

    @property
    def now(self) -> Now:
        return Now(self.world.at.now_ms, self.world.wall_ns())

    def _point(self) -> None:
        """It may die here."""
        self.world.deaths -= 1
        if self.world.deaths == 0:
            raise Killed

    def _watch(self) -> None:
        """Queues that begin are watched."""
        for one in self.core.manager.running.values():
            self.world.judge.began(self, one)

    def _follow(self) -> None:
        slices = self.world.rng.choice((1, 2, 100))
        while slices and (read := self.core.next_read()) is not None:
            block = self.world.log.read(read)
            if not block.items:
                return
            self._finder.note(block)
            self.core.block(read, block)
            self._watch()  # a definition that was in doubt may have been found
            slices -= 1

    # -- doing --------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._point()
            if isinstance(effect, Give):
                self._give(effect)
            elif isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Ask):
                self._say(effect.message)
            elif isinstance(effect, Tell):
                self.world.admin.told(effect.answer)
            elif isinstance(effect, LogReading):
                self._read_for(effect)
            else:
                assert isinstance(effect, Note)

    def _send(self, send: Send) -> bool:
        if send.body is None:
            self.world.judge.answered(self, send)
        if self.world.net.answer(self.listener, send.rid, (send.header, send.body)):
            return True
        self.core.gone(send.rid)
        return False

    def _find(self, positions: BitMap64) -> Iterator[Found]:
        """Raises: StorageError."""
        return self._finder.find(positions, self.core.manager.following.persisted)

    def _put_off(self, effect: Give | LogReading) -> None:
        if not self._later:
            self._later_ms = self.world.at.now_ms + AGAIN_MS
        self._later.append(effect)

    def _try_again(self) -> None:
        if not self._later or self.world.at.now_ms < self._later_ms:
            return
        later, self._later = self._later, []
        for effect in later:
            if isinstance(effect, Give):
                self.core.give_again(effect)
            else:
                self._read_for(effect)

    def _read_for(self, effect: LogReading) -> None:
        try:
            read_for(self.core, effect, self._find(effect.positions), self._matcher)
        except StorageError:
            self._put_off(effect)

    def _note(self, give: Give) -> None:
        one = self.running(give.to.queue)
        if one is not None:
            key = one.name, one.definition.life
            self.world.noted[key] = max(self.world.noted.get(key, 0), give.positions.max() + 1)

    def _give(self, give: Give) -> None:
        unread = give.positions.copy()
        if self.world.bug != NOTED_LATE:
            self._note(give)
        most = min(give.bytes_max, GIVE_BYTES) if give.acked is not None else give.bytes_max
        part = Slice(self._find(give.positions), give.positions, most)
        try:
            size = self._send_part(give, part, unread)
        except StorageError:
            if not self.core.put_off(give, unread, self.world.at.now_ms + AGAIN_MS):
                self._put_off(give.part(unread))
            return
        if self.world.bug == NOTED_LATE:
            self._note(give)
        if size is not None:
            self.core.given(give, size, unread, part.end)

    def _send_part(self, give: Give, part: Slice, unread: BitMap64) -> int | None:
        """Takes what was sent out of `unread`. Returns: its size; None if the consumer is gone."""
        assert self._giving is not None
        size = 0
        for found in part:
            parts = self._giving.parts(give, found, sees_all=True)
            for send, one in zip(giving.sends(give, parts), parts, strict=True):
                size += one.size
                part.handled(one.size)
                if not self._send(send):
                    self.core.unsent(give, unread)
                    return None
                self.world.judge.sent(self, give, send)
                self._point()
            unread -= found.positions
        return size

    # -- the rest -----------------------------------------------------------------------------

    def _save(self) -> None:
        manager, now_ms = self.core.manager, self.world.at.now_ms
        if now_ms < self._save_ms or not manager.known or self._writing is not None:
            return
        first, self._save_ms = not self._save_ms, now_ms + self.world.rng.choice((100, 400, 2_000))
        if not first:
            self.save(self.world.rng.choice((0, 5, 50)))

    def save(self, delay_ms: int) -> None:
        """The state is copied now, and stands in the tables later: after what is being written."""
        self._written()
        self._writing = self._snapshots.take(self.core.manager)
        if delay_ms:
            self.world.at.after(delay_ms, self._written)
        else:
            self._written()

    def _written(self) -> None:
        if self.alive and self._writing is not None:
            self.world.write_tables(self._writing)
            self._writing = None

    def _receive(self, rid: bytes, frame: bytes) -> None:
        self._inbox.append(Received(rid, [frame]))

    def ask(self, question: Any) -> None:
        """The admin asks."""
        self._asked.append((b"admin", question))

    def running(self, name: str) -> Running | None:
        return self.core.manager.running.get(name)

    def die(self) -> None:
        self.alive = False
        self.world.net.die(self.listener)
        for pipe in (self._dealer, self._marks):
            if pipe is not None:
                self.world.net.close(pipe)


__all__ = ["KEY", "QUEUES", "Core", "Killed", "RoomNode"]
