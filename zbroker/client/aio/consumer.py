"""A consumer in an event loop, and the worker that calls a handler for each of its messages.

A consumer is asked for when it is first awaited, entered, iterated or read. Messages leave it only
while their reader runs, so a reader that is cancelled while it waits loses none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType
from typing import Final

from zbroker.client import forks
from zbroker.client.aio.event_loop import Waiters, running
from zbroker.client.aio.transport import AsyncConsumerPort
from zbroker.client.connection import Phase
from zbroker.client.consumer.consumer import CLOSE_S, BaseConsumer, not_settled
from zbroker.client.consumer.message import QueueMessage, Reject
from zbroker.client.consumer.worker import LOOK_S, BaseWorker, Handler, OnError, tell
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


_log: Final = logging.getLogger("zbroker.client")


class AsyncWorker(BaseWorker[AsyncConsumer]):
    """Made by `AsyncClient.worker`. Call `run`, or `start` and `stop`; or use it by `async with`.

    The handler is a function or a coroutine function. Else as `zbroker.client.Worker`.
    """

    def __init__(
        self,
        consume: Callable[[], AsyncConsumer],
        handler: Handler,
        concurrency: int,
        on_error: OnError | None,
    ) -> None:
        super().__init__(consume, handler, concurrency, on_error)
        self._tasks: list[asyncio.Task[None]] = []
        self._waiters = Waiters(asyncio.get_running_loop())

    # -- its life -----------------------------------------------------------------------------

    async def start(self) -> AsyncWorker:
        """Begins, once the broker has accepted the consumer.

        Raises: ZBrokerError with the broker's code, "timeout", "closed" (a second start).
        """
        self._check_first()
        self._consumer = consumer = self._consume()
        await consumer
        self._tasks = [
            asyncio.create_task(self._work(consumer), name=f"zbroker {consumer.queue} {i}")
            for i in range(self._concurrency)
        ]
        return self

    async def run(
        self, until: Callable[[], object] | None = None, *, timeout: float | None = CLOSE_S
    ) -> None:
        """Works until `until()` is true, `stop` is called or the consumer ends; then stops.

        until: looked at after each message, and now and then. timeout: as of `stop`.
        Raises: what ended the consumer; else as `start` and `stop`.
        """
        await self.start()
        loop = asyncio.get_running_loop()

        def over() -> bool:
            return self._is_over() or bool(until is not None and until())

        try:
            while not await self._waiters.until(over, loop.time() + LOOK_S):
                pass
        finally:
            await self.stop(timeout)
        if self.error is not None:
            raise self.error

    async def stop(self, timeout: float | None = CLOSE_S) -> None:
        """Takes no more messages, lets handlers end, and waits until all acks are durable.

        Called by a handler it only takes no more; `run` does the rest. Handlers that are not done
        in time are cancelled.
        Raises: ZBrokerError "timeout", then what is not acked comes back to the queue; of `flush`.
        """
        consumer, self._stopping = self._consumer, True
        self._waiters.look()
        if consumer is None:
            return
        consumer._port.halt()
        if asyncio.current_task() in self._tasks:
            return
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        left = None if end is None else max(0.0, end - loop.time())
        await consumer.close(flush=not late, timeout=left)
        if late:
            raise ZBrokerError("timeout", f"{len(late)} handlers are not done after {timeout} s")

    async def __aenter__(self) -> AsyncWorker:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- its tasks ----------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._stopping or all(task.done() for task in self._tasks)

    async def _work(self, consumer: AsyncConsumer) -> None:
        try:
            async for message in consumer:
                await self._handle(message)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.error = self.error or error
            if not isinstance(error, ZBrokerError):
                _log.exception("client.worker_failed: one of its tasks ends")
        finally:
            self._waiters.look()

    async def _handle(self, message: QueueMessage) -> None:
        """Raises: ZBrokerError, what ended the consumer."""
        failed = True
        try:
            result = self._handler(message)
            if result is not None and isawaitable(result):
                await result
            failed = False
        except Reject as error:
            message.reject(error.reason)
        except Exception as error:
            message.release()
            tell(self._on_error, message, error)
        except BaseException:  # it is cancelled
            with suppress(ZBrokerError):
                message.release()
            raise
        else:
            message.ack()
        finally:
            self.failed += failed
            self.handled += not failed
            self._waiters.look()
