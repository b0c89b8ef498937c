"""Subscriptions in an event loop: each an asynchronous iterator, and several read together.

A subscription is asked for when it is first awaited, entered, iterated or read. Messages leave the
inbox only while their reader runs, so a reader that is cancelled while it waits loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from zbroker.client.aio.event_loop import running
from zbroker.client.aio.transport import AsyncSubscriberPort
from zbroker.client.bookmark_stores.memory import Tracking
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.message import Message
from zbroker.client.subscriber.reader_state import ReaderState, replacing
from zbroker.client.subscriber.requests import Asked
from zbroker.client.subscriber.subscription import ANSWER_S, CLOSE_S, log_failure
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Ack, Pause, Resume, Subscribe

if TYPE_CHECKING:
    pass


from collections.abc import Iterable

from zbroker.client.subscriber.reader_state import Merging, by_port, check_doors, checked
from zbroker.limits import CREDIT_MAX_BYTES

ROUND_MESSAGES: Final = 5_000  # handed out without waiting: then other tasks have a round


class AsyncSubscription(ReaderState):
    """Made by `Client.subscribe`. Await it, enter it, iterate over it or over `.batches()`.

    Awaiting it gives itself, accepted by the broker: what is published from then on is in it. Else
    the same as `zbroker.client.Subscription`, in one event loop: read by one task at a time, its
    handler called in a task of its own.
    """

    _port: AsyncSubscriberPort
    _handling: AsyncHandling | None

    def __init__(
        self,
        doors: ListenerEndpoints,
        command: Subscribe,
        tracking: Tracking | None,
        handler: Callable[[Message], object] | None,
        accept_s: float,
        on_caught_up: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(doors, command, tracking, handler, accept_s, on_caught_up)
        self._loop = asyncio.get_running_loop()
        self._port = AsyncSubscriberPort(doors, self._loop)
        self._accept_by: float | None = None
        self._accepted = False
        self._waiting = False  # somebody waits for the next batch
        self._handed_out = 0  # messages since the last wait
        self._closed = False

    # -- reading ------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message]:
        """Each message. Raises: ZBrokerError with the code with which the broker ended it."""
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        await self._ready(None)
        while True:
            if self._tracking is not None:
                for self._current in self._rest:  # noqa: B020  (a quick assignment, not a mistake)
                    yield self._current
                    self._tracking.passed(self._current)
            for self._current in self._rest:  # noqa: B020  (as above)
                yield self._current
            batch = await self._fetch(None)
            if batch is None:
                return
            self._begin(batch)

    async def until_caught_up(self, timeout: float | None = None) -> AsyncIterator[Message]:
        """Each message until the subscription has caught up; what comes later is read after that.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        await self._ready(self._end(timeout))
        while not self._feed.caught_up:
            for self._current in self._rest:  # noqa: B020  (as above)
                yield self._current
                self._pass()
            batch = await self._fetch(timeout, to_mark=True)
            if batch is None:
                return
            self._begin(batch)

    async def batches(self, timeout: float | None = None) -> AsyncIterator[list[Message]]:
        """Lists of messages as they were published together: the fast path.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        await self._ready(self._end(timeout))
        batch: list[Message] | None = list(self._rest)
        while batch is not None:
            if batch:
                self._current = batch[-1]
                self._rest = iter(())
                yield batch
            batch = await self._fetch(timeout)

    async def next(self, timeout: float | None = None) -> Message | None:
        """The next message; None at the end of the range. Raises: ZBrokerError, also "timeout"."""
        end = self._end(timeout)
        await self._ready(end)
        message = next(self._rest, None)
        if message is None:
            batch = await self._fetch(None if end is None else end - self._loop.time())
            if batch is None:
                return None
            self._begin(batch)
            message = next(self._rest)
        self._current = message
        return message

    # -- changing it --------------------------------------------------------------------------

    async def pause(self, timeout: float = ANSWER_S) -> None:
        """Has the broker send nothing more; what is under way still comes. Keeps its place.

        Raises: ZBrokerError bad_field (with live delivery), "closed", "timeout".
        """
        await self._ask(Pause([]), timeout)

    async def resume(self, timeout: float = ANSWER_S) -> None:
        """Goes on where it was paused. Raises: as `pause`."""
        await self._ask(Resume([]), timeout)

    async def replace(
        self,
        topic: str | None = None,
        *,
        regex: bool = False,
        filter: str | None = None,  # noqa: A002  (as `subscribe` names it)
        timeout: float = ANSWER_S,
    ) -> int:
        """Goes on with another topic or filter ("": none); what is left out stays as it is.

        Returns: the position from which they hold; what is under way still comes by the old ones.
        Raises: ZBrokerError bad_filter, bad_topic, ...; then nothing changed. "closed", "timeout".
        """
        answer = await self._ask(replacing(topic, regex=regex, filter=filter), timeout)
        return answer.position or 0

    # -- its life -----------------------------------------------------------------------------

    async def wait_caught_up(self, timeout: float | None = None) -> None:
        """Waits until its handler has handled all that was persisted when it began.

        Without a handler until all of that has come in, as far as its credit goes: it waits to be
        read, here or meanwhile by another task.
        Raises: ZBrokerError "timeout", "closed" or what ended it before.
        """
        end = self._end(timeout)
        await self._open(end)
        while await (port := self._port).until(partial(self._is_complete, port), end):
            if self._port is port:
                break
        self._check_complete(timeout)

    async def join(self, timeout: float | None = None) -> None:
        """Waits until its handler has handled everything: the end of the range, or `close`.

        Raises: what the handler raised, or the broker's ZBrokerError, which ended it; "timeout".
        """
        if self._handler is None:
            raise ZBrokerError("bad_field", "only a subscription with a handler can be joined")
        await self._open(None)
        if self._handling is not None:
            await self._handling.join(timeout)

    async def close(self) -> None:
        """Ends it; an iteration over it ends too. Its handler may do so.

        Waits until the call of its handler that is under way returns. Raises: what the handler
        raised, if `join` did not.
        """
        self._stop()
        if self._handling is not None:
            await self._handling.close()

    def __await__(self) -> Generator[object, None, AsyncSubscription]:
        return self._accepted_one().__await__()

    async def __aenter__(self) -> AsyncSubscription:
        return await self._accepted_one()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self._stop()

    def __del__(self) -> None:
        """Also where the garbage collector runs in another thread."""
        if not self._closed and not self._loop.is_closed():
            self._end_tracking()
            self._loop.call_soon_threadsafe(self._port.leave, self._feed)

    def __repr__(self) -> str:
        return f"AsyncSubscription({self.topic!r}, {self._feed.state.value}, {self.vector})"

    # -- helpers ------------------------------------------------------------------------------

    def _ask_at_once(self) -> None:
        """The broker is asked when it is first used."""

    async def _accepted_one(self) -> AsyncSubscription:
        """Raises: ZBrokerError with the broker's code, "timeout", "closed"."""
        await self._open(None)
        if self._closed and self._feed.error is not None:
            raise self._feed.error
        self._check_open()
        return self

    async def _open(self, end: float | None) -> None:
        """Has the broker asked for it, once, and waits until it has accepted or refused it."""
        self._check_here()
        if self._accepted or self._closed:
            return
        if self._accept_by is None:
            self._accept_by = self._loop.time() + self._accept_s
            self._port.add(self._feed)
        try:
            await self._port.until(
                self._is_answered, self._accept_by if end is None else min(end, self._accept_by)
            )
            self._begin_reading(self._accept_by)
        except ZBrokerError:
            self._stop()
            raise

    def _is_answered(self) -> bool:
        feed = self._feed
        return feed.accepted or feed.error is not None or self._closed

    def _begin_reading(self, accept_by: float) -> None:
        """Raises: ZBrokerError, if it was refused, or nobody answers."""
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
                self._handling = AsyncHandling(self, self._handler)
        elif self._loop.time() >= accept_by:
            what = f"delivery did not accept the subscription in {self._accept_s} s"
            raise ZBrokerError("timeout", what)

    async def _ready(self, end: float | None) -> None:
        """It is accepted, and who reads may."""
        await self._open(end)
        if self._handling is not None and not self._handling.is_current:
            raise RuntimeError("a subscription with a handler is read by its own task")
        if not self._accepted and not self._closed:
            raise ZBrokerError("timeout", "delivery did not accept the subscription yet")
        self._pass()

    def _stop(self) -> None:
        if not self._closed:
            self._closed = True
            self._batch.clear()  # what an iteration has not handed out yet
            self._port.leave(self._feed)
            self._end_tracking()

    def _end_tracking(self) -> None:
        if self._tracking is not None:
            self._tracking.ended = True

    def _move(self, port: AsyncSubscriberPort, credit_max: int) -> None:
        """To a connection that it shares with others."""
        before, self._port = self._port, port
        before.leave(self._feed)
        port.add(self._feed, credit_max)

    async def _ask(self, command: Asked, timeout: float) -> Ack:
        await self._open(None)
        self._check_open()
        self._check_answers(command)
        return await self._port.ask(command, [self._feed], timeout)

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

    def _end(self, timeout: float | None) -> float | None:
        return None if timeout is None else self._loop.time() + timeout

    async def _fetch(self, timeout: float | None, *, to_mark: bool = False) -> list[Message] | None:
        """The next batch of new messages; None at the end. to_mark: [] where it has caught up."""
        if self._waiting:
            raise RuntimeError("another task reads this subscription")
        end = self._end(timeout)
        if self._tracking is not None:
            self._tracking.passed_all()
        while not self._closed:
            port = self._port
            if not await self._wait_for_item(port, end):
                raise ZBrokerError(
                    "timeout", f"no message in {timeout} s", "the subscription goes on"
                )
            if self._closed or self._port is not port:
                continue
            batch = self._accept(port.hand_out(self._feed))
            await self._tell_caught_up()
            if batch is not None:
                self._handed_out += len(batch)
                return batch
            if to_mark and self._feed.caught_up:
                return []
        return None

    async def _tell_caught_up(self) -> None:
        """Calls who wanted to know of it, once."""
        if self._call is not None:
            call, self._call = self._call, None
            result = call()
            if isawaitable(result):
                await result

    async def _wait_for_item(self, port: AsyncSubscriberPort, end: float | None) -> bool:
        """Until there is one, or nothing more comes on `port`; False if that took too long."""
        inbox = self._feed.inbox
        if inbox and self._handed_out < ROUND_MESSAGES:
            return True
        self._handed_out = 0
        self._waiting = True
        try:
            if inbox:
                await asyncio.sleep(0)
            elif self._port is port and not self._closed:
                port.asked(self._feed)
            return await port.until(lambda: inbox or self._closed or self._port is not port, end)
        finally:
            self._waiting = False


class AsyncHandling:
    """The task, and what it ended with."""

    def __init__(
        self, subscription: AsyncSubscription, handler: Callable[[Message], object]
    ) -> None:
        self.error: BaseException | None = None
        self._subscription = subscription
        self._handler = handler
        self._told = False  # somebody got the error
        self._task = asyncio.create_task(self._run(), name=f"zbroker {subscription.topic}")

    @property
    def is_current(self) -> bool:
        """True in its own task."""
        return asyncio.current_task() is self._task

    async def join(self, timeout: float | None) -> None:
        """Waits for its end. Raises: its error; ZBrokerError "timeout"."""
        if self.is_current:
            raise RuntimeError("a handler cannot wait for itself")
        done, _ = await asyncio.wait([self._task], timeout=timeout)
        if not done:
            raise ZBrokerError("timeout", f"the handler is not done after {timeout} s")
        if self.error is not None:
            self._told = True
            raise self.error

    async def close(self) -> None:
        """Waits for the call under way. Raises: its error, if nobody got it; "timeout"."""
        if not self.is_current and not self._told:
            await self.join(CLOSE_S)

    async def _run(self) -> None:
        subscription, handler = self._subscription, self._handler
        try:
            async for message in subscription:
                result = handler(message)
                if result is not None and isawaitable(result):
                    await result
        except asyncio.CancelledError as error:
            self.error = error
            raise
        except Exception as error:
            self.error = error
            log_failure(subscription)
        finally:
            subscription._stop()


class AsyncCombined(Merging[AsyncSubscription]):
    """Made by `Client.resume`. `async for subscription, message in combined`.

    Else the same as `zbroker.client.Combined`.
    """

    _port: AsyncSubscriberPort

    def __aiter__(self) -> AsyncIterator[tuple[AsyncSubscription, Message]]:
        """Each message with its subscription, until all of them ended. Raises: ZBrokerError."""
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[tuple[AsyncSubscription, Message]]:
        while (one := await self._next_one(None)) is not None:
            for one._current in one._rest:  # noqa: B020  (as in AsyncSubscription._iterate)
                yield one, one._current
                one._pass()

    async def next(self, timeout: float | None = None) -> tuple[AsyncSubscription, Message] | None:
        """The next message and its subscription; None when all of them ended.

        Raises: ZBrokerError, also "timeout".
        """
        one = await self._next_one(timeout)
        if one is None:
            return None
        one._current = message = next(one._rest)
        return one, message

    async def close(self) -> None:
        """Closes all of them."""
        for one in self.subscriptions:
            await one.close()

    async def _next_one(self, timeout: float | None) -> AsyncSubscription | None:
        """The subscription that has the next message in hand."""
        one = self._in_hand()
        end = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while one is None and (members := self._members()):
            for member in members:
                self._port.asked(member._feed)
            if not await self._port.until(partial(self._is_due, members), end):
                raise ZBrokerError(
                    "timeout", f"no message in {timeout} s", "the subscriptions go on"
                )
            one = self._take(members)
            for member in members:
                await member._tell_caught_up()
        return one


async def pause(subscriptions: Iterable[AsyncSubscription], timeout: float) -> None:
    """Pauses them, those of one connection at once. Raises: as `Subscription.pause`."""
    for many in by_port(await _opened(subscriptions)):
        await many[0]._port.ask(Pause([]), [one._feed for one in many], timeout)


async def resume(
    doors: ListenerEndpoints, subscriptions: Iterable[AsyncSubscription], timeout: float
) -> AsyncCombined:
    """Resumes them with one command, on one connection. Raises: as `Subscription.resume`."""
    many = await _opened(subscriptions)
    check_doors(many, doors)
    running = [one for one in many if not one.paused]
    if running and len(many) > 1:
        await pause(running, timeout)
        many = checked(many)
    if len(by_port(many)) > 1:
        port = AsyncSubscriberPort(doors, asyncio.get_running_loop())
        for one in many:
            one._move(port, CREDIT_MAX_BYTES // len(many))
    await many[0]._port.ask(Resume([]), [one._feed for one in many], timeout)
    return AsyncCombined(many)


async def _opened(subscriptions: Iterable[AsyncSubscription]) -> list[AsyncSubscription]:
    many = list(subscriptions)
    for one in many:
        await one
    return checked(many)
