"""The sending end of a link: it reads this log, and sends a destination what that one lacks. Pure.

    down --Hello, on a new socket--> greeting --Welcome--> finding --StartFound--> sending
    greeting --Refused--> down, which then waits longer
    sending --an origin was refused, or has to be sent after all; all was judged--> finding
    any --silence, LinkEnded--> down
    any --paused by hand; all that was sent is judged--> down, until it is resumed

The log is read in its order, below what is durable. A record of a third instance is passed over
while the destination has a live link with that instance; when that link is gone, reading begins
again where the destination is. `after` of a record is the one before it of its origin in this
log, sent or not, so a destination that lacks something in between refuses it.

The mark of a destination is the first local record that it wants, that somebody may wait for, and
that its statement does not cover. It never goes back. Records that it lacks and that are not sent
from here are kept as numbers, PENDING_MAX at most; then reading waits, however long a link is down.

Where a part of this log is damaged, it is not known which records it had. From there on an origin
is sent only if the next complete state snapshot proves that the destination has all of it up to
that snapshot; the others stop there, and the mark stays before the damage until it is proved that
the destination needs nothing of it. A generation begins there after all that this log had of the
older ones went, whatever stopped or delayed them.
Source: requirement 002, "Replication Basics"; the design of replication, rules 3, 5 and 8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from zbroker.engine.effects import Note
from zbroker.ids import Origin
from zbroker.limits import BEAT_MS, MIB, U63_MAX
from zbroker.log.format import (
    FLAG_UNIT,
    KIND_CLOSED,
    KIND_NOOP,
    KIND_STATE,
    KIND_TIE,
    STAYS,
    Batch,
)
from zbroker.log.reader import Cursor, Gap
from zbroker.replication.contract import LinkIdentity
from zbroker.replication.damaged_range import DamagedRange
from zbroker.replication.effects import (
    CloseLink,
    ConnectLink,
    FindStart,
    LinkBlock,
    LinkEffect,
    MoveMark,
    ReadLink,
    SayOn,
    StartFound,
)
from zbroker.replication.holdings import Holdings
from zbroker.replication.incoming_link import last_of
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.replication.records import OnTheWay, name_record, record_of, size_of
from zbroker.wire import replication as w
from zbroker.wire.internal import Record

SILENCE_MS: Final = 6 * BEAT_MS
HELLO_WAIT_MS: Final = 500  # and twice as long after each failure,
HELLO_WAIT_MAX_MS: Final = 16_000  # at most
AGAIN_MS: Final = 1_000  # after a refusal of a record
PENDING_MAX: Final = 10_000
READ_BYTES: Final = 1 * MIB
SEND_BYTES: Final = 1 * MIB  # in one message, unless one unit is larger: beats have to pass
_DAMAGE: Final = Origin(0, 0)  # of all that a damaged range had
_NO_MARK: Final = frozenset({KIND_TIE, KIND_NOOP, KIND_CLOSED})  # no client waits for them


class _Pending(NamedTuple):
    """A record at `position` that the destination lacks, as far as is known."""

    position: int
    origin: Origin
    last: int


Sent = tuple[Record, bytes | memoryview]
Names = Mapping[int, tuple[str, str]]  # of publishers: name and principal


class OutgoingLink:
    """The link to one destination. mark: everything that it wants below is durable there."""

    def __init__(self, link: str, mine: LinkIdentity, own: OwnHoldings, digest: int = 0) -> None:
        self.link, self._mine, self._own, self._digest = link, mine, own, digest
        self.state = "down"
        self.session = 0
        self.mark = 0
        self.asked_in = 0  # generation of this instance when the session began
        self.paused = False  # by hand
        self.peer = Holdings()
        self.refusal: w.LinkRefused | None = None  # of the last Hello
        self.stopped: dict[Origin, str] = {}  # since a record of theirs was refused, or a gap
        self._hello_ms: int = 0
        self._hello_wait_ms = HELLO_WAIT_MS
        self._heard_ms = self._beat_ms = 0
        self._heard_counter = 0  # counter of the own statement that this destination has heard
        self._again_ms: int | None = None  # when reading begins again
        self._cursor: Cursor | None = None
        self._credit = 0
        self._ordinal = 0  # of the newest record sent
        self._judged_through = 0  # of the newest one that a receipt was about
        self._bytes = 0  # on their way
        self._sent: deque[OnTheWay] = deque()
        self._pending: deque[_Pending] = deque()
        self._passed: dict[Origin, int] = {}  # the newest record of each origin that was read
        self._given: dict[Origin, int] = {}  # the newest one that was sent
        self._crcs: dict[Origin, tuple[int, int]] = {}  # of the newest one read: position, CRC
        self._compared: set[Origin] = set()  # whose first record of this session was sent
        self._named: set[int] = set()  # publishers, in this session
        self._unit: list[Sent] = []  # that is not complete yet
        self._held: LinkBlock | None = None  # until its publishers' names are known
        self._damage = DamagedRange()

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now_ms: int, wall_ns: int) -> list[LinkEffect]:
        """Says Hello, beats, notices silence."""
        if self.state == "down":
            due = now_ms >= self._hello_ms and not self.paused
            return self._say_hello(now_ms, wall_ns) if due else []
        if now_ms - self._heard_ms > SILENCE_MS:
            return self._down(now_ms)
        effects: list[LinkEffect] = []
        again_ms = self._find_ms()
        if again_ms is not None and now_ms >= again_ms:
            effects += self._find()
        if now_ms >= self._beat_ms and self.state != "greeting":
            effects.append(self._beat(now_ms))
        return effects

    def next_wake_ms(self) -> int:
        """When `tick` has something to do."""
        if self.state == "down":
            return U63_MAX if self.paused else self._hello_ms
        times = [self._heard_ms + SILENCE_MS + 1]
        if self.state != "greeting":
            times.append(self._beat_ms)
        again_ms = self._find_ms()
        return min(times) if again_ms is None else min(*times, again_ms)

    def _find_ms(self) -> int | None:
        """When reading begins again: not before all that was sent is judged."""
        return self._again_ms if self.state == "sending" and not self._sent else None

    def _say_hello(self, now_ms: int, wall_ns: int) -> list[LinkEffect]:
        self.session = max(self.session + 1, wall_ns // 1_000)
        self.asked_in = self._own.generation
        self.state, self._heard_ms = "greeting", now_ms
        self._heard_counter = self._judged_through = 0
        hello = w.LinkHello(
            w.PROTOCOL, self._mine.feature_level, self.session, self._mine.name, self._mine.group,
            self._own.statement(), self._digest,
        )  # fmt: skip
        return [ConnectLink(self.link), SayOn(self.link, hello)]

    def pause(self, now_ms: int) -> list[LinkEffect]:
        """Nothing more is sent; the session ends when all that was sent is judged."""
        self.paused = True
        if self._sent:
            return []
        return [*self._down(now_ms), CloseLink(self.link)]

    def ask_again(self, now_ms: int) -> list[LinkEffect]:
        """Says Hello again: what the destination said may have been of a generation that went on,
        or another journal has to hear it. The Hello ends what is on its way there."""
        if self.state == "down" or self.paused:
            return []
        effects = self._down(now_ms)
        self._hello_ms, self._hello_wait_ms = now_ms, HELLO_WAIT_MS
        return effects

    def resume(self, now_ms: int) -> None:
        """Goes on, with a Hello at once if the session has ended."""
        self.paused = False
        self._hello_ms, self._hello_wait_ms = now_ms, HELLO_WAIT_MS

    def broke(self, reason: str, now_ms: int) -> list[LinkEffect]:
        """The destination sent a frame that is not a message of a link."""
        if self.state == "down":
            return []
        text = f"{self.link} is not understood: {reason}; the link begins again"
        return [
            *self._down(now_ms),
            Note("replication.not_understood", text, values={"link": self.link}),
        ]

    def _down(self, now_ms: int) -> list[LinkEffect]:
        self.state = "down"
        self._hello_ms = now_ms + self._hello_wait_ms
        self._hello_wait_ms = min(2 * self._hello_wait_ms, HELLO_WAIT_MAX_MS)
        self._forget()
        self._sent.clear()
        self._bytes = 0
        return []

    def _forget(self) -> None:
        """Reading is over, or begins again."""
        self._cursor = self._again_ms = self._held = None
        self._pending.clear()
        self._unit = []
        self._damage.forget()

    def _beat(self, now_ms: int) -> LinkEffect:
        self._beat_ms = now_ms + BEAT_MS
        changed = self._own.changed(self._heard_counter)
        beat = w.LinkBeat(self.session, changed, self.peer.heard, self._ordinal)
        return SayOn(self.link, beat)

    # -- what the destination says ------------------------------------------------------------

    def heard(self, message: w.LinkMessage, now_ms: int) -> list[LinkEffect]:
        """A message of the destination; one of another session is dropped."""
        if getattr(message, "session", 0) != self.session or self.state == "down":
            return []
        self._heard_ms = now_ms
        if isinstance(message, w.LinkWelcome):
            return self._welcomed(message, now_ms) if self.state == "greeting" else []
        if isinstance(message, w.LinkRefused):
            self.refusal = message
            return [*self._down(now_ms), self._note("replication.refused", message.reason)]
        if isinstance(message, w.LinkEnded):
            return self._down(now_ms)
        if isinstance(message, w.LinkReceipt):
            return self._receipt(message, now_ms)
        if isinstance(message, w.LinkBeat):
            if message.ordinal > self._judged_through:
                return self._down(now_ms)  # a receipt was lost
            self._heard_counter = max(self._heard_counter, message.heard)
            return self._states(message.statement, now_ms)
        return []

    def _welcomed(self, welcome: w.LinkWelcome, now_ms: int) -> list[LinkEffect]:
        if reason := self._mine.another(self.link, welcome):
            self.refusal = w.LinkRefused(self.session, "wrong_destination", reason)
            return [*self._down(now_ms), self._note("replication.wrong_destination", reason)]
        self.peer.take(welcome.statement, whole=True)
        self.refusal, self._hello_wait_ms = None, HELLO_WAIT_MS
        self._credit = welcome.credit_bytes
        self._named.clear()
        self._ordinal = 0
        return self._find()

    def _find(self) -> list[LinkEffect]:
        """Reads again from where the destination is."""
        self._forget()
        self.state = "finding"
        self.stopped.clear()
        self._given.clear()
        self._compared.clear()
        self._passed = {origin: self._holds(origin) for origin in self.peer.rows}
        old = {one: end for one, end in self._own.closed.items() if self.peer.has_all_of(one)}
        return [FindStart(self.link, self.session, {**old, **self.peer.closed, **self._passed})]

    def _holds(self, origin: Origin) -> int:
        """Up to where the destination has what this link sends of an origin."""
        position = self.peer.position(origin, self._digest)
        if not position and origin in self._own.closed and self.peer.has_all_of(origin):
            return self._own.closed[origin]
        return position

    def found(self, found: StartFound) -> list[LinkEffect]:
        """Everything of each origin before the cursor is there already."""
        if found.session != self.session or self.state != "finding":
            return []
        self.state = "sending"
        self._cursor = found.cursor
        self._crcs = dict(found.crcs)
        return self._moved()

    def _states(self, statement: w.Statement, now_ms: int) -> list[LinkEffect]:
        sources = self.peer.sources
        if not self.peer.take(statement, whole=False):
            return []
        if sources - self.peer.sources and self.state == "sending":
            self._again_ms = now_ms  # what it was to get from them has to go from here
        return self._moved()

    def _receipt(self, receipt: w.LinkReceipt, now_ms: int) -> list[LinkEffect]:
        if receipt.since != self._judged_through:
            return self._down(now_ms)  # the one before it may have refused something
        self._judged_through = receipt.through
        refused = {item.ordinal: item for item in receipt.refused}
        effects: list[LinkEffect] = []
        while self._sent and self._sent[0].ordinal <= receipt.through:
            sent = self._sent.popleft()
            self._bytes -= sent.size
            item = refused.get(sent.ordinal)
            if item is None and not sent.last:
                continue  # a name
            if item is None:
                self.peer.received(sent.origin, sent.last, self._digest)
                continue
            if sent.origin not in self.stopped:
                effects.append(self._note("replication.record_refused", item.reason))
            self.stopped[sent.origin] = item.code
            self._again_ms = now_ms + AGAIN_MS
        effects += self._moved()
        return [*effects, *self.pause(now_ms)] if self.paused else effects

    def _note(self, name: str, reason: str) -> Note:
        text = f"{self.link} refuses what is sent to it: {reason}; nothing is lost here"
        return Note(name, text, values={"link": self.link})

    def _moved(self) -> list[LinkEffect]:
        """Where the mark is now."""
        pending = self._pending
        while pending and self._covers(pending[0]):
            pending.popleft()
        if self.state != "sending" or self._cursor is None:
            return []
        reached = pending[0].position if pending else self._cursor.position
        if reached <= self.mark:
            return []
        self.mark = reached
        return [MoveMark(self.link, reached)]

    def _covers(self, pending: _Pending) -> bool:
        if pending.origin != _DAMAGE:
            return self._holds(pending.origin) >= pending.last
        return self._damage.is_covered(self._holds)

    # -- the log ------------------------------------------------------------------------------

    def next_read(self, persisted: int) -> ReadLink | None:
        """The next read, below the durable end of the log."""
        cursor = self._cursor
        if self.state != "sending" or cursor is None or cursor.position >= persisted:
            return None
        if self.paused or self._held is not None or self._bytes >= self._credit:
            return None
        if len(self._pending) >= PENDING_MAX or self._again_ms is not None:
            return None
        return ReadLink(self.link, self.session, cursor, persisted, READ_BYTES)

    def read(self, block: LinkBlock, names: Names) -> tuple[list[LinkEffect], set[int]]:
        """Sends what the destination lacks of a block.

        Returns: also publishers whose names are needed first; call `go_on` when they are known.
        """
        read = block.read
        if (read.session, read.cursor) != (self.session, self._cursor) or self._held is not None:
            return [], set()
        if self.paused:  # the same is read again
            return [], set()
        self._held = block
        if wanted := self.unnamed(names):
            return [], wanted
        self._held = None
        return self._send(block, names), set()

    def read_failed(self, now_ms: int) -> None:
        """The log could not be read: again in a while."""
        if self.state == "finding":
            self.state = "sending"
        self._again_ms = now_ms + AGAIN_MS

    def unnamed(self, names: Names) -> set[int]:
        """Publishers whose names are needed before the block in hand can be sent."""
        items = self._held.items if self._held is not None else ()
        found = {i.publisher for i in items if isinstance(i, Batch) and i.kind not in STAYS}
        return found - names.keys() - {0}

    def go_on(self, names: Names) -> list[LinkEffect]:
        """Names came that a block may wait for."""
        block, self._held = self._held, None
        return self.read(block, names)[0] if block is not None else []

    def _send(self, block: LinkBlock, names: Names) -> list[LinkEffect]:
        self._cursor = block.after
        effects: list[LinkEffect] = []
        ready: list[Sent] = []
        size = 0
        for item in block.items:
            if isinstance(item, Gap):
                self._damaged(item)
                continue
            if item.kind == KIND_STATE:
                self._proved(item)
            record = None if item.kind in STAYS else self._judged(item)
            if record is not None:
                if item.publisher and item.publisher not in self._named:
                    self._named.add(item.publisher)
                    self._unit.append(name_record(item.publisher, *names[item.publisher]))
                self._unit.append(record)
            if self._unit and not item.flags & FLAG_UNIT:
                self._unit[-1][0].flags &= ~FLAG_UNIT  # what stays here may have been its end
                ready += self._unit
                size += sum(size_of(*sent) for sent in self._unit)
                self._unit = []
            if size >= SEND_BYTES or len(ready) >= w.RECORDS_MAX // 2:
                effects.append(self._units(ready))
                ready, size = [], 0
        if ready:
            effects.append(self._units(ready))
        return [*effects, *self._moved()]

    def _judged(self, batch: Batch) -> Sent | None:
        """The record of a batch if it has to be sent; else it is noted."""
        origin, last = batch.origin, batch.origin_position + batch.taken - 1
        after = self._passed.get(origin, 0)
        if last <= after:  # read again, below what the destination has
            if last == after:
                self._crcs[origin] = (last, batch.content_crc)
            return None
        held = max(self._holds(origin), self._given.get(origin, 0))
        covered = last <= held
        crc = self._crcs.get(origin, (0, -1))
        self._passed[origin] = last
        self._crcs[origin] = (last, batch.content_crc)
        if covered:
            return None
        if batch.kind not in _NO_MARK:
            self._pending.append(_Pending(batch.position, origin, last))
        if not self._goes(origin, held):
            return None
        if origin not in self._compared:
            if batch.origin_position <= after:  # a relay has sent a part of it: CRCs are compared
                self._compared.add(origin)
                return self._given_as(batch, last, batch.origin_position - 1, None)
            if held > after or (after and crc[0] != after):
                self.stopped[origin] = "fork"
                return None
            self._compared.add(origin)
            known = after and crc[1] >= 0
            return self._given_as(batch, last, after, crc[1] if known else None)
        return self._given_as(batch, last, after, None)

    def _damaged(self, gap: Gap) -> None:
        self._damage.begin()
        self._unit = []
        self._pending.append(_Pending(gap.first, _DAMAGE, 0))

    def _proved(self, batch: Batch) -> None:
        """A part of a state snapshot; it counts after a damaged range."""
        for origin, (at, crc) in self._damage.proved(batch.body).items():
            if self._passed.get(origin, 0) < at:
                self._passed[origin], self._crcs[origin] = at, (at, crc)

    def _goes(self, origin: Origin, held: int) -> bool:
        """Whether records of this origin are sent from here now."""
        if not self._damage.is_whole(origin, held):
            self.stopped.setdefault(origin, "gap")
        if origin in self.stopped:
            return False
        if origin.instance == self.peer.instance:
            goes = origin.generation < self.peer.generation
        else:
            own = origin.instance == self._mine.instance
            goes = own or origin.instance not in self.peer.sources
        if goes and not held and not self._older_went(origin):
            self.stopped[origin], goes = "gap", False
        return goes

    def _older_went(self, origin: Origin) -> bool:
        """Whether what this log had of older generations is there, or on its way: readers there
        take the first record of a generation for the end of them (zbroker.journal.link_sessions).
        """
        return not any(
            at > max(self._holds(one), self._given.get(one, 0))
            for one, at in self._passed.items()
            if (origin.instance, 0) <= one < origin
            and self.stopped.get(one) != "fork"  # a new generation is the way out of it
            and self._crcs.get(one, (0, -1))[1] >= 0  # else it may be of a record that stays here
        )

    def _given_as(self, batch: Batch, last: int, after: int, after_crc: int | None) -> Sent:
        self._given[batch.origin] = last
        return record_of(batch, after, after_crc)

    def _units(self, records: Sequence[Sent]) -> LinkEffect:
        first = self._ordinal + 1
        for record, body in records:
            self._ordinal += 1
            size = size_of(record, body)
            origin = Origin(record.instance, record.generation)
            self._sent.append(OnTheWay(self._ordinal, origin, last_of(record), size))
            self._bytes += size
        sent = [record for record, _ in records]
        units = w.SendUnits(self.session, first, sent)
        return SayOn(self.link, units, [body for _, body in records])

    @property
    def on_the_way_bytes(self) -> int:
        """Sent and not judged yet."""
        return self._bytes

    def check(self) -> None:
        """Asserts what is always true."""
        assert self._bytes == sum(sent.size for sent in self._sent)
        assert len(self._pending) <= PENDING_MAX + w.RECORDS_MAX
        assert self.state in ("down", "greeting", "finding", "sending")
