"""What a client can do with queues: a part of `zbroker.client.Client`."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Final, Literal

from zbroker.client.consumer import consume_options
from zbroker.client.consumer.consumer import Consumer
from zbroker.client.consumer.worker import Handler, OnError, Worker
from zbroker.client.endpoints import Doors
from zbroker.client.publisher.publisher import Publisher
from zbroker.client.subscriber import points
from zbroker.limits import CREDIT_DEFAULT_BYTES

TIMEOUT_S: Final = 10.0


class QueueClient:
    """Consumers, and those that still live."""

    def __init__(self, publisher: Publisher) -> None:
        self._queues = Doors(publisher, "queues")
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()

    def _check_open(self) -> None:
        """Raises: ZBrokerError, what ended this client."""
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
        """Takes messages from `queue`, each of which no other consumer has then.

        backlog: how many it holds at most that are not settled; None: as many as the queue allows.
        filter: only messages whose content it is true for. credit: bytes under way. timeout:
        seconds in which it has to be accepted. Of a replayable queue, which gives all its messages
        to one consumer at a time: since: "epoch", "now", a bookmark (behind it), a time, a vector
        "point:NAME" or a range of these without points, "[bookmark:" with what the bookmark names;
        selector: a filter, it begins at the first message for which that is true; one of them is
        needed. until: where it ends, in the same words (a bookmark inclusive). bookmark_not_found:
        where it begins if the log does not hold `since` any more or never did, or messages of the
        queue from there on were purged.
        Raises: ZBrokerError with the broker's code, bad_field, bad_filter, bad_bookmark, "timeout",
        not_ready (the broker has no queues door).
        """
        self._check_open()
        command = consume_options.wanted(
            queue, backlog=backlog, filter=filter, since=since, selector=selector, until=until,
            bookmark_not_found=bookmark_not_found, credit=credit,
        )  # fmt: skip
        consumer = Consumer(self._queues, command)
        try:
            consumer._start(timeout)
        except BaseException:
            consumer.close(flush=False)
            raise
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
        """Threads that call `handler` for each message of a queue, once it is started.

        concurrency: how many. on_error: called with a message and what its handler raised, by its
        thread; None: that is logged. The others are those of `consume`.
        Raises: ZBrokerError bad_field; the rest when it is started.
        """
        self._check_open()
        consume: Callable[[], Consumer] = partial(
            self.consume, queue, backlog=backlog, filter=filter, timeout=timeout
        )
        return Worker(consume, handler, concurrency, on_error)

    def _close_consumers(self, *, flush: bool, timeout: float | None) -> None:
        """Raises: ZBrokerError of the first `Consumer.close` that fails; all are closed."""
        failed = None
        for consumer in list(self._consumers):
            try:
                consumer.close(flush=flush, timeout=timeout)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
