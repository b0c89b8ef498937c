"""A worker in an event loop: tasks that call a function of the user for each message of a queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType
from typing import Final

from zbroker.client.aio.consumer import AsyncConsumer
from zbroker.client.aio.waiters import Waiters
from zbroker.client.consumer.consumer import CLOSE_S
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.rejection import Reject
from zbroker.client.consumer.worker import LOOK_S, BaseWorker, Handler, OnError, tell
from zbroker.errors import ZBrokerError

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
