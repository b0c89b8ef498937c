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
from zbroker.client import points
from zbroker.client.door import Doors, ask_ranges
from zbroker.client.loop import SMALL_BYTES, Publisher
from zbroker.client.receipt import Receipt
from zbroker.client.subscription import Subscription
from zbroker.clock import from_datetime
from zbroker.errors import ZBrokerError
from zbroker.ids import check_client_name, check_topic, publisher_id
from zbroker.limits import CREDIT_DEFAULT_BYTES, MIB, TOPICS_MAX
from zbroker.wire.messages import Logon, RangeList, Ranges, Subscribe

STORE_BYTES: Final = 64 * MIB
TIMEOUT_S: Final = 10.0
HANDOVER_S: Final = 1.0  # for the I/O thread to take what is queued, even with timeout=0
MANY: Final = 1_000  # messages that publish_many queues at a time; the thread packs meanwhile

_log: Final = logging.getLogger("zbroker.client")


def connect(
    url: str,
    name: str | None = None,
    *,
    store_bytes: int = STORE_BYTES,
    heartbeat: float | None = None,
    timeout: float = TIMEOUT_S,
    on_refused: Callable[[ZBrokerError], None] | None = None,
) -> Client:
    """A client that is logged on at the ingest door `url`.

    name: of the publisher; the broker knows by it what it has already. None makes a new one.
    store_bytes: what may wait for the broker. heartbeat: seconds after whose double each side
    takes a silent other one for gone. on_refused: called by the I/O thread for each final refusal.
    Raises: ZBrokerError "timeout" without an answer in `timeout` seconds, name_in_use, ...
    """
    endpoints.split(url)
    if name is not None:
        check_client_name(name)
    client = Client(
        url, name or f"client-{secrets.token_hex(8)}", store_bytes, heartbeat, on_refused
    )
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
        self._large_lock = threading.Lock()
        self._large = 0  # bytes of larger messages queued so far
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
            data = _to_bytes(data)
        if time is not None and type(time) is not int:
            time = _to_ns(time)
        publisher, inbox = self._publisher, self._inbox
        if len(inbox) >= publisher.room:
            self._wait_for_room(timeout)
        if len(data) > SMALL_BYTES:
            self._admit_large(len(data), timeout)
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
        data = [item if type(item) is bytes else _to_bytes(item) for item in payloads]
        if not data:
            raise ValueError("publish_many needs at least one payload")
        stamps = None if times is None else [_to_ns(time) for time in times]
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

    def subscribe(
        self,
        topic: str,
        *,
        since: points.Point | None = None,
        until: points.Point | None = None,
        regex: bool = False,
        bookmark_not_found: Literal["fail", "epoch", "now"] = "fail",
        credit: int = CREDIT_DEFAULT_BYTES,
    ) -> Subscription:
        """Messages of `topic` from `since` on; live when caught up; accepted when this returns.

        since: "epoch", "now", bookmark or list of them (behind it), datetime or time text (at or
        after it), a vector. until: a bookmark (inclusive), a time (exclusive), a vector, "now".
        Without both of them it begins now, and topics that are not recorded come too, as they are
        published; with one of them only what is recorded.
        regex: `topic` is a pattern that must match whole names. credit: bytes under way.
        Raises: ZBrokerError with the broker's code, bad_bookmark, topic_not_recorded, "timeout".
        """
        command = Subscribe(
            "s1",
            topic,
            regex=regex,
            bookmark=None if since is None else points.since_text(since),
            until=None if until is None else points.until_text(until),
            credit=credit,
            bookmark_not_found=bookmark_not_found,
        )
        subscription = Subscription(self._doors, command)
        try:
            subscription.start(TIMEOUT_S)
        except BaseException:
            subscription.close()
            raise
        return subscription

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

    def _queue(self, receipts: Sequence[Receipt], timeout: float | None) -> Receipt:
        if len(self._inbox) >= self._publisher.room:
            self._wait_for_room(timeout)
        self._inbox.extend(receipts)
        if len(self._inbox) >= self._publisher.wake_at:
            self._publisher.wake()
        return receipts[-1]

    def _wait_for_room(self, timeout: float | None) -> None:
        """Raises: ZBrokerError store_full, or what ended the session."""
        publisher, inbox, track = self._publisher, self._inbox, self._track

        def room() -> bool:
            return len(inbox) < publisher.room or track.error is not None

        if publisher.room > 0:  # the store is not full: the I/O thread only has to come round
            track.wait(lambda: room() or publisher.room == 0, HANDOVER_S)
        if not track.wait(room, timeout):
            raise self._store_full(timeout)
        if track.error is not None:
            raise track.error

    def _admit_large(self, size: int, timeout: float | None) -> None:
        """Counts a message whose size matters for the store's bound. Raises: as `publish`."""
        publisher, track = self._publisher, self._track
        if size > publisher.message_max:
            raise ZBrokerError(
                "too_large", f"a message has at most {publisher.message_max} bytes, this one {size}"
            )
        if size > publisher.store_bytes:
            raise ZBrokerError(
                "store_full", f"{size} bytes never fit a store of {publisher.store_bytes}"
            )

        def fits() -> bool:
            held = self._large - publisher.taken_large + publisher.stored_bytes
            return held + size <= publisher.store_bytes or track.error is not None

        with self._large_lock:  # held while waiting: one after the other
            if not track.wait(fits, timeout):
                raise self._store_full(timeout)
            if track.error is not None:
                raise track.error
            self._large += size

    def _store_full(self, timeout: float | None) -> ZBrokerError:
        said = self._track.last_refusal()
        return ZBrokerError(
            "store_full",
            f"no room in the publish store after {timeout} s"
            + (f"; the broker said {said}" if said else "; the broker does not acknowledge"),
            "wait, or connect with larger store_bytes",
        )


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


def _to_bytes(data: object) -> bytes:
    if isinstance(data, str):
        raise TypeError("data is bytes, not str: use .encode()")
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"data is bytes, not {type(data).__name__}")


def _to_ns(time: datetime | int) -> int:
    if isinstance(time, datetime):
        return from_datetime(time)
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    raise TypeError(f"a time is a datetime or an int of nanoseconds, not {type(time).__name__}")
