"""A worker: threads that call a function of the user for each message of a queue.

`BaseWorker` is what workers with threads and with tasks share.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final, Generic, TypeVar

from zbroker.client.consumer.consumer import CLOSE_S, BaseConsumer, Consumer
from zbroker.client.consumer.message import QueueMessage, Reject
from zbroker.client.subscriber.options import whole_number
from zbroker.client.waits import blocking, end_of, left_until, run
from zbroker.errors import ZBrokerError

LOOK_S: Final = 0.2  # how often `until` is asked while nothing is handled

_log: Final = logging.getLogger("zbroker.client")

C = TypeVar("C", bound=BaseConsumer)
Handler = Callable[[QueueMessage], object]
OnError = Callable[[QueueMessage, Exception], object]


class BaseWorker(Generic[C]):
    """Messages of a consumer, and what became of them."""

    _lock: AbstractContextManager[Any] = nullcontext()  # of the counters

    def __init__(
        self, consume: Callable[[], C], handler: Handler, concurrency: int, on_error: OnError | None
    ) -> None:
        self.handled = 0  # messages whose handler returned
        self.failed = 0  # and those whose handler raised
        self.error: BaseException | None = None  # what ended it
        self._consume = consume
        self._handler = handler
        self._concurrency = whole_number("concurrency", concurrency)
        self._on_error = on_error
        self._consumer: C | None = None
        self._stopping = False
        self._prepare()

    @property
    def consumer(self) -> C | None:
        """What its messages come from; None before it was started."""
        return self._consumer

    def __repr__(self) -> str:
        return f"{type(self).__name__}(handled={self.handled}, failed={self.failed})"

    # -- what a shell adds --------------------------------------------------------------------

    def _prepare(self) -> None:
        """Makes what its threads or tasks wait with."""
        raise NotImplementedError

    @property
    def _is_inside(self) -> bool:
        """True in one of its threads or tasks."""
        raise NotImplementedError

    def _running(self) -> bool:
        """Whether one of its threads or tasks goes on."""
        raise NotImplementedError

    async def _join(self, timeout: float | None) -> int:
        """Waits for its threads or tasks. Returns: how many of them are not done in time."""
        raise NotImplementedError

    async def _until(self, done: Callable[[], bool], end: float) -> bool:
        """Waits until `done()`, which is looked at after each message, or the time `end`."""
        raise NotImplementedError

    def _look(self) -> None:
        """Has `_until` look."""
        raise NotImplementedError

    async def _complete(self, result: object) -> None:
        """Waits for what a handler returned, if that is a coroutine for the loop."""

    # -- what both do -------------------------------------------------------------------------

    def _made_consumer(self) -> C:
        """Raises: ZBrokerError "closed" (a second start)."""
        if self._consumer is not None:
            raise ZBrokerError("closed", "a worker is started once", "make another one")
        self._consumer = self._consume()
        return self._consumer

    async def _run(self, until: Callable[[], object] | None, timeout: float | None) -> None:
        def is_over() -> bool:
            done = self._stopping or not self._running()
            return done or bool(until is not None and until())

        try:
            while not await self._until(is_over, time.monotonic() + LOOK_S):
                pass
        finally:
            await self._stop(timeout)
        if self.error is not None:
            raise self.error

    async def _stop(self, timeout: float | None = CLOSE_S) -> None:
        """Takes no more messages, lets handlers end, and waits until all acks are durable.

        Called by a handler it only takes no more; `run` does the rest. Tasks of handlers that are
        not done in time are cancelled.
        Raises: ZBrokerError "timeout", then what is not acked comes back to the queue; of `flush`.
        """
        consumer, end, self._stopping = self._consumer, end_of(timeout), True
        self._look()
        if consumer is None:
            return
        consumer._port.halt()
        if self._is_inside:
            return
        late = await self._join(timeout)
        await consumer._close(flush=not late, timeout=left_until(end))
        if late:
            raise ZBrokerError("timeout", f"{late} handlers are not done after {timeout} s")

    async def _work(self, consumer: C) -> None:
        try:
            while messages := await consumer._take(1, None):
                await self._handle(messages[0])
        except Exception as error:
            self._fail(error)
        finally:
            self._look()

    def _fail(self, error: BaseException) -> None:
        self.error = self.error or error
        if not isinstance(error, ZBrokerError):
            _log.exception("client.worker_failed: one of its threads or tasks ends")

    async def _handle(self, message: QueueMessage) -> None:
        """Raises: ZBrokerError, what ended the consumer."""
        failed = True
        try:
            await self._complete(self._handler(message))
            failed = False
        except Reject as error:
            message.reject(error.reason)
        except Exception as error:
            message.release()
            self._report(message, error)
        except BaseException:  # such as a cancelled task
            with suppress(ZBrokerError):
                message.release()
            raise
        else:
            message.ack()
        finally:
            with self._lock:
                self.failed += failed
                self.handled += not failed
            self._look()

    def _report(self, message: QueueMessage, error: Exception) -> None:
        """What a handler raised."""
        if self._on_error is None:
            _log.error(
                "client.handler_failed: message %s of %r goes back to its queue",
                message.bookmark, message.topic, exc_info=error,
            )  # fmt: skip
            return
        try:
            self._on_error(message, error)
        except Exception:
            _log.exception("client.callback_failed: the worker goes on")


class Worker(BaseWorker[Consumer]):
    """Made by `Client.worker`. Call `run`, or `start` and `stop`; or use it by `with`.

    A handler that returns acks its message, one that raises releases it, `zbroker.Reject` makes it
    a dead letter; or it settles the message itself. The lease is extended while it runs.
    """

    _threads: tuple[threading.Thread, ...] = ()

    def _prepare(self) -> None:
        self._lock = self._changed = threading.Condition()

    def start(self) -> Worker:
        """Begins, once the broker has accepted the consumer.

        Raises: ZBrokerError with the broker's code, "timeout", "closed" (a second start).
        """
        consumer = self._made_consumer()
        self._threads = tuple(
            threading.Thread(target=self._thread, name=f"zbroker {consumer.queue} {i}", daemon=True)
            for i in range(self._concurrency)
        )
        for thread in self._threads:
            thread.start()
        return self

    def run(
        self, until: Callable[[], object] | None = None, *, timeout: float | None = CLOSE_S
    ) -> None:
        """Works until `until()` is true, `stop` is called or the consumer ends; then stops.

        until: looked at after each message, and now and then. timeout: as of `stop`.
        Raises: what ended the consumer; else as `start` and `stop`.
        """
        self.start()
        run(self._run(until, timeout))

    stop = blocking(BaseWorker._stop)

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # -- its threads --------------------------------------------------------------------------

    def _thread(self) -> None:
        assert self._consumer is not None
        try:
            run(self._work(self._consumer))
        except BaseException as error:  # whatever it is: this thread alone knows of it
            self._fail(error)
            self._look()

    @property
    def _is_inside(self) -> bool:
        return threading.current_thread() in self._threads

    def _running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    async def _join(self, timeout: float | None) -> int:
        end = end_of(timeout)
        for thread in self._threads:
            thread.join(left_until(end))
        return sum(thread.is_alive() for thread in self._threads)

    async def _until(self, done: Callable[[], bool], end: float) -> bool:
        with self._changed:
            return self._changed.wait_for(done, left_until(end))

    def _look(self) -> None:
        with self._changed:
            self._changed.notify_all()
