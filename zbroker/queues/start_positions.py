"""Where consumers of replayable queues begin. Pure.

    since and until looked up --> selector compared, slice by slice --> opened
        \\--not in the log-----------------\\--fits nothing--> refused
         \\--purged after it--> refused, or from the oldest or from now on, as asked

In a queue of several instances a vector says what the consumer had, at whatever instance. It begins
once the queue was read as far as the log was when it asked.

A search is read in slices, one slice of one search a turn, after all that the queues have to do.
Source: seed 003.

    waiting --fewer than SEARCHES_MAX run--> running --slices, in turn with the others--> over
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from msgspec import Struct, field
from pyroaring import BitMap64

from zbroker.clock import is_time
from zbroker.errors import ClientError
from zbroker.filters import Filter
from zbroker.ids import (
    EPOCH,
    NOW,
    POINT,
    Cut,
    Vector,
    format_vector,
    is_range,
    is_vector,
    parse_range,
    parse_vector,
)
from zbroker.limits import U63_MAX
from zbroker.queues.context import QueuesConnection, QueuesContext, RemoteConsumer
from zbroker.queues.effects import Search, Searched
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.replicated.replicated_replayable import ReplicatedReplayable
from zbroker.queues.work.sets import below, first_of, lowest, without
from zbroker.wire import queue_messages as q
from zbroker.wire.internal import Located
from zbroker.wire.queue_surveys import PointRow

SEARCHES_MAX: Final = 4  # at a time: the more, the longer each takes; the others wait
EXAMINE_MAX: Final = 1_000  # messages of one slice; it may end before that, see log_work.py
FROM_OLDEST: Final = 'begin at "epoch", or say so ahead: bookmark_not_found="epoch"'

#: goes on with a position, or with why there is none
_Then = Callable[[int, ClientError | None], None]


class Opener(Protocol):
    """What becomes of a start: zbroker.queues.consumer_registry.ConsumerRegistry."""

    def opened(self, it: StartPosition) -> None:
        """The place where it begins is known."""

    def refuse(self, it: StartPosition, error: ClientError) -> None:
        """There is no place where it can begin."""


class StartPosition(Struct):
    """A consumer on its way to its first message. until: before this position it ends.

    wanted: where it asked to begin, if what it misses from there on is to be reported; start: where
    it begins, or the search goes on. passed: a vector that it asked to begin after, in a queue of
    several instances; had: the messages there that this covers. read_to: it waits until the queue
    was read that far.
    """

    command: q.Consume
    one: QueueState
    queue: Replayable
    consumer: RemoteConsumer
    selector: Filter | None
    wanted: int | None = None
    start: int = 0
    until: int = U63_MAX
    passed: Vector | None = None
    had: BitMap64 = field(default_factory=BitMap64)
    read_to: int = 0

    @property
    def shared(self) -> ReplicatedReplayable | None:
        """What the queue knows if it is one of several instances."""
        replicated = self.one.replicated
        return replicated if isinstance(replicated, ReplicatedReplayable) else None


def check(command: q.Consume) -> None:
    """Raises: ClientError bad_field."""
    if command.since is None and command.selector is None:
        text = "a replayable queue is read from somewhere: give `since` or `selector`"
        raise ClientError("bad_field", f"key `since`: {text}")
    if command.filter:
        raise ClientError("bad_field", "key `filter`: a replayable queue is read whole")
    if is_range(command.since or "") and command.until is not None:
        text = "key `until`: the range in `since` brings its own end"
        raise ClientError("bad_field", text)


class StartPositions:
    """Finds where consumers of replayable queues begin."""

    def __init__(self, shared: QueuesContext, registry: Opener) -> None:
        self._shared = shared
        self._registry = registry
        self._unread: list[StartPosition] = []  # their queues have to be read first
        self._waiting: deque[StartPosition] = deque()  # searches that have not begun
        self._due: deque[tuple[StartPosition, BitMap64]] = deque()  # the next slices of others
        self._reading = 0  # slices that are being read

    @property
    def busy(self) -> bool:
        """True if the next turn has a slice, or a search may begin."""
        return bool(self._due) or (bool(self._waiting) and self._has_place)

    @property
    def _has_place(self) -> bool:
        return len(self._due) + self._reading < SEARCHES_MAX

    def next_search(self) -> Search | None:
        """The slice of this turn."""
        unread, self._unread = self._unread, []
        for opening in unread:
            self._search(opening)
        while self._waiting and self._has_place:
            self._go_on(self._waiting.popleft())
        if not self._due:
            return None
        opening, part = self._due.popleft()
        assert opening.selector is not None
        self._reading += 1
        job = self._shared.job(partial(self._searched, opening))
        return Search(job, part, opening.selector)

    def begin(
        self, connection: QueuesConnection, one: QueueState, command: q.Consume, it: RemoteConsumer
    ) -> None:
        """Raises: ClientError, for what can be said at once."""
        assert isinstance(one.queue, Replayable)
        selector = self._shared.compile(connection, command.selector)
        opening = StartPosition(command, one, one.queue, it, selector)
        since, until, cuts = _ends(command)
        if opening.shared is not None:
            opening.read_to = self._shared.manager.following.persisted

        def begun(position: int, error: ClientError | None) -> None:
            self._begin_at(opening, position, error, fixed=since in (EPOCH, NOW))
            if until is None:
                self._search(opening)
            else:
                self._place(opening, until, cuts[1], ended)

        def ended(position: int, error: ClientError | None) -> None:
            if error is not None:
                raise error
            opening.until = position
            self._search(opening)

        passed = None if opening.shared is None else self._passed(since, cuts[0])
        if passed is not None:
            opening.passed = passed
            begun(0, None)
        else:
            self._place(opening, since, cuts[0], begun)

    def _passed(self, text: str, cut: Cut) -> Vector | None:
        """What a point says that a consumer had, on this side of it; None if it names a place in
        this log. Raises: ClientError."""
        if (point := self._point(text)) is not None:
            return parse_vector(point.covers) if point.covers else None
        if is_time(text) or not is_vector(text):
            return None
        vector = parse_vector(text)
        return {one: at - 1 for one, at in vector.items() if at} if cut == "at" else vector

    def _point(self, text: str) -> PointRow | None:
        """The point that is named; None: something else is. Raises: ClientError unknown_point."""
        named = text.startswith(POINT)
        return self._shared.manager.points.named(text.removeprefix(POINT)) if named else None

    def _begin_at(
        self, opening: StartPosition, position: int, error: ClientError | None, *, fixed: bool
    ) -> None:
        """fixed: it begins at the oldest message or now, and misses nothing that it asked for.

        Raises: ClientError, where it can begin there no more and asked for no other place.
        """
        opening.wanted, opening.start = None if fixed else position, position
        error = error or _purged(opening)
        if error is None:
            return
        choice = opening.command.bookmark_not_found
        if choice == "fail" or error.code not in ("bookmark_not_found", "bookmark_expired"):
            raise error
        manager = self._shared.manager
        opening.wanted = opening.passed = None
        opening.start = manager.log_start if choice == "epoch" else manager.following.persisted

    def _place(self, opening: StartPosition, text: str, cut: Cut, then: _Then) -> None:
        """The position that a point is, or why there is none."""
        manager = self._shared.manager
        if text == EPOCH:
            then(manager.log_start, None)
        elif text == NOW:
            then(manager.following.persisted, None)
        elif (point := self._point(text)) is not None and not point.shared:
            then(point.position, None)
        else:
            text, cut = (text, cut) if point is None else (point.covers, "")
            self._shared.locate(text, lambda found: self._found(opening, found, then), cut)

    def _found(self, opening: StartPosition, found: Located, then: _Then) -> None:
        if self._gone(opening):
            return
        try:
            then(found.position, ClientError(found.code, found.reason) if found.code else None)
        except ClientError as error:
            self._registry.refuse(opening, error)

    def _gone(self, opening: StartPosition) -> bool:
        return opening.consumer.key not in self._shared.consumers

    def _search(self, opening: StartPosition) -> None:
        """The first message that the selector is true for; without one, where it asked to begin."""
        if self._gone(opening):
            return
        if opening.one.folded < opening.read_to:
            self._unread.append(opening)
            return
        error = _purged(opening)  # until it was read
        if error is not None:
            self._registry.refuse(opening, error)
            return
        if opening.shared is not None and opening.passed is not None:
            opening.had = opening.shared.had(opening.passed)
            first = first_of(opening.queue.here - opening.had)
            opening.start = opening.one.folded if first is None else first
            opening.had = without(opening.had, below(opening.had, opening.start))
        if opening.selector is None:
            self._registry.opened(opening)
        else:
            self._waiting.append(opening)

    def _go_on(self, opening: StartPosition) -> None:
        """The next slice is due, or the search is over."""
        if self._gone(opening):
            return
        part = self._slice(opening)
        error = _purged(opening)  # while it was searched
        if error is None and not part:
            text = f"no message of {opening.command.queue!r} fits the selector"
            error = ClientError("bookmark_not_found", text)
        if error is not None:
            self._registry.refuse(opening, error)
        else:
            self._due.append((opening, part))

    @staticmethod
    def _slice(opening: StartPosition) -> BitMap64:
        """The next messages that may be the first one."""
        start = opening.start
        while part := lowest(opening.queue.here, EXAMINE_MAX, opening.until, start):
            if fresh := without(part, opening.had):
                return fresh
            start = part.max() + 1
        return part

    def _searched(self, opening: StartPosition, done: Searched) -> None:
        self._reading -= 1
        opening.start = done.end if done.hit is None else done.hit
        if done.hit is None or self._gone(opening) or _purged(opening) is not None:
            self._go_on(opening)
        else:
            self._registry.opened(opening)


def _ends(command: q.Consume) -> tuple[str, str | None, tuple[Cut, Cut]]:
    """Where it begins and ends, and which sides of these. Raises: ClientError bad_bookmark."""
    since, until = command.since or EPOCH, command.until
    if is_range(since):
        parts = parse_range(since)
        return _word(parts.first), _word(parts.last) or None, (parts.first_cut, parts.last_cut)
    return _word(since), None if until is None else _word(until), ("", "")


def _word(text: str) -> str:
    return {"epoch": EPOCH, "now": NOW}.get(text, text)


def _purged(opening: StartPosition) -> ClientError | None:
    """Why it cannot begin where it asked to: messages from there on were purged."""
    queue = opening.queue
    if opening.wanted is None:
        return None
    if opening.shared is None or opening.passed is None:
        missed = opening.wanted < queue.purged_to
        return expired(opening.command.queue, queue) if missed else None
    if not opening.shared.missed(opening.passed):
        return None
    lost = format_vector(opening.shared.lost)
    reason = (
        f"queue {opening.command.queue!r} does not have all that this vector does not cover: "
        f"messages up to {lost} were purged, or never came here"
    )
    return ClientError("bookmark_expired", reason, FROM_OLDEST)


def expired(name: str, queue: Replayable) -> ClientError:
    """The error of a consumer for whom messages are gone that it was to get."""
    oldest = queue.lowest
    left = "it is empty" if oldest is None else f"its oldest message is at position {oldest}"
    reason = f"queue {name!r} was purged up to position {queue.purged_to}; {left}"
    return ClientError("bookmark_expired", reason, FROM_OLDEST)
