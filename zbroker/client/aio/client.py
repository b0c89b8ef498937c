"""The client in an event loop: `zbroker.aio.connect()`, and what can be done with what it gives.

A client belongs to the loop in which it was connected. `publish()` is an ordinary function: it
queues, and the loop packs and sends what piled up in its next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from zbroker.client import values
from zbroker.client.aio.consumer import AsyncConsumer, AsyncWorker
from zbroker.client.aio.publisher import AsyncBackpressure, AsyncPublisher, AsyncReceipt
from zbroker.client.aio.session import AsyncSession
from zbroker.client.aio.subscription import AsyncCombined, AsyncSubscription
from zbroker.client.aio.transport import check_loop, running
from zbroker.client.base_client import BaseClient
from zbroker.client.options import ConnectOptions, connect_options, takes
from zbroker.client.publisher import hot_path
from zbroker.client.publisher.publisher import SMALL_BYTES
from zbroker.client.subscriber.merge import pause_together, resume_together
from zbroker.client.subscriber.options import TIMEOUT_S
from zbroker.client.values import to_bytes, to_extra, to_ns
from zbroker.client.waits import end_of
from zbroker.clock import SystemClock

T = TypeVar("T")


class AsyncClient(BaseClient[AsyncSubscription, AsyncConsumer, AsyncWorker, AsyncSession]):
    """A publisher's session, the way to subscriptions and queues. Made by `zbroker.aio.connect`.

    The same as `zbroker.client.Client`; used by `async with`. `subscribe` and `consume` return at
    once: await what they return, use it by `async with`, or iterate over it; then it is accepted.
    """

    _publisher: AsyncPublisher
    _publisher_type = AsyncPublisher
    _backpressure: AsyncBackpressure
    _subscription_type = AsyncSubscription
    _consumer_type = AsyncConsumer
    _worker_type = AsyncWorker
    _session_type = AsyncSession

    def __init__(self, options: ConnectOptions) -> None:
        super().__init__(options)
        self._loop = self._publisher.loop
        self._backpressure = AsyncBackpressure(self._publisher)
        self._resuming = asyncio.Lock()  # those that are resumed are moved one by one

    # -- publishing ---------------------------------------------------------------------------

    @hot_path.gated(AsyncReceipt, running)
    def publish(  # noqa: PLR0913 - every option by its name
        self,
        topic: str,
        data: bytes,
        *,
        time: datetime | int | None = None,
        key: bytes | None = None,
        headers: Mapping[str, str | int | float | bool | bytes | None] | None = None,
        expires: datetime | timedelta | int | str | None = None,
        mandatory: bool = False,
    ) -> AsyncReceipt:
        """Queues one message and returns at once, with a receipt that can be awaited.

        The options are those of `zbroker.client.Client.publish`. It never waits: when the publish
        store is full it is an error, and `ready` waits for room.
        Raises: ZBrokerError store_full, too_large, bad_topic, bad_field, or what ended the session;
        TypeError.
        """
        if running() is not self._loop:
            check_loop(self._loop, self._track)
        if topic not in self._topics.known:
            self._topics.check(topic)
        if type(data) is not bytes:
            data = to_bytes(data)
        if time is not None and type(time) is not int:
            time = to_ns(time)
        extra, size = None, len(data)
        if key is not None or headers is not None or expires is not None or mandatory:
            from_ns = time if time is not None else SystemClock().wall_ns()
            extra, more = to_extra(key, headers, expires, from_ns, mandatory=mandatory)
            size += more
        publisher, inbox = self._publisher, self._inbox
        if len(inbox) >= publisher.inbox_limit:
            self._backpressure.admit()
        if size > SMALL_BYTES:
            self._backpressure.admit_large(size)
        receipt = AsyncReceipt(self._track, topic, data, time, extra)
        if self._staging is None:
            inbox.append(receipt)
        else:
            self._backpressure.stage(partial(self._staging.put, inbox, receipt), 0)
        if len(inbox) >= publisher.wake_at:
            publisher.wake()
        return receipt

    def publish_many(
        self,
        topic: str | Sequence[str],
        payloads: Iterable[bytes],
        *,
        times: Iterable[datetime | int] | None = None,
        mandatory: bool = False,
    ) -> AsyncReceipt:
        """Queues many messages of one topic, or each of its own, all or none; the receipt of the
        last one.

        mandatory: `returned_indexes` of that receipt says which of them no binding led to a queue.
        Else as `publish`. When the disk gets full the first thousands of a longer list stay.
        """
        self._check_here()
        data, stamps = values.many(payloads, times)
        topics = self._topics.check_many(topic, len(data))
        self._backpressure.admit_many(list(map(len, data)))
        for receipts in self._receipts(AsyncReceipt, topics, data, stamps, mandatory=mandatory):
            self._queue(receipts, 0)
        return receipts[-1]

    async def ready(self, timeout: float | None = None) -> None:
        """Waits until the publish store has room: then `publish` does not raise store_full.

        Also for what was refused last: a larger message, or many. Raises: ZBrokerError "timeout",
        or what ended the session.
        """
        self._check_here()
        await self._publisher.breathe()
        end = end_of(timeout)
        if not await self._backpressure.ready(end):
            raise self._track.timed_out(timeout)
        if self._track.error is not None:
            raise self._track.error

    flush = BaseClient._flush

    # -- subscribing --------------------------------------------------------------------------

    async def pause(
        self, subscriptions: Iterable[AsyncSubscription], *, timeout: float = TIMEOUT_S
    ) -> None:
        """Has the broker send nothing more to them, those of one connection at once.

        Raises: as `Subscription.pause`.
        """
        await pause_together([await one for one in subscriptions], timeout)

    async def resume(
        self, subscriptions: Iterable[AsyncSubscription], *, timeout: float = TIMEOUT_S
    ) -> AsyncCombined:
        """Resumes them together; what runs is paused first. As `zbroker.client.Client.resume`.

        Raises: as `Subscription.resume`.
        """
        async with self._resuming:
            many = [await one for one in subscriptions]
            return AsyncCombined(await resume_together(self._listeners, many, timeout))

    ranges = BaseClient._ranges

    # -- queues -------------------------------------------------------------------------------

    session = BaseClient._session
    declare_queue = BaseClient._declare_queue
    delete_queue = BaseClient._delete_queue
    purge_queue = BaseClient._purge_queue
    browse = BaseClient._browse
    declare_exchange = BaseClient._declare_exchange
    delete_exchange = BaseClient._delete_exchange
    bind = BaseClient._bind
    unbind = BaseClient._unbind
    exchanges = BaseClient._exchanges
    bindings = BaseClient._bindings

    # -- the end ------------------------------------------------------------------------------

    close = BaseClient._close

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: object, *_error: object) -> None:
        """Closes it; after an exception without waiting for the broker."""
        await self.close(flush=kind is None)

    # -- helpers ------------------------------------------------------------------------------

    def _check_here(self) -> None:
        check_loop(self._loop, self._track)

    async def _aside(self, function: Callable[..., T], *given: object) -> T:
        return await self._loop.run_in_executor(None, function, *given)

    async def _stop_publisher(self) -> None:
        await self._publisher.stop()


class Connecting:
    """`client = await connecting`, or `async with connecting as client`."""

    def __init__(self, options: Callable[[], ConnectOptions]) -> None:
        self._options = options
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[object, None, AsyncClient]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncClient:
        options = self._options()
        self._client = await AsyncClient(options)._open(options.timeout)
        return self._client

    async def __aexit__(self, *error: object) -> None:
        if self._client is not None:
            await self._client.__aexit__(*error)


@takes(connect_options)
def connect(options: Callable[[], ConnectOptions]) -> Connecting:
    """A client that is logged on at an ingest listener: await it, or use it by `async with`.

    The options are those of `zbroker.connect`. on_state and on_refused are called by the event
    loop. A server chooser is called by it, too: it must not wait.
    Raises, when it is awaited: as `zbroker.connect`.
    """
    return Connecting(options)
