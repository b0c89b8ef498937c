"""The client: what can be done with a connection that `connect()` made.

    with zbroker.connect("tcp://127.0.0.1:9101", "pricer") as client:
        client.publish("orders", b"...").wait()
        for message in client.subscribe("orders", since="epoch"): ...

`publish()` may be called by any number of threads. It queues; the I/O thread of the client packs
what piled up, keeps it until the broker has it, and sends it again after every kind of trouble.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from typing import TypeVar

from zbroker.client import values
from zbroker.client.base_client import BaseClient
from zbroker.client.consumer.consumer import Consumer
from zbroker.client.consumer.worker import Worker
from zbroker.client.options import ConnectOptions, connect_options, takes
from zbroker.client.publisher import hot_path
from zbroker.client.publisher.backpressure import Backpressure
from zbroker.client.publisher.loop import IOThread
from zbroker.client.publisher.packer import Extra
from zbroker.client.publisher.publisher import SMALL_BYTES
from zbroker.client.publisher.receipt import Receipt
from zbroker.client.session import Session
from zbroker.client.subscriber.merge import pause_together, resume_together
from zbroker.client.subscriber.options import TIMEOUT_S
from zbroker.client.subscriber.subscription import Combined, Subscription
from zbroker.client.values import to_bytes, to_extra, to_ns
from zbroker.client.waits import blocking, run
from zbroker.clock import SystemClock
from zbroker.errors import StorageError

T = TypeVar("T")


class Client(BaseClient[Subscription, Consumer, Worker, Session]):
    """A publisher's session, and the way to subscriptions and queues; a context manager.

    Made by `connect`.
    """

    _publisher: IOThread
    _publisher_type = IOThread
    _subscription_type = Subscription
    _consumer_type = Consumer
    _worker_type = Worker
    _session_type = Session

    def __init__(self, options: ConnectOptions) -> None:
        super().__init__(options)
        self._backpressure = Backpressure(self._publisher)
        self._resuming = threading.Lock()  # those that are resumed are moved one by one

    # -- publishing ---------------------------------------------------------------------------

    @hot_path.gated(Receipt)
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
        timeout: float | None = None,
    ) -> Receipt:
        """Queues one message and returns at once, unless the publish store is full.

        time: of the message (int: ns since 1970 UTC), for a broker whose log goes by it.
        key, headers: go along; a header is a str, int, float, bool, bytes or None. At most 16 KiB.
        expires: a time, or how long from `time` or now (timedelta, "10s"). It goes along, too: the
        log keeps the message, and a replay sends it, whatever it says.
        mandatory: if no binding leads it to a queue, `returned` of its receipt says so; the log has
        it all the same.
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
        if key is not None or headers is not None or expires is not None or mandatory:
            from_ns = time if time is not None else SystemClock().wall_ns()
            extra, more = to_extra(key, headers, expires, from_ns, mandatory=mandatory)
            size += more
        publisher, inbox = self._publisher, self._inbox
        if len(inbox) >= publisher.inbox_limit:
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
            publisher.push()
        return receipt

    def publish_many(
        self,
        topic: str | Sequence[str],
        payloads: Iterable[bytes],
        *,
        times: Iterable[datetime | int] | None = None,
        mandatory: bool = False,
        timeout: float | None = None,
    ) -> Receipt:
        """Queues many messages of one topic, or each of its own; the receipt of the last one.

        mandatory: `returned_indexes` of that receipt says which of them no binding led to a queue.
        Else as `publish`.
        """
        data, stamps = values.many(payloads, times)
        topics = self._topics.check_many(topic, len(data))
        if max(map(len, data)) > SMALL_BYTES:
            some = topics if isinstance(topics, list) else repeat(topics)
            rows = zip(some, data, stamps or repeat(None), strict=False)
            made = [
                self.publish(each, item, time=stamp, mandatory=mandatory, timeout=timeout)
                for each, item, stamp in rows
            ]
            if mandatory:
                made[-1].extra = Extra(mandatory=True, before=tuple(made[:-1]))
            return made[-1]
        for receipts in self._receipts(Receipt, topics, data, stamps, mandatory=mandatory):
            if len(self._inbox) >= self._publisher.inbox_limit:
                self._backpressure.wait(timeout)
            self._queue(receipts, timeout)
        return receipts[-1]

    flush = blocking(BaseClient._flush)

    # -- subscribing --------------------------------------------------------------------------

    def pause(self, subscriptions: Iterable[Subscription], *, timeout: float = TIMEOUT_S) -> None:
        """Has the broker send nothing more to them, those of one connection at once.

        Raises: as `Subscription.pause`.
        """
        run(pause_together(subscriptions, timeout))

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
            return Combined(run(resume_together(self._listeners, subscriptions, timeout)))

    ranges = blocking(BaseClient._ranges)

    # -- queues -------------------------------------------------------------------------------

    session = blocking(BaseClient._session)
    declare_queue = blocking(BaseClient._declare_queue)
    delete_queue = blocking(BaseClient._delete_queue)
    purge_queue = blocking(BaseClient._purge_queue)
    browse = blocking(BaseClient._browse)
    declare_exchange = blocking(BaseClient._declare_exchange)
    delete_exchange = blocking(BaseClient._delete_exchange)
    bind = blocking(BaseClient._bind)
    unbind = blocking(BaseClient._unbind)
    exchanges = blocking(BaseClient._exchanges)
    bindings = blocking(BaseClient._bindings)

    # -- the end ------------------------------------------------------------------------------

    close = blocking(BaseClient._close)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Closes it; after an exception without waiting for the broker."""
        self.close(flush=kind is None)

    # -- helpers ------------------------------------------------------------------------------

    async def _aside(self, function: Callable[..., T], *given: object) -> T:
        return function(*given)

    async def _stop_publisher(self) -> None:
        self._publisher.stop()


@takes(connect_options)
def connect(options: Callable[[], ConnectOptions]) -> Client:
    """A client that is logged on at an ingest listener.

    url: of the listener; several: one after the other until one works; or a ServerChooser.
    name: of the publisher; the broker knows by it which messages it has. None makes a new one.
    publish_store: keeps what the broker has not acknowledged: "memory", or a directory, which a
    kill of this process does not touch; one client at a time has it open, under one name. What it
    holds is published first.
    publish_sync: how much of a directory survives a power cut: "each", all that `publish` returned
    for; an interval, all that is older; None, nothing.
    store_bytes, store_messages: how much it holds (64 MiB, in a directory 1 GiB).
    bookmark_store: for `subscribe(name=...)`: "memory", a directory, or a store that its maker
    closes, after the client.
    heartbeat: after twice that time each side takes a silent other one for gone.
    ack_interval: the broker acknowledges once in this time (60 s at most), not with each commit:
    less traffic, while receipts and `flush` wait that much longer.
    timeout: seconds for the first session. give_up: how long a lost one is sought; None: for ever.
    broker_behind: what to do at a broker that lacks messages which were acknowledged: another
    instance, or an old copy.
    on_state: called with each state of the connection; on_refused: with each final refusal; both by
    a thread for that.
    credentials: the keys, where the broker asks for some.
    stage: a token of up to 64 bytes: messages are durable, and no subscriber gets them before
    `commit` names the token.
    Raises: ZBrokerError "timeout" without a session in `timeout` seconds, name_in_use,
    store_in_use, store_damaged, broker_behind, ...
    """
    wanted = options()
    return run(Client(wanted)._open(wanted.timeout))
