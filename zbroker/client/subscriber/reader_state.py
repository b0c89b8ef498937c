"""What a subscription knows of itself, whatever waits for its messages: a thread or a task.

It turns the items of the inbox into batches, remembers what was handed out and tells the bookmark
store. How the next item is waited for, and how the broker is asked for something, is the part of
the two shells: `subscription.py` here, and `zbroker.client.aio.subscription`.

The broker combines only what goes to one connection. So subscriptions that are resumed together
move to a connection of their own, paused where they are, and are resumed there by one command.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import length_hint
from typing import Generic, Protocol, TypeVar

from zbroker.client import forks
from zbroker.client.bookmark_stores.memory import Tracking
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.message import Message
from zbroker.client.subscriber.feed import End, Feed, FeedBatch, Item, Passed
from zbroker.client.subscriber.requests import Asked
from zbroker.client.subscriber.transport import SubscriberTransport
from zbroker.errors import ZBrokerError
from zbroker.ids import format_vector
from zbroker.limits import SUBSCRIPTIONS_MAX
from zbroker.wire.messages import Replace, Subscribe


class Handler(Protocol):
    """What calls a function of the user for each message."""

    error: BaseException | None


class ReaderState:
    """One subscription: what it is for, where it is, what was handed out."""

    _port: SubscriberTransport
    _handling: Handler | None
    _doors: ListenerEndpoints
    _closed: bool

    def __init__(
        self,
        doors: ListenerEndpoints,
        command: Subscribe,
        tracking: Tracking | None,
        handler: Callable[[Message], object] | None,
        accept_s: float,
        on_caught_up: Callable[[], object] | None = None,
    ) -> None:
        """accept_s: how long the broker may take to accept it, beyond what it was told to wait."""
        self._closed = True  # until it is whole: __del__ comes even if it never is
        self._doors = doors
        self._feed = Feed(command)
        self._handler = handler
        self._accept_s = accept_s + self._feed.wait_s
        self._tracking = tracking
        self._owner: object = None  # the client: it lives as long as its subscriptions
        self._handling = None
        self._current: Message | None = None
        self._recorded: Message | None = None  # the last recorded one of the batches before
        self._batch: list[Message] = []
        self._rest: Iterator[Message] = iter(self._batch)
        self._on_caught_up = on_caught_up  # until it is due
        self._call: Callable[[], object] | None = None  # now
        forks.watch(self)

    def _forked(self, _error: ZBrokerError) -> None:
        """This is a copy in a forked process: what is in hand is the parent's, too."""
        self._batch.clear()

    def _pass(self) -> None:
        """Who asks for more is done with the message in hand. Raises: ZBrokerError store_failed."""
        if self._tracking is not None and self._current is not None:
            self._tracking.passed(self._current)

    def discard(self, message: Message) -> None:
        """Marks a message as processed, for the bookmark store; in any order, from any thread.

        With discard="auto" that happens when the next one is asked for. Raises: ZBrokerError
        bad_field (it has no name), "closed" (its store is), store_failed.
        """
        if self._tracking is None:
            raise ZBrokerError(
                "bad_field", f"the subscription to {self.topic!r} has no name in a bookmark store"
            )
        self._tracking.check_current()
        self._tracking.discard(message)

    # -- where it is --------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The topic or pattern that it is for."""
        return self._feed.topic

    @property
    def caught_up(self) -> bool:
        """True once everything that was persisted when it began was handed out, and it is known
        that nothing of it is to come: at the latest when the reader asks for more.
        """
        feed = self._feed
        return feed.caught_up or (feed.at_mark and not length_hint(self._rest))

    @property
    def position(self) -> int | None:
        """Of the last recorded message handed out (of a batch: its last one)."""
        last = self._last
        return last.position if last is not None else None

    @property
    def bookmark(self) -> str | None:
        """Of the last recorded message handed out."""
        last = self._last
        return last.bookmark if last is not None else None

    @property
    def dropped(self) -> int:
        """How many unrecorded messages the broker had to leave out, because this side was slow."""
        return self._feed.dropped

    @property
    def vector(self) -> str | None:
        """A value for `since` that goes on behind the last recorded message handed out.

        With live delivery or conflation store `durable` instead.
        """
        vector, current = dict(self._feed.passed), self._current
        if current is not None and current.recorded:
            passed = vector.get(current.origin, 0)
            if current.position > passed or self._feed.live:
                vector[current.origin] = current.position
        return format_vector(vector) if vector else None

    @property
    def durable(self) -> str | None:
        """A value for `since`: everything up to there was handed out, and is durable.

        The newest that the broker told, which it does each second, also where nothing matched; in a
        subscription that starts at a time from the first message on. Safe to store whatever the
        options are.
        """
        return format_vector(self._feed.durable) if self._feed.durable else None

    @property
    def paused(self) -> bool:
        """True if the broker sends nothing until it is resumed."""
        return self._feed.paused

    @property
    def error(self) -> BaseException | None:
        """What ended it: an exception of its handler, or the broker's."""
        if self._handling is not None and self._handling.error is not None:
            return self._handling.error
        return self._feed.error

    # -- for the shells -----------------------------------------------------------------------

    def _stop(self) -> None:
        """Ends it; nothing more is handed out."""
        raise NotImplementedError

    def _ask_at_once(self) -> None:
        """Its client has made it."""
        raise NotImplementedError

    def _begin(self, batch: list[Message]) -> None:
        self._batch, self._rest = batch, iter(batch)

    def _is_complete(self, port: SubscriberTransport) -> bool:
        """What `wait_caught_up` waits for on `port`, or nothing more comes there."""
        feed = self._feed
        if self._port is not port:
            return True
        there = feed.caught_up if self._handling is not None else feed.completed
        return there or feed.error is not None or self._closed

    def _check_complete(self, timeout: float | None) -> None:
        """Raises: ZBrokerError, what ended it before, "closed" or "timeout"."""
        feed = self._feed
        if feed.caught_up or (self._handling is None and feed.completed):
            return
        if self.error is not None:
            raise self.error
        self._check_open()
        hint = "" if self._handling is not None else "read it meanwhile if it is more than `credit`"
        raise ZBrokerError("timeout", f"not caught up after {timeout} s", hint)

    def _accept(self, item: Item | None) -> list[Message] | None:
        """What an item of the inbox brings; ends with the last one. Raises: what ended it."""
        self._recorded = self._last
        if isinstance(item, Passed) and item.caught_up:
            self._port.look()
            self._call, self._on_caught_up = self._on_caught_up, None
        if self._tracking is not None:
            return self._track(self._tracking, item)
        return self._messages(item)

    def _take(self) -> bool:
        """Takes the next item, which is there; whether it brought messages."""
        batch = self._accept(self._port.hand_out(self._feed))
        if batch is not None:
            self._begin(batch)
        return batch is not None

    def _check_open(self) -> None:
        if self._closed:
            raise ZBrokerError("closed", f"the subscription to {self.topic!r} has ended")

    def _check_answers(self, command: Asked) -> None:
        """Raises: ZBrokerError bad_field, if the broker does not do that with it."""
        if self._feed.live and not isinstance(command, Replace):
            raise ZBrokerError("bad_field", "with live delivery there is neither pause nor resume")

    # -- helpers ------------------------------------------------------------------------------

    @property
    def _last(self) -> Message | None:
        """The last recorded message handed out."""
        current = self._current
        return current if current is not None and current.recorded else self._recorded

    def _track(self, tracking: Tracking, item: Item | None) -> list[Message] | None:
        """As `_messages`, without what is processed already."""
        tracking.passed_all()
        if isinstance(item, Passed):
            tracking.advance(item.vector)
        batch = self._messages(item)
        return (tracking.receive(batch) or None) if batch else None

    def _messages(self, item: Item | None) -> list[Message] | None:
        if isinstance(item, FeedBatch):
            return item.messages
        if isinstance(item, End):
            self._stop()
            if item.error is not None:
                raise item.error
        return None


def replacing(topic: str | None, *, regex: bool, filter: str | None) -> Replace:  # noqa: A002
    """The command for another topic or filter. Raises: ZBrokerError bad_field."""
    if topic is None and (filter is None or regex):
        raise ZBrokerError("bad_field", "replace needs a topic or a filter")
    return Replace("", topic=topic, regex=regex, filter=filter)


S = TypeVar("S", bound=ReaderState)


class Merging(Generic[S]):
    """Subscriptions that were resumed together."""

    def __init__(self, subscriptions: Sequence[S]) -> None:
        self.subscriptions = tuple(subscriptions)
        self._port: SubscriberTransport = self.subscriptions[0]._port

    @property
    def groups(self) -> list[list[S]]:
        """Those that share one replay now, the largest group first; who has its own is in none.

        The broker combines what was paused at the same position and has the same rate, and, where
        it conflates, does so alike and ends at the same place.
        """
        found: list[list[S]] = []
        for one in self._members():
            if any(one in group for group in found):
                continue
            together = self._port.combined_with(one._feed)
            if together:
                found.append([other for other in self.subscriptions if other._feed in together])
        return sorted(found, key=len, reverse=True)

    @property
    def combined(self) -> list[S]:
        """The largest of the groups that share one replay now; empty if there is none."""
        return next(iter(self.groups), [])

    def _members(self) -> list[S]:
        """Those that are open and were not resumed with others since."""
        return [one for one in self.subscriptions if not one._closed and one._port is self._port]

    def _in_hand(self) -> S | None:
        """The one whose batch is begun: what was begun is finished first."""
        for one in self.subscriptions:
            one._pass()
        return next((one for one in self.subscriptions if length_hint(one._rest)), None)

    def _is_due(self, members: list[S]) -> bool:
        """Something came for one of `members`, or they are others now."""
        return any(one._feed.inbox for one in members) or self._members() != members

    def _take(self, members: list[S]) -> S | None:
        """The one that now has the next message in hand, if what came first is one."""
        waiting = [one for one in members if one._feed.inbox]
        if waiting and (one := min(waiting, key=_arrival))._take():
            return one
        return None


def _arrival(one: ReaderState) -> int:
    """What is no batch goes first: it only says how far another one came."""
    head = one._feed.inbox[0]
    return head.arrival if isinstance(head, FeedBatch) else 0


def checked(subscriptions: Iterable[S]) -> list[S]:
    """Each of them once, as they were given. Raises: ZBrokerError bad_field, too_many, closed."""
    many = list(dict.fromkeys(subscriptions))
    if not many:
        raise ZBrokerError("bad_field", "no subscription was given")
    if len(many) > SUBSCRIPTIONS_MAX:
        raise ZBrokerError("too_many", f"{len(many)} subscriptions; {SUBSCRIPTIONS_MAX} at most")
    for one in many:
        one._check_open()
        if one._feed.live:
            raise ZBrokerError("bad_field", "with live delivery there is neither pause nor resume")
    return many


def check_doors(subscriptions: Iterable[ReaderState], doors: ListenerEndpoints) -> None:
    """Raises: ZBrokerError bad_field, if not all of them are of the client with `doors`."""
    if any(one._doors is not doors for one in subscriptions):
        raise ZBrokerError("bad_field", "only subscriptions of one client are resumed together")


def by_port(subscriptions: Iterable[S]) -> list[list[S]]:
    """Those of each connection."""
    ports: dict[SubscriberTransport, list[S]] = defaultdict(list)
    for one in subscriptions:
        ports[one._port].append(one)
    return list(ports.values())
