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
import time as clock
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final

from zbroker.client import forks
from zbroker.client.connection import Phase
from zbroker.client.effects import Effect
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.link import CLOSE_LINGER_MS
from zbroker.client.ports import Calls, LinkPort, WakingPoller, turn_of
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.client.subscriber.feed import Feed, Item
from zbroker.client.subscriber.requests import Asked, SubscriptionRequest
from zbroker.engine.contract import Ready
from zbroker.errors import ZBrokerError
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.messages import Ack


class SubscriberTransport:
    """The core, its turn, and what both ports do with them."""

    _lock: AbstractContextManager[Any]  # may be taken again by its owner
    _link: LinkPort

    def __init__(self, doors: ListenerEndpoints) -> None:
        self._doors = doors
        self._core = SubscriberCore(random.Random().random, doors.heartbeat_s, doors.resubscribed)
        self._calls = Calls()

    def _begin(self, link: LinkPort) -> None:
        self._link = link
        self._turn = turn_of(self._core, link, self._calls, self._doors)
        self._doors.follow(self)

    # -- what a port adds ---------------------------------------------------------------------

    def _flush(self) -> None:
        """Performs what calls decided, now or soon."""
        raise NotImplementedError

    def _close_if_over(self) -> None:
        """Closes the link if the connection has ended."""
        raise NotImplementedError

    def look(self) -> None:
        """Has all that wait look again: something was handed out, or has ended."""
        raise NotImplementedError

    def _soon(self) -> None:
        """Has a turn soon, if something here has turns now."""
        raise NotImplementedError

    # -- subscriptions ------------------------------------------------------------------------

    def add(self, feed: Feed, credit_max: int = CREDIT_MAX_BYTES) -> None:
        """Takes a subscription; the broker is asked for it in a turn."""
        with self._lock:
            self._do(self._core.add(feed, self._doors.now_ms(), credit_max))
            self._soon()

    def leave(self, feed: Feed) -> None:
        """Lets a subscription go. The last one takes the link with it."""
        with self._lock:
            self._do(self._core.remove(feed))
            self._close_if_over()
            self.look()

    def client_ended(self, error: ZBrokerError) -> None:
        """Its subscriptions end with what ended the client."""
        with self._lock:
            self._core.client_ended(error)
            self._close_if_over()
            self.look()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        with self._lock:
            self._do(self._core.beat_each(interval_s))
            self._soon()

    def hand_out(self, feed: Feed) -> Item:
        """The next item of an inbox that is not empty."""
        with self._lock:
            item, effects = self._core.hand_out(feed, self._doors.now_ms())
            self._do(effects)
            return item

    def asked(self, feed: Feed) -> None:
        """A program waits for more: what it had is handled."""
        with self._lock:
            self._do(self._core.asked(feed, self._doors.now_ms()))

    def combined_with(self, feed: Feed) -> list[Feed]:
        """Those that share one replay with it, itself among them; empty if it has its own."""
        with self._lock:
            return list(self._core.requests.group_of(feed))

    def _request(self, command: Asked, feeds: list[Feed]) -> SubscriptionRequest:
        request, effects = self._core.ask(command, feeds)
        self._do(effects)
        return request

    def _do(self, effects: Iterable[Effect]) -> None:
        if effects:
            self._calls.add(effects)
            self._flush()

    def _send_calls(self) -> None:
        for called in self._calls.take():
            self._turn.hear(called)

    @property
    def _ended(self) -> bool:
        return self._core.state is Phase.ENDED


def answer_of(request: SubscriptionRequest, timeout: float) -> Ack:
    """What was answered in time. Raises: ZBrokerError with the broker's code, "timeout"."""
    if request.error is not None:
        raise request.error
    if request.answer is None:
        raise ZBrokerError("timeout", f"delivery gave no answer in {timeout} s")
    return request.answer


WAIT_MAX_MS: Final = 1_000


class CallerPort(SubscriberTransport):
    """A connection, and which thread has its turns."""

    def __init__(self, doors: ListenerEndpoints) -> None:
        super().__init__(doors)
        self._lock = self._changed = threading.Condition()  # its lock's owner may take it again
        self._turn_of: int | None = None  # the thread that has the turn
        self._ready: Ready = {}
        self._poller = WakingPoller()
        forks.watch(self)
        self._begin(LinkPort(doors.connect, self._calls, self._poller))

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process: what was read, and the socket, are the parent's."""
        self._lock = self._changed = threading.Condition()
        self._turn_of, self._link.link = None, None
        self._core.state = Phase.ENDED
        for feed in self._core.feeds.values():
            feed.inbox.clear()
            feed.fail(error)

    def hand_over(
        self, feed: Feed, other: CallerPort, credit_max: int, done: Callable[[], None]
    ) -> None:
        """Gives a subscription to another connection, which no other thread knows yet.

        `done` is called before a reader that waits here can look.
        """
        with self._changed:
            self.leave(feed)
            other.add(feed, credit_max)
            done()

    # -- waiting ------------------------------------------------------------------------------

    def wait(self, done: Callable[[], object], end: float | None) -> bool:
        """Has turns here, or waits for the thread that has, until `done()` or the time `end`.

        Raises: ZBrokerError, what ended the client.
        """
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

    def ask(self, command: Asked, feeds: list[Feed], timeout: float) -> Ack:
        """Has something done to subscriptions of this connection.

        Raises: ZBrokerError with the broker's code, "closed", or "timeout": then it may still come.
        """
        with self._changed:
            request = self._request(command, feeds)
            self._wait(lambda: request.done, clock.monotonic() + timeout)
        return answer_of(request, timeout)

    # -- the turn -----------------------------------------------------------------------------

    def _wait(self, done: Callable[[], object], end: float | None) -> bool:
        while not done():
            left = None if end is None else end - clock.monotonic()
            if self._ended or self._turn_of is not None:
                self._changed.wait(left if left is None else max(0.0, left))
            else:
                self._have_turn(left)
            if left is not None and left <= 0:
                return bool(done())
        return True

    def _have_turn(self, left: float | None) -> None:
        """One turn; if it read nothing, sleeps until something comes."""
        self._turn_of = threading.get_ident()
        try:
            wait_ms = self._turn.run(self._ready)
            self._ready = {}
            if not self._link.took:
                self._ready = self._poller.poll(_least_ms(wait_ms, left), self._changed)
                self._send_calls()  # of other threads: there may be no other turn soon
        except BaseException:
            self._renew_turn()
            raise
        finally:
            self._turn_of = None
            self._close_if_over()
            self._changed.notify_all()

    def _flush(self) -> None:
        if self._turn_of is None:
            self._turn_of = threading.get_ident()
            try:
                self._send_calls()
            except BaseException:
                self._renew_turn()
                raise
            finally:
                self._turn_of = None
        elif self._turn_of != threading.get_ident():
            self._poller.wake()

    def _renew_turn(self) -> None:
        """After an exception, which may be of a signal: the connection goes on with another one."""
        self._turn = turn_of(self._core, self._link, self._calls, self._doors)

    def look(self) -> None:
        """Has all that wait look again: something was handed out, or has ended."""
        with self._changed:
            self._poller.wake()
            self._changed.notify_all()

    def _soon(self) -> None:
        self.look()

    def _close_if_over(self) -> None:
        if self._ended and self._turn_of is None and self._link.link is not None:
            self._flush()
            self._link.close(CLOSE_LINGER_MS)


def _least_ms(wait_ms: int | None, left: float | None) -> int:
    waits = [WAIT_MAX_MS]
    if wait_ms is not None:
        waits.append(wait_ms)
    if left is not None:
        waits.append(int(left * 1_000) + 1)
    return max(0, min(waits))
