"""The client in an event loop: `zbroker.aio.connect()`, and what can be done with what it gives.

A client belongs to the loop in which it was connected. `publish()` is an ordinary function: it
queues, and the loop packs and sends what piled up in its next round.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Lock
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import Final, Literal

from zbroker.client import diagnosis, options, values
from zbroker.client.aio import subscription
from zbroker.client.aio.consumer import AsyncConsumer, AsyncWorker
from zbroker.client.aio.event_loop import check_loop, running
from zbroker.client.aio.publisher import AsyncBackpressure, AsyncPublisher, AsyncReceipt
from zbroker.client.aio.subscription import AsyncCombined, AsyncSubscription
from zbroker.client.base_client import TIMEOUT_S, BaseClient
from zbroker.client.connect_types import Credentials
from zbroker.client.endpoints import ask_ranges
from zbroker.client.options import (
    BookmarkStore,
    ConnectOptions,
    Listener,
    PublishStore,
    PublishSync,
    URLs,
)
from zbroker.client.publisher.publisher import SMALL_BYTES
from zbroker.client.subscriber import points
from zbroker.client.subscriber.options import Duration
from zbroker.client.sync import MANY
from zbroker.client.values import to_bytes, to_extra, to_ns
from zbroker.clock import SystemClock
from zbroker.errors import StorageError, ZBrokerError
from zbroker.wire.messages import RangeList, Ranges

_log: Final = logging.getLogger("zbroker.client")


class AsyncClient(BaseClient[AsyncSubscription, AsyncConsumer, AsyncWorker]):
    """A publisher's session, the way to subscriptions and queues. Made by `zbroker.aio.connect`.

    The same as `zbroker.client.Client`; used by `async with`. `subscribe` and `consume` return at
    once: await what they return, use it by `async with`, or iterate over it; then it is accepted.
    """

    _publisher: AsyncPublisher
    _subscription_type = AsyncSubscription
    _consumer_type = AsyncConsumer
    _worker_type = AsyncWorker

    def __init__(self, wanted: ConnectOptions) -> None:
        publisher = AsyncPublisher(
            wanted.servers, wanted.logon, wanted.publisher, wanted.settings, wanted.store
        )
        super().__init__(wanted, publisher)
        self._loop = publisher.loop
        self._track = publisher.track
        self._backpressure = AsyncBackpressure(publisher)
        self._resuming = Lock()  # who resumes several moves them one by one

    async def _start(self, timeout: float) -> None:
        publisher, track = self._publisher, self._track
        publisher.start()

        def is_over() -> bool:
            return publisher.session is not None or track.error is not None

        until, end = track.waiters.until, self._loop.time() + timeout
        if not await until(is_over, min(end, self._loop.time() + diagnosis.LOOK_S)):
            error = None
            if publisher.looks_alone:
                error = await asyncio.to_thread(diagnosis.impossible, publisher.url)
            if error is not None:
                raise error
            if not await until(is_over, end):
                url, alone = publisher.url, publisher.looks_alone
                raise await asyncio.to_thread(
                    diagnosis.timed_out, url, timeout, track.last_refusal(), alone=alone
                )
        if track.error is not None:
            raise track.error
        self._flushed = track.settled

    # -- publishing ---------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        data: bytes,
        *,
        time: datetime | int | None = None,
        key: bytes | None = None,
        headers: Mapping[str, str | int | float | bool | bytes | None] | None = None,
        expires: datetime | timedelta | int | str | None = None,
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
        if key is not None or headers is not None or expires is not None:
            from_ns = time if time is not None else SystemClock().wall_ns()
            extra, more = to_extra(key, headers, expires, from_ns)
            size += more
        publisher, inbox = self._publisher, self._inbox
        if len(inbox) >= publisher.room:
            self._backpressure.admit()
        if size > SMALL_BYTES:
            self._backpressure.admit_large(size)
        receipt = AsyncReceipt(self._track, topic, data, time, extra)
        if self._staging is None:
            inbox.append(receipt)
        else:
            self._stage(partial(self._staging.put, inbox, receipt))
        if len(inbox) >= publisher.wake_at:
            publisher.wake()
        return receipt

    def publish_many(
        self,
        topic: str | Sequence[str],
        payloads: Iterable[bytes],
        *,
        times: Iterable[datetime | int] | None = None,
    ) -> AsyncReceipt:
        """Queues many messages of one topic, or each of its own, all or none; the receipt of the
        last one.

        Else as `publish`. Of more than 1,000 the first thousands stay when the disk gets full.
        """
        check_loop(self._loop, self._track)
        data, stamps = values.many(payloads, times)
        topics = self._topics.check_many(topic, len(data))
        self._backpressure.admit_many(list(map(len, data)))
        for start in range(0, len(data), MANY):
            end = start + MANY
            some, at = values.parts(topics, start, end), values.parts(stamps, start, end)
            receipts = list(map(AsyncReceipt, repeat(self._track), some, data[start:end], at))
            self._queue(receipts)
        return receipts[-1]

    async def ready(self, timeout: float | None = None) -> None:
        """Waits until the publish store has room: then `publish` does not raise store_full.

        Also for what was refused last: a larger message, or many. Raises: ZBrokerError "timeout",
        or what ended the session.
        """
        check_loop(self._loop, self._track)
        await self._publisher.breathe()
        end = None if timeout is None else self._loop.time() + timeout
        if not await self._backpressure.ready(end):
            raise self._track.timed_out(timeout)
        if self._track.error is not None:
            raise self._track.error

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until everything published before is persisted, or, if not recorded, passed on.

        Raises: ZBrokerError "timeout", or the first final refusal since the last flush.
        """
        check_loop(self._loop, self._track)
        last = self._publisher.numbers()
        await self._track.until_settled(last, timeout)
        refusal = self._track.refusal_after(self._flushed)
        self._flushed = last
        if refusal is not None:
            raise refusal

    # -- subscribing --------------------------------------------------------------------------

    async def pause(
        self, subscriptions: Iterable[AsyncSubscription], *, timeout: float = TIMEOUT_S
    ) -> None:
        """Has the broker send nothing more to them, those of one connection at once.

        Raises: as `Subscription.pause`.
        """
        await subscription.pause(subscriptions, timeout)

    async def resume(
        self, subscriptions: Iterable[AsyncSubscription], *, timeout: float = TIMEOUT_S
    ) -> AsyncCombined:
        """Resumes them together; what runs is paused first. As `zbroker.client.Client.resume`.

        Raises: as `Subscription.resume`.
        """
        async with self._resuming:
            return await subscription.resume(self._doors, subscriptions, timeout)

    async def ranges(
        self,
        topic: str | None = None,
        *,
        since: points.Point = "epoch",
        until: points.Point = "now",
        regex: bool = False,
        parts: int = 1,
        timeout: float = TIMEOUT_S,
    ) -> RangeList:
        """The log between two points as ranges of about equal bytes. Asked in another thread."""
        self._check_open()
        command = Ranges(
            topic=topic,
            regex=regex,
            bookmark=points.since_text(since),
            until=points.until_text(until),
            parts=parts,
        )
        return await self._loop.run_in_executor(None, ask_ranges, self._doors, command, timeout)

    # -- the end ------------------------------------------------------------------------------

    async def close(self, *, flush: bool = True, timeout: float | None = TIMEOUT_S) -> None:
        """Waits until everything is persisted (for `timeout` seconds), then logs off.

        Its subscriptions and consumers end. Raises: ZBrokerError of `flush`; the client is closed
        all the same.
        """
        if self._closed:
            return
        check_loop(self._loop, self._track)
        self._closed = True
        try:
            await self._close_consumers(flush=flush, timeout=timeout)
            if flush and self.unpersisted:
                await self.flush(timeout)
        finally:
            self._let_go()
            await self._publisher.stop()
            if self._owned is not None:
                self._owned.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it; after an exception without waiting for the broker."""
        await self.close(flush=kind is None)

    # -- helpers ------------------------------------------------------------------------------

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

    def _check_open(self) -> None:
        """Raises: ZBrokerError, what ended this client; RuntimeError in another loop."""
        check_loop(self._loop, self._track)
        super()._check_open()

    def _queue(self, receipts: Sequence[AsyncReceipt]) -> None:
        if self._staging is None:
            self._inbox.extend(receipts)
        else:
            self._stage(partial(self._staging.put_many, self._inbox, receipts))
        if len(self._inbox) >= self._publisher.wake_at:
            self._publisher.wake()

    def _stage(self, put: Callable[[], None]) -> None:
        try:
            put()
        except StorageError as error:
            self._backpressure.no_space(error)


class Connecting:
    """`client = await connecting`, or `async with connecting as client`."""

    def __init__(self, wanted: Callable[[], ConnectOptions], timeout: float) -> None:
        self._wanted = wanted
        self._timeout = timeout
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[object, None, AsyncClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)

    async def _connect(self) -> AsyncClient:
        client = AsyncClient(self._wanted())
        try:
            await client._start(self._timeout)
        except BaseException:
            await client.close(flush=False)
            raise
        return client


def connect(  # noqa: PLR0913 - every option by its name
    url: URLs,
    name: str | None = None,
    *,
    publish_store: PublishStore = "memory",
    publish_sync: PublishSync = None,
    store_bytes: int | None = None,
    store_messages: int | None = None,
    bookmark_store: BookmarkStore | None = None,
    heartbeat: Duration | None = None,
    ack_interval: Duration | None = None,
    timeout: float = TIMEOUT_S,
    give_up: Duration | None = None,
    broker_behind: Literal["fail", "go_on"] = "fail",
    on_state: Listener | Iterable[Listener] | None = None,
    on_refused: Callable[[ZBrokerError], object] | None = None,
    credentials: Credentials | None = None,
    stage: str | None = None,
) -> Connecting:
    """A client that is logged on at an ingest door: await it, or use it by `async with`.

    The options are those of `zbroker.connect`. on_state and on_refused are called by the event
    loop. A server chooser is called by it, too: it must not wait.
    Raises, when it is awaited: as `zbroker.connect`.
    """
    return Connecting(
        partial(
            options.wanted, url, name, publish_store=publish_store, publish_sync=publish_sync,
            store_bytes=store_bytes, store_messages=store_messages, bookmark_store=bookmark_store,
            heartbeat=heartbeat, ack_interval=ack_interval,
            give_up=give_up, broker_behind=broker_behind, on_state=on_state,
            on_refused=on_refused, credentials=credentials, stage=stage,
        ),
        timeout,
    )  # fmt: skip
