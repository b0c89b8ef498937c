"""One subscription: its selection of messages, how they are sent, and its progress. Pure.

    locating --located--> running --end of range, limit, gap, error, unsubscribe--> gone

Its position in the log is kept by its replay: see replay.py. Live is a cursor that has caught
up; there is no second mechanism, so there is nothing to lose or repeat at a cut-over.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from msgspec import Struct, field

from zbroker.blocks.frame_builder import Held, MessageSpan, Projection
from zbroker.delivery.conflation import Conflation
from zbroker.delivery.points import Point
from zbroker.delivery.selection import StartSelection
from zbroker.ids import Vector
from zbroker.limits import U63_MAX
from zbroker.log.batch_index import since
from zbroker.log.cover import Cover
from zbroker.log.format import Batch
from zbroker.wire.messages import Options

LIVE: Final = "live"
FULLY_DURABLE: Final = "fully_durable"
STEPS_MAX: Final = 64  # remembered; of more every second one is dropped


class Step(NamedTuple):
    """After a turn: the credit and messages spent so far, and the position after them."""

    spent: int
    messages: int
    position: int


class Trail:
    """How far the program of a subscriber came, by the credit that it has given back.

    Credit is given back for handled messages; those without it are on their way, in the inbox of
    the client, or being worked on. The trail knows where in the log these begin.
    spent: bytes of credit that were used. returned: how many of them came back.
    """

    __slots__ = ("_handled", "_steps", "returned", "spent")

    def __init__(self) -> None:
        self.spent = self.returned = 0
        self._handled = Step(0, 0, 0)
        self._steps: deque[Step] = deque()

    def begin(self, position: int) -> None:
        """It is located there."""
        self._handled = Step(0, 0, position)

    def mark(self, messages: int, position: int) -> None:
        """A turn is over: so many messages were sent in all, up to `position`."""
        if len(self._steps) >= STEPS_MAX:
            self._steps = deque(list(self._steps)[1::2])
        self._steps.append(Step(self.spent, messages, position))

    def give_back(self, size: int) -> None:
        """So much credit came back."""
        self.returned = min(self.spent, self.returned + size)
        while self._steps and self._steps[0].spent <= self.returned:
            self._handled = self._steps.popleft()

    def handled(self, position: int) -> int:
        """Up to where all was handled, if it was sent up to `position`."""
        return min(self._handled.position, position) if self._steps else position

    def in_hand(self, messages: int) -> int:
        """How many of so many messages sent are not handled, as far as is known."""
        return messages - self._handled.messages if self._steps else 0


class Names(NamedTuple):
    """What a subscription is called: by the core, by its connection, by its subscriber."""

    key: int
    rid: bytes
    sid: str


class SubscriptionState(Struct, eq=False):
    """State of one subscription.

    action: the right that its subscriber needs.
    until: the range ends before this position. target: when it is passed, `completed` is due.
    not_before_ns, stop_ns: the same two ends while they are times later than the log.
    left: so many messages may still be sent. ready: conflated messages that are due.
    window: the most credit that it had, which it gets again as it is used.
    reported: the resume point that the subscriber knows of.
    cover: which messages it has seen already, elsewhere; None: none of those to come.
    at_target: what it will have passed at `target`.
    dropped: unrecorded messages that came while it had no credit; dropped_reported: so many of
    these the subscriber knows of.
    """

    names: Names
    selection: StartSelection
    look: Projection
    credit: int
    options: Options = field(default_factory=Options)
    topic: str = ""  # as it was asked for, for people
    regex: bool = False
    action: str = "subscribe"
    since_ms: int = 0  # wall clock
    conflation: Conflation | None = None
    ready: deque[Held] = field(default_factory=deque)
    left: int = U63_MAX
    paused: bool = False
    caught_up: bool = False
    until: int = U63_MAX
    target: int = 0
    cover: Cover | None = None
    at_target: Vector = field(default_factory=dict)
    reported: int = 0
    not_before_ns: int | None = None
    stop_ns: int | None = None
    dropped: int = 0
    dropped_reported: int = 0
    window: int = 0
    sent_messages: int = 0
    sent_bytes: int = 0
    trail: Trail = field(default_factory=Trail)
    sid_packed: bytes = b""

    @property
    def plain(self) -> bool:
        """True if batches may go out as they are."""
        return (
            not self.selection.text
            and self.selection.permit is None
            and self.look.select is None
            and self.conflation is None
            and self.options.limit is None
            and self.cover is None
        )

    @property
    def live(self) -> bool:
        """True if it wants what is not durable yet."""
        return self.options.delivery == LIVE

    @property
    def fully_durable(self) -> bool:
        """True if it wants only what enough synchronous destinations have, too."""
        return self.options.delivery == FULLY_DURABLE

    @property
    def bounded(self) -> bool:
        """True if it ends by itself at some point of the log."""
        return self.until != U63_MAX or self.stop_ns is not None

    @property
    def goal(self) -> int:
        """The position at which it is over or has caught up; U63_MAX if there is none."""
        return self.until if self.bounded or self.caught_up else self.target

    def start(self, at: Point, until: Point | None, persisted: int) -> None:
        """Begins at a located point."""
        self.not_before_ns = at.time_ns
        if until is not None:
            self.stop_ns = until.time_ns
            self.until = until.position if until.time_ns is None else U63_MAX
        self.target = persisted
        self.at_target = dict(at.at_end)
        if at.forked:
            self.cover = Cover(dict(at.passed), tied=at.tied, end=U63_MAX)
        elif at.mixed and at.position < persisted:
            self.cover = Cover(dict(at.passed), tied=at.tied, end=persisted)

    def span(self, batch: Batch, position: int) -> MessageSpan:
        """Which messages of `batch` count here; turns a time later than the log into a position."""
        ahead = batch.skip - batch.position
        span = MessageSpan(position + ahead, min(batch.end_position, self.until) + ahead)
        if self.stop_ns is not None and (stop := since(batch, span, self.stop_ns)) < span.last:
            self.until, self.stop_ns = stop - ahead, None
            span = MessageSpan(span.first, stop)
        if self.not_before_ns is not None:
            span = MessageSpan(since(batch, span, self.not_before_ns), span.last)
            if span.first < span.last:
                self.not_before_ns = None
        return span

    def safe(self, position: int) -> int:
        """The resume point when its replay is at `position`: held messages come again."""
        if self.ready:
            return self.ready[0].since
        held = self.conflation.oldest_position if self.conflation is not None else None
        return min(position, self.until) if held is None else held

    def forget_cover(self, position: int) -> None:
        """Nothing that it has seen elsewhere comes from here on, if that is so."""
        if self.cover is not None and self.safe(position) >= self.cover.end:
            self.cover = None

    def drop_held(self) -> None:
        """Forgets what it holds: `safe` was asked before, and it comes again from there."""
        self.ready.clear()
        if self.conflation is not None:
            self.conflation.forget()

    def over(self, position: int) -> bool:
        """True if all that was asked for was sent or stepped over."""
        return self.left <= 0 or (position >= self.until and self.safe(position) >= self.until)
