"""What moves the bytes of one connection to the delivery door, in an event loop.

It reads what comes, whoever waits: the credit is what bounds that. A turn takes little, so that who
waits for the first of it has it soon.
"""

from __future__ import annotations

import logging
import random
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Final

from zbroker.client.aio.readiness import Watch
from zbroker.client.aio.turns import Turns
from zbroker.client.aio.waiters import Waiters
from zbroker.client.connection import State
from zbroker.client.effects import Connect, Effect, Send
from zbroker.client.endpoints import Doors
from zbroker.client.link import CLOSE_LINGER_MS, Link
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.client.subscriber.feed import RETURN_MS, Feed, Item
from zbroker.client.subscriber.requests import Asked
from zbroker.client.subscriber.transport import TOKEN_WAIT_MS, Carrying, answer_of, now, now_ms
from zbroker.errors import ZBrokerError
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.messages import Ack

_log: Final = logging.getLogger("zbroker.client")


class Line(Carrying):
    """A connection, its link, and who waits for what comes on it."""

    def __init__(self, doors: Doors, loop: AbstractEventLoop) -> None:
        self._doors = doors
        self._loop = loop
        self._connection = SubscriberCore(
            random.Random().random, doors.heartbeat_s, doors.resubscribed
        )
        self._link: Link | None = None
        self._watch: Watch | None = None
        self._session = 0
        self._error: ZBrokerError | None = None
        self._events = False  # the monitor has something
        self._turns = Turns(loop, self._turn)
        self._waiters = Waiters(loop)
        doors.follow(self)

    # -- subscriptions ------------------------------------------------------------------------

    def add(self, feed: Feed, credit_max: int = CREDIT_MAX_BYTES) -> None:
        """Takes a subscription, and has the broker asked for it."""
        self._perform(self._connection.add(feed, now_ms(), credit_max))
        self._turns.soon()

    def leave(self, feed: Feed) -> None:
        """Lets a subscription go. The last one takes the link with it."""
        self._perform(self._connection.remove(feed))
        if self._connection.state is State.ENDED:
            self._close()
        self._waiters.look()

    def client_ended(self, error: ZBrokerError) -> None:
        """Its subscriptions end with what ended the client, and whoever waits here is told."""
        self._connection.client_ended(error)
        self._close()
        self._waiters.look()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        self._perform(self._connection.beat_each(interval_s))
        self._turns.soon()

    def hand_out(self, feed: Feed) -> Item:
        """The next item of an inbox that is not empty."""
        item, effects = self._connection.hand_out(feed, now_ms())
        if effects:
            self._perform(effects)
        return item

    def asked(self, feed: Feed) -> None:
        """A program waits for more: what it had is handled."""
        effects = self._connection.asked(feed, now_ms())
        if effects:
            self._perform(effects)
        self._turns.within(RETURN_MS)

    def combined_with(self, feed: Feed) -> list[Feed]:
        """Those that share one replay with it, itself among them; empty if it has its own."""
        return list(self._connection.requests.group_of(feed))

    # -- waiting ------------------------------------------------------------------------------

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        """Waits until `done()`; False if the time `end` of the loop comes before.

        Raises: ZBrokerError, what ended the client.
        """
        there = await self._waiters.until(lambda: done() or self._error is not None, end)
        if self._error is not None and not done():
            raise self._error
        return there

    def look(self) -> None:
        """Has those who wait look again: something was handed out."""
        self._waiters.look()

    async def ask(self, command: Asked, feeds: list[Feed], timeout: float) -> Ack:
        """Has something done to subscriptions of this line.

        Raises: ZBrokerError with the broker's code, "closed", or "timeout": then it may still come.
        """
        request, effects = self._connection.ask(command, feeds)
        self._perform([*effects])
        await self.until(lambda: request.done, self._loop.time() + timeout)
        return answer_of(request, timeout)

    # -- the turn -----------------------------------------------------------------------------

    def _turn(self) -> None:
        """Reads some answers; if none is left, does what time demands."""
        if self._connection.state is State.ENDED or self._error is not None:
            return
        try:
            _, more = self._read()
            if not more:
                self._idle()
        except ZBrokerError as error:  # what ended the client
            self._fail(error)
        except Exception as error:  # a bug of ours: nobody may wait for what does not come
            _log.exception("client.turn_failed: the subscriptions to one connection end")
            self._fail(ZBrokerError("internal", f"a turn of a subscription failed: {error!r}"))
        else:
            self._rest(more=more)
        self._waiters.look()

    def _idle(self) -> None:
        if self._connection.state is State.NO_TOKEN:
            self._use_newer_session()
        self._perform(self._connection.tick(now(), drained=True))
        link = self._link
        if link is None or not self._events:
            return
        self._events = False
        self._read_events(link)

    def _rest(self, *, more: bool) -> None:
        """Sets when the next turn is."""
        if more:
            self._turns.soon()
        wake_ms = self._connection.next_wake_ms()
        if wake_ms is not None:
            self._turns.within(wake_ms - now_ms())
        if self._connection.state is State.NO_TOKEN:
            self._turns.within(TOKEN_WAIT_MS)

    # -- effects ------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Connect):
                self._unlink(0)
                self._link = self._doors.connect()
                self._watch = Watch(self._loop, self._link, self._turn, self._monitored)
                self._monitored()
            elif isinstance(effect, Send) and self._link is not None:
                self._link.send(effect.command, effect.body)
                self._turns.soon()  # to read again: see readiness.py

    def _monitored(self) -> None:
        self._events = True
        self._turns.soon()

    def _fail(self, error: ZBrokerError) -> None:
        self._error = error
        self._close()

    def _close(self) -> None:
        self._unlink(CLOSE_LINGER_MS)
        self._turns.close()

    def _unlink(self, linger_ms: int) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._link is not None:
            self._link.close(linger_ms)
            self._link = None
