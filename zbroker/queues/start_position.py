"""Where a consumer of a replayable queue begins: a point, a selector, or both. Pure.

    consume --since and until looked up--> --selector compared, slice by slice--> opened
                  \\--not in the log-----------------\\--fits nothing--> refused
                   \\--purged behind it--> refused, or from the oldest or from now on, as asked

Searches are read in slices, one each turn, so that they hold nobody up. Source: seed 003.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from zbroker.errors import ClientError
from zbroker.filters import Filter
from zbroker.ids import EPOCH, NOW, POINT
from zbroker.limits import U63_MAX
from zbroker.queues.clients import QueuesConnection, RemoteConsumer
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.shared import QueuesContext
from zbroker.queues.work.sets import lowest
from zbroker.wire import queue_messages as q
from zbroker.wire.internal import Located
from zbroker.wire.ranges import Cut, is_range, parse_range

EXAMINE_MAX: Final = 1_000  # messages of one slice; it may end before that, see log_work.py

#: goes on with a position, or with why there is none
_Then = Callable[[int, ClientError | None], None]


@dataclass(slots=True)
class StartPosition:
    """A consumer on its way to its first message. until: before this position it ends.

    wanted: where it asked to begin, if what it misses from there on is to be reported; start: where
    it begins, or the search goes on.
    """

    command: q.Consume
    one: QueueState
    queue: Replayable
    consumer: RemoteConsumer
    selector: Filter | None
    wanted: int | None = None
    start: int = 0
    until: int = U63_MAX


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
    """Of the room. opened, refused: what follows."""

    def __init__(
        self,
        shared: QueuesContext,
        opened: Callable[[StartPosition], None],
        refused: Callable[[StartPosition, ClientError], None],
    ) -> None:
        self._shared = shared
        self._opened = opened
        self._refused = refused

    def begin(
        self, connection: QueuesConnection, one: QueueState, command: q.Consume, it: RemoteConsumer
    ) -> None:
        """Raises: ClientError, for what can be said at once."""
        assert isinstance(one.queue, Replayable)
        selector = self._shared.compile(connection, command.selector)
        opening = StartPosition(command, one, one.queue, it, selector)
        since, until, cuts = _ends(command)

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

        self._place(opening, since, cuts[0], begun)

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
        opening.wanted = None
        opening.start = manager.floor if choice == "epoch" else manager.following.persisted

    def _place(self, opening: StartPosition, text: str, cut: Cut, then: _Then) -> None:
        """The position that a point is, or why there is none."""
        manager = self._shared.manager
        if text == EPOCH:
            then(manager.floor, None)
        elif text == NOW:
            then(manager.following.persisted, None)
        elif text.startswith(POINT):
            then(manager.point(text.removeprefix(POINT)).position, None)
        else:
            self._shared.locate(text, lambda found: self._found(opening, found, then), cut)

    def _found(self, opening: StartPosition, found: Located, then: _Then) -> None:
        if self._gone(opening):
            return
        try:
            then(found.position, ClientError(found.code, found.reason) if found.code else None)
        except ClientError as error:
            self._refused(opening, error)

    def _gone(self, opening: StartPosition) -> bool:
        return opening.consumer.key not in self._shared.consumers

    def _search(self, opening: StartPosition) -> None:
        """The first message that the selector is true for; without one, where it asked to begin."""
        if opening.selector is None:
            self._opened(opening)
        else:
            self._shared.searches.begin(opening.consumer.key, lambda: self._go_on(opening))

    def _go_on(self, opening: StartPosition) -> None:
        """The next slice, or the end of the search."""
        assert opening.selector is not None
        if self._gone(opening):
            self._shared.searches.end(opening.consumer.key)
            return
        part = lowest(opening.queue.here, EXAMINE_MAX, opening.until, opening.start)
        error = _purged(opening)  # while it was searched
        if error is None and not part:
            text = f"no message of {opening.command.queue!r} fits the selector"
            error = ClientError("bookmark_not_found", text)
        if error is not None:
            self._shared.searches.end(opening.consumer.key)
            self._refused(opening, error)
            return

        def searched(hit: int | None, end: int) -> None:
            opening.start = end if hit is None else hit
            if hit is None or self._gone(opening) or _purged(opening) is not None:
                self._go_on(opening)
            else:
                self._shared.searches.end(opening.consumer.key)
                self._opened(opening)

        self._shared.searches.slice(part, opening.selector, searched)


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
    if opening.wanted is None or opening.wanted >= queue.purged_to:
        return None
    return expired(opening.command.queue, queue)


def expired(name: str, queue: Replayable) -> ClientError:
    """The error of a consumer for whom messages are gone that it was to get."""
    oldest = queue.lowest
    left = "it is empty" if oldest is None else f"its oldest message is at position {oldest}"
    reason = f"queue {name!r} was purged up to position {queue.purged_to}; {left}"
    hint = 'begin at "epoch", or say so ahead: bookmark_not_found="epoch"'
    return ClientError("bookmark_expired", reason, hint)
