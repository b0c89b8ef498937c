"""What the queues room decides: logons, consumers, acks, leases, what is committed. Pure.

    turn(commands)           frames of clients     -> answers, offers, units
    marks, welcomed, named   the journal's word    -> queues begin, readings
    block                    what was read         -> the fold of every queue
    receipts                 what landed           -> settled
    given, looked, searched  readings of messages  -> what was waiting for them
    tick                     time                  -> leases end, delays are over, heartbeats
    finish                   the end of a turn     -> offers, units

Nothing is true of a queue before it stands in the log and was read there: see queue.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pyroaring import BitMap64

from zbroker.access.core import Access
from zbroker.blocks.making import Block
from zbroker.blocks.read import Read
from zbroker.budgets import DEFAULT, Budget
from zbroker.engine.contract import Now
from zbroker.engine.effects import Send
from zbroker.errors import ClientError, StorageError
from zbroker.heartbeats import QuietMs
from zbroker.ids import Origin
from zbroker.journal.reader import Extent
from zbroker.peers import Received, admit, check_key, decode, welcome
from zbroker.queues import surveying
from zbroker.queues.burying import Burying
from zbroker.queues.clients import Connection
from zbroker.queues.commands import cid_of, sid_of
from zbroker.queues.consuming import Consuming
from zbroker.queues.effects import Ask, Effect, Give, Looked
from zbroker.queues.handing import Handing
from zbroker.queues.log_holds import LogHolds
from zbroker.queues.manager import Manager
from zbroker.queues.managing import Managing
from zbroker.queues.running import Running
from zbroker.queues.settling import Settling
from zbroker.queues.shared import Shared
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Entered
from zbroker.recording import Recording
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import queueing as q
from zbroker.wire.internal import Holds, Located, Marks, Receipt, Welcome
from zbroker.wire.queue_surveys import DoorQuestion
from zbroker.wire.refused import CODES, Refusals, stranger, told_as
from zbroker.wire.surveys import (
    DISCONNECTED,
    Answer,
    AskClients,
    AskRefusals,
    Disconnected,
    Peers,
)
from zbroker.wire.units import AskNamed, Named

TICK_MS: Final = 250  # of the patience with the journal
_HEARTBEAT: Final = codec.encode(m.Heartbeat())


class Settings(NamedTuple):
    """key: of the instance's tokens. clients_max: logged-on connections."""

    key: bytes
    clients_max: int
    incarnation: int
    recording: Recording = Recording([])
    access: Access = Access.off()
    budget: Budget = DEFAULT


class Core:
    """The pure part of the queues room."""

    def __init__(
        self, settings: Settings, manager: Manager, quiet_ms: QuietMs | None = None
    ) -> None:
        """quiet_ms: see DoorHeartbeats."""
        self.manager = manager
        self.refusals = Refusals(settings.incarnation)
        self.shared = Shared(manager, settings.access, quiet_ms, settings.budget)
        self.consuming = Consuming(self.shared)
        self.burying = Burying(self.shared)
        self._handing = Handing(self.shared, self.consuming)
        self.managing = Managing(self.shared, self.consuming, settings.recording)
        self._settling = Settling(self.shared, self.consuming)
        self._settings = settings
        self._journal = self._next_tick_ms = 0  # the incarnation that welcomed us; when to tick
        self._wakes_ms: dict[str, int] = {}  # when a queue has something to do by itself
        self._log_holds = LogHolds(self.shared)
        manager.changed, manager.locate = self.shared.touch, self.shared.locate
        self._handlers: dict[type, Callable[[Connection, Any], None]] = {
            q.Consume: self.consuming.consume,
            q.Cancel: self.consuming.cancel,
            q.Settle: self._settling.settle,
            q.Release: self._settling.settle,
            q.Reject: self._settling.settle,
            q.Extend: self._settling.settle,
            q.Browse: self.managing.browse,
            m.Flow: self.consuming.flow,
            m.Heartbeat: lambda _connection, _command: None,
            m.Logoff: self._logoff,
        }

    @property
    def connections(self) -> dict[bytes, Connection]:
        """By routing id."""
        return self.shared.connections

    # -- commands -----------------------------------------------------------------------------

    def turn(self, commands: Sequence[Received], now: Now) -> None:
        """Everything that clients sent since the last turn."""
        self.shared.now = now
        for received in commands:
            self._one(received, now)

    def _one(self, received: Received, now: Now) -> None:
        rid = received.rid
        command: q.QueuesCommand | None = None
        try:
            command = decode(codec.QUEUES, received)
            if isinstance(command, m.DoorLogon):
                self._logon(received, command, now)
                return
            connection = self.shared.connections.get(rid)
            if connection is None:
                raise ClientError("not_logged_on", "this connection has no logon on this door")
            check_key(connection, received.key)
            self.shared.connections.heard(connection, command, now.mono_ms)
            self._handlers[type(command)](connection, command)
        except ClientError as error:
            if error.code in CODES:
                self._note(rid, told_as(command), error.code, stranger(received.key))
            self._refuse(rid, error, cid_of(command, received), sid_of(command, error))

    def _note(self, rid: bytes, what: str, code: str, who: str = "") -> None:
        """For the audit log. who: as long as nobody is logged on."""
        known = self.shared.connections.get(rid)
        self.refusals.add(rid, known.token.principal if known else who, what, code)

    def _refuse(
        self, rid: bytes, error: ClientError, cid: str | None = None, sid: str | None = None
    ) -> None:
        self.shared.errors += 1
        answer = m.Error(error.code, error.reason, error.hint, cid, sid)
        self.shared.out.append(Send(rid, codec.encode(answer)))

    def _logon(self, received: Received, command: m.DoorLogon, now: Now) -> None:
        rid, connections = received.rid, self.shared.connections
        token = connections.token_of(
            command, received, self._settings.key, self.shared.access, now.wall_ns / 1e9
        )
        self.gone(rid)
        if len(connections) >= self._settings.clients_max:
            raise ClientError("too_many", f"{len(connections)} clients are connected here")
        connection = connections.logon(rid, token, command.heartbeat_s, now.mono_ms)
        answer = welcome(connection, command.cid)
        answer.origin = self.manager.here
        self.shared.out.append(Send(rid, codec.encode(answer)))

    def _logoff(self, connection: Connection, command: m.Logoff) -> None:
        for consumer in list(connection.consumers.values()):
            self.consuming.leave(consumer)
        self.shared.connections.leave(connection.rid)
        answer = m.Ack("processed", command.cid)
        self.shared.out.append(Send(connection.rid, codec.encode(answer)))

    def entitle(self, access: Access) -> None:
        """The rules have changed: who may not be here any more is told and forgotten."""
        self.shared.access = access
        for connection in list(self.shared.connections.values()):
            try:
                admit(access, connection.token, connection.token.key)
            except ClientError as error:
                self._note(connection.rid, "stay logged on", error.code)
                self.gone(connection.rid)
                self._refuse(connection.rid, error)
                continue
            for consumer in list(connection.consumers.values()):
                try:
                    self.consuming.check_right(connection, consumer.queue)
                except ClientError as error:
                    self._note(connection.rid, f"keep consuming {consumer.queue}", error.code)
                    self.consuming.end(consumer, error)

    # -- the journal --------------------------------------------------------------------------

    def marks(self, marks: Marks) -> None:
        """How far the log is durable."""
        if marks.incarnation != self._journal:
            if self._journal:
                self.manager.commits.lost()
            self._journal = 0
            return
        self._heard(Origin(marks.instance, marks.generation), marks.floor, marks.persisted)

    def welcomed(self, welcome: Welcome) -> None:
        """A journal that has not been asked yet. Raises: StorageError, if it lost what we know."""
        manager = self.manager
        self._heard(Origin(welcome.instance, welcome.generation), welcome.floor, welcome.persisted)
        if welcome.persisted < manager.following.persisted:
            raise StorageError(
                "damaged", "the log ends before what the queues have read; they are read again"
            )
        if welcome.incarnation == self._journal:
            return
        self._journal = welcome.incarnation
        manager.welcomed(welcome.incarnation, welcome.persisted)
        self.shared.ask_again()
        self.shared.out.append(Ask(AskNamed(0, welcome.incarnation)))

    def _heard(self, here: Origin, floor: int, persisted: int) -> None:
        manager = self.manager
        if manager.here not in (None, here):
            text = f"the log is that of generation {here.generation} now; the queues are read again"
            raise StorageError("damaged", text)
        manager.here = here
        manager.raised(floor)
        manager.following.persisted = max(manager.following.persisted, persisted)

    def named(self, named: Named) -> None:
        """What is defined. Raises: ConfigError."""
        self.manager.named(named)

    def located(self, located: Located) -> None:
        """The journal's answer to one look-up."""
        self.shared.located(located)

    def receipts(self, receipt: Receipt) -> None:
        """What landed."""
        self.manager.commits.receipts(receipt, self.shared.now.mono_ms)

    def holds(self, wall_ms: int) -> Holds:
        """Which part of the log the queues need."""
        return self._log_holds.stated(self._journal, wall_ms)

    def release(self, log: Sequence[Extent]) -> None:
        """Queues that hold more of the log than they may let go. log: segments, oldest first."""
        self._log_holds.release(log)

    def told(self, ask: DoorQuestion, peers: Peers) -> Answer:
        """What the admin asks all doors. peers: who is at which address."""
        if isinstance(ask, AskClients):
            return surveying.clients(self.shared, ask, peers)
        if isinstance(ask, AskRefusals):
            return self.refusals.told(ask, peers)
        rids = self.shared.connections.disconnect(ask.client, ask.number)
        for rid in rids:
            self.gone(rid)
            hint = "ask whoever operates this broker"
            self._refuse(rid, ClientError("session_ended", DISCONNECTED, hint))
        return Disconnected(ask.cid, len(rids))

    # -- reading ------------------------------------------------------------------------------

    def next_read(self) -> Read | None:
        """What of the log is to be folded next."""
        return self.manager.following.next_read()

    def block(self, read: Read, block: Block) -> None:
        """What was read for a walk."""
        self.manager.read(read.key, block)

    def given(self, give: Give, size: int, unread: BitMap64, end: int) -> None:
        """A Give was done, up to position `end`. unread: what was not sent of it."""
        self._handing.given(give, size, unread, end)

    def unsent(self, give: Give, positions: BitMap64) -> None:
        """Its consumer is gone: these messages, from the first that failed on, were not sent."""
        self._handing.unsent(give, positions)

    def put_off(self, give: Give, positions: BitMap64, until_ms: int) -> bool:
        """These could not be read: True if they come again by themselves."""
        return self._handing.put_off(give, positions, until_ms)

    def give_again(self, give: Give) -> None:
        """What could not be read a while ago; its consumer may not have it any more."""
        self._handing.again(give)

    def examined(self, job: int, matching: BitMap64, end: int) -> None:
        """An Examine was done. end: behind what was examined."""
        self.shared.examined(job, matching, end)

    def searched(self, job: int, hit: int | None, end: int) -> None:
        """A Search was done. hit: the first message that matches; end: behind what was examined."""
        self.shared.searches.searched(job, hit, end)

    def reentered(self, job: int, entered: list[Entered]) -> None:
        """A Reenter was done."""
        self.shared.reentered(job, entered)

    def looked(self, job: int, rows: list[Looked], end: int) -> None:
        """A Look was done. end: behind what was read."""
        self.shared.looked(job, rows, end)

    # -- peers and time -----------------------------------------------------------------------

    def gone(self, rid: bytes) -> None:
        """A peer cannot be reached any more; it may come back for what it holds."""
        connection = self.shared.connections.get(rid)
        if connection is None:
            return
        for consumer in list(connection.consumers.values()):
            self.consuming.leave(consumer, lost=True)
        self.shared.connections.leave(rid)

    def tick(self, now: Now, *, drained: bool = True) -> None:
        """Times that have come. drained: this turn has everything that waited at the door."""
        self.shared.now = now
        self._beat(now.mono_ms, drained)
        if now.mono_ms >= self._next_tick_ms:
            self._next_tick_ms = now.mono_ms + TICK_MS
            self.shared.give_up()
            self.shared.go_on()
            for one in [self.manager.running.get(name) for name in self._wakes_ms]:
                if one is not None:  # the clock of delays may have jumped
                    self._look_when(one)
        for name, wake_ms in list(self._wakes_ms.items()):
            if wake_ms > now.mono_ms:
                continue
            del self._wakes_ms[name]
            ending = self.manager.running.get(name)
            if ending is not None:
                ending.entries += [(outcome, None) for outcome in ending.queue.tick(now)]
                self.shared.touch(ending)

    def _look_when(self, one: Running) -> None:
        """When a queue has something to do by itself. Asked for only behind changes: it costs."""
        wake_ms = one.queue.next_wake(self.shared.now) if one.ready else None
        if wake_ms is not None and one.name in self.manager.running:
            self._wakes_ms[one.name] = wake_ms
        else:
            self._wakes_ms.pop(one.name, None)

    def _beat(self, now_ms: int, drained: bool) -> None:
        silent, due = self.shared.connections.beats(now_ms, drained=drained)
        self.shared.out += [Send(rid, _HEARTBEAT) for rid in due]
        for rid in silent:
            self.gone(rid)
            self._refuse(rid, ClientError("not_logged_on", "nothing was heard for two heartbeats"))

    def finish(self) -> list[Effect]:
        """Offers of what changed, units of what was decided; all that is to be done now."""
        shared, manager = self.shared, self.manager
        if manager.ended or manager.overtaken:
            self.consuming.end_with_queues()
        shared.go_on_committing()
        dirty, shared.dirty = shared.dirty, {}
        for one in dirty.values():
            self._handing.hand_out(one)
            manager.commit(one)
            if one.entries and isinstance(one.queue, Queue):
                self.burying.begin(one)
                if one.entries and manager.commits.full:
                    shared.held_back[one.name] = one
            self._look_when(one)
            shared.note_use(one)
        # behind what the queues have to do
        search = shared.searches.next() if shared.searches.busy else None
        out, shared.out = [*manager.notes, *shared.out, *([search] if search else ())], []
        manager.notes.clear()
        return out

    def next_wake_ms(self) -> int | None:
        """When the next tick has something to do."""
        wakes: list[int] = []
        heartbeats = self.shared.connections.heartbeats
        if self.shared.connections and heartbeats.due_ms is not None:
            wakes.append(heartbeats.due_ms)
        if self.shared.asking:
            wakes.append(self._next_tick_ms)
        commits_ms = self.manager.commits.wake_ms()
        if commits_ms is not None:
            wakes.append(commits_ms)
        wakes += self._wakes_ms.values()
        return min(wakes, default=None)

    @property
    def busy(self) -> bool:
        """True if something is to be done before sleeping."""
        return bool(self.shared.dirty or self.shared.out or self.shared.searches.busy)

    def check(self) -> None:
        """Asserts what is always true."""
        for one in self.manager.running.values():
            one.queue.check()
        held = {
            consumer.key
            for connection in self.shared.connections.values()
            for consumer in connection.consumers.values()
        }
        assert held == set(self.shared.consumers)
