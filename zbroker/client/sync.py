"""The client: `connect()`, and what can be done with a connection.

    with zbroker.connect("tcp://127.0.0.1:9101", "pricer") as client:
        client.publish("orders", b"...").wait()
        for message in client.subscribe("orders", since="epoch"): ...

`publish()` may be called by any number of threads. It queues; the I/O thread of the client packs
what piled up, keeps it until the broker has it, and sends it again after every kind of trouble.
"""

from __future__ import annotations

import logging
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import repeat
from types import TracebackType
from typing import Final, Literal

from zbroker import endpoints
from zbroker.client.bookmark_stores import opening
from zbroker.client.bookmark_stores.memory import MemoryBookmarkStore
from zbroker.client.door import Doors, ask_ranges
from zbroker.client.message import Message
from zbroker.client.publishing.loop import SMALL_BYTES, Publisher
from zbroker.client.publishing.receipt import Receipt
from zbroker.client.publishing.room import Room
from zbroker.client.subscribing import combined, points
from zbroker.client.subscribing.combined import Combined
from zbroker.client.subscribing.options import Delivery, Duration, Rate, filter_text, options_of
from zbroker.client.subscribing.subscription import Subscription
from zbroker.client.values import to_bytes, to_ns
from zbroker.errors import ZBrokerError
from zbroker.ids import check_client_name, check_topic, publisher_id
from zbroker.limits import CREDIT_DEFAULT_BYTES, MIB, TOPICS_MAX
from zbroker.wire.messages import Logon, RangeList, Ranges, Subscribe

STORE_BYTES: Final = 64 * MIB
TIMEOUT_S: Final = 10.0
MANY: Final = 1_000  # messages that publish_many queues at a time; the thread packs meanwhile

_log: Final = logging.getLogger("zbroker.client")


def connect(  # noqa: PLR0913 - every option by its name
    url: str,
    name: str | None = None,
    *,
    store_bytes: int = STORE_BYTES,
    heartbeat: float | None = None,
    timeout: float = TIMEOUT_S,
    on_refused: Callable[[ZBrokerError], None] | None = None,
    bookmark_store: MemoryBookmarkStore | None = None,
) -> Client:
    """A client that is logged on at the ingest door `url`.

    name: of the publisher; the broker knows by it what it has already. None makes a new one.
    store_bytes: what may wait for the broker. heartbeat: seconds after whose double each side
    takes a silent other one for gone. on_refused: called by the I/O thread for each final refusal.
    bookmark_store: for `subscribe(name=...)`: a MemoryBookmarkStore or FileBookmarkStore; who made
    it closes it, after the client.
    Raises: ZBrokerError "timeout" without an answer in `timeout` seconds, name_in_use, ...
    """
    endpoints.split(url)
    if name is not None:
        check_client_name(name)
    opening.checked(bookmark_store, name)
    client = Client(
        url, name or f"client-{secrets.token_hex(8)}", store_bytes, heartbeat, on_refused
    )
    client._bookmarks = bookmark_store
    try:
        client._start(timeout)
    except BaseException:
        client.close(flush=False)
        raise
    return client


class Client:
    """A publisher's session, and the way to subscriptions. Made by `connect`; a context manager."""

    def __init__(
        self,
        url: str,
        name: str,
        store_bytes: int,
        heartbeat: float | None,
        on_refused: Callable[[ZBrokerError], None] | None,
    ) -> None:
        self.url = url
        self.name = name
        self.publisher = publisher_id(name)
        logon = Logon(name, secrets.token_hex(8), heartbeat_s=heartbeat)
        self._publisher = publisher = Publisher(url, logon, self.publisher, store_bytes, on_refused)
        self._track = publisher.track
        self._inbox = publisher.inbox
        self._doors = Doors(url, publisher)
        self._topics: set[str] = set()
        self._room = Room(publisher)
        self._resuming = threading.Lock()  # who resumes several moves them one by one
        self._bookmarks: MemoryBookmarkStore | None = None
        self._flushed = 0
        self._closed = False
        # at the end of the program and of a forgotten client
        self._finalizer = weakref.finalize(self, _abandon, publisher, name)

    def _start(self, timeout: float) -> None:
        publisher, track = self._publisher, self._track
        publisher.start()
        if not track.wait(
            lambda: publisher.session is not None or track.error is not None, timeout
        ):
            said = track.last_refusal()
            raise ZBrokerError(
                "timeout",
                f"no answer from {self.url} in {timeout} s"
                + (f"; the broker said {said}" if said else ""),
                "is it running? `zbroker start` prints its URL",
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
        timeout: float | None = None,
    ) -> Receipt:
        """Queues one message and returns at once, unless the publish store is full.

        time: of the message (int: ns since 1970 UTC), for a broker whose log goes by it.
        timeout: seconds to wait for room in the store: None for ever, 0 not at all.
        Raises: ZBrokerError store_full, too_large, bad_topic, or what ended the session; TypeError.
        """
        if topic not in self._topics:
            self._check_topic(topic)
        if type(data) is not bytes:
            data = to_bytes(data)
        if time is not None and type(time) is not int:
            time = to_ns(time)
        publisher, inbox = self._publisher, self._inbox
        if len(inbox) >= publisher.room:
            self._room.wait(timeout)
        if len(data) > SMALL_BYTES:
            self._room.admit_large(len(data), timeout)
        receipt = Receipt(self._track, topic, data, time)
        inbox.append(receipt)
        if len(inbox) >= publisher.wake_at:
            publisher.wake()
        return receipt

    def publish_many(
        self,
        topic: str,
        payloads: Iterable[bytes],
        *,
        times: Iterable[datetime | int] | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Queues many messages of one topic; the receipt of the last one. Else as `publish`."""
        data = [item if type(item) is bytes else to_bytes(item) for item in payloads]
        if not data:
            raise ValueError("publish_many needs at least one payload")
        stamps = None if times is None else [to_ns(time) for time in times]
        if stamps is not None and len(stamps) != len(data):
            raise ValueError(f"{len(data)} payloads have {len(stamps)} times")
        if max(map(len, data)) > SMALL_BYTES:
            for item, stamp in zip(data, stamps or repeat(None), strict=False):
                receipt = self.publish(topic, item, time=stamp, timeout=timeout)
            return receipt
        if topic not in self._topics:
            self._check_topic(topic)
        for start in range(0, len(data), MANY):
            part = data[start : start + MANY]
            stamp_part = repeat(None) if stamps is None else stamps[start : start + MANY]
            receipt = self._queue(
                list(map(Receipt, repeat(self._track), repeat(topic), part, stamp_part)), timeout
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
        select: str | None = None,
        limit: int | None = None,
        paused: bool = False,
        bookmark_not_found: Literal["fail", "epoch", "now"] = "fail",
        bookmark_wait: Duration = 0,
        unrecorded: bool | None = None,
        credit: int = CREDIT_DEFAULT_BYTES,
        handler: Callable[[Message], object] | None = None,
        name: str | None = None,
        discard: opening.Discard = "auto",
    ) -> Subscription:
        """Messages of `topic` from `since` on; live when caught up; accepted when this returns.

        since: "epoch", "now", bookmark or list of them (behind it), datetime or time text (at or
        after it), a vector, a range. until: a bookmark (inclusive), a time (exclusive), a vector,
        "now". Without both of them it begins now, and topics that are not recorded come too, as
        they are published; with one of them, or an option that needs the log, only what is
        recorded. The options: docs/howto/replay-with-filters-and-pace.md. Durations are seconds, a
        timedelta, or "10s". credit: bytes under way. handler: called for each message by a thread
        of its own; then nobody iterates. name: in the bookmark store, which keeps what is
        processed; since="recent" goes on there, or begins at EPOCH. discard: a message is processed
        when the next one is asked for ("auto"), or when `Subscription.discard` says so.
        Raises: ZBrokerError with the broker's code, bad_field, bad_filter, bad_bookmark,
        topic_not_recorded, name_in_use, "timeout".
        """
        recent = since == points.RECENT
        options = options_of(
            delivery=delivery, rate=rate, rate_max_gap=rate_max_gap, conflation=conflation,
            conflation_key=conflation_key, select=select, limit=limit, paused=paused,
            bookmark_wait=bookmark_wait,
        )  # fmt: skip
        command = Subscribe(
            "", topic, regex=regex, filter=filter_text(filter), options=options, credit=credit,
            bookmark=None if since is None or recent else points.since_text(since),
            until=None if until is None else points.until_text(until),
            bookmark_not_found=bookmark_not_found, unrecorded=unrecorded,
        )  # fmt: skip
        wanted = opening.Wanted(name, recent, discard)
        subscription = self._subscription(command, wanted)
        try:
            subscription._start(TIMEOUT_S + (options.wait_s if options else 0), handler)
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
        return ask_ranges(self._doors, command, timeout)

    @property
    def endpoints(self) -> dict[str, str]:
        """URLs of the instance's other doors: delivery, admin, ..."""
        return self._doors.endpoints()

    # -- the end ------------------------------------------------------------------------------

    def close(self, *, flush: bool = True, timeout: float | None = TIMEOUT_S) -> None:
        """Waits until everything is persisted (for `timeout` seconds), then logs off.

        Raises: ZBrokerError of `flush`; the client is closed all the same.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if flush and self.unpersisted:
                self.flush(timeout)
        finally:
            self._finalizer.detach()
            self._publisher.stop()

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

    def _check_topic(self, topic: str) -> None:
        """Once for each topic; the others are known."""
        if not isinstance(topic, str):
            raise TypeError(f"a topic is a str, not {type(topic).__name__}")
        check_topic(topic)
        if len(self._topics) >= TOPICS_MAX:
            self._topics.clear()
        self._topics.add(topic)

    def _subscription(self, command: Subscribe, wanted: opening.Wanted) -> Subscription:
        tracking = opening.tracked(self._bookmarks, self.name, wanted, command)
        try:
            return Subscription(self._doors, command, tracking)
        except BaseException:
            if tracking is not None:
                tracking.ended = True
            raise

    def _queue(self, receipts: Sequence[Receipt], timeout: float | None) -> Receipt:
        if len(self._inbox) >= self._publisher.room:
            self._room.wait(timeout)
        self._inbox.extend(receipts)
        if len(self._inbox) >= self._publisher.wake_at:
            self._publisher.wake()
        return receipts[-1]


def _abandon(publisher: Publisher, name: str) -> None:
    """What happens when nobody called close()."""
    lost = len(publisher.inbox) + publisher.unsettled
    if lost:
        _log.warning(
            "client.abandoned: %d messages of %r are not known to be persisted; use close()",
            lost,
            name,
        )
    publisher.stop()
