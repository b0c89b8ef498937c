"""The client: what can be done with a connection that `connect()` made.

    with zbroker.connect("tcp://127.0.0.1:9101", "pricer") as client:
        client.publish("orders", b"...").wait()
        for message in client.subscribe("orders", since="epoch"): ...

`publish()` may be called by any number of threads. It queues; the I/O thread of the client packs
what piled up, keeps it until the broker has it, and sends it again after every kind of trouble.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import Final, Literal

from zbroker.client import diagnosis, options, values
from zbroker.client.base_client import TIMEOUT_S, BaseClient
from zbroker.client.connect_types import Credentials
from zbroker.client.consumer.consumer import Consumer
from zbroker.client.consumer.worker import Worker
from zbroker.client.endpoints import ask_ranges
from zbroker.client.options import (
    BookmarkStore,
    ConnectOptions,
    Listener,
    PublishStore,
    PublishSync,
    URLs,
)
from zbroker.client.publisher.backpressure import Backpressure
from zbroker.client.publisher.loop import IOThread
from zbroker.client.publisher.publisher import SMALL_BYTES
from zbroker.client.publisher.receipt import Receipt
from zbroker.client.subscriber import points, subscription
from zbroker.client.subscriber.options import Duration
from zbroker.client.subscriber.subscription import Combined, Subscription
from zbroker.client.values import to_bytes, to_extra, to_ns
from zbroker.clock import SystemClock
from zbroker.errors import StorageError, ZBrokerError
from zbroker.wire.messages import RangeList, Ranges

MANY: Final = 1_000  # messages that publish_many queues at a time; the thread packs meanwhile

_log: Final = logging.getLogger("zbroker.client")


class Client(BaseClient[Subscription, Consumer, Worker]):
    """A publisher's session, and the way to subscriptions and queues; a context manager.

    Made by `connect`.
    """

    _publisher: IOThread
    _subscription_type = Subscription
    _consumer_type = Consumer
    _worker_type = Worker

    def __init__(self, wanted: ConnectOptions) -> None:
        publisher = IOThread(
            wanted.servers, wanted.logon, wanted.publisher, wanted.settings, wanted.store
        )
        super().__init__(wanted, publisher)
        self._track = publisher.track
        self._backpressure = Backpressure(publisher)
        self._resuming = threading.Lock()  # who resumes several moves them one by one

    def _start(self, timeout: float) -> None:
        publisher, track = self._publisher, self._track
        publisher.start()

        def is_over() -> bool:
            return publisher.session is not None or track.error is not None

        if not track.wait(is_over, min(timeout, diagnosis.LOOK_S)):
            error = diagnosis.impossible(publisher.url) if publisher.looks_alone else None
            if error is not None:
                raise error
            if not track.wait(is_over, max(0.0, timeout - diagnosis.LOOK_S)):
                url, alone = publisher.url, publisher.looks_alone
                raise diagnosis.timed_out(url, timeout, track.last_refusal(), alone=alone)
        if track.error is not None:
            raise track.error
        self._flushed = track.settled

    # -- publishing ---------------------------------------------------------------------------

    def publish(  # noqa: PLR0913 - every option by its name
        self,
        topic: str,
        data: bytes,
        *,
        time: datetime | int | None = None,
        key: bytes | None = None,
        headers: Mapping[str, str | int | float | bool | bytes | None] | None = None,
        expires: datetime | timedelta | int | str | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Queues one message and returns at once, unless the publish store is full.

        time: of the message (int: ns since 1970 UTC), for a broker whose log goes by it.
        key, headers: go along; a header is a str, int, float, bool, bytes or None. At most 16 KiB.
        expires: a time, or how long from `time` or now (timedelta, "10s"). It goes along, too: the
        log keeps the message, and a replay sends it, whatever it says.
        timeout: seconds to wait for room in the store: None for ever, 0 not at all.
        Raises: ZBrokerError store_full, too_large, bad_topic, bad_field, or what ended the session;
        TypeError.
        """
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
            self._backpressure.wait(timeout)
        if size > SMALL_BYTES:
            self._backpressure.admit_large(size, timeout)
        receipt = Receipt(self._track, topic, data, time, extra)
        if self._staging is None:
            inbox.append(receipt)
        else:
            try:
                self._staging.put(inbox, receipt)
            except StorageError as error:
                self._backpressure.again(partial(self._staging.put, inbox, receipt), timeout, error)
        if len(inbox) >= publisher.wake_at:
            publisher.wake()
        return receipt

    def publish_many(
        self,
        topic: str | Sequence[str],
        payloads: Iterable[bytes],
        *,
        times: Iterable[datetime | int] | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Queues many messages of one topic, or each of its own; the receipt of the last one.

        Else as `publish`.
        """
        data, stamps = values.many(payloads, times)
        topics, count = self._topics.check_many(topic, len(data)), len(data)
        if max(map(len, data)) > SMALL_BYTES:
            rows = zip(values.parts(topics, 0, count), data, stamps or repeat(None), strict=False)
            for each, item, stamp in rows:
                receipt = self.publish(each, item, time=stamp, timeout=timeout)
            return receipt
        for start in range(0, count, MANY):
            end = start + MANY
            some, at = values.parts(topics, start, end), values.parts(stamps, start, end)
            receipt = self._queue(
                list(map(Receipt, repeat(self._track), some, data[start:end], at)), timeout
            )
        return receipt

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything published before is persisted, or, if not recorded, passed on.

        Raises: ZBrokerError "timeout", or the first final refusal since the last flush.
        """
        last = self._publisher.ask("numbers")
        self._track.wait_settled(last, timeout)
        refusal = self._track.refusal_after(self._flushed)
        self._flushed = last
        if refusal is not None:
            raise refusal

    # -- subscribing --------------------------------------------------------------------------

    def pause(self, subscriptions: Iterable[Subscription], *, timeout: float = TIMEOUT_S) -> None:
        """Has the broker send nothing more to them, those of one connection at once.

        Raises: as `Subscription.pause`.
        """
        subscription.pause(subscriptions, timeout)

    def resume(
        self, subscriptions: Iterable[Subscription], *, timeout: float = TIMEOUT_S
    ) -> Combined:
        """Resumes them together; what runs is paused first.

        From then on several share one connection. Those that were paused at the same position and
        have the same rate share one replay: they are sent what they want in the order of the log
        across all of them, which iterating over what this returns keeps; also after a reconnect.
        Raises: as `Subscription.resume`.
        """
        with self._resuming:
            return subscription.resume(self._doors, subscriptions, timeout)

    def ranges(
        self,
        topic: str | None = None,
        *,
        since: points.Point = "epoch",
        until: points.Point = "now",
        regex: bool = False,
        parts: int = 1,
        timeout: float = TIMEOUT_S,
    ) -> RangeList:
        """The log between two points as ranges of about equal bytes: what Spark plans with."""
        command = Ranges(
            topic=topic,
            regex=regex,
            bookmark=points.since_text(since),
            until=points.until_text(until),
            parts=parts,
        )
        self._check_open()
        return ask_ranges(self._doors, command, timeout)

    # -- the end ------------------------------------------------------------------------------

    def close(self, *, flush: bool = True, timeout: float | None = TIMEOUT_S) -> None:
        """Waits until everything is persisted (for `timeout` seconds), then logs off.

        Its subscriptions and consumers end. Raises: ZBrokerError of `flush`; the client is closed
        all the same.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._close_consumers(flush=flush, timeout=timeout)
            if flush and self.unpersisted:
                self.flush(timeout)
        finally:
            self._let_go()
            self._publisher.stop()
            if self._owned is not None:
                self._owned.close()

    def __enter__(self) -> Client:
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

    def _queue(self, receipts: Sequence[Receipt], timeout: float | None) -> Receipt:
        if len(self._inbox) >= self._publisher.room:
            self._backpressure.wait(timeout)
        if self._staging is None:
            self._inbox.extend(receipts)
        else:
            put = partial(self._staging.put_many, self._inbox, receipts)
            try:
                put()
            except StorageError as error:
                self._backpressure.again(put, timeout, error)
        if len(self._inbox) >= self._publisher.wake_at:
            self._publisher.wake()
        return receipts[-1]


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
) -> Client:
    """A client that is logged on at an ingest door.

    url: of the door; several: one after the other until one works; or a ServerChooser.
    name: of the publisher; the broker knows by it what it has already. None makes a new one.
    publish_store: keeps what the broker has not acknowledged: "memory", or a directory, which a
    kill of this process does not touch; one client at a time has it open, under one name. What it
    holds is published first. publish_sync: what of a directory a power cut does not touch: "each",
    all that `publish` returned for; an interval, all that is older; None, nothing.
    store_bytes, store_messages: how much it holds (64 MiB, in a directory 1 GiB).
    bookmark_store: for `subscribe(name=...)`: "memory", a directory, or a store that its maker
    closes, after the client.
    heartbeat: after twice that time each side takes a silent other one for gone.
    ack_interval: the broker acknowledges once in this time (60 s at most), not with each commit:
    less traffic, while receipts and `flush` wait that much longer.
    timeout: seconds for the first session. give_up: how long a lost one is sought; None: for ever.
    broker_behind: what to do at a broker that lacks messages which were acknowledged: another
    instance, or an old copy. on_state: told of what becomes of the connection; on_refused: of each
    final refusal; both by a thread for that. credentials: the keys, where the broker asks for some.
    stage: a token of up to 64 bytes: what is published is durable, and nobody is shown it before
    `commit` names the token.
    Raises: ZBrokerError "timeout" without a session in `timeout` seconds, name_in_use,
    store_in_use, store_damaged, broker_behind, ...
    """
    wanted = options.wanted(
        url, name, publish_store=publish_store, publish_sync=publish_sync, store_bytes=store_bytes,
        store_messages=store_messages, bookmark_store=bookmark_store, heartbeat=heartbeat,
        ack_interval=ack_interval, give_up=give_up, broker_behind=broker_behind,
        on_state=on_state, on_refused=on_refused, credentials=credentials, stage=stage,
    )  # fmt: skip
    client = Client(wanted)
    try:
        client._start(timeout)
    except BaseException:
        client.close(flush=False)
        raise
    return client
