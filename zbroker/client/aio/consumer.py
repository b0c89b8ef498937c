"""A consumer in an event loop, and the worker that calls a handler for each of its messages.

A consumer is asked for when it is first awaited, entered, iterated or read. Messages leave it only
while their reader runs, so a reader that is cancelled while it waits loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator

from zbroker.client import forks
from zbroker.client.aio.transport import (
    ROUND_MESSAGES,
    AsyncConsumerPort,
    Waiters,
    complete,
    running,
)
from zbroker.client.connection import Phase
from zbroker.client.consumer.consumer import CLOSE_S, BaseConsumer
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.worker import BaseWorker
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.subscriber.options import ConsumeOptions
from zbroker.errors import ZBrokerError


class AsyncConsumer(BaseConsumer):
    """Made by `Client.consume`. Await it, enter it, iterate over it, or call `fetch`.

    The same as `zbroker.client.Consumer`, in one event loop. Messages are settled as there, by
    ordinary functions: `message.ack()`, `with message:`.
    """

    _port_type = AsyncConsumerPort

    def __init__(self, listeners: ListenerEndpoints, options: ConsumeOptions) -> None:
        super().__init__(listeners, options)
        self._loop = asyncio.get_running_loop()
        self._handed_out = 0  # messages since the last round of other tasks
        forks.watch(self)

    # -- taking -------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[QueueMessage]:
        """Each message, until it is closed, or a replayable queue came to `until`.

        Raises: ZBrokerError with the code with which the broker ended it.
        """
        while messages := await self._take(1, None):
            yield messages[0]

    async def batches(self, timeout: float | None = None) -> AsyncIterator[list[QueueMessage]]:
        """Lists of messages as they came: with `ack` of a list the fast path.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        while (messages := await self._next_batch(timeout)) is not None:
            yield messages

    fetch = BaseConsumer._fetch

    stop = BaseConsumer._stop
    drain = BaseConsumer._drain
    acquire = BaseConsumer._acquire

    # -- its end ------------------------------------------------------------------------------

    flush = BaseConsumer._flush
    close = BaseConsumer._close

    def __await__(self) -> Generator[object, None, AsyncConsumer]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncConsumer:
        """Raises: ZBrokerError with the broker's code, "timeout", "closed"."""
        await self._open(None)
        if self._closed:
            raise self.error or ZBrokerError("closed", "the consumer was closed")
        return self

    async def __aexit__(self, kind: object, *_error: object) -> None:
        """Closes it; after an exception without waiting for the broker."""
        await self.close(flush=kind is None)

    def __del__(self) -> None:
        """Also where the garbage collector runs in another thread."""
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._port.close)

    # -- helpers ------------------------------------------------------------------------------

    async def _take(self, most: int | None, end: float | None) -> list[QueueMessage] | None:
        self._check_here()
        if self._handed_out >= ROUND_MESSAGES:
            self._handed_out = 0
            await asyncio.sleep(0)
        messages = await super()._take(most, end)
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


class AsyncWorker(BaseWorker[AsyncConsumer]):
    """Made by `AsyncClient.worker`. Call `run`, or `start` and `stop`; or use it by `async with`.

    The handler is a function or a coroutine function. Else as `zbroker.client.Worker`.
    """

    _tasks: tuple[asyncio.Task[None], ...] = ()

    def _prepare(self) -> None:
        self._waiters = Waiters(asyncio.get_running_loop())

    async def start(self) -> AsyncWorker:
        """Begins, once the broker has accepted the consumer.

        Raises: ZBrokerError with the broker's code, "timeout", "closed" (a second start).
        """
        consumer = self._made_consumer()
        await consumer
        self._tasks = tuple(
            asyncio.create_task(self._work(consumer), name=f"zbroker {consumer.queue} {i}")
            for i in range(self._concurrency)
        )
        return self

    async def run(
        self, until: Callable[[], object] | None = None, *, timeout: float | None = CLOSE_S
    ) -> None:
        """Works until `until()` is true, `stop` is called or the consumer ends; then stops.

        until: looked at after each message, and now and then. timeout: as of `stop`.
        Raises: what ended the consumer; else as `start` and `stop`.
        """
        await self.start()
        await self._run(until, timeout)

    stop = BaseWorker._stop

    async def __aenter__(self) -> AsyncWorker:
        return await self.start()

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    # -- its tasks ----------------------------------------------------------------------------

    @property
    def _is_inside(self) -> bool:
        return asyncio.current_task() in self._tasks

    def _running(self) -> bool:
        return any(not task.done() for task in self._tasks)

    async def _join(self, timeout: float | None) -> int:
        if not self._tasks:
            return 0
        _, late = await asyncio.wait(self._tasks, timeout=timeout)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return len(late)

    async def _until(self, done: Callable[[], bool], end: float) -> bool:
        return await self._waiters.until(done, end)

    def _look(self) -> None:
        self._waiters.look()

    _complete = staticmethod(complete)
