"""A consumer as its program sees it: an iterator of messages, or of lists of them."""

from __future__ import annotations

import time as clock
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Final

from zbroker.client.consumer.common import BaseConsumer, not_settled
from zbroker.client.consumer.consumer_thread import ConsumerThread
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import Consume

CLOSE_S: Final = 10.0


class Consumer(BaseConsumer):
    """Made by `Client.consume`. Iterate over it, or over `.batches()`, or call `.fetch()`.

    Any number of threads may do so at once: each message is handed to one of them. It reconnects
    by itself; what is acked then is acked again. Messages come while fewer than `backlog` of them
    are not settled: so settle each one.
    """

    _port: ConsumerThread

    def __init__(self, doors: ListenerEndpoints, command: Consume, accept_s: float) -> None:
        super().__init__(doors, command, accept_s)
        self._port = ConsumerThread(doors, command)
        # at the end of the program, and of a forgotten consumer
        self._finalizer = weakref.finalize(self, self._port.close)

    # -- taking -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[QueueMessage]:
        """Each message, until it is closed, or a replayable queue came to `until`.

        Raises: ZBrokerError with the code with which the broker ended it.
        """
        while messages := self._port.take(1):
            yield messages[0]

    def batches(self, timeout: float | None = None) -> Iterator[list[QueueMessage]]:
        """Lists of messages as they came: with `ack` of a list the fast path.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        while (messages := self._port.take(None, _end(timeout))) is not None:
            if not messages:
                what = f"no message in {timeout} s"
                raise ZBrokerError("timeout", what, "the consumer goes on")
            yield messages

    def fetch(self, most: int = 1, timeout: float | None = None) -> list[QueueMessage]:
        """Up to `most` messages: what is there, or else what comes first in `timeout` seconds.

        Empty if none comes, and at the end. Raises: ZBrokerError, what ended it.
        """
        if most < 1:
            raise ZBrokerError("bad_field", f"most={most!r} is not a number from 1 on")
        return self._port.take_many(most, _end(timeout))

    # -- its life -----------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was acked, released or rejected before is durable.

        Raises: ZBrokerError "timeout"; what the broker refused since the last flush; what ended it.
        """
        port = self._port
        number = port.core.settling.number
        if not port.wait(lambda: self._is_through(number), timeout):
            raise not_settled(timeout, self.unsettled)
        port.look(lambda _core: self._check_through(number))

    def close(self, *, flush: bool = True, timeout: float | None = CLOSE_S) -> None:
        """Ends it, once what was settled is durable (for `timeout` seconds). From any thread.

        What it has besides, also what the program works on, comes back to the queue at once.
        Raises: ZBrokerError of `flush`; it is closed all the same.
        """
        if self._closed:
            return
        self._closed = True
        self._port.halt()
        try:
            if flush and self.unsettled and self.error is None:
                self.flush(timeout)
        finally:
            self._finalizer.detach()
            self._port.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it; after an exception without waiting for the broker."""
        self.close(flush=kind is None)

    # -- helpers ------------------------------------------------------------------------------

    def _ask_at_once(self) -> None:
        """Waits until the broker has accepted it. Raises: ZBrokerError with its code, "timeout"."""
        try:
            self._start()
        except BaseException:
            self.close(flush=False)
            raise

    def _start(self) -> None:
        port = self._port
        port.start()
        if not port.wait(lambda: port.core.granted is not None or port.over, self._accept_s):
            raise self._not_accepted()
        if self.error is not None:
            raise self.error


def _end(timeout: float | None) -> float | None:
    return None if timeout is None else clock.monotonic() + timeout
