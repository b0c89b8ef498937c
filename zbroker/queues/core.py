"""The queues process decides here: logons, consumers, acks, leases, what is committed. Pure.

    handle(event)   commands, answers of the journal, blocks of the log, readings, questions
    tick            time, and all that the events of a turn led to: offers, units, reports

Nothing is true of a queue before it is in the log and was read there: see queue.py. Nearly all
effects leave with `tick`, in the order in which they were decided: the more a turn brings, the
fewer units, blocks and wake-ups there are for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from zbroker.blocks.read_request import BlockRead, Read
from zbroker.config.queue_links import QueueLinks
from zbroker.engine import events as e
from zbroker.engine.contract import Now
from zbroker.engine.effects import Note, Send, Tell
from zbroker.engine.later import Later
from zbroker.errors import ClientError
from zbroker.heartbeats import QuietMs
from zbroker.ids import Origin
from zbroker.limits import SESSION_TIMEOUT_MAX_MS
from zbroker.queues import effects as qe
from zbroker.queues import reports
from zbroker.queues.acquire_commands import AcquireCommands
from zbroker.queues.admin_answers import OperatorAnswers
from zbroker.queues.admin_commands import AdminCommands
from zbroker.queues.branch_commands import BranchCommands
from zbroker.queues.branch_operators import OperatorBranches
from zbroker.queues.client_definitions import ClientDefinitions
from zbroker.queues.consumer_registry import ConsumerRegistry
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.dead_letters import DeadLetters
from zbroker.queues.definition_changes import DefinitionChanges
from zbroker.queues.definition_commands import DefinitionCommands
from zbroker.queues.dispatch import Dispatcher
from zbroker.queues.effects import Effect, Give, LogReading, TrackDeliveries
from zbroker.queues.exchange_changes import ExchangeChanges
from zbroker.queues.exchange_commands import ExchangeCommands
from zbroker.queues.exchange_lists import ExchangeLists
from zbroker.queues.exchange_operators import OperatorExchanges
from zbroker.queues.exclusive_queues import ExclusiveQueues
from zbroker.queues.full_queue_tracker import FullQueueTracker
from zbroker.queues.hand_over import HandOver
from zbroker.queues.journal_client import JournalClient
from zbroker.queues.kept_holdings import KeptHoldings
from zbroker.queues.offer_fence import OfferFence
from zbroker.queues.owner_moves import OwnerMoves
from zbroker.queues.owner_requests import OwnerRequests
from zbroker.queues.point_commands import PointCommands
from zbroker.queues.purges import Purges
from zbroker.queues.queue_ends import QueueEnds
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.queues.session_moves import SessionMoves
from zbroker.queues.session_operators import OperatorSessions
from zbroker.queues.session_timeouts import SessionTimeouts
from zbroker.queues.settlement import Settlement
from zbroker.queues.snapshots import SaveSchedule
from zbroker.queues.transaction_commands import TransactionCommands
from zbroker.queues.work.length_limit import give_up, is_limited
from zbroker.queues.work.queue import Queue
from zbroker.server.token_listener import ListenerSettings, TokenListener
from zbroker.wire import branch_surveys as b
from zbroker.wire import codec
from zbroker.wire import consumer_credit as v
from zbroker.wire import exchange_lists as w
from zbroker.wire import exchange_surveys as x
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire import session_surveys as y
from zbroker.wire.branches import (
    BranchesFound,
    DecideBranch,
    ListBranches,
    PrepareTransaction,
)
from zbroker.wire.exchange_messages import ExchangeRows
from zbroker.wire.internal import JournalReceipt, Located, UnknownRequester, Watermarks, Welcome
from zbroker.wire.owner_requests import HandOverRequest, LiveSources, PeersRead, TransferRequest
from zbroker.wire.replicas import Replicated
from zbroker.wire.surveys import AskClients, Peers
from zbroker.wire.transactions import (
    AttachSession,
    CommitTransaction,
    DetachSession,
    SessionFound,
    SessionList,
)
from zbroker.wire.units import NamedRows

TICK_MS: Final = 250  # of the patience with the journal
AGAIN_MS: Final = 1_000  # until a reading that failed is tried again
NO_LINKS: Final = QueueLinks()


class QueuesCore(TokenListener[QueuesConnection]):
    """See zbroker.engine.contract.Core."""

    decoder = codec.QUEUES
    sid_ends = q.Consume, q.Cancel, v.ConsumerFlow

    def __init__(
        self, settings: ListenerSettings, manager: QueueRegistry, quiet_ms: QuietMs | None = None,
        peers: Peers = lambda _rid: ("", None), *, links: QueueLinks = NO_LINKS,
        session_timeout_max_ms: int = SESSION_TIMEOUT_MAX_MS,
    ) -> None:  # fmt: skip
        """quiet_ms: see ListenerHeartbeats. peers: the address of a connection, and since when.
        links: of the instance, to others and from them."""
        self.manager = manager
        self.shared = QueuesContext(manager, quiet_ms, settings.budget, sync=links.sync)
        super().__init__(settings, self.shared.connections, peers)
        self.journal = JournalClient(self.shared, settings.incarnation)
        self._exclusive = ExclusiveQueues(self.shared)
        self.consumers = ConsumerRegistry(self.shared, self._exclusive)
        self._dead_letters = DeadLetters(self.shared)
        self._dispatcher = Dispatcher(self.shared, self.consumers)
        self._moves = OwnerMoves(self.shared, on=links.replicates)
        self._requests = OwnerRequests(self.shared, on=links.replicates)
        self._fence = OfferFence(self.shared, on=links.replicates)
        self._hand_over = HandOver(self.shared, self._moves, self.consumers)
        self._scopes = ScopeChanges(self.shared)
        answers = OperatorAnswers(self.shared)
        changes = DefinitionChanges(self.shared, settings.recording, links, self._scopes)
        purges = Purges(self.shared)
        self._admin = AdminCommands(self.shared, self.consumers, answers, purges, self._scopes)
        definitions = DefinitionCommands(self.shared, answers, changes, self._scopes)
        self._admin.handlers |= {
            s.Define: definitions.define,
            s.TakeOver: self._moves.take_over,
            s.DrainQueues: self._hand_over.ask,
            **PointCommands(self.shared, answers, purges, on=links.replicates).handlers,
        }
        self._ends = QueueEnds(self.shared, changes, self._exclusive)
        self._definitions = ClientDefinitions(
            self.shared, changes, purges, self._scopes, self._exclusive
        )
        self._settlement = Settlement(self.shared, self.consumers, self._scopes)
        self._session_moves = SessionMoves(self.shared, on=links.replicates)
        self._transactions = TransactionCommands(
            self.shared, self._scopes, self._session_moves, session_timeout_max_ms
        )
        self._branches = BranchCommands(self.shared, self._scopes)
        self._timeouts = SessionTimeouts(self.shared, lambda: self.journal.session.welcomed_by)
        self._holdings = KeptHoldings(self.shared)
        self._full = FullQueueTracker(self.shared)
        self._next_tick_ms = 0
        self._wakes_ms: dict[str, int] = {}  # when a queue has something to do by itself
        self._later: Later[Give | LogReading] = Later()  # what could not be read
        self._saves = SaveSchedule(manager)
        manager.changed, manager.locate = self.shared.touch, self.shared.locate
        manager.wall_ns = lambda: self.shared.now.wall_ns
        self.commands |= self._client_commands() | self._credit_commands()
        self._add_exchanges(answers, ExchangeChanges(self.shared, settings.recording))
        self._add_transactions(answers)
        self._handlers = self._events()

    def _client_commands(self) -> dict[type, Callable[[QueuesConnection, Any], Any]]:
        """What clients say of queues, their messages, and transactions."""
        return {
            q.Consume: self.consumers.consume,
            q.Cancel: self.consumers.cancel,
            q.Settle: self._settlement.settle,
            q.Release: self._settlement.settle,
            q.RejectMessages: self._settlement.settle,
            q.Extend: self._settlement.settle,
            q.Browse: self._admin.browse,
            q.DeclareQueue: self._definitions.declare,
            q.DeleteQueue: self._definitions.delete,
            q.PurgeQueue: self._definitions.purge,
            AttachSession: self._transactions.attach,
            CommitTransaction: self._transactions.commit,
            DetachSession: self._transactions.detach,
            PrepareTransaction: self._branches.prepare,
            DecideBranch: self._branches.decide,
            ListBranches: self._branches.listed,
        }

    def _credit_commands(self) -> dict[type, Callable[[QueuesConnection, Any], Any]]:
        """What clients say of the credit of their consumers, and which messages they pick."""
        command = self.consumers.credit.command
        return {
            v.ConsumerFlow: command,
            v.SetFlowMode: command,
            v.StopConsumer: command,
            v.FlushConsumer: command,
            v.AcquireMessages: AcquireCommands(self.shared, self._dispatcher).acquire,
        }

    def _add_transactions(self, answers: OperatorAnswers) -> None:
        """What operators ask of sessions, and of distributed transactions."""
        sessions = OperatorSessions(self.shared, answers)
        branches = OperatorBranches(self.shared, answers, self._branches)
        self._admin.handlers |= {
            y.AskSessionRows: sessions.survey,
            y.EndSession: sessions.end,
            b.AskBranchRows: branches.survey,
            b.ChangeBranch: branches.change,
        }

    def _add_exchanges(self, answers: OperatorAnswers, changes: ExchangeChanges) -> None:
        """What clients and operators ask of exchanges."""
        lists, operators = ExchangeLists(self.shared, changes), OperatorExchanges(answers, changes)
        commands = ExchangeCommands(self.shared, changes, self._exclusive)
        self.commands |= {
            q.DeclareExchange: commands.declare,
            q.DeleteExchange: commands.delete,
            q.BindQueue: commands.bind,
            q.UnbindQueue: commands.unbind,
            w.ListExchanges: lists.exchanges,
            w.ListBindings: lists.bindings,
        }
        self._admin.handlers |= {
            x.ChangeExchange: operators.change,
            x.ChangeBinding: operators.change_binding,
            x.AskExchangeRows: lists.survey_exchanges,
            x.AskBindingRows: lists.survey_bindings,
        }

    def _events(self) -> dict[type, Callable[[Any], Sequence[Effect] | None]]:
        shared, journal, manager = self.shared, self.journal, self.manager
        return {
            e.Commands: self._burst,
            e.Asked: self._asked,
            e.Gone: lambda event: self.gone(event.rid),
            e.ReadFailed: self._read_failed,
            e.RulesChanged: lambda event: shared.out.extend(self.rules_changed(event.access)),
            e.Unauthenticated: self.unauthenticated,
            e.StopAsked: lambda _: self._saves.stop(),
            BlockRead: lambda event: manager.folding.read(event.read, event.block),
            Watermarks: journal.watermarks,
            Welcome: journal.welcome,
            UnknownRequester: lambda _: journal.over(),
            NamedRows: journal.named,
            ExchangeRows: lambda event: manager.exchanges.take(event),
            JournalReceipt: lambda event: manager.commits.receipts(event, shared.now.mono_ms),
            Located: shared.located,
            SessionFound: shared.located,
            SessionList: shared.located,
            BranchesFound: shared.located,
            qe.TablesLoaded: journal.loaded,
            qe.Segments: journal.segments,
            qe.TablesSaved: self._saves.saved,
            qe.FullSubscribed: lambda _: self._full.listens(),
            qe.Given: self._dispatcher.given,
            qe.Unsent: self._unsent,
            TransferRequest: self._moves.request,
            HandOverRequest: self._session_moves.request,
            PeersRead: self._fence.read,
            LiveSources: self._moves.sources,
            Replicated: shared.promises.replicated,
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
            self.shared.out += self.command(received, self.shared.now)

    def _logoff(self, connection: QueuesConnection, command: m.Logoff) -> Sequence[Send]:
        for consumer in list(connection.consumers.values()):
            self.consumers.leave(consumer)  # what it holds does not wait for it
        return super()._logoff(connection, command)

    def entitle(self, connection: QueuesConnection) -> Sequence[Send]:
        """The rules have changed: ends the consumers that may not be there any more."""
        sends = []
        for consumer in list(connection.consumers.values()):
            try:
                self.consumers.check_right(connection, consumer.queue)
            except ClientError as error:
                self.note(connection.rid, f"keep consuming {consumer.queue}", error.code)
                self.consumers.leave(consumer)
                sends.append(self.connections.refusal(connection.rid, error, sid=consumer.sid))
        return sends

    def _asked(self, asked: e.Asked) -> Sequence[Effect]:
        """A question of the admin: of the queues, or one that every listener is asked."""
        rid, ask = asked.rid, asked.question
        if isinstance(ask, s.QueuesQuestion):
            self._admin.ask(rid, ask)
            return ()
        if isinstance(ask, AskClients):
            return [Tell(rid, reports.clients(self.shared, ask, self.addresses))]
        effects = self.answer(rid, ask)
        # the ends of sessions come after what their clients are sent before: that waits for `tick`
        self.shared.out += [one for one in effects if isinstance(one, Send)]
        return [one for one in effects if not isinstance(one, Send)]

    # -- reading ------------------------------------------------------------------------------

    def next_read(self) -> Read | None:
        """The part of the log that is to be folded next."""
        return self.manager.following.next_read()

    def _unsent(self, unsent: qe.Unsent) -> None:
        self.gone(unsent.rid)
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

    def origin(self) -> Origin | None:
        """The origin of messages that name none, once the journal was heard of."""
        return self.manager.announced

    def gone(self, rid: bytes) -> None:
        """A peer cannot be reached any more; it may come back for what it holds."""
        connection = self.shared.connections.get(rid)
        if connection is None:
            return
        for consumer in list(connection.consumers.values()):
            self.consumers.leave(consumer, lost=True)
        self.manager.sessions.lost(rid, connection.token.principal, connection.epochs)
        self.shared.connections.leave(rid)
        self._exclusive.gone(connection)

    def tick(self, now: Now, *, drained: bool) -> Sequence[Effect]:
        """All that is to be done now. drained: this turn has read all that clients sent."""
        self.shared.now = now
        effects: list[Effect] = [*self.journal.session.tick(now.mono_ms)]
        self._look_at_times(now, drained)
        self._moves.tick(now)
        self._scopes.tick(now)
        self._requests.tick(now.mono_ms)
        self._fence.tick(now)
        self._hand_over.tick(now)
        self._timeouts.tick(now)
        self._ends.tick(now)
        self._exclusive.tick()
        self.shared.own_writes.tick()
        self._session_moves.tick(now)
        self._holdings.began(self.manager.began)
        self._holdings.tick(now)
        if self.manager.sessions.over:  # before anything is given: it may not be theirs any more
            self.consumers.end_with_sessions()
        for what in self._later.due(now.mono_ms):
            if isinstance(what, Give):
                self._dispatcher.again(what)
            else:
                self.shared.out.append(what)
        effects += self._decided()
        effects += self._full.tick(now.mono_ms)
        effects += self.shared.connections.moved()
        # after the queues have decided what they hold; before the definition of a new one, so that
        # nothing is removed that it needs
        effects += self.journal.report(now)
        effects += self.journal.commits(now)
        effects += self.journal.follow(now.mono_ms)
        effects += self.shared.promises.follow_mark(now.mono_ms)
        effects += self.journal.start()
        effects += self._saves.tick(now.mono_ms)
        return effects

    def _look_at_times(self, now: Now, drained: bool) -> None:
        self.shared.out += self.beat(now.mono_ms, drained=drained)
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
            if ending is not None and not ending.migrating:
                ending.entries += [(outcome, None) for outcome in ending.queue.tick(now)]
                self.shared.touch(ending)

    def _look_when(self, one: QueueState) -> None:
        """When a queue has something to do by itself. Asked for only after changes: it costs."""
        wake_ms = one.queue.next_wake(self.shared.now) if one.ready else None
        if wake_ms is not None and one.name in self.manager.running:
            self._wakes_ms[one.name] = wake_ms
        else:
            self._wakes_ms.pop(one.name, None)

    def _decided(self) -> list[Effect]:
        """Offers of what changed, units of what was decided."""
        shared, manager = self.shared, self.manager
        if manager.ended or manager.overtaken:
            self.consumers.end_with_queues()
        shared.go_on_committing()
        dirty, shared.dirty = shared.dirty, {}
        for one in dirty.values():
            self._moves.stand_in(one)
            self._hand_over.look(one)
            self._dispatcher.dispatch(one)
            self._give_up(one)
            manager.commit(one)
            if one.entries and isinstance(one.queue, Queue):
                self._dead_letters.begin(one)
                if one.entries and manager.commits.full:
                    shared.held_back[one.name] = one
            self._look_when(one)
            self._requests.look(one)
            self._ends.look(one)
            self._full.look(one)
            shared.note_use(one)
        # after what the queues have to do
        search = self.consumers.starts.next_search()
        if search is None and not (shared.out or manager.notes or manager.began):
            return []
        begun = [
            TrackDeliveries(one.name, one.definition.declaration, one.suspected_to)
            for one in manager.began
        ]
        out, shared.out = [*begun, *manager.notes, *shared.out, *([search] if search else ())], []
        self._holdings.began(manager.began)
        manager.began.clear()
        manager.notes.clear()
        return out

    def _give_up(self, one: QueueState) -> None:
        """Messages beyond the limits of a queue go, after its consumers were given all that they
        can take."""
        if not isinstance(one.queue, Queue) or not is_limited(one.queue) or not one.offers:
            return
        if self.manager.commits.full:
            self.shared.held_back[one.name] = one
        else:
            one.entries += [(outcome, None) for outcome in give_up(one.queue)]

    def next_wake_ms(self) -> int | None:
        """When the next tick has something to do; 0: now."""
        if self._busy:
            return 0
        wakes = [
            self.journal.next_wake_ms(), self._later.next_wake_ms, self.manager.commits.wake_ms(),
            self._moves.next_wake_ms(), self._requests.next_wake_ms(),
            self._fence.next_wake_ms(), self._hand_over.next_wake_ms(),
            self._scopes.next_wake_ms(), self._timeouts.next_wake_ms(), self._ends.next_wake_ms(),
            self._session_moves.next_wake_ms(), self._holdings.next_wake_ms(),
            self._full.next_wake_ms(),
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
        busy = self.consumers.starts.busy or self.manager.commits.due or self.manager.sessions.over
        return bool(shared.dirty or shared.out or busy)

    def stats(self) -> dict[str, int | float | str]:
        """What the process reports."""
        return reports.numbers(self.shared)

    def check(self) -> None:
        """Asserts what is always true."""
        for one in self.manager.running.values():
            one.queue.check()
            if one.replicated is not None:
                one.replicated.check()
        held = {
            consumer.key
            for connection in self.shared.connections.values()
            for consumer in connection.consumers.values()
        }
        assert held == set(self.shared.consumers)
