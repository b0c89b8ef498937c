"""What moves bytes in an event loop: connections that have turns in it, tasks that wait for them.

A connection is read whether a task waits for its messages or not: credit bounds a subscription, the
backlog bounds a consumer. The leases of a consumer are extended while tasks work, and what they
settle piles up until its next turn and goes out together. Known weakness: while the loop computes
nothing is extended; a handler that computes for longer than half a lease belongs in a thread.

The loop gives a connection its turn soon, when its time comes, or when bytes come. ZeroMQ's
descriptor tells of a change, not of a state: it stays silent about what was there when the socket
was used last, for receiving or for sending. So a turn that it calls for reads until nothing is
left, and there is another one after each send.

A task that is cancelled takes nothing with it: what it waited for is looked at, never taken, before
it goes on.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future, Handle, TimerHandle, _get_running_loop
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from inspect import isawaitable
from typing import Any, ClassVar, Final

import zmq

from zbroker.client.consumer.transport import ConsumerTransport
from zbroker.client.effects import Event, SendCommand
from zbroker.client.endpoints import ListenerEndpoints, Transport
from zbroker.client.link import CLOSE_LINGER_MS, ClientLink
from zbroker.client.ports import Calls, LinkPort, defect
from zbroker.client.publisher.receipt import AckTracker
from zbroker.client.subscriber.feed import RETURN_MS, Feed
from zbroker.client.subscriber.transport import SubscriberTransport
from zbroker.client.waits import left_until
from zbroker.engine.contract import Limit, Ready
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import Consume

ROUND_MESSAGES: Final = 5_000  # handed out without waiting: then other tasks have a round

running = _get_running_loop  # a third of what get_running_loop() and its exception cost


def check_loop(loop: AbstractEventLoop, track: AckTracker) -> None:
    """Raises: RuntimeError if this is not `loop`; ZBrokerError, what ended the client."""
    if running() is not loop:
        if track.error is not None:  # in a forked process it is the reason
            raise track.error
        raise RuntimeError(
            "this client belongs to the event loop in which it was connected; "
            "from another thread use loop.call_soon_threadsafe or run_coroutine_threadsafe"
        )


async def complete(result: object) -> None:
    """Waits for what a function of the user returned, if that is a coroutine for the loop."""
    if result is not None and isawaitable(result):
        await result


async def within(future: Future[None], timeout: float | None) -> None:
    """Waits for `future`, at most `timeout` seconds; it is done then in any case."""
    loop = future.get_loop()
    timer = None if timeout is None else loop.call_later(max(0.0, timeout), wake, future)
    try:
        await future
    finally:
        if timer is not None:
            timer.cancel()


def wake(future: Future[None]) -> None:
    """Ends the wait for `future`, unless that was cancelled."""
    if not future.done():
        future.set_result(None)


class Waiters:
    """Tasks with their conditions. `look` is called after every change that may matter."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Future[None], Callable[[], object]] = {}

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        """Waits until `done()`; False if that is not so at the time `end`."""
        while not done():
            left = left_until(end)
            if left == 0:
                return False
            future = self._loop.create_future()
            self._waiting[future] = done
            try:
                await within(future, left)
            finally:
                del self._waiting[future]
        return True

    def look(self) -> None:
        """Wakes those whose wait is over."""
        for future, done in self._waiting.items():
            if done():
                wake(future)


class LoopTurns:
    """Calls `turn`, once for all that asked since the last time."""

    def __init__(self, loop: AbstractEventLoop, turn: Callable[[], None]) -> None:
        self._loop = loop
        self._turn = turn
        self._handle: Handle | None = None
        self._timer: TimerHandle | None = None
        self._closed = False

    @property
    def is_soon(self) -> bool:
        """True if one is coming in the next round of the loop."""
        return self._handle is not None

    def soon(self) -> None:
        """Has one in the next round of the loop."""
        if self._handle is None and not self._closed:
            self._handle = self._loop.call_soon(self._now)

    def within(self, wait_ms: int) -> None:
        """Has one in `wait_ms` at the latest. A timer that is set for earlier is left as it is."""
        due = self._loop.time() + max(1, wait_ms) / 1_000
        if self._closed or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._late)

    def close(self) -> None:
        """There are no more turns."""
        self._closed = True
        for handle in (self._handle, self._timer):
            if handle is not None:
                handle.cancel()
        self._handle = self._timer = None

    def _now(self) -> None:
        self._handle = None
        self._turn()

    def _late(self) -> None:
        self._timer = None
        self._turn()


class LoopLink(LinkPort):
    """A link that an event loop watches. turn: called for what it sees."""

    def __init__(
        self,
        connect: Callable[[], ClientLink],
        calls: Calls,
        loop: AbstractEventLoop,
        turn: Callable[[], None],
    ) -> None:
        super().__init__(connect, calls)
        self.turns = LoopTurns(loop, turn)
        self._loop, self._turn = loop, turn
        self._watched: list[int] = []  # descriptors of the link, while it is open
        self._happened = False  # the monitor has something
        self._sent = False  # since it was looked whether something came

    def ready(self) -> Ready:
        """The monitor, if it may have something."""
        happened, self._happened = self._happened, False
        return {self.link.monitor: zmq.POLLIN} if happened and self.link is not None else {}

    def events(self, ready: Ready, limit: Limit) -> Iterable[Event]:
        """Answers."""
        self._sent = False
        return super().events(ready, limit)

    def rest(self, wait_ms: int | None) -> None:
        """After a turn: sets when the next one is. After something was sent it is soon."""
        if wait_ms == 0 or self._sent:
            self.turns.soon()
        elif wait_ms is not None:
            self.turns.within(wait_ms)

    def send(self, effect: SendCommand) -> None:
        """One command; then it has to be looked whether something came."""
        super().send(effect)
        self._sent = True

    def shut(self) -> None:
        """Closes the link once the last commands are sent; there are no more turns."""
        self.close(CLOSE_LINGER_MS)
        self.turns.close()

    def _opened(self, link: ClientLink) -> None:
        for one, function in ((link.socket, self._turn), (link.monitor, self._monitored)):
            self._watched.append(int(one.getsockopt(zmq.FD)))
            self._loop.add_reader(self._watched[-1], function)
        self._monitored()

    def _closing(self, link: ClientLink) -> None:
        while self._watched:  # before it is closed: they may be others' then
            self._loop.remove_reader(self._watched.pop())

    def _monitored(self) -> None:
        self._happened = True
        self.turns.soon()


class LoopTransport(Transport[Any]):
    """A connection in an event loop, and the tasks that wait for what comes on it."""

    _link: LoopLink
    _what: ClassVar[str]  # has turns here
    _failing: ClassVar[str]  # what a failed turn means

    def _begin_in_loop(self) -> None:
        loop = asyncio.get_running_loop()
        self._lock = nullcontext()  # all of it is called in the loop
        self.error: ZBrokerError | None = None  # what ended the client, or a defect of this
        self._waiters = Waiters(loop)
        self._begin(LoopLink(self._listeners.connect, self._calls, loop, self._have_turn))

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        there = await self._waiters.until(lambda: done() or self.error is not None, end)
        if self.error is not None and not done():
            raise self.error
        return there

    def look(self) -> None:
        self._waiters.look()

    def _soon(self) -> None:
        self._link.turns.soon()

    def _flush(self) -> None:
        self._guard(self._send_calls)
        self._soon()

    def _close_if_over(self) -> None:
        if self._ended:
            self._link.shut()

    def _have_turn(self) -> None:
        """Reads some answers, does what time demands, sends what piled up."""
        if not self._ended and self.error is None:
            self._guard(self._run)
            self.look()

    def _run(self) -> None:
        self._link.rest(self._turn.run(self._link.ready()))
        self._close_if_over()

    def _guard(self, work: Callable[[], None]) -> None:
        """Whatever fails in there ends the connection: nothing may wait for what does not come."""
        try:
            work()
        except ZBrokerError as error:  # what ended the client
            self._fail(error)
        except Exception as error:
            note = f"client.turn_failed: {self._failing}"
            self._fail(defect(error, note, f"a turn of {self._what}"))

    def _fail(self, error: ZBrokerError) -> None:
        self.error = error
        self._link.shut()


class AsyncSubscriberPort(LoopTransport, SubscriberTransport):
    """A connection to the delivery process."""

    _what = "a subscription"
    _failing = "the subscriptions to one connection end"

    def __init__(self, listeners: ListenerEndpoints) -> None:
        super().__init__(listeners)
        self._begin_in_loop()

    def asked(self, feed: Feed) -> None:
        super().asked(feed)
        self._link.turns.within(RETURN_MS)


class AsyncConsumerPort(LoopTransport, ConsumerTransport):
    """A consumer's connection to the queues process."""

    _what = "a consumer"
    _failing = "the messages that it holds come back to the queue"

    def __init__(self, listeners: ListenerEndpoints, command: Consume) -> None:
        super().__init__(listeners, command)
        self._begin_in_loop()

    def start(self) -> None:
        self._soon()

    async def _until_ready(self, end: float | None) -> bool:
        return await self.until(lambda: self.halted or self.core.ready or self.over, end)

    def _fail(self, error: ZBrokerError) -> None:
        ConsumerTransport._fail(self, error)
        self._link.shut()
