"""What a subscription knows of itself, whoever waits for its messages: a thread or a task.

It turns the items of the inbox into batches, remembers what was handed out and tells the bookmark
store. How the next item is waited for, and how the broker is asked for something, is the part of
the two shells: `subscription.py` here, and `zbroker.client.aio.subscription`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Protocol

from zbroker.client import forks
from zbroker.client.bookmark_stores.tracker import Tracking
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.message import Message
from zbroker.client.subscriber.feed import End, Feed, FeedBatch, Item, Passed
from zbroker.client.subscriber.requests import Asked
from zbroker.client.subscriber.transport import SubscriberTransport
from zbroker.errors import ZBrokerError
from zbroker.ids import format_vector
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
