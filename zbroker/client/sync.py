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
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import Final, Literal

from zbroker.client import diagnosis, forks
from zbroker.client.bookmark_stores import store_options
from zbroker.client.commands import Commanding
from zbroker.client.consumer.client import QueueClient
from zbroker.client.endpoints import Doors, ask_ranges
from zbroker.client.message import Message
from zbroker.client.options import Listener, Wanted
from zbroker.client.publisher import offered
from zbroker.client.publisher.backpressure import Room
from zbroker.client.publisher.loop import IOThread
from zbroker.client.publisher.publisher import SMALL_BYTES
from zbroker.client.publisher.receipt import Receipt
from zbroker.client.subscriber import combined, points, subscribe_command
from zbroker.client.subscriber.combined import Combined
from zbroker.client.subscriber.options import Clock, Delivery, Duration, Rate
from zbroker.client.subscriber.subscription import Subscription
from zbroker.client.values import to_bytes, to_extra, to_ns
from zbroker.clock import SystemClock
from zbroker.errors import StorageError, ZBrokerError
from zbroker.limits import CREDIT_DEFAULT_BYTES
from zbroker.wire.messages import RangeList, Ranges, Subscribe

TIMEOUT_S: Final = 10.0
MANY: Final = 1_000  # messages that publish_many queues at a time; the thread packs meanwhile

_log: Final = logging.getLogger("zbroker.client")


class Client(Commanding, QueueClient):
    """A publisher's session, and the way to subscriptions and queues; a context manager.

    Made by `connect`.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.name = wanted.logon.client
        self.publisher = wanted.publisher
        self._publisher = publisher = IOThread(
            wanted.servers, wanted.logon, wanted.publisher, wanted.settings, wanted.store
        )
        QueueClient.__init__(self, publisher)
        self._track = publisher.track
        self._inbox = publisher.inbox
        self._staging = wanted.store.staging
        self._doors = Doors(publisher)
        self._topics = offered.Topics()
        self._room = Room(publisher)
        self._resuming = threading.Lock()  # who resumes several moves them one by one
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._bookmarks = wanted.bookmarks
        self._owned = wanted.bookmarks if wanted.owned else None
        self._flushed = 0
        self._closed = False
        # at the end of the program and of a forgotten client
        self._finalizer = weakref.finalize(self, _abandon, publisher, self.name)
        forks.watch(self)

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

    @property
    def url(self) -> str:
        """The broker that it is connected to, or tries."""
        return self._publisher.url

    def on_state(self, listener: Listener) -> None:
        """Has `listener` told of what becomes of the connection, by a thread for that."""
        self._publisher.settings.on_state.append(listener)

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
            self._room.wait(timeout)
        if size > SMALL_BYTES:
            self._room.admit_large(size, timeout)
        receipt = Receipt(self._track, topic, data, time, extra)
        if self._staging is None:
            inbox.append(receipt)
        else:
            try:
                self._staging.put(inbox, receipt)
            except StorageError as error:
                self._room.again(partial(self._staging.put, inbox, receipt), timeout, error)
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
        data, stamps = offered.many(payloads, times)
        topics, count = self._topics.check_many(topic, len(data)), len(data)
        if max(map(len, data)) > SMALL_BYTES:
            rows = zip(offered.parts(topics, 0, count), data, stamps or repeat(None), strict=False)
            for each, item, stamp in rows:
                receipt = self.publish(each, item, time=stamp, timeout=timeout)
            return receipt
        for start in range(0, count, MANY):
            end = start + MANY
            some, at = offered.parts(topics, start, end), offered.parts(stamps, start, end)
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
        """Messages of `topic` from `since` on; live when caught up; accepted when this returns.

        since: "epoch", "now", bookmark or list of them (behind it), datetime or time text (at or
        after it), a vector, a range. until: a bookmark (inclusive), a time (exclusive), a vector,
        "now". Without both of them it begins now, and topics that are not recorded come too, as
        they are published; with one of them, or an option that needs the log, only what is
        recorded. The options: docs/howto/replay-with-filters-and-pace.md. Durations are seconds, a
        timedelta, or "10s". credit: bytes under way. handler: called for each message by a thread
        of its own; then nobody iterates. on_caught_up: called once, by who reads, behind all that
        was persisted at the begin. name: in the bookmark store, which keeps what is processed;
        since="recent" goes on there, or begins at EPOCH. discard: a message is processed when the
        next one is asked for ("auto"), or when `Subscription.discard` says so. timeout: seconds in
        which it has to be accepted, beyond `bookmark_wait`.
        Raises: ZBrokerError with the broker's code, bad_field, name_in_use, "timeout".
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
        subscription = self._subscription(command, wanted)
        self._subscriptions.add(subscription)
        subscription._owner = self
        try:
            subscription._start(timeout + subscribe_command.wait_s(command), handler, on_caught_up)
        except BaseException:
            subscription._stop()
            raise
        return subscription

    def pause(self, subscriptions: Iterable[Subscription], *, timeout: float = TIMEOUT_S) -> None:
        """Has the broker send nothing more to them, those of one connection at once.

        Raises: as `Subscription.pause`.
        """
        combined.pause(subscriptions, timeout)

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
            return combined.resume(self._doors, subscriptions, timeout)

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

    @property
    def endpoints(self) -> dict[str, str]:
        """URLs of the instance's other doors: delivery, admin, ..."""
        return self._doors.endpoints()

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
            self._finalizer.detach()
            for subscription in list(self._subscriptions):
                subscription._stop()
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

    def __repr__(self) -> str:
        return f"Client({self.url!r}, {self.name!r}, unpersisted={self.unpersisted})"

    # -- helpers ------------------------------------------------------------------------------

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process."""
        self._closed = True
        self._finalizer.detach()
        self._publisher.forked(error)

    def _check_open(self) -> None:
        """Raises: ZBrokerError, what ended this client."""
        if self._closed or self._track.error is not None:
            raise self._track.error or ZBrokerError("closed", "this client is closed")

    def _subscription(self, command: Subscribe, wanted: store_options.Wanted) -> Subscription:
        tracking = store_options.tracked(self._bookmarks, self.name, wanted, command)
        try:
            return Subscription(self._doors, command, tracking)
        except BaseException:
            if tracking is not None:
                tracking.ended = True
            raise

    def _queue(self, receipts: Sequence[Receipt], timeout: float | None) -> Receipt:
        if len(self._inbox) >= self._publisher.room:
            self._room.wait(timeout)
        if self._staging is None:
            self._inbox.extend(receipts)
        else:
            put = partial(self._staging.put_many, self._inbox, receipts)
            try:
                put()
            except StorageError as error:
                self._room.again(put, timeout, error)
        if len(self._inbox) >= self._publisher.wake_at:
            self._publisher.wake()
        return receipts[-1]


def _abandon(publisher: IOThread, name: str) -> None:
    """What happens when nobody called close()."""
    lost = len(publisher.inbox) + publisher.unsettled
    if lost:
        _log.warning(
            "client.abandoned: %d messages of %r are not known to be persisted; use close()",
            lost,
            name,
        )
    publisher.stop()
