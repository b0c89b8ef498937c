"""What delivery decides: logons, subscriptions, what to read next, what to send. Pure.

    handle(event)   commands, answers of the journal, watermarks, blocks of the log, questions,
                    what is not recorded   -> answers, look-ups, plans, messages
    tick            time                   -> heartbeats, reports to the journal, what is late

Reads are taken in turns: each due subscription gets one block, so a replay of everything does not
starve the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from zbroker.blocks.read_request import BlockRead, Read
from zbroker.delivery import reports
from zbroker.delivery.connections import Connections, DeliveryConnection, Rights
from zbroker.delivery.contract import (
    DeliveryStats,
    Effect,
    FindPassed,
    LiveReceived,
    PassedFound,
    Planned,
    PlanRanges,
)
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.journal_follower import JournalFollower, LogNeeds
from zbroker.delivery.live import LiveGrants, LiveSubscriptions
from zbroker.delivery.lookups import Locating, Plans
from zbroker.delivery.pending_lookups import Asking, Question
from zbroker.delivery.subscription import SubscriptionState
from zbroker.delivery.subscription_commands import SubscriptionRegistry, chars_of
from zbroker.delivery.turns import ReadTurns, SubscriptionProgress
from zbroker.engine import events as e
from zbroker.engine.contract import MS_NS, Now
from zbroker.engine.effects import Exit, Tell
from zbroker.engine.journal_session import JournalSession
from zbroker.errors import ClientError
from zbroker.filters import BUILT_IN, Vocabulary
from zbroker.heartbeats import QuietMs
from zbroker.ids import Origin
from zbroker.server.token_listener import ListenerSettings, TokenListener
from zbroker.topics import matcher
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.internal import Hello, Located, UnknownRequester, Watermarks, Welcome
from zbroker.wire.replicas import Replicated
from zbroker.wire.surveys import AskRefusals, Disconnect, Peers, command_text, unknown

TICK_MS: Final = 250  # how exact the patience with the journal is
PLANS_MAX: Final = 4  # ranges that one connection may have asked for at a time


class DeliverySettings(ListenerSettings, frozen=True):
    """vocabulary: what filters of subscriptions may call. name: of the process. replicated: there
    are synchronous destinations."""

    vocabulary: Vocabulary = BUILT_IN
    name: str = "delivery"
    replicated: bool = False


class DeliveryCore(TokenListener[DeliveryConnection]):
    """See zbroker.engine.contract.Core."""

    decoder = codec.DELIVERY
    sid_ends = m.Subscribe, m.Flow, m.Unsubscribe

    def __init__(
        self, settings: DeliverySettings, quiet_ms: QuietMs | None = None, peers: Peers = unknown
    ) -> None:
        """quiet_ms: see ListenerHeartbeats. peers: the address of a connection, and since when."""
        connections = Connections(DeliveryConnection, quiet_ms, settings.budget)
        super().__init__(settings, connections, peers)
        self.counts = DeliveryStats()
        self.cursors = Cursors(replicated=settings.replicated)
        self._settings = settings
        self._asking = Asking(settings.budget.lookups)
        self.needs = LogNeeds(self.connections, self.cursors, self._asking)
        self.live = LiveSubscriptions(self.counts)
        self.plans = Plans(self.connections, self.cursors)
        self._rights = Rights(self.connections)
        self.subscriptions = many = SubscriptionRegistry(
            self.connections, self.cursors, self.live, settings.recording, self._rights,
            settings.vocabulary,
        )  # fmt: skip
        self._progress = SubscriptionProgress(self.cursors, self.connections, self._forget)
        self._turns = ReadTurns(self.cursors, self.counts, self._progress)
        self._locating = Locating(self._asking, self.cursors, many, self.plans, self._progress)
        self._journal = JournalFollower(
            self._session(), self.cursors, self._locating, self.needs, self.plans, self.counts
        )
        recorded = settings.recording.everything
        self._grants = None if recorded else LiveGrants(settings.incarnation)
        self._now = Now(0, 0)
        self._next_tick_ms = 0
        self.commands |= {
            m.Subscribe: self._subscribe,
            m.Ranges: self._ranges,
            m.Flow: many.flow,
            m.Pause: many.pause,
            m.Resume: many.resume,
            m.Replace: many.replace,
            m.Unsubscribe: self._unsubscribe,
        }
        self._handlers = self._events()

    def _session(self) -> JournalSession:
        name, incarnation = self._settings.name, self._settings.incarnation
        return JournalSession(incarnation, lambda number: Hello(name, incarnation, number=number))

    def _events(self) -> dict[type, Callable[[Any], Sequence[Effect]]]:
        journal = self._journal
        return {
            BlockRead: lambda event: self._turns.turn(event.read, event.block, self._now_ns),
            Watermarks: lambda event: journal.watermarks(event, self._now.mono_ms),
            Welcome: journal.welcome,
            UnknownRequester: lambda _: journal.session.over(self._now.mono_ms),
            Located: self._locating.located,
            Replicated: self._replicated,
            LiveReceived: self._unrecorded,
            Planned: self.plans.planned,
            PassedFound: self._locating.found,
            e.Commands: self._burst,
            e.Asked: self._asked,
            e.Gone: self._left,
            e.ReadFailed: self._read_failed,
            e.RulesChanged: lambda event: self.rules_changed(event.access),
            e.Unauthenticated: self.unauthenticated,
            e.StopAsked: lambda _: [Exit()],
        }

    def handle(self, event: object, now: Now) -> Sequence[Effect]:
        """What follows at once."""
        self._now = now
        return self._handlers[type(event)](event)

    @property
    def _now_ns(self) -> int:
        """Monotonic."""
        return self._now.mono_ms * MS_NS

    # -- commands -----------------------------------------------------------------------------

    def _burst(self, commands: e.Commands) -> list[Effect]:
        """Everything that clients sent since the last turn."""
        return [
            effect for received in commands.received
            for effect in self.command(received, self._now)
        ]  # fmt: skip

    def _subscribe(self, connection: DeliveryConnection, command: m.Subscribe) -> list[Effect]:
        self.subscriptions.check(connection, command)
        question = Question.of(connection.rid, command, self._now.mono_ms)
        self._locating.check(question, connection)
        question.key = self.subscriptions.begin(
            connection, command, self._now.wall_ns / 1e9
        ).names.key
        return self._locating.ask(question)

    def _unsubscribe(self, connection: DeliveryConnection, command: m.Unsubscribe) -> list[Effect]:
        one = connection.subscriptions.get(command.sid)
        if one is not None:
            self._forget(one)
        return self.subscriptions.unsubscribe(connection, command)

    def _ranges(self, connection: DeliveryConnection, command: m.Ranges) -> list[Effect]:
        self._rights.check_ranges(connection.token.principal, command)
        if connection.plans >= PLANS_MAX:
            raise ClientError("too_many", f"a connection has at most {PLANS_MAX} unanswered ranges")
        if (topic := command.topic) is not None:
            connection.use.account.compile(
                chars_of(command), lambda: matcher(topic, regex=command.regex)
            )
        question = Question.of(connection.rid, command, self._now.mono_ms)
        self._locating.check(question, connection)
        connection.plans += 1
        return self._locating.ask(question)

    def entitle(self, connection: DeliveryConnection) -> list[Effect]:
        """The rules have changed: ends what a connection may not read any more."""
        effects: list[Effect] = []
        for one in list(connection.subscriptions.values()):
            effects += self._entitle(one)
        for question in self._asking.ranges_of(connection.rid):
            effects += self._entitle_ranges(connection, question)
        return effects

    def _entitle(self, one: SubscriptionState) -> list[Effect]:
        try:
            self.subscriptions.entitle(one)
        except ClientError as error:
            self.note(one.names.rid, f"keep a subscription to {one.topic}", error.code)
            return [self._progress.refuse(one, error)]
        return []

    def _entitle_ranges(self, connection: DeliveryConnection, question: Question) -> list[Effect]:
        assert isinstance(question.command, m.Ranges)
        try:
            self._rights.check_ranges(connection.token.principal, question.command)
        except ClientError as error:
            self.note(connection.rid, command_text(question.command), error.code)
            return self._locating.refuse(question, error)
        return []

    # -- reading and sending ------------------------------------------------------------------

    def next_read(self) -> Read | None:
        """What of the log is to be read next."""
        return self.cursors.next_read()

    def _read_failed(self, failed: e.ReadFailed) -> list[Effect]:
        """A replay whose log could not be read ends, and so does a plan; the others go on."""
        if isinstance(failed.of, PlanRanges):
            return self.plans.failed(failed.of, str(failed.error))
        if isinstance(failed.of, FindPassed):
            return self._locating.not_found(failed.of, str(failed.error))
        return self._turns.failed(failed.of, str(failed.error))

    def _replicated(self, said: Replicated) -> Sequence[Effect]:
        """Destinations hold more of the log, or others are waited for."""
        self.cursors.replicated(said)
        return ()

    def _unrecorded(self, received: LiveReceived) -> list[Effect]:
        """What ingest passed on; a subscription may reach its limit by it."""
        grants = self._grants
        assert grants is not None, "nothing comes where everything is recorded"
        answer = grants.answer(received)
        if answer is not None:
            return [answer]
        assert not isinstance(received.message, Hello)
        entries = received.message.entries
        self.counts.unrecorded += sum(entry.count for entry in entries)
        sends = self.live.fan_out(entries, received.bodies, self._now.wall_ns, self._now_ns)
        return [*self._passed(sends), *grants.taken()]

    def _passed(self, effects: list[Effect]) -> list[Effect]:
        for one in list(self.live.over):
            effects += self._progress.look(self.cursors.of[one.names.key])
        return effects

    # -- questions ----------------------------------------------------------------------------

    def _asked(self, asked: e.Asked) -> Sequence[Effect]:
        """A question of the admin."""
        rid, ask = asked.rid, asked.question
        if isinstance(ask, Disconnect | AskRefusals):
            return self.answer(rid, ask)
        incarnation = self._settings.incarnation
        return [Tell(rid, reports.answer(self, ask, self.addresses, self._now, incarnation))]

    def stats(self) -> dict[str, int | float | str]:
        """What the process reports."""
        return reports.numbers(self, unrecorded=self._grants is not None)

    # -- peers and time -----------------------------------------------------------------------

    def _left(self, event: e.Gone) -> Sequence[Effect]:
        self.gone(event.rid)
        return ()

    def tick(self, now: Now, *, drained: bool) -> Sequence[Effect]:
        """Times that have come, heartbeats, silent peers, patience with a silent journal.

        drained: this turn has everything that clients sent.
        """
        self._now = now
        now_ms = now.mono_ms
        effects: list[Effect] = [*self._journal.session.tick(now_ms)]
        self.cursors.ring(self._now_ns)
        effects += self.beat(now_ms, drained=drained)
        if self.live.is_due(self._now_ns):
            effects += self._passed(self.live.tick(self._now_ns))
        if self._grants is not None:
            effects += self._grants.tick(now_ms, wanted=bool(self.connections))
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            effects += self._locating.tick(now_ms) + self._progress.due(now_ms)
        effects += self.connections.moved()
        # a bookmark that is looked up may not be there yet
        needed = bool(self.cursors.running) or len(self._asking) > 0
        effects += self._journal.session.follow(now_ms, needed=needed)
        effects += self.cursors.follow_mark(now_ms)
        effects += self._journal.report(now)
        return effects

    def next_wake_ms(self) -> int | None:
        """When the next tick has something to do."""
        wakes = [self._journal.next_wake_ms()]
        if self._grants is not None:
            wakes.append(self._grants.next_wake_ms)
        if self.connections:
            beat_ms = self.connections.heartbeats.due_ms
            wakes += [self._next_tick_ms] if beat_ms is None else [self._next_tick_ms, beat_ms]
        elif len(self._asking):
            wakes.append(self._next_tick_ms)
        for time_ns in (self.cursors.next_ns, self.live.next_ns):
            if time_ns is not None:
                wakes.append(-(-time_ns // MS_NS))
        return min(wakes)

    def origin(self) -> Origin | None:
        """The origin of messages that name none, once the journal was heard of."""
        return self.cursors.announced

    def _forget(self, one: SubscriptionState) -> None:
        if one.names.key not in self.cursors.of:
            self._asking.forget(one.names.rid, one.names.key)
        self.subscriptions.end(one)

    def gone(self, rid: bytes) -> None:
        """Forgets a connection, if it is known."""
        connection = self.connections.get(rid)
        if connection is None:
            return
        self._asking.forget(rid)
        for one in list(connection.subscriptions.values()):
            self.subscriptions.end(one)
        self.connections.leave(rid)

    def check(self) -> None:
        """Asserts what is always true."""
        self.cursors.check()
        running = {key: self.subscriptions[key] for key in self.cursors.of}
        self.live.check(running)
        held = {
            one.names.key for c in self.connections.values() for one in c.subscriptions.values()
        }
        assert held == set(self.subscriptions)
        assert set(self.cursors.of) <= held
