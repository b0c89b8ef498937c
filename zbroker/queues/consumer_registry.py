"""Consumers: they begin, end, get lost and come back. Pure.

consume --(replayable: where from?)--> consuming --cancel--> over: what it holds comes back
                                         | connection lost
                                         v
                              lost: its leases wait for the same consumer, one lease at most

A consumer of a replayable queue begins at a point, at the first message that fits a selector, or
both:

    since and until looked up --> selector compared, slice by slice --> opened
        \\--not in the log-----------------\\--fits nothing--> refused
         \\--purged after it--> refused, or from the oldest or from now on, as asked

A search is read in slices, one slice of one search a turn, after all that the queues have to do.
Source: seed 003.

    waiting --fewer than SEARCHES_MAX run--> running --slices, in turn with the others--> over
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyroaring import BitMap64

from zbroker.errors import ClientError
from zbroker.filters import Filter
from zbroker.ids import EPOCH, NOW, POINT, Cut, is_range, parse_range
from zbroker.limits import U63_MAX
from zbroker.log.records import ends_of, of_ends
from zbroker.queues.context import QueuesConnection, QueuesContext, RemoteConsumer
from zbroker.queues.effects import Search, Searched
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import lowest
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.bodies import CODEC_ZSTD
from zbroker.wire.internal import Located

CONSUMERS_MAX: Final = 1_000  # per connection
SEARCHES_MAX: Final = 4  # at a time: the more, the longer each takes; the others wait
EXAMINE_MAX: Final = 1_000  # messages of one slice; it may end before that, see log_work.py

#: goes on with a position, or with why there is none
_Then = Callable[[int, ClientError | None], None]


class ConsumerRegistry:
    """All consumers of the process."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared
        self.starts = StartPositions(shared, self)
        self._last_key = 0

    # -- begin --------------------------------------------------------------------------------

    def consume(self, connection: QueuesConnection, command: q.Consume) -> None:
        """Raises: ClientError."""
        self.check_right(connection, command.queue)
        one = self._shared.running(command.queue)
        if command.sid in connection.consumers:
            raise ClientError("sid_in_use", f"sid {command.sid!r} is in use on this connection")
        if len(connection.consumers) >= CONSUMERS_MAX:
            raise ClientError("too_many", f"{CONSUMERS_MAX} consumers per connection")
        connection.use.account.check_subscription()
        if self._shared.leaves(one):
            raise drained()
        if isinstance(one.queue, Replayable):
            self._read(connection, command, one, one.queue)
        else:
            self._join(connection, command, one, one.queue)

    def check_right(self, connection: QueuesConnection, queue: str) -> None:
        """Raises: ClientError not_entitled."""
        principal = connection.token.principal
        if self._shared.connections.access.permit(principal, "consume").verdict(queue) != "all":
            raise ClientError("not_entitled", f"{principal!r} may not consume {queue!r}")

    def _made(self, connection: QueuesConnection, command: q.Consume) -> RemoteConsumer:
        self._last_key += 1
        credit = connection.grant(command.sid, command.credit)
        consumer = RemoteConsumer(
            self._last_key, connection.rid, command.sid, connection.token.name, command.queue,
            credit, f"{connection.token.name}/{command.holder or command.sid}",
            zstd=CODEC_ZSTD in command.codecs, sid_packed=codec.encode(command.sid),
        )  # fmt: skip
        self._shared.add(connection, consumer)
        return consumer

    def _join(
        self, connection: QueuesConnection, command: q.Consume, one: QueueState, queue: Queue
    ) -> None:
        places = command.since, command.selector, command.until
        if places != (None, None, None) or command.bookmark_not_found != "fail":
            text = "only a replayable queue is read from a place of the consumer's choice"
            keys = "`since`, `selector`, `until`, `bookmark_not_found`"
            raise ClientError("bad_field", f"key {keys}: {text}")
        content = self._shared.compile(connection, command.filter)
        holding = self._shared.manager.good(positions_of(command.holding), command.generation)
        consumer = self._made(connection, command)
        consumer.filter = content
        now, config = self._shared.now, one.definition.config
        most = queue.join(consumer.key, consumer.holder, command.backlog, content is not None, now)
        kept = queue.reclaim(consumer.key, consumer.holder, holding, now)
        self._began(one, consumer, q.Consuming(
            consumer.sid, most, config.lease, config.semantics, config.kind,
            consumer.credit, command.cid, ends_of(kept),
        ))  # fmt: skip

    def _began(self, one: QueueState, consumer: RemoteConsumer, answer: q.Consuming) -> None:
        self._shared.send(consumer.rid, answer)
        self._shared.touch(one)

    # -- replayable queues --------------------------------------------------------------------

    def _read(
        self, connection: QueuesConnection, command: q.Consume, one: QueueState, queue: Replayable
    ) -> None:
        check(command)
        one.check_ready()  # else what a selector fits may not be known yet
        queue.check_free(connection.token.name)
        consumer = self._made(connection, command)
        consumer.opened = False
        try:
            self.starts.begin(connection, one, command, consumer)
        except ClientError:
            self._shared.remove(consumer)
            raise

    def opened(self, it: StartPosition) -> None:
        """The place where it begins is known."""
        consumer, queue, config = it.consumer, it.queue, it.one.definition.config
        try:
            queue.check_free(consumer.client)
        except ClientError as error:
            self.refuse(it, error)
            return
        before = self._shared.consumers.get(queue.reader.key) if queue.reader is not None else None
        if before is not None:
            self.end(before, ClientError("session_ended", "this client reads the queue again"))
        queue.open(consumer.key, consumer.client, it.start, it.until)
        consumer.opened = True
        self._began(it.one, consumer, q.Consuming(
            consumer.sid, 0, 0, config.semantics, config.kind, consumer.credit, it.command.cid,
            position=it.start,
        ))  # fmt: skip

    def refuse(self, it: StartPosition, error: ClientError) -> None:
        """There is no place where it can begin."""
        self._shared.remove(it.consumer)
        self._shared.refuse(it.consumer.rid, error, it.command.cid, it.consumer.sid)

    # -- end ----------------------------------------------------------------------------------

    def cancel(self, connection: QueuesConnection, command: q.Cancel) -> None:
        """It ends; what it holds comes back. One that has ended is answered alike."""
        consumer = connection.consumers.get(command.sid)
        if consumer is not None:
            self.leave(consumer)
        elif command.sid not in connection.ended:
            raise unknown_sid(command.sid)
        self._shared.send(connection.rid, m.Ack("processed", command.cid, sid=command.sid))

    def leave(self, consumer: RemoteConsumer, *, lost: bool = False) -> None:
        """lost: its connection is gone, it may come back."""
        one = self._shared.manager.running.get(consumer.queue)
        # its queue may be another one by now, and its end is on its way
        if one is not None and consumer.opened and one.queue.has(consumer.key):
            if lost:
                one.queue.lose(consumer.key, self._shared.now)
            else:
                one.queue.leave(consumer.key)
            self._shared.touch(one)
        self._shared.remove(consumer)

    def end(self, consumer: RemoteConsumer, error: ClientError) -> None:
        """The broker ends it, and says why."""
        self.leave(consumer)
        self._shared.refuse(consumer.rid, error, sid=consumer.sid)

    def end_with_queues(self) -> None:
        """Ends consumers of queues that were deleted, or purged ahead of where they read."""
        manager, shared = self._shared.manager, self._shared
        for one in manager.overtaken:
            if isinstance(one.queue, Replayable) and one.queue.reader is not None:
                reader = shared.consumers[one.queue.reader.key]
                self.end(reader, expired(one.name, one.queue))
        for one in manager.ended:
            error = ClientError("unknown_queue", f"queue {one.name!r} was deleted")
            if one.met:
                error = ClientError("not_ready", f"queue {one.name!r} is read again; consume again")
            after = manager.running.get(one.name)  # another queue of that name
            for consumer in list(shared.of.get(one.name, {}).values()):
                if after is None or not after.queue.has(consumer.key):
                    shared.remove(consumer)
                    shared.refuse(consumer.rid, error, sid=consumer.sid)
            one.abandon(error.code)
            shared.note_use(one)
        manager.overtaken.clear()
        manager.ended.clear()

    def flow(self, connection: QueuesConnection, command: m.Flow) -> None:
        """More credit."""
        consumer = connection.consumers.get(command.sid)
        if consumer is None:
            if command.sid in connection.ended:
                return  # it ended while this was on its way
            raise unknown_sid(command.sid)
        consumer.credit += connection.grant(consumer.sid, command.bytes, consumer.credit)
        one = self._shared.manager.running.get(consumer.queue)
        if one is not None:
            self._shared.touch(one)


def positions_of(ends: list[int]) -> BitMap64:
    """Raises: ClientError bad_field."""
    try:
        return of_ends(ends)
    except ValueError as error:
        raise ClientError("bad_field", f"key `ends`: {error}") from None


def drained() -> ClientError:
    """The refusal of consumers of replicated queues while the instance is to stop."""
    reason = "this instance is drained: consumers of replicated queues go on at another one"
    return ClientError("not_ready", reason, "connect with the URLs of all instances")


def unknown_sid(sid: str) -> ClientError:
    """The refusal of a command for a consumer that never was."""
    return ClientError("unknown_sid", f"no consumer {sid[:64]!r} on this connection")


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
    """Finds where consumers of replayable queues begin."""

    def __init__(self, shared: QueuesContext, registry: ConsumerRegistry) -> None:
        self._shared = shared
        self._registry = registry
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
        opening.start = manager.log_start if choice == "epoch" else manager.following.persisted

    def _place(self, opening: StartPosition, text: str, cut: Cut, then: _Then) -> None:
        """The position that a point is, or why there is none."""
        manager = self._shared.manager
        if text == EPOCH:
            then(manager.log_start, None)
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
            self._registry.refuse(opening, error)

    def _gone(self, opening: StartPosition) -> bool:
        return opening.consumer.key not in self._shared.consumers

    def _search(self, opening: StartPosition) -> None:
        """The first message that the selector is true for; without one, where it asked to begin."""
        if opening.selector is None:
            self._registry.opened(opening)
        else:
            self._waiting.append(opening)

    def _go_on(self, opening: StartPosition) -> None:
        """The next slice is due, or the search is over."""
        if self._gone(opening):
            return
        part = lowest(opening.queue.here, EXAMINE_MAX, opening.until, opening.start)
        error = _purged(opening)  # while it was searched
        if error is None and not part:
            text = f"no message of {opening.command.queue!r} fits the selector"
            error = ClientError("bookmark_not_found", text)
        if error is not None:
            self._registry.refuse(opening, error)
        else:
            self._due.append((opening, part))

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
