"""One connection to the delivery process, and the threads that have its turns.

It has no thread of its own: a thread that waits for something here (a message, an answer) has the
turns of the whole connection meanwhile; that is twice as fast as a hand-over from another thread.
One thread at a time has them. Others that wait are woken after each turn; what they want sent is
queued, and wakes the one that has the turn. So a thread may pause, resume or close a subscription
that another one reads, that no thread reads, or that it reads itself.

The lock is held except while polling; only the thread that has the turn touches the socket. In an
event loop tasks wait instead of threads: see `zbroker.client.aio.transport`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial

from zbroker.client import forks
from zbroker.client.connection import Phase
from zbroker.client.endpoints import ListenerEndpoints, Transport
from zbroker.client.link import CLOSE_LINGER_MS
from zbroker.client.ports import (
    PART_MS,
    READ_LIMIT,
    LinkPort,
    WakingPoller,
    wait_limit_ms,
)
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.client.subscriber.feed import Feed, Item
from zbroker.client.subscriber.requests import Asked
from zbroker.client.waits import end_of, left_until
from zbroker.engine.contract import Ready
from zbroker.errors import ZBrokerError
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.messages import Ack


class SubscriberTransport(Transport[SubscriberCore]):
    """What ports for threads and for event loops do alike."""

    def __init__(self, listeners: ListenerEndpoints) -> None:
        resubscribed = partial(listeners.publisher.tell, "resubscribed")
        core = SubscriberCore(random.Random().random, listeners.publisher.heartbeat_s, resubscribed)
        super().__init__(listeners, core)

    def add(self, feed: Feed, credit_max: int = CREDIT_MAX_BYTES) -> None:
        """Takes a subscription; the broker is asked for it in a turn."""
        with self._lock:
            self._do(self.core.add(feed, self._listeners.now_ms(), credit_max))
            self._soon()

    def leave(self, feed: Feed) -> None:
        """Lets a subscription go. The last one takes the link with it."""
        with self._lock:
            self._do(self.core.remove(feed))
            self._close_if_over()
            self.look()

    def hand_over(
        self, feed: Feed, other: SubscriberTransport, credit_max: int, done: Callable[[], None]
    ) -> None:
        """Gives a subscription to another connection, which no other thread knows yet.

        `done` is called before a reader that waits here can look.
        """
        with self._lock:
            self.leave(feed)
            other.add(feed, credit_max)
            done()
            self.look()

    def hand_out(self, feed: Feed) -> Item:
        """The next item of an inbox that is not empty."""
        with self._lock:
            item, effects = self.core.hand_out(feed, self._listeners.now_ms())
            self._do(effects)
            return item

    def asked(self, feed: Feed) -> None:
        """A program waits for more: what it had is handled."""
        with self._lock:
            self._do(self.core.asked(feed, self._listeners.now_ms()))

    def combined_with(self, feed: Feed) -> list[Feed]:
        """Those that share one replay with it, itself among them; empty if it has its own."""
        with self._lock:
            return list(self.core.requests.group_of(feed))

    async def ask(self, command: Asked, feeds: list[Feed], timeout: float) -> Ack:
        """Has something done to subscriptions of this connection.

        Raises: ZBrokerError with the broker's code, "closed", or "timeout": then it may still come.
        """
        with self._lock:
            request, effects = self.core.ask(command, feeds)
            self._do(effects)
        await self.until(lambda: request.done, end_of(timeout))
        if request.error is not None:
            raise request.error
        if request.answer is None:
            raise ZBrokerError("timeout", f"delivery gave no answer in {timeout} s")
        return request.answer


class CallerPort(SubscriberTransport):
    """A connection, and which thread has its turns."""

    def __init__(self, listeners: ListenerEndpoints) -> None:
        super().__init__(listeners)
        self._lock = self._changed = threading.Condition()
        self._turn_of: int | None = None  # the thread that has the turn
        self._ready: Ready = {}
        self._whole_s = 0.0  # when a whole turn is due
        self._poller = WakingPoller()
        forks.watch(self)
        self._begin(LinkPort(listeners.connect, self._calls, self._poller))

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process: its messages and its socket are the parent's."""
        self._lock = self._changed = threading.Condition()
        self._turn_of, self._link.link = None, None
        self.core.state = Phase.ENDED
        for feed in self.core.feeds.values():
            feed.inbox.clear()
            feed.fail(error)

    # -- waiting ------------------------------------------------------------------------------

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        """Has turns here, or waits for the thread that has, until `done()` or the time `end`."""
        with self._changed:
            return self._wait(done, end)

    def next_item(
        self, feed: Feed, stopped: Callable[[], bool], end: float | None
    ) -> tuple[Item | None, bool]:
        """The next item of a subscription, if there is one; whether there is, or it was stopped."""
        inbox = feed.inbox
        with self._changed:
            if not inbox and not stopped():
                self.asked(feed)
            if not inbox and not self._wait(lambda: inbox or stopped(), end):
                return None, False
            return (self.hand_out(feed) if inbox and not stopped() else None), True

    # -- the turn -----------------------------------------------------------------------------

    def _wait(self, done: Callable[[], object], end: float | None) -> bool:
        while not done():
            left = left_until(end)
            if self._ended or self._turn_of is not None:
                self._changed.wait(left)
            else:
                self._have_turn(left)
            if left == 0:
                return bool(done())
        return True

    def _have_turn(self, left: float | None) -> None:
        """One turn; if it read nothing, sleeps until something comes."""
        self._turn_of = threading.get_ident()
        try:
            wait_ms = self._turn_once(self._ready)
            self._ready = {}
            if not self._link.took:
                self._ready = self._poller.poll(wait_limit_ms(wait_ms, left), self._changed)
                self._send_calls()  # of other threads: there may be no other turn soon
        except BaseException:  # maybe of a signal: the connection goes on with another turn
            self._renew_turn()
            raise
        finally:
            self._turn_of = None
            self._close_if_over()
            self._changed.notify_all()

    def _turn_once(self, ready: Ready) -> int | None:
        """Hears what has come, if that is all, and there was a whole turn lately.

        Returns: for how many ms nothing is due then; None: until something arrives.
        """
        now_s, link = time.monotonic(), self._link
        if now_s >= self._whole_s or (ready and not link.is_alone_in(ready)):
            self._whole_s = now_s + PART_MS / 1_000
            return self._turn.run(ready)
        self._send_calls()
        link.took = False
        if ready or not link.drained:
            for event in link.events(ready, READ_LIMIT):
                self._turn.hear(event)
        return PART_MS

    def _flush(self) -> None:
        if self._turn_of is None:
            self._turn_of = threading.get_ident()
            try:
                self._send_calls()
            except BaseException:  # as above
                self._renew_turn()
                raise
            finally:
                self._turn_of = None
        elif self._turn_of != threading.get_ident():
            self._poller.wake()

    def look(self) -> None:
        with self._changed:
            self._poller.wake()
            self._changed.notify_all()

    def _soon(self) -> None:
        self.look()

    def _close_if_over(self) -> None:
        if self._ended and self._turn_of is None and self._link.link is not None:
            self._flush()
            self._link.close(CLOSE_LINGER_MS)
