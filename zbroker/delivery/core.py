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

import msgspec

from zbroker.delivery.asking import PATIENCE_MS, Asking, Question
from zbroker.delivery.blocks import Block
from zbroker.delivery.commands import (
    Received,
    check_recorded,
    cid_of,
    decode,
    refusal,
    sid_of,
    takes_zstd,
    unknown_sid,
    wants_unrecorded,
)
from zbroker.delivery.connections import Connection, Connections, made_by_zeromq
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.effects import Ask, Counts, Effect, Note, Plan, Read, Send
from zbroker.delivery.holds import Needs
from zbroker.delivery.live import Live, told_of_drops
from zbroker.delivery.plans import Plans
from zbroker.delivery.points import values
from zbroker.delivery.subscription import Names, Subscription
from zbroker.errors import ClientError
from zbroker.ids import NOW, Origin, format_vector
from zbroker.journal.reader import Gap
from zbroker.limits import HEARTBEAT_MS, SUBSCRIPTIONS_MAX
from zbroker.recording import Recording
from zbroker.topics import matcher
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.internal import Located, Marks, Welcome
from zbroker.wire.token import verify

TICK_MS: Final = 250  # how exact heartbeats and the patience with the journal are
EVERYTHING: Final = Recording([])
PLANS_MAX: Final = 4  # ranges that one connection may have asked for at a time

_HEARTBEAT: Final = codec.encode(m.Heartbeat())


class Settings(NamedTuple):
    """key: of the instance's tokens. clients_max: logged-on connections."""

    key: bytes
    clients_max: int
    recording: Recording = EVERYTHING


class Core:
    """The pure part of the delivery room."""

    def __init__(self, settings: Settings) -> None:
        self.counts = Counts()
        self.connections = Connections()
        self.cursors = Cursors()
        self._settings = settings
        self._asking = Asking()
        self.needs = Needs(self.connections, self.cursors, self._asking)
        self.live = Live(self.counts)
        self.plans = Plans(self.connections, self.cursors, self.counts)
        self._subscriptions: dict[int, Subscription] = {}
        self._last_key = 0
        self._welcomed = False
        self._next_tick_ms = 0
        self._handlers: dict[type, Callable[[Connection, Any, int], list[Effect]]] = {
            m.Subscribe: self._subscribe,
            m.Flow: self._flow,
            m.Unsubscribe: self._unsubscribe,
            m.Ranges: self._ranges,
            m.Heartbeat: self._heartbeat,
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
        rid, frames, _ = received
        command: m.DeliveryCommand | None = None
        try:
            command = decode(received)
            if isinstance(command, m.DoorLogon):
                return self._logon(rid, command, now_ms, now_s)
            connection = self.connections.get(rid)
            if connection is None:
                raise ClientError("not_logged_on", "this connection has no logon on this door")
            connection.heard_ms = now_ms
            return self._handlers[type(command)](connection, command, now_ms)
        except ClientError as error:
            cid = cid_of(command, frames)
            return [self._refusal(rid, error, cid, sid_of(command, error))]

    def _refusal(self, rid: bytes, error: ClientError, cid: str | None, sid: str | None) -> Send:
        return refusal(self.counts, rid, error, cid, sid)

    def _logon(self, rid: bytes, command: m.DoorLogon, now_ms: int, now_s: float) -> list[Effect]:
        if not made_by_zeromq(rid):
            raise ClientError("auth_failed", "a routing id must not be chosen by the client")
        token = verify(self._settings.key, command.token, now_s)
        self._drop(rid)
        if len(self.connections) >= self._settings.clients_max:
            raise ClientError("too_many", f"{len(self.connections)} clients are connected here")
        connection = self.connections.logon(rid, token, command.heartbeat_s, now_ms)
        beat_s = (connection.interval_ms or HEARTBEAT_MS) / 1000
        answer = m.Ack(
            "processed", command.cid, version=m.VERSION, heartbeat_s=beat_s,
            origin=self.cursors.here,
        )  # fmt: skip
        return [Send(rid, codec.encode(answer))]

    def _subscribe(self, connection: Connection, command: m.Subscribe, now_ms: int) -> list[Effect]:
        if command.sid in connection.subscriptions:
            raise ClientError("sid_in_use", f"sid {command.sid!r} is in use on this connection")
        if len(connection.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise ClientError("too_many", f"{SUBSCRIPTIONS_MAX} subscriptions per connection")
        if command.filter is not None:
            raise ClientError("bad_filter", "content filters are not spoken here")
        zstd = takes_zstd(command.options or {})
        wants = matcher(command.topic, regex=command.regex)
        check_recorded(command, self._settings.recording)
        question = Question(
            connection.rid, command, now_ms + PATIENCE_MS,
            values(NOW if command.bookmark is None else command.bookmark),
            values(command.until, end=True) if command.until is not None else [],
        )  # fmt: skip
        self._last_key += 1
        question.key = self._last_key
        names = Names(self._last_key, connection.rid, command.sid)
        one = Subscription(
            names, wants, connection.grant(command.credit), zstd,
            sid_packed=msgspec.msgpack.encode(command.sid), topic=command.topic,
        )  # fmt: skip
        self._subscriptions[one.names.key] = connection.subscriptions[command.sid] = one
        return self._ask(question)

    def _ask(self, question: Question) -> list[Effect]:
        messages = self._asking.ask(question)
        return [Ask(message) for message in messages] if self._welcomed else []

    def _flow(self, connection: Connection, command: m.Flow, _now_ms: int) -> list[Effect]:
        one = connection.subscriptions.get(command.sid)
        if one is None:
            if command.sid in connection.ended:
                return []  # it ended while this was on its way
            raise unknown_sid(command.sid)
        one.credit += connection.grant(command.bytes, command.sid)
        self.cursors.wake(one)
        told = told_of_drops(one)
        return [Send(connection.rid, told)] if told is not None else []

    def _unsubscribe(
        self, connection: Connection, command: m.Unsubscribe, _now_ms: int
    ) -> list[Effect]:
        one = connection.subscriptions.get(command.sid)
        if one is not None:
            self._end(one)
        elif command.sid not in connection.ended:
            raise unknown_sid(command.sid)
        answer = m.Ack("processed", command.cid, sid=command.sid)
        return [Send(connection.rid, codec.encode(answer))]

    def _ranges(self, connection: Connection, command: m.Ranges, now_ms: int) -> list[Effect]:
        if connection.plans >= PLANS_MAX:
            raise ClientError("too_many", f"a connection has at most {PLANS_MAX} unanswered ranges")
        if command.topic is not None:
            matcher(command.topic, regex=command.regex)
        question = Question(
            connection.rid, command, now_ms + PATIENCE_MS, values(command.bookmark),
            values(command.until, end=True),
        )  # fmt: skip
        connection.plans += 1
        return self._ask(question)

    def _heartbeat(
        self, _connection: Connection, _command: m.Heartbeat, _now_ms: int
    ) -> list[Effect]:
        return []

    def _logoff(self, connection: Connection, command: m.Logoff, _now_ms: int) -> list[Effect]:
        self._drop(connection.rid)
        return [Send(connection.rid, codec.encode(m.Ack("processed", command.cid)))]

    # -- the journal --------------------------------------------------------------------------

    def marks(self, marks: Marks) -> list[Effect]:
        """How far the log is durable. Another incarnation has to be asked everything again."""
        if marks.incarnation != self.cursors.incarnation:
            self._welcomed = False
        return self._heard(marks)

    def welcomed(self, welcome: Welcome) -> list[Effect]:
        """A journal that has not been asked yet."""
        self._welcomed = True
        return self._heard(welcome) + [Ask(message) for message in self._asking.again()]

    def _heard(self, said: Marks | Welcome) -> list[Effect]:
        here = Origin(said.instance, said.generation)
        rewound = self.cursors.heard(said.incarnation, here, said.floor, said.persisted)
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
        question = self._asking.answered(located)
        if question is None:
            return []  # its subscription is gone
        here = self.cursors.here
        assert here is not None, "the journal answers nothing before its welcome"
        try:
            start, end = question.start(here), question.end(here)
        except ClientError as error:
            return self._give_up(question, error)
        if start.position < self.cursors.floor:  # it rose after the answer: see holds.py
            return [Ask(message) for message in self._asking.repeat(question)]
        if isinstance(question.command, m.Ranges):
            assert end is not None, "ranges have an end by default"
            last = min(end.position, self.cursors.persisted)
            return [Plan(question.rid, question.command.cid, start, last, question.command.parts)]
        one = self._subscriptions[question.key]
        one.start(start, end, question.persisted)
        self.cursors.add(one)
        if wants_unrecorded(question.command) and not self._settings.recording.everything:
            self.live.add(one, regex=question.command.regex)
        answer = m.Ack(
            "processed", question.command.cid, sid=one.names.sid, position=one.position,
            credit=one.credit,
        )  # fmt: skip
        return [Send(question.rid, codec.encode(answer)), *self._progress(one)]

    def _give_up(self, question: Question, error: ClientError) -> list[Effect]:
        if isinstance(question.command, m.Ranges):
            self.connections[question.rid].plans -= 1
            return [self._refusal(question.rid, error, question.command.cid, None)]
        self._end(self._subscriptions[question.key])
        return [self._refusal(question.rid, error, question.command.cid, question.command.sid)]

    # -- reading and sending ------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True if a read is wanted now."""
        return self.cursors.busy

    def next_read(self) -> Read | None:
        """What to read next, if anything."""
        return self.cursors.next_read()

    def blocks(self, read: Read, block: Block) -> list[Effect]:
        """What was read for a subscription. Nothing, in spite of marks: it waits for the next."""
        one = self.cursors.running.get(read.key)
        if one is None:
            return []
        assert self.cursors.maker is not None, "nothing is read before the journal was heard of"
        credit = one.credit
        try:
            sent, count = one.advance(block, self.cursors.persisted, self.cursors.maker)
        except ClientError as error:
            return self.read_failed(read, str(error))
        self.counts.messages_out += count
        self.counts.bytes_out += credit - one.credit
        rid = one.names.rid
        effects: list[Effect] = [Send(rid, header, body) for header, body in sent]
        effects += self._progress(one)
        one.dry = not block.items
        self.cursors.wake(one)
        return effects

    def _progress(self, one: Subscription) -> list[Effect]:
        """What becomes of a subscription that may have come to an end or caught up."""
        if one.gap is not None:
            return self._report_gap(one, one.gap)
        if one.ended:
            self._end(one)
            return [self._completed(one)]
        if one.bounded or one.caught_up or one.position < one.target:
            return []
        one.caught_up = True
        return [self._completed(one)]

    def _completed(self, one: Subscription) -> Send:
        answer = m.Ack(
            "completed", sid=one.names.sid, bookmark=one.bookmark, vector=self._vector(one.position)
        )
        return Send(one.names.rid, codec.encode(answer))

    def _vector(self, position: int) -> str:
        """The resume point that goes on at `position`."""
        assert self.cursors.here is not None
        return format_vector({self.cursors.here: position - 1})

    def _report_gap(self, one: Subscription, gap: Gap) -> list[Effect]:
        self._end(one)
        where = f"positions {gap.first} to {gap.end - 1} cannot be served: {gap.why}"
        hint = f"resume behind them with the vector {self._vector(gap.end)}"
        error = ClientError("gap", where, hint)
        return [
            self._refusal(one.names.rid, error, None, one.names.sid),
            Note("delivery.gap", f"{where}; a subscriber was told and has to go on behind them"),
        ]

    def read_failed(self, read: Read, reason: str) -> list[Effect]:
        """The log could not be read for a subscription: it ends, the others go on."""
        one = self.cursors.running.get(read.key)
        if one is None:
            return []
        self._end(one)
        error = ClientError("internal", f"position {one.position} could not be read")
        return [
            self._refusal(one.names.rid, error, None, one.names.sid),
            Note("delivery.read_failed", f"{reason}; one subscription ended and was told"),
        ]

    # -- peers and time -----------------------------------------------------------------------

    def gone(self, rid: bytes) -> list[Effect]:
        """A peer cannot be reached any more."""
        self._drop(rid)
        return []

    def tick(self, now_ms: int) -> list[Effect]:
        """Heartbeats, peers that fell silent, and patience with a journal that does not answer."""
        if now_ms < self._next_tick_ms:
            return []
        self._next_tick_ms = now_ms + TICK_MS
        effects: list[Effect] = []
        for question in self._asking.overdue(now_ms):
            late = ClientError("not_ready", "the journal does not answer")
            effects += self._give_up(question, late)
        for rid in self.connections.silent(now_ms):
            self._drop(rid)
            silent = ClientError("not_logged_on", "two heartbeats were missed")
            effects.append(self._refusal(rid, silent, None, None))
        effects += [Send(rid, _HEARTBEAT) for rid in self.connections.beats(now_ms)]
        return effects

    def next_wake_ms(self) -> int | None:
        """When the next tick has something to do."""
        return self._next_tick_ms if self.connections or len(self._asking) else None

    def _end(self, one: Subscription) -> None:
        _, rid, sid = one.names
        self.cursors.remove(one)
        self.live.remove(one)
        self._asking.forget(rid, one.names.key)
        del self._subscriptions[one.names.key]
        self.connections[rid].end(sid)

    def _drop(self, rid: bytes) -> None:
        connection = self.connections.get(rid)
        if connection is None:
            return
        for one in list(connection.subscriptions.values()):
            self._end(one)
        self._asking.forget(rid)
        del self.connections[rid]

    def check(self) -> None:
        """Asserts what is always true."""
        self.cursors.check()
        self.live.check(self.cursors.running)
        held = {
            one.names.key for c in self.connections.values() for one in c.subscriptions.values()
        }
        assert held == set(self._subscriptions)
        assert set(self.cursors.running) <= held
