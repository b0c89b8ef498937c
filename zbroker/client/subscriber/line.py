"""What moves the bytes of one connection to the delivery door, in the threads of those who wait.

No thread of its own: whoever waits for something here (a message, an answer) does what is due, for
all subscriptions of the line; that is twice as fast as a hand-over from another thread. One thread
at a time has this turn. Others that wait meanwhile are told after each turn; what they want sent is
queued, and a byte in an event descriptor ends the sleep of the one that has the turn. So a thread
may pause, resume or close a subscription that another one reads, that nobody reads, or that it
reads itself.

The lock is held except while polling; only the thread that has the turn touches the socket.
"""

from __future__ import annotations

import os
import random
import threading
import time as clock
from collections import deque
from collections.abc import Callable
from typing import Final

from zbroker.client import forks
from zbroker.client.connection import State
from zbroker.client.effects import Connect, Effect, Send
from zbroker.client.endpoints import Doors
from zbroker.client.link import CLOSE_LINGER_MS, Link
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.client.subscriber.feed import Feed, Item
from zbroker.client.subscriber.requests import Asked
from zbroker.client.subscriber.transport import TOKEN_WAIT_MS, Carrying, answer_of, now, now_ms
from zbroker.errors import ZBrokerError
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.messages import Ack

WAIT_MAX_MS: Final = 1_000


class Line(Carrying):
    """A connection, its link, and who has the turn."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._connection = SubscriberCore(
            random.Random().random, doors.heartbeat_s, doors.resubscribed
        )
        self._link: Link | None = None
        self._session = 0
        self._changed = threading.Condition()  # of a lock that its owner may take again
        self._turn_of: int | None = None  # the thread that has the turn
        self._outbox: deque[Send] = deque()  # of threads that have not
        self._woken = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        forks.watch(self)
        doors.follow(self)

    def __del__(self) -> None:
        os.close(self._wake_fd)

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process: what was read, and the socket, are the parent's."""
        self._changed, self._turn_of, self._link = threading.Condition(), None, None
        self._connection.state = State.ENDED
        for feed in self._connection.feeds.values():
            feed.inbox.clear()
            feed.fail(error)

    # -- subscriptions ------------------------------------------------------------------------

    def add(self, feed: Feed, credit_max: int = CREDIT_MAX_BYTES) -> None:
        """Takes a subscription; it is asked for when somebody waits for it."""
        with self._changed:
            self._perform(self._connection.add(feed, now_ms(), credit_max))
            self._wake()

    def leave(self, feed: Feed) -> None:
        """Lets a subscription go. The last one takes the link with it."""
        with self._changed:
            self._perform(self._connection.remove(feed))
            self._close_if_over()
            self._wake()

    def hand_over(self, feed: Feed, line: Line, credit_max: int, done: Callable[[], None]) -> None:
        """Gives a subscription to another line, which no other thread knows yet.

        `done` is called before a reader that waits here can look.
        """
        with self._changed:
            self.leave(feed)
            line.add(feed, credit_max)
            done()

    def client_ended(self, error: ZBrokerError) -> None:
        """Its subscriptions end with what ended the client, and whoever waits here is told."""
        with self._changed:
            self._connection.client_ended(error)
            self._close_if_over()
            self._wake()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        with self._changed:
            self._perform(self._connection.beat_each(interval_s))
            self._wake()

    # -- waiting ------------------------------------------------------------------------------

    def wait(self, done: Callable[[], object], end: float | None) -> bool:
        """Does what is due here, or waits for who does it, until `done()` or the time `end`.

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

    def hand_out(self, feed: Feed) -> Item:
        """The next item of an inbox that is not empty."""
        with self._changed:
            item, effects = self._connection.hand_out(feed, now_ms())
            if effects:
                self._perform(effects)
            return item

    def asked(self, feed: Feed) -> None:
        """A program waits for more: what it had is handled."""
        with self._changed:
            effects = self._connection.asked(feed, now_ms())
            if effects:
                self._perform(effects)

    def look(self) -> None:
        """Has those who wait look again: something was handed out."""
        with self._changed:
            self._wake()

    def ask(self, command: Asked, feeds: list[Feed], timeout: float) -> Ack:
        """Has something done to subscriptions of this line.

        Raises: ZBrokerError with the broker's code, "closed", or "timeout": then it may still come.
        """
        with self._changed:
            request, effects = self._connection.ask(command, feeds)
            self._perform([*effects])
            self._wait(lambda: request.done, clock.monotonic() + timeout)
        return answer_of(request, timeout)

    def combined_with(self, feed: Feed) -> list[Feed]:
        """Those that share one replay with it, itself among them; empty if it has its own."""
        with self._changed:
            return list(self._connection.requests.group_of(feed))

    # -- the turn -----------------------------------------------------------------------------

    def _wait(self, done: Callable[[], object], end: float | None) -> bool:
        while not done():
            left = None if end is None else end - clock.monotonic()
            if self._connection.state is State.ENDED or self._turn_of is not None:
                self._changed.wait(left if left is None else max(0.0, left))
            else:
                self._turn(left)
            if left is not None and left <= 0:
                return bool(done())
        return True

    def _turn(self, left: float | None) -> None:
        """Reads some answers; if there is none, does what time demands, and sleeps."""
        self._turn_of = threading.get_ident()
        try:
            self._send_queued()
            if not self._read()[0]:
                self._sleep(left)
        finally:
            self._turn_of = None
            self._close_if_over()
            self._changed.notify_all()

    def _sleep(self, left: float | None) -> None:
        if self._connection.state is State.NO_TOKEN:
            self._use_newer_session()
        self._perform(self._connection.tick(now(), drained=True))
        link, wait_ms = self._link, self._wait_ms(left)
        self._changed.release()
        try:
            if link is None:
                clock.sleep(wait_ms / 1_000)
            else:
                link.wait(wait_ms, self._wake_fd)
        finally:
            self._changed.acquire()
        if self._woken:
            self._woken = False
            os.eventfd_read(self._wake_fd)
        if link is not None:
            self._read_events(link)

    def _wait_ms(self, left: float | None) -> int:
        waits = [WAIT_MAX_MS]
        if left is not None:
            waits.append(int(left * 1_000) + 1)
        wake_ms = self._connection.next_wake_ms()
        if wake_ms is not None:
            waits.append(wake_ms - now_ms())
        if self._connection.state is State.NO_TOKEN:
            waits.append(TOKEN_WAIT_MS)
        return max(0, min(waits))

    # -- effects ------------------------------------------------------------------------------

    @property
    def _elsewhere(self) -> bool:
        """Another thread has the turn, and with it the socket."""
        return self._turn_of not in (None, threading.get_ident())

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Connect):
                if self._link is not None:
                    self._link.close()
                self._outbox.clear()  # it was for the old one
                self._link = self._doors.connect()
            elif isinstance(effect, Send) and self._elsewhere:
                self._outbox.append(effect)
                self._wake()
            elif isinstance(effect, Send) and self._link is not None:
                self._link.send(effect.command, effect.body)

    def _send_queued(self) -> None:
        while self._outbox:
            effect = self._outbox.popleft()
            if self._link is not None:
                self._link.send(effect.command, effect.body)

    def _wake(self) -> None:
        """Ends the sleep of whoever waits here."""
        if self._elsewhere and not self._woken:
            self._woken = True
            os.eventfd_write(self._wake_fd, 1)
        self._changed.notify_all()

    def _close_if_over(self) -> None:
        if self._connection.state is State.ENDED and self._turn_of is None and self._link:
            self._send_queued()
            self._link.close(CLOSE_LINGER_MS)
            self._link = None
