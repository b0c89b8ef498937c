"""The client in an event loop: what can be done with a connection that `zbroker.aio` made.

Everything is called in the loop in which it was connected. `publish()` is an ordinary function: it
queues, and the loop packs and sends what piled up in its next round.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from asyncio import Lock
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import Final, Literal

from zbroker.client import diagnosis, forks
from zbroker.client.aio import combined
from zbroker.client.aio.backpressure import Room
from zbroker.client.aio.combined import Combined
from zbroker.client.aio.publisher import Publisher
from zbroker.client.aio.queue_client import QueueClient
from zbroker.client.aio.receipt import Receipt
from zbroker.client.aio.subscription import Subscription
from zbroker.client.aio.waiters import check_loop, running
from zbroker.client.bookmark_stores import store_options
from zbroker.client.commands import Commanding
from zbroker.client.endpoints import Doors, ask_ranges
from zbroker.client.message import Message
from zbroker.client.options import Listener, Wanted
from zbroker.client.publisher import offered
from zbroker.client.publisher.publisher import SMALL_BYTES
from zbroker.client.subscriber import points, subscribe_command
from zbroker.client.subscriber.options import Clock, Delivery, Duration, Rate
from zbroker.client.sync import MANY, TIMEOUT_S
from zbroker.client.values import to_bytes, to_extra, to_ns
from zbroker.clock import SystemClock
from zbroker.errors import StorageError, ZBrokerError
from zbroker.limits import CREDIT_DEFAULT_BYTES
from zbroker.wire.messages import RangeList, Ranges

_log: Final = logging.getLogger("zbroker.client")


class Client(Commanding, QueueClient):
    """A publisher's session, the way to subscriptions and queues. Made by `zbroker.aio.connect`.

    The same as `zbroker.client.Client`; used by `async with`.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.name = wanted.logon.client
        self.publisher = wanted.publisher
        self._publisher = publisher = Publisher(
            wanted.servers, wanted.logon, wanted.publisher, wanted.settings, wanted.store
        )
        QueueClient.__init__(self, publisher)
        self._loop = publisher.loop
        self._track = publisher.track
        self._inbox = publisher.inbox
        self._staging = wanted.store.staging
        self._doors = Doors(publisher)
        self._topics = offered.Topics()
        self._room = Room(publisher)
        self._resuming = Lock()  # who resumes several moves them one by one
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._bookmarks = wanted.bookmarks
        self._owned = wanted.bookmarks if wanted.owned else None
        self._flushed = 0
        self._closed = False
        self._finalizer = weakref.finalize(self, _abandon, publisher, self.name)
        forks.watch(self)

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

    @property
    def url(self) -> str:
        """The broker that it is connected to, or tries."""
        return self._publisher.url

    def on_state(self, listener: Listener) -> None:
        """Has `listener` told of what becomes of the connection, by the event loop."""
        self._publisher.settings.on_state.append(listener)

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
    ) -> Receipt:
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
            self._room.admit()
        if size > SMALL_BYTES:
            self._room.admit_large(size)
        receipt = Receipt(self._track, topic, data, time, extra)
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
    ) -> Receipt:
        """Queues many messages of one topic, or each of its own, all or none; the receipt of the
        last one.

        Else as `publish`. Of more than 1,000 the first thousands stay when the disk gets full.
        """
        check_loop(self._loop, self._track)
        data, stamps = offered.many(payloads, times)
        topics = self._topics.check_many(topic, len(data))
        self._room.admit_many(list(map(len, data)))
        for start in range(0, len(data), MANY):
            end = start + MANY
            some, at = offered.parts(topics, start, end), offered.parts(stamps, start, end)
            receipts = list(map(Receipt, repeat(self._track), some, data[start:end], at))
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
        if not await self._room.ready(end):
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

    @property
    def unpersisted(self) -> int:
        """How many published messages are not known to be persisted or, if not recorded, taken."""
        return len(self._inbox) + self._publisher.unsettled

    # -- subscribing --------------------------------------------------------------------------

    def subscribe(  # noqa: PLR0913 - every option by its name
        self,
        topic: str,
        *,
        since: points.Point | None = None,
        until: points.Point | None = None,
        regex: bool = False,
        filter: str | None = None,  # noqa: A002 - the word of the field
        delivery: Delivery = "persisted",
        rate: Rate | None = None,
        rate_max_gap: Duration | None = None,
        conflation: Duration | None = None,
        conflation_key: str | Sequence[str] | None = None,
        conflation_clock: Clock | None = None,
        select: str | None = None,
        limit: int | None = None,
        paused: bool = False,
        bookmark_not_found: Literal["fail", "epoch", "now"] = "fail",
        bookmark_wait: Duration = 0,
        unrecorded: bool | None = None,
        credit: int = CREDIT_DEFAULT_BYTES,
        handler: Callable[[Message], object] | None = None,
        on_caught_up: Callable[[], object] | None = None,
        name: str | None = None,
        discard: store_options.Discard = "auto",
        timeout: float = TIMEOUT_S,
    ) -> Subscription:
        """Messages of `topic` from `since` on; the broker is asked when it is first used.

        Await it, use it by `async with`, or iterate over it at once: then it is accepted. The
        options are those of `zbroker.client.Client.subscribe`. handler: a function or a coroutine
        function, called for each message by a task of its own, once the subscription was awaited;
        on_caught_up may be one, too.
        Raises: ZBrokerError bad_field, bad_bookmark, name_in_use; the rest when it is first used.
        """
        self._check_open()
        command, wanted = subscribe_command.wanted(
            topic, since=since, until=until, regex=regex, filter=filter, delivery=delivery,
            rate=rate, rate_max_gap=rate_max_gap, conflation=conflation,
            conflation_key=conflation_key, conflation_clock=conflation_clock, select=select,
            limit=limit, paused=paused, bookmark_not_found=bookmark_not_found,
            bookmark_wait=bookmark_wait, unrecorded=unrecorded, credit=credit, name=name,
            discard=discard,
        )  # fmt: skip
        tracking = store_options.tracked(self._bookmarks, self.name, wanted, command)
        try:
            accept_s = timeout + subscribe_command.wait_s(command)
            subscription = Subscription(
                self._doors, command, tracking, handler, accept_s, on_caught_up
            )
        except BaseException:
            if tracking is not None:
                tracking.ended = True
            raise
        self._subscriptions.add(subscription)
        subscription._owner = self
        return subscription

    async def pause(
        self, subscriptions: Iterable[Subscription], *, timeout: float = TIMEOUT_S
    ) -> None:
        """Has the broker send nothing more to them, those of one connection at once.

        Raises: as `Subscription.pause`.
        """
        await combined.pause(subscriptions, timeout)

    async def resume(
        self, subscriptions: Iterable[Subscription], *, timeout: float = TIMEOUT_S
    ) -> Combined:
        """Resumes them together; what runs is paused first. As `zbroker.client.Client.resume`.

        Raises: as `Subscription.resume`.
        """
        async with self._resuming:
            return await combined.resume(self._doors, subscriptions, timeout)

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

    @property
    def endpoints(self) -> dict[str, str]:
        """URLs of the instance's other doors: delivery, admin, ..."""
        return self._doors.endpoints()

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
            self._finalizer.detach()
            for subscription in list(self._subscriptions):
                subscription._stop()
            await self._publisher.stop()
            if self._owned is not None:
                self._owned.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it; after an exception without waiting for the broker."""
        await self.close(flush=kind is None)

    def __repr__(self) -> str:
        return f"Client({self.url!r}, {self.name!r}, unpersisted={self.unpersisted})"

    # -- helpers ------------------------------------------------------------------------------

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process."""
        self._closed = True
        self._finalizer.detach()
        self._publisher.forked(error)

    def _check_open(self) -> None:
        """Raises: ZBrokerError, what ended this client; RuntimeError in another loop."""
        check_loop(self._loop, self._track)
        if self._closed or self._track.error is not None:
            raise self._track.error or ZBrokerError("closed", "this client is closed")

    def _queue(self, receipts: Sequence[Receipt]) -> None:
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
            self._room.no_space(error)


def _abandon(publisher: Publisher, name: str) -> None:
    """What happens when nobody called close()."""
    lost = len(publisher.inbox) + publisher.unsettled
    if lost:
        _log.warning(
            "client.abandoned: %d messages of %r are not known to be persisted; use close()",
            lost,
            name,
        )
    if not publisher.loop.is_closed():
        error = ZBrokerError("closed", "this client was forgotten")
        publisher.loop.call_soon_threadsafe(publisher.let_go, error)
