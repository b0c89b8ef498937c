"""What delivery decides: logons, subscriptions, what to read next, what to send. Pure.

    turn(commands)      frames of clients            -> answers, look-ups, plans
    marks, welcomed     how far the log is durable   -> what is due changes
    located             where a point is             -> answers
    next_read, blocks   what was read                -> messages
    gone, tick          peers that left, time        -> heartbeats, errors

Reads are effects with completions, taken in turns: each due subscription gets one block, so that a
replay of everything starves nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from zbroker.access.core import Access
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import Read
from zbroker.delivery.commands import cid_of, refusal, sid_of
from zbroker.delivery.connections import Connection, Connections
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.effects import Counts, Effect
from zbroker.delivery.holds import Needs
from zbroker.delivery.live import Live
from zbroker.delivery.lookups import Locating
from zbroker.delivery.options import chars_of
from zbroker.delivery.pending_lookups import Asking, Question
from zbroker.delivery.plans import Plans
from zbroker.delivery.progress import Progress
from zbroker.delivery.rights import Rights
from zbroker.delivery.subscription import Subscription
from zbroker.delivery.subscription_commands import Subscriptions
from zbroker.delivery.turns import Turns
from zbroker.engine.effects import Note, Send
from zbroker.errors import ClientError
from zbroker.filters import BUILT_IN, Vocabulary
from zbroker.heartbeats import QuietMs
from zbroker.ids import Origin
from zbroker.recording import Recording
from zbroker.server.budgets import DEFAULT, Budget
from zbroker.server.peers import Received, admit, check_key, decode, welcome
from zbroker.topics import matcher
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.internal import Entry, Located, Watermarks, Welcome
from zbroker.wire.refused import CODES, RefusalLog, stranger, told_as

NS_PER_MS: Final = 1_000_000
TICK_MS: Final = 250  # how exact the patience with the journal is
PLANS_MAX: Final = 4  # ranges that one connection may have asked for at a time
TOLD_MS: Final = 1_000  # how often subscriptions are told how far they came, if nothing else does

_HEARTBEAT: Final = codec.encode(m.Heartbeat())


class Settings(NamedTuple):
    """key: of the instance's tokens. clients_max: logged-on connections."""

    key: bytes
    clients_max: int
    recording: Recording = Recording([])
    access: Access = Access.off()
    incarnation: int = 0  # of this process
    vocabulary: Vocabulary = BUILT_IN  # what filters of subscriptions may call
    budget: Budget = DEFAULT  # of each principal


class Core:
    """The pure part of the delivery room."""

    def __init__(self, settings: Settings, quiet_ms: QuietMs | None = None) -> None:
        """quiet_ms: see DoorHeartbeats."""
        self.counts = Counts()
        self.refusals = RefusalLog(settings.incarnation)
        self.connections = Connections(quiet_ms, settings.budget)
        self.cursors = Cursors()
        self._settings = settings
        self._asking = Asking(settings.budget.lookups)
        self.needs = Needs(self.connections, self.cursors, self._asking)
        self.live = Live(self.counts)
        self.plans = Plans(self.connections, self.cursors, self.counts)
        self._rights = Rights(settings.access)
        self.subscriptions = many = Subscriptions(
            self.connections, self.cursors, self.live, settings.recording, self._rights,
            settings.vocabulary,
        )  # fmt: skip
        self._progress = Progress(self.cursors, self.counts, self._end)
        self._turns = Turns(self.cursors, self.counts, self._progress)
        self._locating = Locating(
            self._asking, self.cursors, (self.connections, many), self._progress, self._refusal,
            self._end,
        )  # fmt: skip
        self._next_tick_ms = self._next_told_ms = 0
        self._handlers: dict[type, Callable[[Connection, Any], list[Effect]]] = {
            m.Flow: many.flow,
            m.Pause: many.pause,
            m.Resume: many.resume,
            m.Replace: many.replace,
            m.Unsubscribe: self._unsubscribe,
            m.Heartbeat: lambda _connection, _command: [],
            m.Logoff: self._logoff,
        }

    # -- commands -----------------------------------------------------------------------------

    def turn(self, commands: Sequence[Received], now_ms: int, now_s: float) -> list[Effect]:
        """Everything that clients sent since the last turn."""
        effects: list[Effect] = []
        for received in commands:
            effects += self._one(received, now_ms, now_s)
        return effects

    def _one(self, received: Received, now_ms: int, now_s: float) -> list[Effect]:
        rid, frames = received.rid, received.frames
        command: m.DeliveryCommand | None = None
        try:
            command = decode(codec.DELIVERY, received)
            if isinstance(command, m.ListenerLogon):
                return self._logon(received, command, now_ms, now_s)
            connection = self.connections.get(rid)
            if connection is None:
                raise ClientError("not_logged_on", "this connection has no logon on this door")
            check_key(connection, received.key)
            self.connections.heard(connection, command, now_ms)
            if isinstance(command, m.Subscribe):
                return self._subscribe(connection, command, now_ms, now_s)
            if isinstance(command, m.Ranges):
                return self._ranges(connection, command, now_ms)
            return self._handlers[type(command)](connection, command)
        except ClientError as error:
            cid = cid_of(command, frames)
            if error.code in CODES:
                self._note(rid, told_as(command), error.code, stranger(received.key))
            return [self._refusal(rid, error, cid, sid_of(command, error))]

    def _note(self, rid: bytes, what: str, code: str, who: str = "") -> None:
        """For the audit log. who: as long as nobody is logged on."""
        known = self.connections.get(rid)
        self.refusals.add(rid, known.token.principal if known else who, what, code)

    def _refusal(self, rid: bytes, error: ClientError, cid: str | None, sid: str | None) -> Send:
        return refusal(self.counts, rid, error, cid, sid)

    def _logon(
        self, received: Received, command: m.ListenerLogon, now_ms: int, now_s: float
    ) -> list[Effect]:
        rid, access = received.rid, self._rights.access
        token = self.connections.token_of(command, received, self._settings.key, access, now_s)
        self._drop(rid)
        if len(self.connections) >= self._settings.clients_max:
            raise ClientError("too_many", f"{len(self.connections)} clients are connected here")
        connection = self.connections.logon(rid, token, command.heartbeat_s, now_ms)
        answer = welcome(connection, command.cid)
        answer.origin = self.cursors.here
        return [Send(rid, codec.encode(answer))]

    def _subscribe(
        self, connection: Connection, command: m.Subscribe, now_ms: int, now_s: float
    ) -> list[Effect]:
        self.subscriptions.check(connection, command)
        question = Question.of(connection.rid, command, now_ms)
        self._locating.check(question, connection)
        question.key = self.subscriptions.begin(connection, command, now_s).names.key
        return self._locating.ask(question)

    def _unsubscribe(self, connection: Connection, command: m.Unsubscribe) -> list[Effect]:
        one = connection.subscriptions.get(command.sid)
        if one is not None:
            self._end(one)
        return self.subscriptions.unsubscribe(connection, command)

    def _ranges(self, connection: Connection, command: m.Ranges, now_ms: int) -> list[Effect]:
        self._rights.check_ranges(connection.token.principal, command)
        if connection.plans >= PLANS_MAX:
            raise ClientError("too_many", f"a connection has at most {PLANS_MAX} unanswered ranges")
        if (topic := command.topic) is not None:
            connection.use.account.compile(
                chars_of(command), lambda: matcher(topic, regex=command.regex)
            )
        question = Question.of(connection.rid, command, now_ms)
        self._locating.check(question, connection)
        connection.plans += 1
        return self._locating.ask(question)

    def _logoff(self, connection: Connection, command: m.Logoff) -> list[Effect]:
        self._drop(connection.rid)
        return [Send(connection.rid, codec.encode(m.Ack("processed", command.cid)))]

    def entitle(self, access: Access) -> list[Effect]:
        """The rules have changed: who may not be here any more is told and forgotten."""
        self._rights.access = access
        effects: list[Effect] = []
        for connection in list(self.connections.values()):
            try:
                admit(access, connection.token, connection.token.key)
            except ClientError as error:
                self._note(connection.rid, "stay logged on", error.code)
                self._drop(connection.rid)
                effects.append(self._refusal(connection.rid, error, None, None))
                continue
            for one in list(connection.subscriptions.values()):
                effects += self._entitle(one)
            for question in self._asking.ranges_of(connection.rid):
                effects += self._entitle_ranges(connection, question)
        return effects

    def _entitle(self, one: Subscription) -> list[Effect]:
        try:
            self.subscriptions.entitle(one)
        except ClientError as error:
            self._note(one.names.rid, f"keep a subscription to {one.topic}", error.code)
            self._end(one)
            return [self._refusal(one.names.rid, error, None, one.names.sid)]
        return []

    def _entitle_ranges(self, connection: Connection, question: Question) -> list[Effect]:
        assert isinstance(question.command, m.Ranges)
        try:
            self._rights.check_ranges(connection.token.principal, question.command)
        except ClientError as error:
            self._note(connection.rid, told_as(question.command), error.code)
            return self._locating.refuse(question, error)
        return []

    # -- the journal --------------------------------------------------------------------------

    def marks(self, marks: Watermarks) -> list[Effect]:
        """How far the log is durable. Another incarnation has to be asked everything again."""
        if marks.incarnation != self.cursors.incarnation:
            self._locating.lost()
        return self._heard(marks)

    def welcomed(self, welcome: Welcome) -> list[Effect]:
        """A journal that has not been asked yet."""
        return self._heard(welcome) + self._locating.welcomed()

    def _heard(self, said: Watermarks | Welcome) -> list[Effect]:
        here = Origin(said.instance, said.generation)
        rewound = self.cursors.heard(
            said.incarnation, here, said.floor, said.written, said.persisted
        )
        if not rewound:
            return []
        self.counts.rewound += rewound
        return [Note(
            "delivery.rewound",
            f"the log ends at position {said.persisted}, before {rewound} subscriptions; "
            "what they had seen behind it is not in the log; they go on from its end",
        )]  # fmt: skip

    def located(self, located: Located) -> list[Effect]:
        """The journal's answer to one look-up."""
        return self._locating.located(located)

    # -- reading and sending ------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True if a read is wanted now."""
        return self.cursors.busy

    def next_read(self) -> Read | None:
        """What to read next, if anything."""
        return self.cursors.next_read()

    def blocks(self, read: Read, block: Block, now_ms: int) -> list[Effect]:
        """What was read for a replay. Nothing, in spite of marks: it waits for the next."""
        return self._turns.turn(read, block, now_ms * NS_PER_MS)

    def read_failed(self, read: Read, reason: str) -> list[Effect]:
        """The log could not be read for a replay: it ends, the others go on."""
        return self._turns.failed(read, reason)

    def unrecorded(
        self, entries: Sequence[Entry], bodies: Sequence[bytes], wall_ns: int, now_ms: int = 0
    ) -> list[Effect]:
        """What ingest passed on; a subscription may reach its limit by it."""
        return self._passed(self.live.fan_out(entries, bodies, wall_ns, now_ms * NS_PER_MS))

    def _passed(self, effects: list[Effect]) -> list[Effect]:
        for one in list(self.live.over):
            effects += self._progress.look(self.cursors.of[one.names.key])
        return effects

    # -- peers and time -----------------------------------------------------------------------

    def gone(self, rid: bytes) -> list[Effect]:
        """A peer cannot be reached any more."""
        self._drop(rid)
        return []

    def tick(self, now_ms: int, *, drained: bool = True) -> list[Effect]:
        """Times that have come, heartbeats, silent peers, patience with a silent journal.

        drained: this turn has everything that waited at the door.
        """
        self.cursors.ring(now_ms * NS_PER_MS)
        effects = self._beat(now_ms, drained)
        if self.live.is_due(now_ms * NS_PER_MS):
            effects += self._passed(self.live.tick(now_ms * NS_PER_MS))
        if now_ms < self._next_tick_ms:
            return effects
        self._next_tick_ms = now_ms + TICK_MS
        return effects + self._locating.tick(now_ms) + self._tell(now_ms)

    def _beat(self, now_ms: int, drained: bool) -> list[Effect]:
        silent, due = self.connections.beats(now_ms, drained=drained)
        effects: list[Effect] = [Send(rid, _HEARTBEAT) for rid in due]
        for rid in silent:
            self._drop(rid)
            error = ClientError("not_logged_on", "nothing was heard for two heartbeats")
            effects.append(self._refusal(rid, error, None, None))
        return effects

    def _tell(self, now_ms: int) -> list[Effect]:
        """Resume points for those that passed something and may have been sent nothing of it."""
        if now_ms < self._next_told_ms:
            return []
        self._next_told_ms = now_ms + TOLD_MS + len(self.subscriptions)  # many: less often
        persisted = self.cursors.persisted
        return [
            self._progress.told(replay, one, "persisted")
            for replay in self.cursors.running.values() for one in replay.members
            if min(one.safe(replay.position), persisted) > one.told
        ]  # fmt: skip

    def next_wake_ms(self) -> int | None:
        """When the next tick has something to do."""
        wakes: list[int] = []
        if self.connections:
            beat_ms = self.connections.heartbeats.due_ms
            wakes += [self._next_tick_ms] if beat_ms is None else [self._next_tick_ms, beat_ms]
        elif len(self._asking):
            wakes.append(self._next_tick_ms)
        for time_ns in (self.cursors.next_ns, self.live.next_ns):
            if time_ns is not None:
                wakes.append(-(-time_ns // NS_PER_MS))
        return min(wakes, default=None)

    def _end(self, one: Subscription) -> None:
        if one.names.key not in self.cursors.of:
            self._asking.forget(one.names.rid, one.names.key)
        self.subscriptions.end(one)

    def _drop(self, rid: bytes) -> None:
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
