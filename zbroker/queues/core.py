"""The queues process decides here: logons, consumers, acks, leases, what is committed. Pure.

    handle(event)   commands, answers of the journal, blocks of the log, readings, questions
    tick            time, and all that the events of a turn led to: offers, units, reports

Nothing is true of a queue before it is in the log and was read there: see queue.py. Nearly all
effects leave with `tick`, in the order in which they were decided: the more a turn brings, the
fewer units, blocks and wake-ups there are for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from zbroker.access.core import Access
from zbroker.blocks.read_request import BlockRead, Read
from zbroker.engine import events as e
from zbroker.engine.contract import Now
from zbroker.engine.effects import Note, NoteDisconnected, Send, Tell
from zbroker.engine.later import Later
from zbroker.errors import ClientError
from zbroker.heartbeats import QuietMs
from zbroker.queues import effects as qe
from zbroker.queues import reports
from zbroker.queues.admin_commands import AdminCommands
from zbroker.queues.consumer_registry import ConsumerRegistry
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.dead_letters import DeadLetters
from zbroker.queues.dispatch import Dispatcher
from zbroker.queues.effects import Effect, Give, LogReading, TrackDeliveries
from zbroker.queues.journal_client import JournalClient
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.settlement import Settlement
from zbroker.queues.snapshots import SaveSchedule
from zbroker.queues.work.queue import Queue
from zbroker.recording import Recording
from zbroker.server.budgets import DEFAULT, Budget
from zbroker.server.peers import Received, admit, check_key, decode, welcome
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.disconnects import NONE, Disconnects
from zbroker.wire.internal import JournalReceipt, Located, Watermarks, Welcome
from zbroker.wire.queue_surveys import QueuesQuestion
from zbroker.wire.surveys import (
    CODES,
    DISCONNECTED,
    AskClients,
    AskRefusals,
    Disconnect,
    Disconnected,
    Peers,
    RefusalLog,
    stranger,
    told_as,
)
from zbroker.wire.units import NamedRows

TICK_MS: Final = 250  # of the patience with the journal
AGAIN_MS: Final = 1_000  # until a reading that failed is tried again
_HEARTBEAT: Final = codec.encode(m.Heartbeat())


class QueuesSettings(NamedTuple):
    """key: of the instance's tokens. clients_max: logged-on connections."""

    key: bytes
    clients_max: int
    incarnation: int
    recording: Recording = Recording([])
    access: Access = Access.off()
    budget: Budget = DEFAULT
    disconnects: Disconnects = NONE


class QueuesCore:
    """See zbroker.engine.contract.Core."""

    def __init__(
        self, settings: QueuesSettings, manager: QueueRegistry, quiet_ms: QuietMs | None = None,
        peers: Peers = lambda _rid: ("", None),
    ) -> None:  # fmt: skip
        """quiet_ms: see DoorHeartbeats. peers: the address of a connection, and since when."""
        self.manager = manager
        self.refusals = RefusalLog(settings.incarnation)
        self.shared = QueuesContext(manager, settings.access, quiet_ms, settings.budget)
        self.shared.connections.disconnects = settings.disconnects
        self.journal = JournalClient(self.shared, settings.incarnation)
        self.consumers = ConsumerRegistry(self.shared)
        self._dead_letters = DeadLetters(self.shared)
        self._dispatcher = Dispatcher(self.shared, self.consumers)
        self._admin = AdminCommands(self.shared, self.consumers, settings.recording)
        self._settlement = Settlement(self.shared, self.consumers)
        self._settings, self._peers = settings, peers
        self._next_tick_ms = 0
        self._wakes_ms: dict[str, int] = {}  # when a queue has something to do by itself
        self._later: Later[Give | LogReading] = Later()  # what could not be read
        self._saves = SaveSchedule(manager)
        manager.changed, manager.locate = self.shared.touch, self.shared.locate
        self._commands: dict[type, Callable[[QueuesConnection, Any], None]] = {
            q.Consume: self.consumers.consume,
            q.Cancel: self.consumers.cancel,
            q.Settle: self._settlement.settle,
            q.Release: self._settlement.settle,
            q.RejectMessages: self._settlement.settle,
            q.Extend: self._settlement.settle,
            q.Browse: self._admin.browse,
            m.Flow: self.consumers.flow,
            m.Heartbeat: lambda _connection, _command: None,
            m.Logoff: self._logoff,
        }
        self._handlers = self._events()

    def _events(self) -> dict[type, Callable[[Any], Sequence[Effect] | None]]:
        shared, journal, manager = self.shared, self.journal, self.manager
        return {
            e.Commands: self._burst,
            e.Asked: self._asked,
            e.Gone: lambda event: self._gone(event.rid),
            e.ReadFailed: self._read_failed,
            e.RulesChanged: lambda event: self._entitle(event.access),
            e.Unauthenticated: lambda event: self.refusals.add(
                b"", stranger(event.key), "connect", "auth_failed", event.host
            ),
            e.StopAsked: lambda _: self._saves.stop(),
            BlockRead: lambda event: manager.folding.read(event.read.key, event.block),
            Watermarks: journal.watermarks,
            Welcome: journal.welcome,
            NamedRows: journal.named,
            JournalReceipt: lambda event: manager.commits.receipts(event, shared.now.mono_ms),
            Located: shared.located,
            qe.TablesLoaded: journal.loaded,
            qe.Segments: journal.segments,
            qe.TablesSaved: self._saves.saved,
            qe.Given: self._dispatcher.given,
            qe.Unsent: self._unsent,
            qe.Examined: shared.answered,
            qe.Searched: shared.answered,
            qe.Reentered: shared.answered,
            qe.Inspected: shared.answered,
        }

    def handle(self, event: object, now: Now) -> Sequence[Effect]:
        """What follows at once; most follows with `tick`. Raises: StorageError, ConfigError."""
        self.shared.now = now
        return self._handlers[type(event)](event) or ()

    # -- commands -----------------------------------------------------------------------------

    def _burst(self, commands: e.Commands) -> None:
        for received in commands.received:
            self._command(received, self.shared.now)

    def _command(self, received: Received, now: Now) -> None:
        rid = received.rid
        command: q.QueuesCommand | None = None
        try:
            command = decode(codec.QUEUES, received)
            if isinstance(command, m.ListenerLogon):
                self._logon(received, command, now)
                return
            connection = self.shared.connections.get(rid)
            if connection is None:
                raise ClientError("not_logged_on", "this connection has no logon on this listener")
            check_key(connection, received.key)
            self.shared.connections.heard(connection, command, now.mono_ms)
            self._commands[type(command)](connection, command)
        except ClientError as error:
            if error.code in CODES:
                self._note(rid, told_as(command), error.code, stranger(received.key))
            self.shared.refuse(rid, error, _cid_of(command, received), _sid_of(command, error))

    def _note(self, rid: bytes, what: str, code: str, peer: str = "") -> None:
        """For the audit log. peer: the name of a connection without a logon."""
        known = self.shared.connections.get(rid)
        self.refusals.add(rid, known.token.principal if known else peer, what, code)

    def _logon(self, received: Received, command: m.ListenerLogon, now: Now) -> None:
        rid, connections = received.rid, self.shared.connections
        token = connections.token_of(
            command, received, self._settings.key, self.shared.access, now.wall_ns / 1e9
        )
        self._gone(rid)
        if len(connections) >= self._settings.clients_max:
            raise ClientError("too_many", f"{len(connections)} clients are connected here")
        connection = connections.logon(rid, token, command.heartbeat_s, now.mono_ms)
        answer = welcome(connection, command.cid)
        answer.origin = self.manager.here
        self.shared.send(rid, answer)

    def _logoff(self, connection: QueuesConnection, command: m.Logoff) -> None:
        for consumer in list(connection.consumers.values()):
            self.consumers.leave(consumer)
        self.shared.connections.leave(connection.rid)
        self.shared.send(connection.rid, m.Ack("processed", command.cid))

    def _entitle(self, access: Access) -> None:
        """The rules have changed: ends the sessions and consumers that lost their rights."""
        self.shared.access = access
        for connection in list(self.shared.connections.values()):
            try:
                admit(access, connection.token, connection.token.key)
            except ClientError as error:
                self._note(connection.rid, "stay logged on", error.code)
                self._gone(connection.rid)
                self.shared.refuse(connection.rid, error)
                continue
            for consumer in list(connection.consumers.values()):
                try:
                    self.consumers.check_right(connection, consumer.queue)
                except ClientError as error:
                    self._note(connection.rid, f"keep consuming {consumer.queue}", error.code)
                    self.consumers.end(consumer, error)

    def _asked(self, asked: e.Asked) -> Sequence[Effect]:
        """A question of the admin: of the queues, or one that every listener is asked."""
        rid, ask = asked.rid, asked.question
        if isinstance(ask, QueuesQuestion):
            self._admin.ask(rid, ask)
            return ()
        if isinstance(ask, AskClients):
            return [Tell(rid, reports.clients(self.shared, ask, self._peers))]
        if isinstance(ask, AskRefusals):
            return [Tell(rid, self.refusals.told(ask, self._peers))]
        return self._disconnect(rid, ask)

    def _disconnect(self, rid: bytes, ask: Disconnect) -> Sequence[Effect]:
        many = self.shared.connections.disconnect(ask.client, ask.number)
        for one in many:
            self._gone(one)
            hint = "ask whoever operates this broker"
            self.shared.refuse(one, ClientError("session_ended", DISCONNECTED, hint))
        told = Tell(rid, Disconnected(ask.cid, len(many)))
        return [NoteDisconnected(ask.client, len(many)), told] if many else [told]

    # -- reading ------------------------------------------------------------------------------

    def next_read(self) -> Read | None:
        """The part of the log that is to be folded next."""
        return self.manager.following.next_read()

    def _unsent(self, unsent: qe.Unsent) -> None:
        self._gone(unsent.rid)
        self._dispatcher.unsent(unsent.give, unsent.positions)

    def _read_failed(self, failed: e.ReadFailed) -> None:
        """The disk fails, or an archive is away: the reading is tried again."""
        of = failed.of
        if isinstance(of, Read):
            raise failed.error  # the next start reads the log again
        until_ms = self.shared.now.mono_ms + AGAIN_MS
        if isinstance(of, Give) and self._dispatcher.put_off(of, until_ms):
            return
        if not self._later:
            text = f"{failed.error}; it is tried again"
            self.shared.out.append(
                Note("queues.read_failed", text, "error", {"reason": str(failed.error)})
            )
        self._later.put(of, until_ms)

    # -- peers and time -----------------------------------------------------------------------

    def _gone(self, rid: bytes) -> None:
        """A peer cannot be reached any more; it may come back for what it holds."""
        connection = self.shared.connections.get(rid)
        if connection is None:
            return
        for consumer in list(connection.consumers.values()):
            self.consumers.leave(consumer, lost=True)
        self.shared.connections.leave(rid)

    def tick(self, now: Now, *, drained: bool) -> Sequence[Effect]:
        """All that is to be done now. drained: this turn has read all that clients sent."""
        self.shared.now = now
        effects: list[Effect] = [*self.journal.tick(now.mono_ms)]
        self._look_at_times(now, drained)
        for what in self._later.due(now.mono_ms):
            if isinstance(what, Give):
                self._dispatcher.again(what)
            else:
                self.shared.out.append(what)
        effects += self._decided()
        effects += self.shared.connections.moved()
        effects += self.journal.commits(now)
        effects += self.journal.follow(now.mono_ms)
        effects += self.journal.report(now)  # after the queues have decided what they hold
        effects += self.journal.start()
        effects += self._saves.tick(now.mono_ms)
        return effects

    def _look_at_times(self, now: Now, drained: bool) -> None:
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

    def _look_when(self, one: QueueState) -> None:
        """When a queue has something to do by itself. Asked for only after changes: it costs."""
        wake_ms = one.queue.next_wake(self.shared.now) if one.ready else None
        if wake_ms is not None and one.name in self.manager.running:
            self._wakes_ms[one.name] = wake_ms
        else:
            self._wakes_ms.pop(one.name, None)

    def _beat(self, now_ms: int, drained: bool) -> None:
        silent, due = self.shared.connections.beats(now_ms, drained=drained)
        self.shared.out += [Send(rid, _HEARTBEAT) for rid in due]
        for rid in silent:
            self._gone(rid)
            self.shared.refuse(
                rid, ClientError("not_logged_on", "nothing was heard for two heartbeats")
            )

    def _decided(self) -> list[Effect]:
        """Offers of what changed, units of what was decided."""
        shared, manager = self.shared, self.manager
        if manager.ended or manager.overtaken:
            self.consumers.end_with_queues()
        shared.go_on_committing()
        dirty, shared.dirty = shared.dirty, {}
        for one in dirty.values():
            self._dispatcher.dispatch(one)
            manager.commit(one)
            if one.entries and isinstance(one.queue, Queue):
                self._dead_letters.begin(one)
                if one.entries and manager.commits.full:
                    shared.held_back[one.name] = one
            self._look_when(one)
            shared.note_use(one)
        # after what the queues have to do
        search = self.consumers.starts.next_search()
        if search is None and not (shared.out or manager.notes or manager.began):
            return []
        begun = [
            TrackDeliveries(one.name, one.definition.life, one.suspected_to)
            for one in manager.began
        ]
        out, shared.out = [*begun, *manager.notes, *shared.out, *([search] if search else ())], []
        manager.began.clear()
        manager.notes.clear()
        return out

    def next_wake_ms(self) -> int | None:
        """When the next tick has something to do; 0: now."""
        if self._busy:
            return 0
        wakes = [
            self.journal.next_wake_ms(), self._later.next_wake_ms, self.manager.commits.wake_ms(),
            *self._wakes_ms.values(),
        ]  # fmt: skip
        if self.shared.connections:
            wakes.append(self.shared.connections.heartbeats.due_ms)
        if self.shared.lookups:
            wakes.append(self._next_tick_ms)
        known = [wake for wake in wakes if wake is not None]
        return min(known) if known else None

    @property
    def _busy(self) -> bool:
        shared = self.shared
        busy = self.consumers.starts.busy or self.manager.commits.due
        return bool(shared.dirty or shared.out or busy)

    def stats(self) -> dict[str, int | float | str]:
        """What the process reports."""
        return reports.numbers(self.shared)

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


def _cid_of(command: q.QueuesCommand | None, received: Received) -> str | None:
    """The cid that a refusal carries, also of a command that could not be decoded."""
    if command is None:
        return codec.cid_of(received.frames[0]) if received.frames else None
    return None if isinstance(command, m.Flow | m.Heartbeat) else command.cid


def _sid_of(command: q.QueuesCommand | None, error: ClientError) -> str | None:
    """An error with a sid ends it: so not where it is in use, nor for what is about messages."""
    if error.code == "sid_in_use":
        return None
    return command.sid if isinstance(command, q.Consume | q.Cancel | m.Flow) else None
