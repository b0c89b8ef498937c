"""A consumer in an event loop: an asynchronous iterator of messages, or of lists of them.

It is asked for when it is first awaited, entered, iterated or read. Messages leave it only while
their reader runs, so a reader that is cancelled while it waits loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import Final

from zbroker.client import forks
from zbroker.client.aio.consumer_port import AsyncConsumerPort
from zbroker.client.aio.waiters import running
from zbroker.client.connection import Phase
from zbroker.client.consumer.common import BaseConsumer, not_settled
from zbroker.client.consumer.consumer import CLOSE_S
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import Consume

ROUND_MESSAGES: Final = 5_000  # handed out without waiting: then other tasks have a round


class AsyncConsumer(BaseConsumer):
    """Made by `Client.consume`. Await it, enter it, iterate over it, or call `fetch`.

    The same as `zbroker.client.Consumer`, in one event loop. Messages are settled as there, by
    ordinary functions: `message.ack()`, `with message:`.
    """

    _port: AsyncConsumerPort

    def __init__(self, doors: ListenerEndpoints, command: Consume, accept_s: float) -> None:
        super().__init__(doors, command, accept_s)
        self._closed = True  # until it is whole
        self._loop = asyncio.get_running_loop()
        self._port = AsyncConsumerPort(doors, command, self._loop)
        self._accept_by: float | None = None
        self._handed_out = 0  # messages since the last round of other tasks
        self._closed = False
        forks.watch(self)

    # -- taking -------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[QueueMessage]:
        """Each message, until it is closed, or a replayable queue came to `until`.

        Raises: ZBrokerError with the code with which the broker ended it.
        """
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[QueueMessage]:
        while messages := await self._take(1, None):
            yield messages[0]

    async def batches(self, timeout: float | None = None) -> AsyncIterator[list[QueueMessage]]:
        """Lists of messages as they came: with `ack` of a list the fast path.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        while (messages := await self._take(None, self._end(timeout))) is not None:
            if not messages:
                what = f"no message in {timeout} s"
                raise ZBrokerError("timeout", what, "the consumer goes on")
            yield messages

    async def fetch(self, most: int = 1, timeout: float | None = None) -> list[QueueMessage]:
        """Up to `most` messages: what is there, or else what comes first in `timeout` seconds.

        Empty if none comes, and at the end. Raises: ZBrokerError, what ended it.
        """
        if most < 1:
            raise ZBrokerError("bad_field", f"most={most!r} is not a number from 1 on")
        found = await self._take(most, self._end(timeout)) or []
        while 0 < len(found) < most and (more := self._port.take_now(most - len(found))):
            found += more
        return found

    # -- its life -----------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was acked, released or rejected before is durable.

        Raises: ZBrokerError "timeout"; what the broker refused since the last flush; what ended it.
        """
        self._check_here()
        number = self._port.core.settling.number
        if not await self._port.until(lambda: self._is_through(number), self._end(timeout)):
            raise not_settled(timeout, self.unsettled)
        self._check_through(number)

    async def close(self, *, flush: bool = True, timeout: float | None = CLOSE_S) -> None:
        """Ends it, once what was settled is durable (for `timeout` seconds).

        What it has besides, also what tasks work on, comes back to the queue at once.
        Raises: ZBrokerError of `flush`; it is closed all the same.
        """
        if self._closed:
            return
        self._check_here()
        self._closed = True
        self._port.halt()
        try:
            if flush and self.unsettled and self.error is None:
                await self.flush(timeout)
        finally:
            self._port.close()

    def __await__(self) -> Generator[object, None, AsyncConsumer]:
        return self._accepted_one().__await__()

    async def __aenter__(self) -> AsyncConsumer:
        return await self._accepted_one()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it; after an exception without waiting for the broker."""
        await self.close(flush=kind is None)

    def __del__(self) -> None:
        """Also where the garbage collector runs in another thread."""
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._port.close)

    # -- helpers ------------------------------------------------------------------------------

    def _ask_at_once(self) -> None:
        """The broker is asked when it is first used."""

    async def _accepted_one(self) -> AsyncConsumer:
        """Raises: ZBrokerError with the broker's code, "timeout", "closed"."""
        await self._open(None)
        if self._closed:
            raise self.error or ZBrokerError("closed", "the consumer was closed")
        return self

    async def _open(self, end: float | None) -> None:
        """Has the broker asked for it, once, and waits until it has accepted or refused it."""
        self._check_here()
        port, core = self._port, self._port.core
        if core.granted is not None or self._closed:
            return
        if self._accept_by is None:
            self._accept_by = self._loop.time() + self._accept_s
            port.start()
        by = self._accept_by if end is None else min(end, self._accept_by)
        answered = await port.until(
            lambda: core.granted is not None or port.over or port.halted, by
        )
        if core.granted is None and not self._closed:
            if not answered and self._loop.time() < self._accept_by:
                return
            error = self.error or self._not_accepted()
            self._closed = True
            port.close()
            raise error

    async def _take(self, most: int | None, end: float | None) -> list[QueueMessage] | None:
        await self._open(end)
        if self._handed_out >= ROUND_MESSAGES:
            self._handed_out = 0
            await asyncio.sleep(0)
        messages = await self._port.take(most, end)
        self._handed_out += len(messages or ())
        return messages

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process, where neither the loop nor the link is its own."""
        self._closed = True
        self._port.core.state, self._port.core.error = Phase.ENDED, error
        self._port.core.held.clear()

    def _check_here(self) -> None:
        if running() is not self._loop:
            raise self.error or RuntimeError(
                "this consumer belongs to another event loop or thread"
            )

    def _end(self, timeout: float | None) -> float | None:
        return None if timeout is None else self._loop.time() + timeout
