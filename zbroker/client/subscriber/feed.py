"""One subscription on a connection: its requests, its new messages, its inbox. No I/O.

    WAITING --logged on--> SUBSCRIBED --processed--> LIVE
      ^   (until="now": RESOLVING between, once)       |
      +------ the connection is lost: from any state --+
    any --limit, completed after its end, an error of its sid--> ENDED

A vector says how far messages came in; a resumed subscription starts after it, and a repeated
message is dropped by its position, so no message is missing and none comes twice. Where positions
cannot tell, it starts at the newest resume point of the broker instead. In conflation by log time
an interval comes again whole, with the same positions. By the clock of the replay it is another
interval: its messages may be newer than those before, so none is dropped. Messages that live
delivery repeats are known by publisher and sequence. Messages that are not recorded have no
position: they are handed out as they come.

Messages that were not handed out wait in the inbox, in order, with the marks of the broker between
them. Credit goes back when a batch is done with: when the program asks for more. So the inbox never
holds more than the credit (and one batch), a reconnect asks for so much less, and the broker knows
what was handled, as it counts what comes back.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from zbroker.client.effects import SendCommand
from zbroker.client.message import Message, MessageBatch, PayloadUse
from zbroker.client.subscriber.options import replays_only
from zbroker.clock import is_time
from zbroker.errors import ZBrokerError
from zbroker.ids import (
    NOW,
    Origin,
    RangeText,
    Vector,
    format_vector,
    is_range,
    is_vector,
    parse_range,
    parse_vector,
    point_name,
    raise_to,
)
from zbroker.limits import CLIENTS_MAX
from zbroker.wire.messages import Ack, Flow, Options, Ranges, Replace, Subscribe, Unsubscribe

RETURN_MS: Final = 1_000  # credit that is not much goes back so often, for the broker to know

_PLAIN: Final = Options()


class FeedState(Enum):
    """See the picture above."""

    WAITING = "waiting"
    RESOLVING = "resolving"
    SUBSCRIBED = "subscribed"
    LIVE = "live"
    ENDED = "ended"


class FeedBatch(Struct, gc=False):
    """Messages that came together. `arrival` numbers the batches of a connection."""

    messages: MessageBatch
    size: int  # in bytes of credit
    arrival: int


class Passed(Struct, gc=False):
    """Everything up to `vector` came in, and it is durable."""

    vector: Vector
    caught_up: bool = False


class End(Struct):
    """Nothing more comes. `error`: what the broker ended it with."""

    error: ZBrokerError | None = None


Item = FeedBatch | Passed | End


class Feed:
    """One subscription. `command` says what is wanted; its bookmark is where it starts first."""

    def __init__(self, command: Subscribe) -> None:
        options = command.options or _PLAIN
        self.state = FeedState.WAITING
        self.inbox: deque[Item] = deque()
        self.use = PayloadUse()
        self.error: ZBrokerError | None = None
        self.deadline_ms: int | None = None  # for an answer
        self.ends = Ends(command.bookmark, command.until)
        self.accepted = False  # by the broker, once
        self.paused = options.paused
        self.dropped = 0  # unrecorded messages that the broker could not send for lack of credit
        # as it came in
        self.seen: Vector = dict(self.ends.after)
        self.mark: Vector = dict(self.ends.after)  # the newest resume point of the broker
        # as it was handed out
        self.passed: Vector = dict(self.ends.after)
        self.durable: Vector = dict(self.ends.after)
        self.caught_up = False
        self.completed = False  # the same as it came in
        if command.unrecorded is None:  # said once: to resume takes a bookmark
            plain = command.bookmark is None and command.until is None
            command.unrecorded = plain and not replays_only(options)
        self._command = command
        self._repeats = Repeats() if options.delivery == "live" else None
        self._recut = options.conflation_s is not None and options.conflation_clock == "replay"
        self._by_mark = options.delivery == "live" or options.conflation_s is not None
        self._left = options.limit
        self._any = False  # something came in
        self._last: Message | None = None  # the last recorded one handed out
        self._dropped_before = 0  # on earlier connections
        self._credit = command.credit  # as granted
        self._buffered = self._used = 0  # bytes: in the inbox or in hand; done with, not given back
        self._in_hand = 0  # bytes of what was handed out last
        self._returned_ms = 0

    @property
    def sid(self) -> str:
        """What the broker calls it."""
        return self._command.sid

    @property
    def topic(self) -> str:
        return self._command.topic

    @property
    def live(self) -> bool:
        """True if it is sent what is not durable."""
        return self._repeats is not None

    @property
    def wait_s(self) -> float:
        """How long the broker may wait for its bookmark."""
        return (self._command.options or _PLAIN).wait_s

    def moved(self, sid: str, credit_max: int) -> None:
        """It is on another connection now, where nothing of it is known."""
        self._command.sid = sid
        self._command.credit = min(self._command.credit, credit_max)
        self.lost()

    # -- asking -------------------------------------------------------------------------------

    def lost(self) -> None:
        """The connection is gone, or knows nothing of it."""
        if self.state is not FeedState.ENDED:
            self.state, self.deadline_ms = FeedState.WAITING, None
            self._dropped_before = self.dropped

    def point(self) -> Vector:
        """Where it goes on after a reconnect; empty: where it started."""
        return self.mark if self._by_mark else self.seen

    def ask(self, cid: str, after: Vector, *, paused: bool) -> Subscribe:
        """The command that subscribes it, or subscribes it again as it was."""
        self.state = FeedState.SUBSCRIBED
        command = self._command
        exact = not self._any or (after == self.seen and not self._by_mark)
        options = replace(
            command.options or _PLAIN,
            paused=paused,
            limit=self._left if exact else None,  # repeated messages would count, too
        )
        bookmark, until = self.ends.asked(after)
        left = command.credit - self._buffered
        self._used, self._credit = min(0, left), max(0, left)
        return replace(
            command,
            cid=cid,
            bookmark=bookmark,
            until=until,
            options=None if options == _PLAIN else options,
            unrecorded=False if paused else command.unrecorded,
            credit=self._credit,
        )

    def ask_end(self, cid: str, end: str) -> Ranges:
        """The command that looks up its end. It names the topic: rights come before a look-up."""
        self.state = FeedState.RESOLVING
        until = "now" if end == NOW else end
        return Ranges(cid, self._command.topic, self._command.regex, bookmark=end, until=until)

    def subscribed(self, ack: Ack, own: Origin) -> list[SendCommand]:
        """The answer says what was passed before it began: a resume point before any message.

        A start at a time stays one until something came: the time may be in the future.
        """
        self.state, self.deadline_ms, self.accepted = FeedState.LIVE, None, True
        granted = self._credit if ack.credit is None else ack.credit
        self._credit = granted + self._buffered + self._used
        if ack.position and not self.ends.timed:
            start = parse_vector(ack.vector) if ack.vector else {own: ack.position - 1}
            for vector in (self.seen, self.mark, self.passed, self.durable):
                if not vector:
                    vector |= start
        return self.give_back(self._returned_ms)

    # -- what comes in ------------------------------------------------------------------------

    def receive(self, messages: MessageBatch, size: int, arrival: int) -> list[SendCommand]:
        """Takes in a batch: what of it is new waits in the inbox."""
        if self.state is not FeedState.LIVE:
            return []
        fresh = self._fresh(messages)
        if not fresh:
            self._used += size
            return self.give_back(self._returned_ms)
        self._any = True
        self._buffered += size
        self.inbox.append(FeedBatch(fresh, size, arrival))
        if self._left is not None:
            self._left -= len(fresh)
            if not self._left:
                self._end()
                return [SendCommand(Unsubscribe(self.sid))]
        return []

    def _fresh(self, messages: MessageBatch) -> MessageBatch:
        if messages.head.position and not self._recut:
            if self._repeats is not None:
                messages = self._repeats.fresh(messages)
            else:
                messages = self._after_seen(messages)
        return messages if self._left is None else messages[: self._left]

    def _after_seen(self, messages: MessageBatch) -> MessageBatch:
        origin, positions = messages.head.origin, messages.positions
        seen = self.seen.get(origin, 0)
        if positions[0] <= seen:
            messages = messages.after_position(seen)
        if messages:
            assert positions[-1] > seen, "positions of one origin rise"
            self.seen[origin] = positions[-1]
        return messages

    def noted(self, ack: Ack) -> None:
        """`completed`, `dropped`, and marks that let one advance to which little is sent."""
        self.dropped = max(self.dropped, self._dropped_before + ack.dropped)
        completed = ack.type == "completed"
        self.completed |= completed
        vector: Vector = {}
        if ack.vector is not None and (self._any or not self.ends.timed):
            vector = parse_vector(ack.vector)
            raise_to(self.mark, vector)
            if not self.live:
                raise_to(self.seen, vector)
        if vector or completed:
            self._put_passed(vector, caught_up=completed)
        if completed and self.ends.bounded:
            self._end()

    def _put_passed(self, vector: Vector, *, caught_up: bool) -> None:
        """A run of them is one: a reader that is elsewhere learns how far, not each step."""
        last = self.inbox[-1] if self.inbox else None
        if isinstance(last, Passed):
            raise_to(last.vector, vector)
            last.caught_up |= caught_up
        else:
            self.inbox.append(Passed(vector, caught_up))

    def replaced(self, command: Replace, ack: Ack, own: Origin) -> None:
        """Another topic or filter holds from a place on; all before it came in already."""
        if command.topic is not None:
            self._command.topic, self._command.regex = command.topic, command.regex
        if command.filter is not None:
            self._command.filter = command.filter or None
        if ack.position and not self._by_mark and (self._any or not self.ends.timed):
            passed = parse_vector(ack.vector) if ack.vector else {own: ack.position - 1}
            raise_to(self.seen, passed)

    def fail(self, error: ZBrokerError) -> None:
        """It ends with an error, after what waits in the inbox."""
        if self.state is not FeedState.ENDED:
            self.error = error
            self._end()

    def _end(self) -> None:
        self.state, self.deadline_ms = FeedState.ENDED, None
        self.inbox.append(End(self.error))

    # -- what goes out ------------------------------------------------------------------------

    def hand_out(self, now_ms: int = 0) -> tuple[Item, list[SendCommand]]:
        """The next item of the inbox, which is not empty, and the credit to give back."""
        effects = self.asked(now_ms)
        item = self.inbox.popleft()
        if isinstance(item, FeedBatch):
            self._last = item.messages[-1] if item.messages.head.position else None
            self._in_hand = item.size
        elif isinstance(item, Passed):
            raise_to(self.passed, item.vector)
            raise_to(self.durable, item.vector)
            self.caught_up |= item.caught_up
        return item, effects

    def asked(self, now_ms: int) -> list[SendCommand]:
        """The program asks for more: it is done with what it has. The credit to give back."""
        self._fold()
        return self.give_back(now_ms)

    @property
    def at_mark(self) -> bool:
        """True if `completed` is what is handed out next."""
        head = next(iter(self.inbox), None)
        return isinstance(head, Passed) and head.caught_up

    def _fold(self) -> None:
        """A reader that asks for more has passed the last batch."""
        self._buffered -= self._in_hand
        self._used += self._in_hand
        self._in_hand = 0
        if self._last is not None:
            self.passed[self._last.origin] = self._last.position
            self._last = None

    @property
    def return_ms(self) -> int | None:
        """When what is done with has to be given back, however little it is."""
        owes = self._used > 0 and self.state is FeedState.LIVE
        return self._returned_ms + RETURN_MS if owes else None

    def give_back(self, now_ms: int) -> list[SendCommand]:
        """Credit is returned when half of it is used: few small commands, and it never runs dry;
        and once a second.
        """
        if self._used <= 0 or self.state is not FeedState.LIVE:
            return []  # the next subscribe command counts what waits in the inbox
        if self._used * 2 < self._credit and now_ms - self._returned_ms < RETURN_MS:
            return []
        self._returned_ms = now_ms
        used, self._used = self._used, 0
        return [SendCommand(Flow(self.sid, used))]


class Ends:
    """The `bookmark` and `until` of a subscribe command, which may be a range in one text.

    after: the vector that it starts after, if it names one. timed: it starts at a time.
    """

    def __init__(self, bookmark: str | None, until: str | None) -> None:
        self._start, self._until = bookmark, until
        self._range: RangeText | None = None
        begin, inclusive = bookmark or NOW, False
        if is_range(begin):
            self._range = parse_range(begin)
            begin, inclusive = self._range.first, self._range.opening == "["
        self.timed = is_time(begin)
        self.after: Vector = parse_vector(begin) if is_vector(begin) and not inclusive else {}

    @property
    def bounded(self) -> bool:
        """True if it ends by itself."""
        return bool(self._until or (self._range is not None and self._range.last))

    @property
    def unfixed(self) -> str:
        """An end that later means another place: the end of the log now, or a point with a name,
        which may be set again. A vector has to be found for it. "": there is none.
        """
        end = self._until if self._range is None else self._range.last
        if end in ("now", NOW):
            return NOW
        return end if end is not None and point_name(end) is not None else ""

    def resolve(self, vector: str) -> None:
        """The end is a moment: it is after everything up to `vector`."""
        if self._range is None:
            self._until = vector
        else:
            self._range = self._range._replace(last=vector, closing="]")
            self._start = self._range.text

    def asked(self, after: Vector) -> tuple[str | None, str | None]:
        """bookmark and until that go on after a vector; as first given if it is empty."""
        if not after:
            return self._start, self._until
        vector = format_vector(after)
        if self._range is None:
            return vector, self._until
        return self._range.after(vector).text, self._until


#: what one of them was last sent is durable long before so many others have published
PUBLISHERS_MAX: Final = CLIENTS_MAX


class Repeats:
    """The newest sequence of each publisher; those heard of longest ago are forgotten first."""

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}

    def fresh(self, messages: MessageBatch) -> MessageBatch:
        """Those of a batch that did not come before."""
        publisher, sequences = messages.head.publisher, messages.sequences
        first, last = sequences[0], sequences[-1]
        newest = self._newest.pop(publisher, 0)
        if first <= newest:
            messages = messages.after_sequence(newest)
        self._newest[publisher] = max(newest, last)
        if len(self._newest) > PUBLISHERS_MAX:
            del self._newest[next(iter(self._newest))]
        return messages
