"""A worker: threads that call a function of the user for each message of a queue."""

from __future__ import annotations

import logging
import threading
import time as clock
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Generic, TypeVar

from zbroker.client.consumer.consumer import CLOSE_S, BaseConsumer, Consumer
from zbroker.client.consumer.message import QueueMessage, Reject
from zbroker.errors import ZBrokerError

LOOK_S: Final = 0.2  # how often `until` is asked while nothing is handled

_log: Final = logging.getLogger("zbroker.client")

C = TypeVar("C", bound=BaseConsumer)
Handler = Callable[[QueueMessage], object]
OnError = Callable[[QueueMessage, Exception], object]


class BaseWorker(Generic[C]):
    """What both workers have: the one with threads, and the one in an event loop."""

    def __init__(
        self,
        consume: Callable[[], C],
        handler: Handler,
        concurrency: int,
        on_error: OnError | None,
    ) -> None:
        check_concurrency(concurrency)
        self.handled = 0  # messages whose handler returned
        self.failed = 0  # and those whose handler raised
        self.error: BaseException | None = None  # what ended it
        self._consume = consume
        self._handler = handler
        self._concurrency = concurrency
        self._on_error = on_error
        self._consumer: C | None = None
        self._stopping = False

    @property
    def consumer(self) -> C | None:
        """What its messages come from; None before it was started."""
        return self._consumer

    def _check_first(self) -> None:
        """Raises: ZBrokerError "closed" (a second start)."""
        if self._consumer is not None:
            raise ZBrokerError("closed", "a worker is started once", "make another one")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(handled={self.handled}, failed={self.failed})"


class Worker(BaseWorker[Consumer]):
    """Made by `Client.worker`. Call `run`, or `start` and `stop`; or use it by `with`.

    A handler that returns acks its message, one that raises releases it, `zbroker.Reject` makes it
    a dead letter; or it settles the message itself. The lease is extended while it runs.
    """

    def __init__(
        self,
        consume: Callable[[], Consumer],
        handler: Handler,
        concurrency: int,
        on_error: OnError | None,
    ) -> None:
        super().__init__(consume, handler, concurrency, on_error)
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()

    # -- its life -----------------------------------------------------------------------------

    def start(self) -> Worker:
        """Begins, once the broker has accepted the consumer.

        Raises: ZBrokerError with the broker's code, "timeout", "closed" (a second start).
        """
        self._check_first()
        self._consumer = consumer = self._consume()
        self._threads = [
            threading.Thread(target=self._work, name=f"zbroker {consumer.queue} {i}", daemon=True)
            for i in range(self._concurrency)
        ]
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
        try:
            with self._changed:
                while not self._is_over() and not (until is not None and until()):
                    self._changed.wait(LOOK_S)
        finally:
            self.stop(timeout)
        if self.error is not None:
            raise self.error

    def stop(self, timeout: float | None = CLOSE_S) -> None:
        """Takes no more messages, lets handlers end, and waits until all acks are durable.

        Called by a handler it only takes no more; `run` does the rest.
        Raises: ZBrokerError "timeout", then what is not acked comes back to the queue; of `flush`.
        """
        consumer, end = self._consumer, None if timeout is None else clock.monotonic() + timeout
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if consumer is None:
            return
        consumer._port.halt()
        if threading.current_thread() in self._threads:
            return
        for thread in self._threads:
            thread.join(_left(end))
        late = sum(thread.is_alive() for thread in self._threads)
        consumer.close(flush=not late, timeout=_left(end))
        if late:
            raise ZBrokerError("timeout", f"{late} handlers are not done after {timeout} s")

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- its threads --------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._stopping or not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        assert self._consumer is not None
        try:
            for message in self._consumer:
                self._handle(message)
        except BaseException as error:  # whatever it is: nobody else would hear of it
            self.error = self.error or error
            if not isinstance(error, ZBrokerError):
                _log.exception("client.worker_failed: one of its threads ends")
        finally:
            with self._changed:
                self._changed.notify_all()

    def _handle(self, message: QueueMessage) -> None:
        """Raises: ZBrokerError, what ended the consumer."""
        failed = True
        try:
            self._handler(message)
            failed = False
        except Reject as error:
            message.reject(error.reason)
        except Exception as error:
            message.release()
            tell(self._on_error, message, error)
        except BaseException:
            with suppress(ZBrokerError):
                message.release()
            raise
        else:
            message.ack()
        finally:
            self._count(failed=failed)

    def _count(self, *, failed: bool) -> None:
        with self._changed:
            self.failed += failed
            self.handled += not failed
            self._changed.notify_all()


def tell(on_error: OnError | None, message: QueueMessage, error: Exception) -> None:
    """What a handler raised."""
    if on_error is None:
        _log.error(
            "client.handler_failed: message %s of %r goes back to its queue",
            message.bookmark, message.topic, exc_info=error,
        )  # fmt: skip
        return
    try:
        on_error(message, error)
    except Exception:
        _log.exception("client.callback_failed: the worker goes on")


def check_concurrency(concurrency: int) -> None:
    """Raises: ZBrokerError bad_field."""
    good = isinstance(concurrency, int) and not isinstance(concurrency, bool) and concurrency > 0
    if not good:
        what = f"concurrency={concurrency!r} is not a number from 1 on"
        raise ZBrokerError("bad_field", what)


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - clock.monotonic())
