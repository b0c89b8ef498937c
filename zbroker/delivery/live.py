"""Messages that are not recorded: from ingest to the current subscribers. Pure.

ingest sends within the bytes that LiveGrants grants, so only this process bounds what it drops for
lack of credit:

    a Hello --> the newest ingest is granted bytes --GRANT_BYTES taken, or a beat--> granted again

The link begins with a Hello: ZeroMQ hands frames that were queued for a dead delivery to this one,
which does not know them, drops them and asks for a Hello. While no client is logged on nothing is
granted, so ingest sends nothing. Grants begin at the first logon, so long before the first
subscription is answered, and go on for a while after the last client has left.

Each subscription gets the messages it wants while it has credit; those that come when it has none
are dropped and counted, never kept.

With conflation, intervals are of the time in which messages come, whatever clock was
asked for: there is no log time that goes on without them. A subscription without credit at the end
of an interval is sent its messages as soon as it has some; meanwhile later ones are merged into
them, within the limits of a conflation. Messages beyond these are dropped and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct, field

from zbroker.blocks.frame_builder import Block, Frame, FrameBuilder, Held, Parts, counting
from zbroker.delivery.conflation import Conflation, messages_of
from zbroker.delivery.contract import DeliveryStats, Effect, GrantLive, LiveReceived
from zbroker.delivery.subscription import SubscriptionState
from zbroker.engine.effects import Send
from zbroker.ids import Origin
from zbroker.limits import BEAT_MS, LIVE_CREDIT_BYTES
from zbroker.log.format import FLAG_ZSTD, KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire.internal import Entry, Hello, LiveCredit

WANTED_MS: Final = 10_000  # longer than the last client stays: most come back
GRANT_BYTES: Final = LIVE_CREDIT_BYTES // 4  # taken since the last grant: then it is time for one

_NOWHERE: Final = Cursor(0, 0, 0)


class _Holding(Struct, eq=False):
    """The messages that a conflating subscription holds. due: those whose interval is over."""

    one: SubscriptionState
    conflation: Conflation
    due: deque[Held] = field(default_factory=deque)


class LiveSubscriptions:
    """Running subscriptions that want unrecorded messages."""

    def __init__(self, counts: DeliveryStats) -> None:
        self._counts = counts
        self._exact: dict[str, dict[int, SubscriptionState]] = {}
        self._patterns: dict[int, SubscriptionState] = {}
        self._maker = FrameBuilder(Origin(0, 0))
        self._held: dict[int, _Holding] = {}  # by the key of a subscription that conflates
        self.next_ns: int | None = None  # when the next interval ends, monotonic
        self.over: list[SubscriptionState] = []  # their limit was reached here; the core ends them

    def add(self, one: SubscriptionState, conflation: Conflation | None = None) -> None:
        """From now on it gets what matches. conflation: of its own, for unrecorded messages."""
        if conflation is not None:
            self._held.setdefault(one.names.key, _Holding(one, conflation))
        self._enter(one, one.topic, regex=one.regex)

    def _enter(self, one: SubscriptionState, topic: str, *, regex: bool) -> None:
        place = self._patterns if regex else self._exact.setdefault(topic, {})
        place[one.names.key] = one

    def remove(self, one: SubscriptionState) -> None:
        """It is over; it may never have been here."""
        if one in self.over:
            self.over.remove(one)
        self._held.pop(one.names.key, None)
        self._leave(one)

    def move(self, one: SubscriptionState, topic: str, *, regex: bool) -> None:
        """It wants another topic from now on; held messages stay."""
        self._leave(one)
        self._enter(one, topic, regex=regex)

    def forget(self, one: SubscriptionState) -> None:
        """Drops held messages: they may not be sent any more."""
        holding = self._held.get(one.names.key)
        if holding is not None:
            holding.conflation.forget()
            holding.due.clear()

    def _leave(self, one: SubscriptionState) -> None:
        self._patterns.pop(one.names.key, None)
        exact = self._exact.get(one.topic)
        if exact is not None and exact.pop(one.names.key, None) is not None and not exact:
            del self._exact[one.topic]

    def fan_out(
        self, entries: Sequence[Entry], bodies: Sequence[bytes], wall_ns: int, now_ns: int = 0
    ) -> list[Effect]:
        """Sends batches that just came; `wall_ns` is the time of those that bring none.

        now_ns: monotonic.
        """
        batches = [_batch(*pair, wall_ns) for pair in zip(entries, bodies, strict=True)]
        block = Block(_NOWHERE, batches, _NOWHERE)
        effects: list[Effect] = []
        for at, batch in enumerate(batches):
            for one in self._wanting(batch.topics):
                if one.names.key in self._held:
                    effects += self._hold(one, block, at, now_ns)
                else:
                    effects += self._sends(one, block, at)
        return effects

    def is_due(self, now_ns: int) -> bool:
        """True if `tick` has something to do now, or some are over."""
        return bool(self.over) or (self.next_ns is not None and now_ns >= self.next_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        """Sends messages whose intervals are over."""
        effects: list[Effect] = []
        if self.next_ns is None or now_ns < self.next_ns:
            return effects
        self.next_ns = None
        for holding in list(self._held.values()):
            if not holding.due:
                holding.due.extend(holding.conflation.due(now_ns))
            if holding.due:
                effects += self.drain(holding.one)
            self._plan(holding)
        return effects

    def drain(self, one: SubscriptionState) -> list[Effect]:
        """Sends due messages of one that conflates, as far as its credit and limit go."""
        sends: list[Effect] = []
        holding = self._held.get(one.names.key)
        if holding is not None:
            while holding.due and one.credit > 0 and one.left > 0:
                frame = self._maker.held(holding.due.popleft(), one.look)
                sends.append(self._sent(one, frame))
            self._plan(holding)
        if one.left <= 0 and one not in self.over:
            self.over.append(one)
        return sends

    def _hold(self, one: SubscriptionState, block: Block, at: int, now_ns: int) -> list[Effect]:
        picks, _ = one.selection.picks(block, at, counting(block.batch(at)), one.look.type_of)
        if picks:
            holding = self._held[one.names.key]
            if holding.due:
                holding.conflation.prolong(now_ns)
            messages = messages_of(block, at, one.look.type_of)
            ended = holding.conflation.add(messages, picks, now_ns)
            self._plan(holding)
            if holding.due:  # nothing of these fits any more
                one.dropped += len(ended)
                self._counts.dropped += len(ended)
            else:
                holding.due.extend(ended)
        return self.drain(one)

    def _plan(self, holding: _Holding) -> None:
        """Notes when its interval ends, unless it has to wait for credit first."""
        conflation = holding.conflation
        if conflation.oldest_position is None or holding.due:
            return
        end_ns = conflation.end_ns
        self.next_ns = end_ns if self.next_ns is None else min(self.next_ns, end_ns)

    def _wanting(self, topics: list[str]) -> Iterator[SubscriptionState]:
        """Subscriptions that may want a batch, each once."""
        for topic in dict.fromkeys(topics):
            if topic in self._exact:
                yield from self._exact[topic].values()
        yield from self._patterns.values()

    def _sends(self, one: SubscriptionState, block: Block, at: int) -> Iterator[Send]:
        for part in self._parts(one, block, at):
            if one.credit <= 0:
                one.dropped += part.messages
                self._counts.dropped += part.messages
                continue
            yield self._sent(one, part)
        if one.left <= 0:
            self.over.append(one)

    def _sent(self, one: SubscriptionState, part: Frame) -> Send:
        one.credit -= part.size
        one.trail.spent += part.size
        one.left -= part.messages
        one.sent_messages += part.messages
        one.sent_bytes += len(part.body)
        self._counts.messages_out += part.messages
        self._counts.bytes_out += len(part.body)
        return Send(one.names.rid, part.before + one.sid_packed + part.after, part.body)

    def _parts(self, one: SubscriptionState, block: Block, at: int) -> Parts:
        """The frames of a batch for it."""
        batch = block.batch(at)
        if one.plain:
            wanted = one.selection.wanted(batch)
            if True not in wanted:
                return ()
            return self._maker.whole(block, at, wanted, zstd=one.look.zstd)
        picks, _ = one.selection.picks(block, at, counting(batch), one.look.type_of)
        picks = picks[: one.left]
        if not picks:
            return ()
        return self._maker.picked(
            block, at, picks, one.look, sees_all=one.selection.sees_all(batch)
        )

    def check(self, running: dict[int, SubscriptionState]) -> None:
        """Asserts what is always true."""
        for holding in self._held.values():
            holding.conflation.check()
            waits = holding.conflation.oldest_position is not None and not holding.due
            assert not waits or self.next_ns is not None, "it would be held for ever"
        known = dict(self._patterns)
        for topic, exact in self._exact.items():
            assert exact, topic
            known |= exact
        assert known.items() <= running.items()


def drops_ack(one: SubscriptionState) -> bytes | None:
    """The ack that tells a subscription what it missed, if it does not know."""
    if one.dropped == one.dropped_reported:
        return None
    one.dropped_reported = one.dropped
    return codec.encode(m.Ack("dropped", sid=one.names.sid, dropped=one.dropped))


def _batch(entry: Entry, body: bytes, wall_ns: int) -> Batch:
    """A batch without a position, for what makes messages of batches."""
    time_ns = entry.time_ns if entry.time_ns is not None else wall_ns
    return Batch(
        KIND_PUBLISH, 0, entry.publisher, entry.session, entry.seq, 0, entry.count, time_ns,
        entry.topics, body, entry.crc, len(body), flags=FLAG_ZSTD if entry.codec else 0,
        columns=entry.columns,
    )  # fmt: skip


class LiveGrants:
    """Which ingest process said Hello last, and how much was taken from it."""

    def __init__(self, incarnation: int) -> None:
        self._mine = incarnation
        self._requester: bytes | None = None
        self._theirs = 0
        self._taken = self._ungranted = 0  # bytes: since its Hello, since the last grant
        self._wanted = True
        self._wanted_until_ms = self.next_wake_ms = 0

    def answer(self, received: LiveReceived) -> GrantLive | None:
        """The answer to a Hello, or to an unknown ingest; None: these batches are taken."""
        rid, message = received.rid, received.message
        if isinstance(message, Hello):  # a new ingest, or a new socket of it
            self._requester, self._theirs, self._taken = rid, message.incarnation, 0
            return self._grant(rid)
        if rid != self._requester or message.incarnation != self._mine:
            return GrantLive(rid, LiveCredit(self._mine, 0, 0, 0))
        self._taken += received.size
        self._ungranted += received.size
        return None

    def taken(self) -> list[GrantLive]:
        """A new grant, if so much was taken that it is time for one."""
        return self._grants() if self._ungranted >= GRANT_BYTES else []

    def tick(self, now_ms: int, *, wanted: bool) -> list[GrantLive]:
        """A grant on each beat, as ingest takes silence for death, and when `wanted` changes.

        wanted: a client is logged on.
        """
        if wanted:
            self._wanted_until_ms = now_ms + WANTED_MS
        before, self._wanted = self._wanted, now_ms < self._wanted_until_ms
        if before is self._wanted and now_ms < self.next_wake_ms:
            return []
        self.next_wake_ms = now_ms + BEAT_MS
        return self._grants()

    def _grants(self) -> list[GrantLive]:
        return [] if self._requester is None else [self._grant(self._requester)]

    def _grant(self, rid: bytes) -> GrantLive:
        self._ungranted = 0
        credit = LIVE_CREDIT_BYTES if self._wanted else 0
        return GrantLive(rid, LiveCredit(self._mine, self._theirs, self._taken, credit))
