"""What moves the bytes of one connection to the delivery process, in an event loop.

It reads what comes, whether anything waits for it or not: the credit is what bounds that.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from zbroker.client.aio.loop_port import LoopLink
from zbroker.client.aio.waiters import Waiters
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.subscriber.feed import RETURN_MS, Feed
from zbroker.client.subscriber.requests import Asked
from zbroker.client.subscriber.transport import SubscriberTransport, answer_of
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Ack

_log: Final = logging.getLogger("zbroker.client")


class AsyncSubscriberPort(SubscriberTransport):
    """A connection, and the tasks that wait for what comes on it."""

    _link: LoopLink

    def __init__(self, doors: ListenerEndpoints, loop: AbstractEventLoop) -> None:
        super().__init__(doors)
        self._loop = loop
        self._lock = nullcontext()  # all of it is called in the loop
        self._error: ZBrokerError | None = None
        self._waiters = Waiters(loop)
        self._begin(LoopLink(doors.connect, self._calls, loop, self._have_turn))

    def asked(self, feed: Feed) -> None:
        """A program waits for more: what it had is handled."""
        super().asked(feed)
        self._link.turns.within(RETURN_MS)

    # -- waiting ------------------------------------------------------------------------------

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        """Waits until `done()`; False if the time `end` of the loop comes before.

        Raises: ZBrokerError, what ended the client.
        """
        there = await self._waiters.until(lambda: done() or self._error is not None, end)
        if self._error is not None and not done():
            raise self._error
        return there

    async def ask(self, command: Asked, feeds: list[Feed], timeout: float) -> Ack:
        """Has something done to subscriptions of this connection.

        Raises: ZBrokerError with the broker's code, "closed", or "timeout": then it may still come.
        """
        request = self._request(command, feeds)
        await self.until(lambda: request.done, self._loop.time() + timeout)
        return answer_of(request, timeout)

    def look(self) -> None:
        """Has all that wait look again: something was handed out, or has ended."""
        self._waiters.look()

    def _soon(self) -> None:
        self._link.turns.soon()

    # -- the turn -----------------------------------------------------------------------------

    def _have_turn(self) -> None:
        """Reads some answers; if none is left, does what time demands."""
        if not self._ended and self._error is None:
            self._guard(self._run)
            self._waiters.look()

    def _run(self) -> None:
        self._link.rest(self._turn.run(self._link.ready()))

    def _flush(self) -> None:
        self._guard(self._send_calls)

    def _guard(self, work: Callable[[], None]) -> None:
        """Whatever fails in there ends the connection: nothing may wait for what does not come."""
        try:
            work()
        except ZBrokerError as error:  # what ended the client
            self._fail(error)
        except Exception as error:  # a defect of ours
            _log.exception("client.turn_failed: the subscriptions to one connection end")
            self._fail(ZBrokerError("internal", f"a turn of a subscription failed: {error!r}"))

    def _fail(self, error: ZBrokerError) -> None:
        self._error = error
        self._link.shut()

    def _close_if_over(self) -> None:
        if self._ended:
            self._link.shut()
