"""The sending end of a link: it reads this log, and sends a destination what that one lacks. Pure.

    down --Hello, on a new socket--> greeting --Welcome--> finding --StartFound--> sending
    greeting --Refused--> down, which then waits longer
    sending --an origin was refused, or has to be sent after all; all was judged--> finding
    finding --the destination is empty, and asks for what this log had--> stating, then down
    any --silence, LinkEnded--> down
    any --paused by hand; all that was sent is judged--> down, until it is resumed

The log is read in its order, as far as the journal says that it may be sent; link_selection.py says
what of it goes. A record of a third instance is passed over while the destination has a live link
with that instance; when that link is gone, reading begins again where the destination is.

The mark of a destination is the first local record that it wants, that somebody may wait for, and
that its statement does not cover. It never goes back. Records that it lacks and that are not sent
from here are kept as numbers, PENDING_MAX at most; then reading waits, however long a link is down.
Source: requirement 002, "Replication Basics"; the design of replication, rules 3, 5 and 8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from zbroker.engine.effects import Note
from zbroker.ids import Origin
from zbroker.limits import BEAT_MS, MIB, U63_MAX
from zbroker.link_topics import EVERYTHING, LinkTopics
from zbroker.log.format import FLAG_UNIT, KIND_CLOSED, KIND_ORIGIN, KIND_STATE, STAYS, Batch
from zbroker.log.reader import Cursor, Gap
from zbroker.replication.contract import LinkIdentity
from zbroker.replication.effects import (
    CloseLink,
    ConnectLink,
    FindStart,
    LinkBlock,
    LinkEffect,
    MoveMark,
    ReadLink,
    ReadState,
    SayOn,
    StartFound,
    StateBlock,
)
from zbroker.replication.header_reads import HeaderReads
from zbroker.replication.holdings import Holdings
from zbroker.replication.incoming_link import last_of
from zbroker.replication.link_filter import TypeOf, as_any
from zbroker.replication.link_selection import LinkSelection
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.replication.records import (
    SEND_BYTES,
    SEND_RECORDS,
    OnTheWay,
    Sent,
    messages_of,
    name_record,
    size_of,
)
from zbroker.wire import replication as w
from zbroker.wire.internal import Covered

SILENCE_MS: Final = 6 * BEAT_MS
HELLO_WAIT_MS: Final = 500  # and twice as long after each failure,
HELLO_WAIT_MAX_MS: Final = 16_000  # at most
AGAIN_MS: Final = 1_000  # after a refusal of a record
PENDING_MAX: Final = 10_000
STATE_WINDOW: Final = 8  # parts of a state on their way
READ_BYTES: Final = 1 * MIB
Names = Mapping[int, tuple[str, str]]  # of publishers: name and principal


class OutgoingLink:
    """The link to one destination. mark: everything that it wants below is durable there."""

    def __init__(
        self, link: str, mine: LinkIdentity, own: OwnHoldings, topics: LinkTopics = EVERYTHING,
        type_of: TypeOf = as_any,
    ) -> None:  # fmt: skip
        """type_of: see LinkSelection. Raises: ClientError bad_filter."""
        self.link, self._mine, self._own, self.topics = link, mine, own, topics
        self.state = "down"
        self.session = self.mark = 0
        self.asked_in = 0  # generation of this instance when the session began
        self.paused = False  # by hand
        self.peer = Holdings()
        self.feature_level = 0  # of the destination
        self.refusal: w.LinkRefused | None = None  # of the last Hello
        self.selection = LinkSelection(own, self.peer, topics, type_of)
        self._headers = HeaderReads(own, self.peer)
        self._hello_ms, self._hello_wait_ms = 0, HELLO_WAIT_MS
        self._heard_ms = self._beat_ms = 0
        self._heard_counter = 0  # counter of the own statement that this destination has heard
        self._again_ms: int | None = None  # when reading begins again
        self._cursor: Cursor | None = None
        self._ordinal = 0  # of the newest record sent
        self._judged_through = 0  # of the newest one that a receipt was about
        self._credit = self.on_the_way_bytes = 0  # that may be, and are, sent and not judged
        self._sent: deque[OnTheWay] = deque()
        self._named: set[int] = set()  # publishers, in this session
        self._unit: list[Sent] = []  # that is not complete yet
        self._parts = self._parts_there = 0  # of the state that it gets
        self._asks_state = self._stated = False  # the destination has nothing; all was sent
        self._state_from: int | None = None  # the destination begins with the log from here on
        self._held: LinkBlock | None = None  # until its publishers' names are known

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
            if self.state == "sending" and (changes := self.selection.changes()):
                effects.append(self._units([], changes))  # it may not have been ready for them
        return effects

    def next_wake_ms(self) -> int:
        """When `tick` has something to do."""
        if self.state == "down":
            return U63_MAX if self.paused else self._hello_ms
        silent_ms, again_ms = self._heard_ms + SILENCE_MS + 1, self._find_ms()
        beat_ms = silent_ms if self.state == "greeting" else self._beat_ms
        return min(silent_ms, beat_ms, silent_ms if again_ms is None else again_ms)

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
            self._own.statement(), self.topics.digest, [*self.topics.patterns],
            self.topics.filter, self.topics.types,
        )  # fmt: skip
        return [ConnectLink(self.link), SayOn(self.link, hello)]

    def pause(self, now_ms: int) -> list[LinkEffect]:
        """Nothing more is sent; the session ends when all that was sent is judged."""
        self.paused = True
        if self._sent:
            return []
        return [*self._down(now_ms), CloseLink(self.link)]

    def journal_begins(self, persisted: int) -> None:
        """Records that were not durable may be lost: the link reads on after its next Hello."""
        self.mark = min(self.mark, persisted)
        if self._cursor is not None and self._cursor.position > persisted:
            self._forget()

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
        wrong = f"{self.link} sent an invalid message: {reason}"
        text = f"{wrong}; the link connects again, nothing is lost"
        note = Note("replication.not_understood", text, values={"link": self.link})
        return [*self._down(now_ms), note]

    def _down(self, now_ms: int) -> list[LinkEffect]:
        self.state = "down"
        self._hello_ms = now_ms + self._hello_wait_ms
        self._hello_wait_ms = min(2 * self._hello_wait_ms, HELLO_WAIT_MAX_MS)
        self._forget()
        self._sent.clear()
        self.on_the_way_bytes = 0
        return []

    def _forget(self) -> None:
        """Reading is over, or begins again."""
        self._cursor = self._again_ms = self._held = None
        self._unit = []
        self.selection.forget()

    def _beat(self, now_ms: int) -> LinkEffect:
        self._beat_ms = now_ms + BEAT_MS
        changed, lacks = self._own.changed(self._heard_counter), self.selection.lacks
        beat = w.LinkBeat(self.session, changed, self.peer.heard, self._ordinal, lacks)
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
        if isinstance(message, w.AskState):
            return self._asked_for_state(now_ms)
        if isinstance(message, w.StateReceipt):
            self._parts_there = max(self._parts_there, message.parts)
            return []
        if isinstance(message, w.LinkBeat):
            if message.ordinal > self._judged_through:
                return self._down(now_ms)  # a receipt was lost
            self._heard_counter = max(self._heard_counter, message.heard)
            return self._states(message.statement, now_ms)
        return []

    def _welcomed(self, welcome: w.LinkWelcome, now_ms: int) -> list[LinkEffect]:
        whole = self.topics.is_everything
        if reason := self._mine.another(self.link, welcome, all_topics=whole):
            self.refusal = w.LinkRefused(self.session, "wrong_destination", reason)
            text = f"not {self.link}: {reason}; nothing is sent, and nothing is lost here"
            wrong = Note("replication.wrong_destination", text, values={"link": self.link})
            return [*self._down(now_ms), wrong]
        self.peer.take(welcome.statement, whole=True)
        self.refusal, self._hello_wait_ms = None, HELLO_WAIT_MS
        self._credit, self.feature_level = welcome.credit_bytes, welcome.feature_level
        self._named.clear()
        self._ordinal = self._parts = self._parts_there = 0
        self._asks_state = welcome.takes_state
        return self._find()

    def _asked_for_state(self, now_ms: int) -> list[LinkEffect]:
        """The destination has nothing, and chose this log to begin with."""
        self._asks_state = self.state != "stating"
        if self.state == "sending":
            self._again_ms = now_ms
        return []

    def _find(self) -> list[LinkEffect]:
        """Reads again from where the destination is."""
        self._forget()
        self.state = "finding"
        return [FindStart(self.link, self.session, self.selection.begin())]

    def found(self, found: StartFound) -> list[LinkEffect]:
        """Everything of each origin before the cursor is there already."""
        if found.session != self.session or self.state != "finding":
            return []
        self.state = "sending"
        self._cursor = found.cursor
        self.selection.found(found)
        asked, self._asks_state = self._asks_state, False
        if asked and self.selection.lacks:
            self.state, self._parts, self._stated = "stating", 0, False
            self._state_from = found.cursor.position
            return []
        self._state_from = None
        answer = [SayOn(self.link, w.NoState(self.session))] if asked else []
        if changes := self.selection.changes():
            text = (
                f"{self.link} gets other topics than before: {self.topics}; what the older ones "
                "left out up to now does not go there, and `replication missing` there lists it"
            )
            note = Note("replication.topics_changed", text, values={"link": self.link})
            return [*answer, note, self._units([], changes), *self._moved()]
        return [*answer, *self._moved()]

    def _states(self, statement: w.Statement, now_ms: int) -> list[LinkEffect]:
        sources, generation = self.peer.sources, self.peer.generation
        if not self.peer.take(statement, whole=False):
            return []
        lost = sources - self.peer.sources  # what it was to get from them has to go from here
        raised = generation != self.peer.generation  # its older ones go there from now on
        if self.state == "sending" and (lost or raised or self.selection.overcome):
            self._again_ms = now_ms
        return self._moved()

    def _receipt(self, receipt: w.LinkReceipt, now_ms: int) -> list[LinkEffect]:
        if receipt.since != self._judged_through:
            return self._down(now_ms)  # the one before it may have refused something
        self._judged_through = receipt.through
        refused = {item.ordinal: item for item in receipt.refused}
        effects: list[LinkEffect] = []
        while self._sent and self._sent[0].ordinal <= receipt.through:
            sent = self._sent.popleft()
            self.on_the_way_bytes -= sent.size
            item = refused.get(sent.ordinal)
            if item is None and not sent.last:
                continue  # a name
            if item is None:
                self.peer.received(sent.origin, sent.last, self.selection.digest_of(sent.origin))
                continue
            if sent.origin not in self.selection.stopped:
                effects.append(self._note("replication.record_refused", item.reason))
            self.selection.was_refused(sent.origin, sent.last, item.code, sent.kind)
            self._again_ms = now_ms + AGAIN_MS
        effects += self._moved()
        if self.selection.refused_ties.are_in_circle and not self.peer.sources - {
            self._own.instance
        }:
            return [*effects, *self._down(now_ms)]  # a new session begins with the newer one
        return [*effects, *self.pause(now_ms)] if self.paused else effects

    def _note(self, name: str, reason: str) -> Note:
        text = f"{self.link} refuses what is sent to it: {reason}; nothing is lost here"
        return Note(name, text, values={"link": self.link})

    def _moved(self) -> list[LinkEffect]:
        """Where the mark is now."""
        self.selection.covered()
        pending = self.selection.pending
        if self.state != "sending" or self._cursor is None or self.selection.changes():
            return []  # what a row of other topics says does not count
        reached = pending[0].position if pending else self._cursor.position
        if reached <= self.mark:
            return []
        self.mark = reached
        return [MoveMark(self.link, reached)]

    # -- the log ------------------------------------------------------------------------------

    def next_read(self, sendable: int, serial: int = 0) -> ReadLink | ReadState | None:
        """The next read. sendable: below it is what links send. serial: of the open segment."""
        cursor = self._cursor
        if self.state == "stating":
            full = self._stated or self._parts - self._parts_there >= STATE_WINDOW
            return None if self.paused or full else ReadState(self.link, self.session)
        if self.state != "sending" or cursor is None or cursor.position >= sendable:
            return None
        if self.paused or self._held is not None or self.on_the_way_bytes >= self._credit:
            return None
        if len(self.selection.pending) >= PENDING_MAX or self._again_ms is not None:
            return None
        whole = self.topics.is_everything  # else commits are sent as the messages that they show
        unsent = self._headers.unsent() if whole else {}
        at = self.link, self.session, cursor, sendable
        return ReadLink(*at, READ_BYTES, whole, unsent, serial)

    def read(self, block: LinkBlock, names: Names) -> tuple[list[LinkEffect], set[int]]:
        """Sends what the destination lacks of a block.

        Returns: also publishers whose names are needed first; call `go_on` when they are known.
        """
        read = block.read
        if (read.session, read.cursor) != (self.session, self._cursor) or self._held is not None:
            return [], set()
        if self.paused or not self._headers.suffice(block):  # the same is read again
            return [], set()
        self._held = block
        if wanted := self.unnamed(names):
            return [], wanted
        self._held = None
        return self._send(block, names), set()

    def read_state(self, block: StateBlock, now_ms: int) -> list[LinkEffect]:
        """Sends a part of the state that the destination begins with."""
        if self.state != "stating" or block.read.session != self.session:
            return []
        if block.problem:
            self.state, self._again_ms, self._asks_state = "sending", now_ms + AGAIN_MS, True
            text = f"{self.link} cannot begin with the state of this log: {block.problem}"
            return [Note("replication.no_state", text, values={"link": self.link})]
        if not block.body:
            return []
        part = w.StatePart(self.session, self._parts, block.last)
        self._parts += 1
        self._stated = block.last  # the session ends when the destination has them
        return [SayOn(self.link, part, [block.body])]

    def skip(self, origins: Iterable[Origin]) -> list[LinkEffect]:
        """A person gives up ranges that are skippable; the destination writes that, and says so."""
        ranges = self.selection.skippable
        return [SayOn(self.link, w.SkipRange(self.session, *one, *ranges[one])) for one in origins]

    def read_failed(self, now_ms: int) -> None:
        """The log could not be read: again in a while."""
        if self.state == "stating":
            self._asks_state = True
        if self.state in ("finding", "stating"):
            self.state = "sending"
        self._again_ms = now_ms + AGAIN_MS

    def unnamed(self, names: Names) -> set[int]:
        """Publishers whose names are needed before the block in hand can be sent."""
        held = self._held
        items = () if held is None or held.only_headers else held.items
        wants = self.selection.may_want
        found = {
            i.publisher for i in items
            if isinstance(i, Batch) and i.kind not in STAYS and wants(i)
        }  # fmt: skip
        return found - names.keys() - {0}

    def go_on(self, names: Names) -> list[LinkEffect]:
        """Names came that a block may wait for."""
        block, self._held = self._held, None
        return self.read(block, names)[0] if block is not None else []

    def _send(self, block: LinkBlock, names: Names) -> list[LinkEffect]:
        self._cursor = block.after
        effects: list[LinkEffect] = []
        ready: list[Sent] = []
        size = 0  # of these, at least
        for item in block.items:
            if isinstance(item, Gap):
                self.selection.damaged(item)
                self._unit = []
                continue
            records = self._judged(item, names)
            if records and item.kind == KIND_CLOSED and (covered := self._covered(ready)):
                effects.append(covered)  # it counts after its generation is covered
                ready, size = [], 0
            self._unit += records
            if self._unit and not item.flags & FLAG_UNIT:
                self._unit[-1][0].flags &= ~FLAG_UNIT  # what stays here may have been its end
                ready += self._unit
                self._unit = []
                size += sum(size_of(*sent) for sent in records)
                if size >= SEND_BYTES or len(ready) >= SEND_RECORDS:
                    *full, ready = messages_of(ready)
                    effects += map(self._units, full)
                    size = sum(size_of(*sent) for sent in ready)
        if covered := self._covered(ready):
            effects.append(covered)
        elif ready:
            effects.append(self._units(ready))
        return [*effects, *self._moved()]

    def _judged(self, item: Batch, names: Names) -> list[Sent]:
        """The records of a batch that are sent, after the name of their publisher if it is new."""
        if item.kind == KIND_STATE:
            self.selection.proved(item)
        elif item.kind == KIND_ORIGIN:
            self.selection.skipped(item)
        records = [] if item.kind in STAYS else self.selection.judged(item)
        if not records or not item.publisher or item.publisher in self._named:
            return records
        self._named.add(item.publisher)
        return [name_record(item.publisher, *names[item.publisher]), *records]

    def _covered(self, ready: Sequence[Sent]) -> LinkEffect | None:
        """Sends these, with what the topics left out before the next one, if there is any."""
        covered = [] if self._unit else self.selection.covered_there()
        return self._units(ready, covered) if covered else None

    def _units(self, records: Sequence[Sent], covered: Sequence[Covered] = ()) -> LinkEffect:
        first = self._ordinal + 1
        for record, body in records:
            self._ordinal += 1
            size = size_of(record, body)
            origin = Origin(record.instance, record.generation)
            self._sent.append(OnTheWay(self._ordinal, origin, last_of(record), size, record.kind))
            self.on_the_way_bytes += size
        sent = [record for record, _ in records]
        units = w.SendUnits(self.session, first, sent, [*covered])
        return SayOn(self.link, units, [body for _, body in records])

    @property
    def is_up(self) -> bool:
        """The destination has said what it holds."""
        return self.state in ("finding", "sending", "stating")

    @property
    def stopped(self) -> Mapping[Origin, str]:
        """Origins that do not go on, and why."""
        return self.selection.stopped

    @property
    def needs(self) -> int:
        """The log is needed from this position on: the destination may have lost what the mark
        counted, and gets it again."""
        needed = [self.mark, self._state_from, self._cursor and self._cursor.position]
        needed.append(self.selection.unkept)
        return min(position for position in needed if position is not None)

    def check(self) -> None:
        """Asserts what is always true."""
        assert self.on_the_way_bytes == sum(sent.size for sent in self._sent)
        assert len(self.selection.pending) <= PENDING_MAX + w.RECORDS_MAX
        assert self.state in ("down", "greeting", "finding", "sending", "stating")
