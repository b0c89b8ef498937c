"""Subscriptions in an event loop: each an asynchronous iterator, and several read together.

A subscription is asked for when it is first awaited, entered, iterated or read. Messages leave the
inbox only while their reader runs, so a reader that is cancelled while it waits loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator

from zbroker.client.aio.transport import ROUND_MESSAGES, AsyncSubscriberPort, complete, running
from zbroker.client.bookmark_stores.memory import Tracking
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.message import Message, MessageBatch
from zbroker.client.subscriber.feed import FeedBatch, Item
from zbroker.client.subscriber.handler import Handling
from zbroker.client.subscriber.merge import Merging
from zbroker.client.subscriber.options import SubscribeOptions
from zbroker.client.subscriber.reader_state import ReaderState
from zbroker.client.subscriber.transport import SubscriberTransport
from zbroker.client.waits import end_of
from zbroker.errors import ZBrokerError


class AsyncHandling(Handling):
    """The handler of a subscription in a task of its own."""

    runs_in = "task"

    def start(self) -> None:
        name = f"zbroker {self._subscription.topic}"
        self._task = asyncio.create_task(self._run(), name=name)

    def is_current(self) -> bool:
        return asyncio.current_task() is self._task

    async def _is_over(self, timeout: float | None) -> bool:
        done, _ = await asyncio.wait([self._task], timeout=timeout)
        return bool(done)

    async def _run(self) -> None:
        try:
            async for message in self._subscription:
                await self._subscription._complete(self._handler(message))
        except asyncio.CancelledError as error:
            self.error = error
            raise
        except Exception as error:
            self.error = error
            self._log_failure()
        finally:
            self._subscription._stop()


class AsyncSubscription(ReaderState):
    """Made by `Client.subscribe`. Await it, enter it, iterate over it or over `.batches()`.

    Awaiting it gives itself, accepted by the broker: it has all that is published from then on.
    Else the same as `zbroker.client.Subscription`, in one event loop: read by one task at a time,
    its handler called in a task of its own.
    """

    _port_type = AsyncSubscriberPort
    _handling_type = AsyncHandling

    def __init__(
        self, listeners: ListenerEndpoints, options: SubscribeOptions, tracking: Tracking | None
    ) -> None:
        super().__init__(listeners, options, tracking)
        self._loop = asyncio.get_running_loop()
        self._handed_out = 0  # messages since the last wait

    # -- reading ------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Each message. Raises: ZBrokerError with the code with which the broker ended it."""
        await self._ready(None)
        while True:
            if self._tracking is not None:
                for self._current in self._rest:  # noqa: B020  (a quick assignment, not a mistake)
                    yield self._current
                    self._tracking.passed(self._current)
            for self._current in self._rest:  # noqa: B020  (as above)
                yield self._current
            if not await self._advance(None):
                return

    async def until_caught_up(self, timeout: float | None = None) -> AsyncIterator[Message]:
        """Each message until the subscription has caught up; later ones are read after that.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        await self._ready(end_of(timeout))
        while not self._feed.caught_up:
            for self._current in self._rest:  # noqa: B020  (as above)
                yield self._current
                self._pass()
            if not await self._advance(timeout, to_mark=True):
                return

    async def batches(self, timeout: float | None = None) -> AsyncIterator[MessageBatch]:
        """Messages as they were published together: the fast path.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        batch: MessageBatch | None = await self._first_batch(timeout)
        while batch is not None:
            if batch:
                yield self._whole(batch)
            batch = await self._fetch(timeout)

    async def next(self, timeout: float | None = None) -> Message | None:
        """The next message; None at the end of the range. Raises: ZBrokerError, also "timeout"."""
        message = self._next_in_hand()
        return message if message is not None else await self._next(timeout)

    # -- changing it, and its end -------------------------------------------------------------

    pause = ReaderState._pause
    resume = ReaderState._resume
    replace = ReaderState._replace
    wait_caught_up = ReaderState._wait_caught_up
    join = ReaderState._join
    close = ReaderState._close

    def __await__(self) -> Generator[object, None, AsyncSubscription]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncSubscription:
        """Raises: ZBrokerError with the broker's code, "timeout", "closed"."""
        await self._open(None)
        if self._closed and self._feed.error is not None:
            raise self._feed.error
        self._check_open()
        return self

    async def __aexit__(self, kind: object, *_error: object) -> None:
        await self._leave_block(kind)

    def __del__(self) -> None:
        """Also where the garbage collector runs in another thread."""
        if not self._closed and not self._loop.is_closed():
            self._end_tracking()
            self._loop.call_soon_threadsafe(self._port.leave, self._feed)

    # -- helpers ------------------------------------------------------------------------------

    async def _next_item(
        self, port: SubscriberTransport, end: float | None
    ) -> tuple[Item | None, bool]:
        if not await self._wait_for_item(port, end):
            return None, False
        item = None if self._is_off(port) else port.hand_out(self._feed)
        if isinstance(item, FeedBatch):
            self._handed_out += len(item.messages)
        return item, True

    async def _wait_for_item(self, port: SubscriberTransport, end: float | None) -> bool:
        """Until there is one, or nothing more comes on `port`; False if that took too long."""
        inbox = self._feed.inbox
        if inbox and self._handed_out < ROUND_MESSAGES:
            return True
        self._handed_out = 0
        self._waiting = True
        try:
            if inbox:
                await asyncio.sleep(0)
            elif not self._is_off(port):
                port.asked(self._feed)
            return await port.until(lambda: inbox or self._is_off(port), end)
        finally:
            self._waiting = False

    _complete = staticmethod(complete)

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process, where neither the loop nor the link is its own."""
        super()._forked(error)
        self._closed = True
        self._feed.fail(error)

    def _check_here(self) -> None:
        if running() is not self._loop:
            raise self._feed.error or RuntimeError(
                "this subscription belongs to another event loop or thread"
            )


class AsyncCombined(Merging[AsyncSubscription]):
    """Made by `Client.resume`. `async for subscription, message in combined`.

    Else the same as `zbroker.client.Combined`.
    """

    async def __aiter__(self) -> AsyncIterator[tuple[AsyncSubscription, Message]]:
        """Each message with its subscription, until all of them ended. Raises: ZBrokerError."""
        while (one := await self._next_one(None)) is not None:
            for one._current in one._rest:  # noqa: B020  (as in AsyncSubscription.__aiter__)
                yield one, one._current
                one._pass()

    async def next(self, timeout: float | None = None) -> tuple[AsyncSubscription, Message] | None:
        """The next message and its subscription; None when all of them ended.

        Raises: ZBrokerError, also "timeout".
        """
        return await self._next(timeout)

    async def close(self) -> None:
        """Closes all of them."""
        for one in self.subscriptions:
            await one.close()
