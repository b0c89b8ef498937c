"""What a client in an event loop can do with queues: a part of `zbroker.aio.Client`."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Literal

from zbroker.client.aio.consumer import Consumer
from zbroker.client.aio.publisher import Publisher
from zbroker.client.aio.worker import Worker
from zbroker.client.consumer import consume_options
from zbroker.client.consumer.client import TIMEOUT_S
from zbroker.client.consumer.worker import Handler, OnError
from zbroker.client.endpoints import Doors
from zbroker.client.subscriber import points
from zbroker.limits import CREDIT_DEFAULT_BYTES


class QueueClient:
    """Consumers, and those that still live."""

    def __init__(self, publisher: Publisher) -> None:
        self._queues = Doors(publisher, "queues")
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()

    def _check_open(self) -> None:
        """Raises: ZBrokerError, what ended this client; RuntimeError in another loop."""
        raise NotImplementedError

    def consume(  # noqa: PLR0913 - every option by its name
        self,
        queue: str,
        *,
        backlog: int | None = None,
        filter: str | None = None,  # noqa: A002 - the word of the field
        since: points.Point | None = None,
        selector: str | None = None,
        until: points.End | None = None,
        bookmark_not_found: Literal["fail", "epoch", "now"] = "fail",
        credit: int = CREDIT_DEFAULT_BYTES,
        timeout: float = TIMEOUT_S,
    ) -> Consumer:
        """Takes messages from `queue`; the broker is asked when it is first used.

        Await it, use it by `async with`, or iterate over it at once: then it is accepted. The
        options are those of `zbroker.client.Client.consume`.
        Raises: ZBrokerError bad_field, bad_bookmark; the rest when it is first used.
        """
        self._check_open()
        command = consume_options.wanted(
            queue, backlog=backlog, filter=filter, since=since, selector=selector, until=until,
            bookmark_not_found=bookmark_not_found, credit=credit,
        )  # fmt: skip
        consumer = Consumer(self._queues, command, timeout)
        self._consumers.add(consumer)
        consumer._owner = self
        return consumer

    def worker(  # noqa: PLR0913 - as above
        self,
        queue: str,
        handler: Handler,
        *,
        concurrency: int = 4,
        backlog: int | None = None,
        filter: str | None = None,  # noqa: A002 - as above
        on_error: OnError | None = None,
        timeout: float = TIMEOUT_S,
    ) -> Worker:
        """Tasks that call `handler` for each message of a queue, once it is started.

        handler: a function or a coroutine function. The options are those of
        `zbroker.client.Client.worker`. Raises: ZBrokerError bad_field; the rest when it is started.
        """
        self._check_open()
        consume = partial(self.consume, queue, backlog=backlog, filter=filter, timeout=timeout)
        return Worker(consume, handler, concurrency, on_error)

    async def _close_consumers(self, *, flush: bool, timeout: float | None) -> None:
        """Raises: ZBrokerError of the first `Consumer.close` that fails; all are closed."""
        failed = None
        for consumer in list(self._consumers):
            try:
                await consumer.close(flush=flush, timeout=timeout)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
