"""What a subscription knows of itself, whatever waits for its messages: a thread or a task.

It turns the items of the inbox into batches, remembers what was handed out and tells the bookmark
store. How the next item is waited for, and how the broker is asked for something, is the part of
the two shells: `subscription.py` here, and `zbroker.client.aio.subscription`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import length_hint
from typing import Final

from zbroker.client import forks
from zbroker.client.bookmark_stores.memory import Tracking
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.message import NO_MESSAGES, Message, MessageBatch
from zbroker.client.subscriber.feed import End, Feed, FeedBatch, Item, Passed
from zbroker.client.subscriber.handler import Handling
from zbroker.client.subscriber.options import SubscribeOptions
from zbroker.client.subscriber.requests import Asked
from zbroker.client.subscriber.transport import SubscriberTransport
from zbroker.client.waits import end_of, left_until
from zbroker.errors import ZBrokerError
from zbroker.ids import format_vector
from zbroker.wire.messages import Ack, Pause, Replace, Resume

ANSWER_S: Final = 10.0


class ReaderState:
    """One subscription: what it is for, where it is, what was handed out."""

    _port_type: type[SubscriberTransport]
    _handling_type: type[Handling]

    def __init__(
        self, listeners: ListenerEndpoints, options: SubscribeOptions, tracking: Tracking | None
    ) -> None:
        self._closed = True  # until it is whole: __del__ comes even if it never is
        self._listeners = listeners
        self._feed = Feed(options.command)
        self._handler = options.handler
        self._accept_s = options.timeout + self._feed.wait_s
        self._accept_by: float | None = None  # None: the broker was not asked for it yet
        self._accepted = False
        self._tracking = tracking
        self._owner: object = None  # the client: it lives as long as its subscriptions
        self._handling: Handling | None = None
        self._current: Message | None = None
        self._recorded: Message | None = None  # the last recorded one of the batches before
        self._batch: list[Message] = []
        self._rest: Iterator[Message] = iter(self._batch)
        self._waiting = False  # a task waits for the next batch
        self._on_caught_up = options.on_caught_up  # until it is due
        self._call: Callable[[], object] | None = None  # now
        self._port: SubscriberTransport = self._port_type(listeners)
        forks.watch(self)
        self._closed = False

    def _forked(self, _error: ZBrokerError) -> None:
        """This is a copy in a forked process: the batch in hand is the parent's, too."""
        self._batch.clear()

    def _pass(self) -> None:
        """The reader is done with the message in hand. Raises: ZBrokerError store_failed."""
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
        """The position of the last recorded message handed out (of a batch: its last one)."""
        return None if (last := self._last) is None else last.position

    @property
    def bookmark(self) -> str | None:
        """The bookmark of the last recorded message handed out."""
        return None if (last := self._last) is None else last.bookmark

    @property
    def dropped(self) -> int:
        """How many unrecorded messages the broker had to leave out, because this side was slow."""
        return self._feed.dropped

    @property
    def vector(self) -> str | None:
        """A value for `since` that goes on after the last recorded message handed out.

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

        The newest that the broker reported, which it does each second, also where nothing matched;
        in a subscription that starts at a time from the first message on. Safe to store whatever
        the options are.
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

    # -- what a shell adds --------------------------------------------------------------------

    def _ask_at_once(self) -> None:
        """Its client has made it."""

    def _check_here(self) -> None:
        """Raises: what ended it, or RuntimeError in an event loop that is not its own."""

    async def _next_item(
        self, port: SubscriberTransport, end: float | None
    ) -> tuple[Item | None, bool]:
        """The next item, None if nothing more comes on `port`; False if none came in time."""
        raise NotImplementedError

    def _is_off(self, port: SubscriberTransport) -> bool:
        """Nothing more comes to it on `port`."""
        return self._closed or self._port is not port

    async def _complete(self, result: object) -> None:
        """Waits for what a function of the user returned, if that is a coroutine for the loop."""

    # -- the broker ---------------------------------------------------------------------------

    async def _open(self, end: float | None) -> None:
        """Has the broker asked for it, once, and waits until it has accepted or refused it."""
        self._check_here()
        if self._accepted or self._closed:
            return
        if self._accept_by is None:
            self._accept_by = time.monotonic() + self._accept_s
            self._port.add(self._feed)
        by = self._accept_by if end is None else min(end, self._accept_by)
        try:
            await self._port.until(self._is_answered, by)
            self._begin_reading(self._accept_by)
        except ZBrokerError:
            self._stop()
            raise

    def _is_answered(self) -> bool:
        feed = self._feed
        return feed.accepted or feed.error is not None or self._closed

    def _begin_reading(self, accept_by: float) -> None:
        """Raises: ZBrokerError, if it was refused, or not answered in time."""
        feed = self._feed
        if self._accepted or self._closed:
            return  # another task was here first
        if feed.error is not None and not feed.accepted:
            raise feed.error
        if feed.accepted:
            self._accepted = True
            if self._tracking is not None:
                self._tracking.begin(feed.durable)
            if self._handler is not None:
                self._handling = self._handling_type(self, self._handler)
                self._handling.start()
        elif time.monotonic() >= accept_by:
            what = f"delivery did not accept the subscription in {self._accept_s} s"
            raise ZBrokerError("timeout", what)

    async def _ask(self, command: Asked, timeout: float) -> Ack:
        await self._open(None)
        self._check_open()
        if self._feed.live and not isinstance(command, Replace):
            raise ZBrokerError("bad_field", "with live delivery there is neither pause nor resume")
        return await self._port.ask(command, [self._feed], timeout)

    async def _pause(self, timeout: float = ANSWER_S) -> None:
        """Has the broker send nothing more; messages under way still come. Keeps its place.

        Raises: ZBrokerError bad_field (with live delivery), "closed", "timeout".
        """
        await self._ask(Pause([]), timeout)

    async def _resume(self, timeout: float = ANSWER_S) -> None:
        """Goes on where it was paused. Raises: as `pause`."""
        await self._ask(Resume([]), timeout)

    async def _replace(
        self,
        topic: str | None = None,
        *,
        regex: bool = False,
        filter: str | None = None,  # noqa: A002  (as `subscribe` names it)
        timeout: float = ANSWER_S,
    ) -> int:
        """Goes on with another topic or filter ("": none); what it leaves out stays as it is.

        Returns: the position from which they hold; messages under way still come by the old ones.
        Raises: ZBrokerError bad_filter, bad_topic, ...; then nothing changed. "closed", "timeout".
        """
        if topic is None and (filter is None or regex):
            raise ZBrokerError("bad_field", "replace needs a topic or a filter")
        command = Replace("", topic=topic, regex=regex, filter=filter)
        return (await self._ask(command, timeout)).position or 0

    def _move(self, port: SubscriberTransport, credit_max: int) -> None:
        """To a connection that it shares with others."""

        def moved() -> None:
            self._port = port

        self._port.hand_over(self._feed, port, credit_max, moved)
        if self._closed:  # meanwhile, by another thread
            port.leave(self._feed)

    # -- reading ------------------------------------------------------------------------------

    async def _ready(self, end: float | None) -> None:
        """It is accepted, and this thread or task may read it."""
        await self._open(end)
        handling = self._handling
        if handling is not None and not handling.is_current():
            what = f"a subscription with a handler is read by its own {handling.runs_in}"
            raise RuntimeError(what)
        if not self._accepted and not self._closed:
            raise ZBrokerError("timeout", "delivery did not accept the subscription yet")
        self._pass()

    async def _advance(self, timeout: float | None, *, to_mark: bool = False) -> bool:
        """Has another batch in hand; False at the end. to_mark: maybe none, if it caught up."""
        return self._begin(await self._fetch(timeout, to_mark=to_mark))

    async def _fetch(self, timeout: float | None, *, to_mark: bool = False) -> MessageBatch | None:
        """The next batch of new messages; None at the end. to_mark: none where it has caught up."""
        if self._waiting:
            raise RuntimeError("another task reads this subscription")
        end = end_of(timeout)
        if self._tracking is not None:
            self._tracking.passed_all()
        while not self._closed:
            item, there = await self._next_item(self._port, end)
            if not there:
                raise ZBrokerError(
                    "timeout", f"no message in {timeout} s", "the subscription goes on"
                )
            batch = self._accept(item)
            await self._report_caught_up()
            if batch is not None:
                return batch
            if to_mark and self._feed.caught_up:
                return NO_MESSAGES
        return None

    def _next_in_hand(self) -> Message | None:
        """The next message of the batch in hand, if there is one: without a coroutine each."""
        if self._handling is not None:
            return None  # its own thread or task may read it: `_next` looks who asks
        self._pass()
        message = next(self._rest, None)
        if message is not None:
            self._current = message
        return message

    async def _next(self, timeout: float | None) -> Message | None:
        end = end_of(timeout)
        await self._ready(end)
        message = next(self._rest, None)
        if message is None:
            if not await self._advance(left_until(end)):
                return None
            message = next(self._rest)
        self._current = message
        return message

    async def _first_batch(self, timeout: float | None) -> MessageBatch:
        """The rest of the batch in hand, when batches begin to be read."""
        await self._ready(end_of(timeout))
        rest = list(self._rest)
        return MessageBatch.of(rest) if rest else NO_MESSAGES

    def _whole(self, batch: MessageBatch) -> MessageBatch:
        """A batch that is handed out as one."""
        self._current, self._rest = batch[-1], iter(())
        return batch

    async def _report_caught_up(self) -> None:
        """Calls the function that the user gave for it, once."""
        if self._call is not None:
            call, self._call = self._call, None
            await self._complete(call())

    def _begin(self, batch: MessageBatch | None) -> bool:
        """Has a batch in hand, if there is one; whether there is."""
        if batch is not None:
            self._batch = batch.messages()
            self._rest = iter(self._batch)
        return batch is not None

    # -- the end ------------------------------------------------------------------------------

    async def _wait_caught_up(self, timeout: float | None = None) -> None:
        """Waits until its handler has handled all that was persisted when it began.

        Without a handler until all of that has come in, as far as its credit goes: it waits to be
        read, here or meanwhile by another thread or task.
        Raises: ZBrokerError "timeout", "closed" or what ended it before.
        """
        end = end_of(timeout)
        await self._open(end)
        while await (port := self._port).until(partial(self._is_complete, port), end):
            if self._port is port:
                break
        self._check_complete(timeout)

    async def _join(self, timeout: float | None = None) -> None:
        """Waits until its handler has handled everything: the end of the range, or `close`.

        Raises: what the handler raised, or the broker's ZBrokerError, which ended it; "timeout".
        """
        if self._handler is None:
            raise ZBrokerError("bad_field", "only a subscription with a handler can be joined")
        await self._open(None)
        if self._handling is not None:
            await self._handling.join(timeout)

    async def _close(self) -> None:
        """Ends it; an iteration over it ends too. Its handler may do so.

        With threads any of them may. Waits until the call of its handler that is under way
        returns. Raises: what the handler raised, if `join` did not.
        """
        self._stop()
        if self._handling is not None:
            await self._handling.close()

    async def _leave_block(self, failed: object) -> None:
        """failed: an exception that ends it, which is not held up by the handler."""
        if failed is None:
            await self._close()
        else:
            self._stop()

    def _stop(self) -> None:
        """Ends it; nothing more is handed out."""
        if not self._closed:
            self._closed = True
            self._batch.clear()  # what an iteration has not handed out yet
            self._port.leave(self._feed)
            self._end_tracking()

    def _end_tracking(self) -> None:
        if self._tracking is not None:
            self._tracking.ended = True

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

    def _accept(self, item: Item | None) -> MessageBatch | None:
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
        return self._begin(self._accept(self._port.hand_out(self._feed)))

    def _check_open(self) -> None:
        if self._closed:
            raise ZBrokerError("closed", f"the subscription to {self.topic!r} has ended")

    # -- helpers ------------------------------------------------------------------------------

    @property
    def _last(self) -> Message | None:
        """The last recorded message handed out."""
        current = self._current
        return current if current is not None and current.recorded else self._recorded

    def _track(self, tracking: Tracking, item: Item | None) -> MessageBatch | None:
        """As `_messages`, without what is processed already."""
        tracking.passed_all()
        if isinstance(item, Passed):
            tracking.advance(item.vector)
        batch = self._messages(item)
        fresh = tracking.receive(batch.messages()) if batch else []
        return MessageBatch.of(fresh) if fresh else None

    def _messages(self, item: Item | None) -> MessageBatch | None:
        if isinstance(item, FeedBatch):
            return item.messages
        if isinstance(item, End):
            self._stop()
            if item.error is not None:
                raise item.error
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r}, {self._feed.state.value}, {self.vector})"
