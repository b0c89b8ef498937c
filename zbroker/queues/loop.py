"""The queues process: work queues and replayable queues over the log.

Purpose   folds the log into the state of every queue, gives messages to consumers under leases,
          commits what becomes of them, makes dead letters, sets points; answers the admin about all
          of it. Nothing is given before it is durable, and no ack is answered before it is.
Sockets   ROUTER tcp for consumers ([listen] queues), monitor and ZAP; SUB ipc marks; DEALER ipc
          journal; ROUTER ipc queues-desk for questions of the admin.
Owns      <data>/queues: LMDB tables with the state of the queues, which may be deleted; a note in
          /dev/shm of how far each was delivered, likewise.
Settings  [listen] queues; [[queue]]; [limits] clients; [[record]]; [security].
Exits     0 when told to stop; 74 when the journal lost what was read of it: the next start reads it
          again; 78 when a [[queue]] table cannot follow from what the log knows of that queue.
Weakness  one thread for all queues. Without its tables a start reads the log from the oldest
          message that a queue may need.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import zmq
from pyroaring import BitMap64

from zbroker import desk, disconnects_file, sockets
from zbroker.blocks.making import Maker
from zbroker.blocks.reading import Reading
from zbroker.budgets import budget_of
from zbroker.engine.contract import Now
from zbroker.engine.effects import Note, Send
from zbroker.errors import StorageError
from zbroker.filters import Payloads
from zbroker.front import Front
from zbroker.journal_link import Events, JournalLink
from zbroker.limits import BEAT_MS, FRAME_SLACK_BYTES, HEADER_MAX_BYTES
from zbroker.peers import Received
from zbroker.process import EX_OK, Process
from zbroker.queues import giving, surveying
from zbroker.queues.core import Core, Settings
from zbroker.queues.delivered import Delivered
from zbroker.queues.effects import Ask, Effect, Give, LogReading, Tell
from zbroker.queues.finding import Finder, Found
from zbroker.queues.manager import Manager
from zbroker.queues.readings import Matcher, Slice, read_for
from zbroker.queues.saving import Saving
from zbroker.queues.work.values import MS_NS
from zbroker.recording import Recording
from zbroker.wire import queue_surveys as s
from zbroker.wire import surveys
from zbroker.wire.internal import Confirm, Hello, Located, Marks, Receipt, Welcome
from zbroker.wire.queueing import Job
from zbroker.wire.units import Named

BURST_MAX: Final = 256  # commands of one turn
READ_SLICE_MS: Final = 5  # how long a turn follows the log; bounds how long commands wait
AGAIN_MS: Final = 1_000  # until what could not be read is tried again
LET_GO_MS: Final = 30_000  # how long a file that was removed or moved may be kept open


def run(process: Process) -> int:
    """Serves consumers until told to stop."""
    room = QueuesRoom(process)
    try:
        room.start()
        while not process.stopping:
            room.turn()
        room.save()
    finally:
        room.close()
    return EX_OK


class QueuesRoom:
    """Moves frames between clients, core, journal and log."""

    def __init__(self, process: Process) -> None:
        self._process = process
        key, config = process.paths.token_key.read_bytes(), process.config
        recording = Recording(config.record, nothing=config.records_nothing)
        self._front = Front(process, frame_bytes=HEADER_MAX_BYTES + FRAME_SLACK_BYTES, sndhwm=0)
        self._door = self._front.door
        self._matcher = Matcher(recording.type_of, Payloads)
        manager = Manager(process.incarnation, config.queue, recording)
        settings = Settings(
            key, config.limits.clients, process.incarnation, recording, self._front.access,
            budget_of(config.limits),
        )  # fmt: skip
        self.core = Core(settings, manager, self._door.wires.quiet_ms)
        self._router = self._door.router
        self._poller = zmq.Poller()
        self._door.register(self._poller)
        for readable in (self._router, process.link):
            self._poller.register(readable, zmq.POLLIN)
        hello = Hello(process.room, process.incarnation)
        self._journal = JournalLink(process.context, process.paths, hello, self._poller)
        self._desk = desk.Desk(
            process.context, process.paths.ipc("queues-desk"), s.TO_QUEUES_DESK, self._poller,
            process.log,
        )  # fmt: skip
        self.core.shared.connections.disconnects = disconnects_file.read(process.paths.disconnects)
        self._reading = Reading(process.paths.journal, process.paths.archive)
        self._finder = Finder(self._reading)
        self._saving = Saving(process, Path(process.paths.queues))
        self._delivered: Delivered | None = None
        self._giving: giving.Giving | None = None
        self._incarnation = 0
        self._zero_ns = process.clock.wall_ns() - process.clock.mono_ms() * MS_NS
        self._later: list[Give | LogReading] = []  # what could not be read
        self._later_ms = 0
        self._stats_ms = self._holds_ms = self._let_go_ms = self._told_floor = 0

    def start(self) -> None:
        """Reads what is defined and folds the log, then is ready."""
        endpoint = self._front.open()
        while not self._process.stopping and not self._started():
            self._process.progress(self._progress())
            self.turn()
        self._process.ready(endpoint)

    def _started(self) -> bool:
        manager = self.core.manager
        return manager.known and all(one.ready for one in manager.running.values())

    def _progress(self) -> str:
        following = self.core.manager.following
        return f"reading the log: {following.behind} positions left" if following.behind else ""

    # -- one turn -----------------------------------------------------------------------------

    def turn(self) -> None:
        """Waits for something, then handles what came and does what is due."""
        events = dict(self._poller.poll(self._wait_ms()))
        now = self._now()
        self.core.shared.now = now
        self._read_journal(events, now)
        self._hold(now)
        self._front.turn(events, now.mono_ms, self.core.refusals)
        access = self._front.look(now.mono_ms)
        if access is not None:
            self.core.entitle(access)
        drained = True
        if self._router in events:
            commands = self._commands()
            drained = len(commands) < BURST_MAX
            self.core.turn(commands, now)
        if self._desk.router in events:
            self._answer_desk(now)
        self._follow()
        self.core.tick(now, drained=drained)
        self._try_again(now)
        effects = self.core.finish()
        self._note_begun()
        self._perform(effects)
        self._commit(now)
        self._mind_the_door()
        self._saving.turn(self.core.manager, now.mono_ms)
        if now.mono_ms >= self._stats_ms:
            self._stats_ms = now.mono_ms + BEAT_MS
            self._process.stats = self._stats()
        if self._process.link in events or not self._process.wait_ms():
            self._process.turn()

    def _now(self) -> Now:
        clock = self._process.clock
        return Now(clock.mono_ms(), clock.wall_ns(), self._zero_ns)

    def _wait_ms(self) -> int:
        if self.core.busy or self.core.next_read() is not None:
            return 0
        now_ms = self._process.clock.mono_ms()
        wait_ms = self._process.wait_ms()
        wake_ms = self.core.next_wake_ms()
        if wake_ms is not None:
            wait_ms = max(0, min(wait_ms, wake_ms - now_ms))
        return self._front.wait_ms(wait_ms, now_ms)

    def _mind_the_door(self) -> None:
        """Says who is logged on: others may not stay. Who left first may be back."""
        connections = self.core.shared.connections
        for rid in connections.left:
            self._door.forget(rid)
        for rid in connections.came:
            if rid in connections:
                self._door.logged_on(rid)
        connections.left.clear()
        connections.came.clear()

    # -- the journal --------------------------------------------------------------------------

    def _read_journal(self, events: Events, now: Now) -> None:
        self._journal.tick(now.mono_ms)
        for said in self._journal.heard(events, now.mono_ms):
            if isinstance(said, Marks):
                self.core.marks(said)
            elif isinstance(said, Welcome):
                self._met(said)
                self.core.welcomed(said)
            elif isinstance(said, Named):
                self._named(said)
            elif isinstance(said, Receipt):
                self.core.receipts(said)
            elif isinstance(said, Located):
                self.core.located(said)

    def _met(self, welcome: Welcome) -> None:
        """A new journal may have set bytes aside: what was read is forgotten."""
        if welcome.incarnation != self._incarnation:
            self._incarnation, self._holds_ms = welcome.incarnation, 0
            self._reading.reset()
            self._finder.forget()

    def _named(self, named: Named) -> None:
        manager = self.core.manager
        assert manager.here is not None, "a Welcome came before"
        if not manager.known:
            self._delivered = Delivered(manager.here, self._process.paths.queues / "sent.id")
            if self._delivered.failed:
                text = "queues.no_note: %s; after a kill more may be flagged as redelivered"
                self._process.log.warning(text, self._delivered.failed)
            saved = self._saving.load(manager.here, manager.following.persisted)
            manager.restore(saved, self._delivered.before)
            self._giving = giving.Giving(Maker(manager.here, Job))
        self.core.named(named)
        self._holds_ms = 0

    def _hold(self, now: Now) -> None:
        """Tells the journal what is needed: on each beat, and at once when the floor moves."""
        floor, welcomed_by = self.core.manager.floor, self._journal.welcomed_by
        known = welcomed_by and self.core.manager.known  # before that it holds all, by its silence
        if not known or (floor == self._told_floor and now.mono_ms < self._holds_ms):
            return
        self._journal.say(self.core.holds(now.wall_ns // 1_000_000))
        self._journal.say(Confirm(welcomed_by, self.core.manager.commits.confirmed))
        if floor != self._told_floor or now.mono_ms >= self._let_go_ms:
            self._let_go_ms = now.mono_ms + LET_GO_MS
            self._reading.let_go()
        self.core.release(self._reading.extents)
        self._told_floor, self._holds_ms = floor, now.mono_ms + BEAT_MS

    def _commit(self, now: Now) -> None:
        persisted = self.core.manager.following.persisted
        while (taken := self.core.manager.commits.take(now.mono_ms, persisted)) is not None:
            self._journal.say(*taken)

    # -- receiving ----------------------------------------------------------------------------

    def _commands(self) -> list[Received]:
        commands: list[Received] = []
        while len(commands) < BURST_MAX:
            found = self._door.receive()
            if found is None:
                break
            rid, frames, over, key, _ = found
            commands.append(Received(rid, [frame.buffer for frame in frames], over, key))
        return commands

    def _answer_desk(self, now: Now) -> None:
        for rid, ask in self._desk.asked():
            if isinstance(ask, s.QueuesQuestion):
                self.core.managing.ask(rid, ask)
                continue
            answer = self.core.told(ask, self._door.peer)
            if isinstance(ask, surveys.Disconnect) and isinstance(answer, surveys.Disconnected):
                self._desk.note_disconnected(ask.client, answer.count)
            self._desk.tell(rid, answer)

    def _follow(self) -> None:
        """Folds the log for a slice of time: what comes in meanwhile waits no longer."""
        begun_ms = self._process.clock.mono_ms()
        while (read := self.core.next_read()) is not None:
            block = self._reading.read(read)
            if not block.items:
                return
            self._finder.note(block)
            self.core.block(read, block)
            if self._process.clock.mono_ms() - begun_ms >= READ_SLICE_MS:
                return

    # -- doing --------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Give:
                self._give(effect)
            elif isinstance(effect, LogReading):
                self._read_for(effect)
            elif type(effect) is Send:
                self._send(effect)
            elif isinstance(effect, Ask):
                self._journal.say(effect.message)
            elif isinstance(effect, Tell):
                self._desk.tell(effect.rid, effect.answer)
            elif isinstance(effect, Note):
                self._process.log.warning("%s: %s", effect.name, effect.text)

    def _send(self, send: Send) -> bool:
        """False when the peer is gone."""
        if sockets.send_to(self._router, send.rid, send.header, send.body):
            return True
        self.core.gone(send.rid)
        return False

    def _find(self, positions: BitMap64) -> Iterator[Found]:
        """What can be read of messages; the rest is damaged or gone. Raises: StorageError."""
        return self._finder.find(positions, self.core.manager.following.persisted)

    def _put_off(self, effect: Give | LogReading, error: StorageError) -> None:
        """The disk fails, or an archive is away: it is tried again, nothing is given up."""
        if not self._later:
            self._later_ms = self._process.clock.mono_ms() + AGAIN_MS
            self._process.log.error("queues.read_failed: %s; it is tried again", error)
        self._later.append(effect)

    def _try_again(self, now: Now) -> None:
        if not self._later or now.mono_ms < self._later_ms:
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
        except StorageError as error:
            self._put_off(effect, error)

    def _note_begun(self) -> None:
        manager = self.core.manager
        for one in manager.began:
            assert self._delivered is not None, "queues begin when the journal was heard of"
            self._delivered.begin(one.name, one.definition.life, one.suspected_to)
        manager.began.clear()

    def _give(self, give: Give) -> None:
        unread = give.positions.copy()
        one = self.core.manager.running.get(give.to.queue)
        if one is not None and self._delivered is not None:
            self._delivered.sending(one.name, one.definition.life, give.positions.max())
        part = Slice(self._find(give.positions), give.positions, give.bytes_max)
        try:
            size = self._send_part(give, part, unread)
        except StorageError as error:
            until_ms = self._process.clock.mono_ms() + AGAIN_MS
            if not self.core.put_off(give, unread, until_ms):
                self._put_off(give.part(unread), error)
            return
        if size is not None:
            self.core.given(give, size, unread, part.end)

    def _send_part(self, give: Give, part: Slice, unread: BitMap64) -> int | None:
        """Sends what can be read; bytes of credit, None if the consumer is gone. Takes what was
        sent out of `unread`. Raises: StorageError."""
        assert self._giving is not None
        size, sees_all = 0, not self.core.shared.access.on
        for found in part:
            parts = self._giving.parts(give, found, sees_all=sees_all)
            for send, one in zip(giving.sends(give, parts), parts, strict=True):
                size += one.size
                part.handled(one.size)
                if not self._send(send):
                    self.core.unsent(give, unread)
                    return None
            unread -= found.positions
        return size

    # -- telling ------------------------------------------------------------------------------

    def _stats(self) -> dict[str, int | float | str]:
        return {**surveying.numbers(self.core.shared), **self._front.stats()}

    def save(self) -> None:
        """Saves the state, so that the next start is fast."""
        self._saving.save(self.core.manager)

    def close(self) -> None:
        """Ends the helper thread and closes the tables."""
        self._saving.close()
        if self._delivered is not None:
            self._delivered.close()
