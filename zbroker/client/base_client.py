"""What the client with threads and the one in an event loop share."""

from __future__ import annotations

import inspect
import logging
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

from zbroker.client import forks, link, queue_commands, values
from zbroker.client.bookmark_stores import memory
from zbroker.client.command import Command
from zbroker.client.consumer.consumer import BaseConsumer
from zbroker.client.consumer.worker import BaseWorker, Handler, OnError
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.exchange_commands import ExchangeMethods
from zbroker.client.options import ConnectOptions, Listener, method_takes
from zbroker.client.publisher import hot_path
from zbroker.client.publisher.backpressure import Backpressure
from zbroker.client.publisher.packer import Extra
from zbroker.client.publisher.publisher import PublisherPort
from zbroker.client.publisher.receipt import Receipt
from zbroker.client.questions import ask_ranges
from zbroker.client.queue_commands import (
    DeclareOptions,
    DeleteOptions,
    PurgeOptions,
    QueueInfo,
    declare_options,
    delete_options,
    purge_options,
)
from zbroker.client.queue_rows import BrowsedMessage, BrowseOptions, browse, browse_options
from zbroker.client.session import SLOTS, BaseSession, session_options
from zbroker.client.session_queues import check_shared
from zbroker.client.subscriber.options import (
    TIMEOUT_S,
    ConsumeOptions,
    Duration,
    RangesOptions,
    SubscribeOptions,
    consume_options,
    ranges_options,
    seconds,
    subscribe_options,
)
from zbroker.client.subscriber.reader_state import ReaderState
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import RangeList

_log: Final = logging.getLogger("zbroker.client")

S = TypeVar("S", bound=ReaderState)
C = TypeVar("C", bound=BaseConsumer)
T = TypeVar("T")
R = TypeVar("R", bound=Receipt)
W = TypeVar("W", bound=BaseWorker[Any])
X = TypeVar("X", bound=BaseSession)


class BaseClient(ExchangeMethods, Generic[S, C, W, X]):
    """A publisher's session, its subscriptions and consumers."""

    _publisher: PublisherPort
    _publisher_type: type[PublisherPort]
    _backpressure: Backpressure
    _subscription_type: type[S]
    _consumer_type: type[C]
    _worker_type: type[W]
    _session_type: type[X]

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self.name = options.logon.client
        self.publisher = options.publisher
        self._publisher = publisher = self._publisher_type(
            options.servers, options.logon, options.publisher, options.settings, options.store
        )
        self._track = publisher.track
        self._inbox = publisher.inbox
        self._staging = options.store.staging
        self._listeners = ListenerEndpoints(publisher)
        self._queues = ListenerEndpoints(publisher, "queues")
        self._topics = values.CheckedTopics()
        publisher.known = self._topics.known
        self._subscriptions: weakref.WeakSet[S] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[C] = weakref.WeakSet()
        self._sessions: weakref.WeakSet[X] = weakref.WeakSet()
        self._bookmarks = options.bookmarks
        self._owned = options.bookmarks if options.owned else None
        self._flushed = 0
        self._closed = False
        # at the end of the program and of a forgotten client
        self._finalizer = weakref.finalize(self, _abandon, publisher, self.name)
        forks.watch(self)

    @property
    def url(self) -> str:
        """The broker that it is connected to, or tries."""
        return self._publisher.url

    @property
    def unpersisted(self) -> int:
        """How many published messages are not known to be persisted or, if not recorded, taken."""
        return len(self._inbox) + self._publisher.unsettled

    @property
    def endpoints(self) -> dict[str, str]:
        """URLs of the instance's other listeners: delivery, admin, ..."""
        return self._listeners.endpoints()

    def on_state(self, listener: Listener) -> None:
        """Has `listener` called with what becomes of the connection: by a thread, or the loop."""
        self._publisher.settings.on_state.append(listener)

    # -- subscribing --------------------------------------------------------------------------

    @method_takes(subscribe_options)
    def subscribe(self, options: Callable[[], SubscribeOptions]) -> S:
        """Messages of `topic` from `since` on; live when caught up; accepted when this returns.

        since: "epoch", "now", bookmark or list of them (after it), datetime or time text (at or
        after it), a vector, a range. until: a bookmark (inclusive), a time (exclusive), a vector,
        "now". Without both of them it begins now, and topics that are not recorded come too, as
        they are published; with one of them, or an option that needs the log, only what is
        recorded. The options: docs/howto/replay-with-filters-and-pace.md. Durations are seconds, a
        timedelta, or "10s". credit: bytes under way. handler: called for each message by a thread
        of its own, which alone reads it. on_caught_up: called once, by the reader, after all that
        was persisted at the begin. name: in the bookmark store, which keeps what is processed;
        since="recent" goes on there, or begins at EPOCH. discard: a message is processed when the
        next one is asked for ("auto"), or when `Subscription.discard` says so. timeout: seconds in
        which it has to be accepted, beyond `bookmark_wait`.
        In an event loop it is accepted when it was awaited or entered, or when an iteration begins;
        handler and on_caught_up may be coroutine functions, called by a task.
        Raises: ZBrokerError with the broker's code, bad_field, name_in_use, "timeout".
        """
        self._check_open()
        wanted = options()
        tracking = memory.tracked(self._bookmarks, self.name, wanted)
        try:
            subscription = self._subscription_type(self._listeners, wanted, tracking)
        except BaseException:
            if tracking is not None:
                tracking.ended = True
            raise
        self._subscriptions.add(subscription)
        subscription._owner = self
        subscription._ask_at_once()
        return subscription

    # -- queues -------------------------------------------------------------------------------

    @method_takes(consume_options)
    def consume(self, options: Callable[[], ConsumeOptions]) -> C:
        """Takes messages from `queue`, each of which no other consumer has then.

        backlog: how many it holds at most that are not settled; None: as many as the queue says, or
        more while it keeps up.
        filter: only messages whose content it is true for. credit: bytes under way. flow: with
        "credit" it gets no more messages than `Consumer.flow` has asked for; acknowledging makes no
        difference then. timeout: seconds in which it has to be accepted.
        A replayable queue gives all its messages to one consumer at a time, from a place. since:
        "epoch", "now", a bookmark (after it), a time, a vector, "point:NAME" or a range of these
        without points, "[bookmark:" with what the bookmark names; selector: a filter, it begins at
        the first message for which that is true; one of them is needed. until: where it ends, in
        the same words (a bookmark inclusive). bookmark_not_found: where it begins if the log does
        not hold `since` any more or never did, or messages of the queue from there on were purged.
        In an event loop it is accepted when it was awaited or entered, or when an iteration begins.
        Raises: ZBrokerError with the broker's code, bad_field, bad_filter, bad_bookmark, "timeout",
        not_ready (the broker has no queues process).
        """
        self._check_open()
        consumer = self._consumer_type(self._queues, options())
        consumer._ask_at_once()
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
    ) -> W:
        """Calls `handler` for each message of a queue in threads or tasks, once it is started.

        handler: a function; in an event loop, a coroutine function too. concurrency: how many
        threads or tasks. on_error: called with a message and what its handler raised, by that
        thread or task; None: that is logged. The others are those of `consume`.
        Raises: ZBrokerError bad_field; the rest when it is started.
        """
        self._check_open()
        consume = partial(self.consume, queue, backlog=backlog, filter=filter, timeout=timeout)
        return self._worker_type(consume, handler, concurrency, on_error)

    async def _session(
        self, name: str, *, force: bool = False, session_timeout: Duration = 0,
        timeout: float = TIMEOUT_S,
    ) -> X:  # fmt: skip
        """A session with transactions, attached: no other one with this name commits any more.

        name: 1 to 200 bytes, of the principal; the same after a restart of the program, so that
        what it left open ends. Another instance, where it was attached last, hands it over; force:
        also if that is gone: a commit of it that is not here yet comes later. session_timeout:
        seconds for which it is kept if its connection is lost, with what its consumers hold; 0:
        leases count.
        The session has a connection and a publisher of its own.
        Raises: ZBrokerError bad_field, reserved_name, session_elsewhere, too_many, "timeout".
        """
        self._check_open()
        timeout_ms = round(seconds("session_timeout", session_timeout, zero=True) * 1_000)
        for slot in range(SLOTS):
            client = type(self)(session_options(name, self._options, slot))
            session = self._session_type(client, name, force=force, timeout_ms=timeout_ms)
            try:
                await session._open(timeout)
            except ZBrokerError as error:
                if error.code != "name_in_use" or slot == SLOTS - 1:
                    raise
            else:
                self._sessions.add(session)
                return session
        raise AssertionError("the last one has returned, or raised")

    @method_takes(declare_options)
    async def _declare_queue(self, options: Callable[[], DeclareOptions]) -> QueueInfo:
        """Makes a queue, durably, unless it is there with the same settings.

        name: "" lets the broker choose one, which is in the answer. topic: what it takes, "" is its
        name. settings: the other keys of a [[queue]] table, as
        `lease="5s"` or `max_deliveries=3`; a timedelta is a duration, numbers are milliseconds and
        bytes as there. A key that is left out has its default, also when settings are compared.
        `exclusive=True` is for `Session.declare_queue`.
        passive: only looks whether there is one, whatever its settings are. timeout: seconds; a
        lost connection and a queue that is being changed are waited for until then.
        In an event loop another thread asks.
        Raises: ZBrokerError queue_exists (with other settings: the reason has both), bad_queue
        (the reason names the key), not_entitled, too_many, unknown_queue (passive), bad_field,
        outcome_unknown (without a name, and not answered: it may be there), "timeout".
        """
        self._check_open()
        command, timeout = options()
        check_shared(command)
        return await self._aside(queue_commands.declare, self._queues, command, timeout)

    @method_takes(delete_options)
    async def _delete_queue(self, options: Callable[[], DeleteOptions]) -> None:
        """Deletes a queue, durably: its consumers end, its messages stay in the log.

        if_unused: only if it has no consumer at the instance that is asked. if_empty: only if it
        has no message. Both are judged when the broker gets the command: messages and consumers
        that come while the delete is being written go with the queue. timeout: as of
        `declare_queue`. After a lost connection it is asked for again, for the same queue, never
        for one that was made since.
        In an event loop another thread asks.
        Raises: ZBrokerError unknown_queue, queue_in_use, bad_queue (the config has it),
        not_entitled, "timeout".
        """
        self._check_open()
        command, timeout = options()
        await self._aside(queue_commands.delete, self._queues, command, timeout)

    @method_takes(purge_options)
    async def _purge_queue(self, options: Callable[[], PurgeOptions]) -> int:
        """Takes all messages out of a queue that no consumer holds, durably; how many they were.

        A purge is not repeated after a lost connection: it would take what came after it.
        In an event loop another thread asks.
        Raises: ZBrokerError outcome_unknown (sent and not answered: it may have been done),
        unknown_queue, not_entitled, "timeout" (it was not sent).
        """
        self._check_open()
        command, timeout = options()
        return await self._aside(queue_commands.purge, self._queues, command, timeout)

    @method_takes(browse_options)
    async def _browse(self, options: Callable[[], BrowseOptions]) -> list[BrowsedMessage]:
        """Messages of a queue, in the order of their positions, without taking them.

        after: the position after which to begin; limit: how many at most; filter: only those whose
        content it is true for; state: only those in it. `Consumer.acquire` takes such rows.
        In an event loop another thread asks.
        Raises: ZBrokerError unknown_queue, not_entitled, bad_filter, "timeout".
        """
        self._check_open()
        return await self._aside(browse, self._queues, options())

    # -- commands and heartbeats --------------------------------------------------------------

    def command(self, command: Command | str, /, **options: Any) -> Any:  # noqa: ANN401 - see below
        """Does what a command says; `options` come on top. Gives what the method of its name gives.

        Raises: ZBrokerError bad_command, bad_field (options that the method does not have, or
        lacks), or what the method raises.
        """
        wanted = command if isinstance(command, Command) else Command(command)
        wanted = wanted.with_(**options)
        method = getattr(self, wanted.name)
        try:
            inspect.signature(method).bind(**wanted.options)
        except TypeError as error:
            raise ZBrokerError("bad_field", f"{wanted.name}: {error}") from None
        return method(**wanted.options)

    def heartbeat(self, interval: Duration | None) -> None:
        """Begins heartbeats in a session, or changes their interval; None: ends them.

        As `connect(heartbeat=...)`: after twice that time each side takes a silent other one for
        gone. Also for subscriptions and consumers; with a shorter interval they connect again, and
        go on where they are. Raises: ZBrokerError bad_field, or what ended the client.
        """
        self._check_open()
        interval_s = None if interval is None else seconds("interval", interval)
        if interval_s is not None and interval_s > HEARTBEAT_MAX_S:
            raise ZBrokerError("bad_field", f"interval={interval!r} is more than an hour")
        self._publisher.beat_each(interval_s)

    # -- what a shell adds --------------------------------------------------------------------

    def _check_here(self) -> None:
        """Raises: RuntimeError in an event loop that is not its own."""

    async def _aside(self, function: Callable[..., T], *given: object) -> T:
        """What a function returns that may block."""
        raise NotImplementedError

    async def _stop_publisher(self) -> None:
        """Logs off; messages that are not persisted stay in the store, if it lasts."""
        raise NotImplementedError

    # -- what both do -------------------------------------------------------------------------

    def _receipts(
        self, kind: type[R], topics: str | list[str], data: list[bytes], stamps: list[int] | None,
        *, mandatory: bool,
    ) -> Iterator[list[R]]:  # fmt: skip
        """One for each message, some at a time: they are packed meanwhile."""
        before: list[R] = []
        for start in range(0, len(data), MANY):
            part = slice(start, start + MANY)
            some = topics[part] if isinstance(topics, list) else topics
            at = None if stamps is None else stamps[part]
            made = hot_path.receipts(kind, self._track, some, data[part], at)
            if mandatory:
                for receipt in made:
                    receipt.extra = _MANDATORY
                before += made
                if len(before) == len(data):
                    made[-1].extra = Extra(mandatory=True, before=tuple(before[:-1]))
            yield made

    def _queue(self, receipts: Sequence[Receipt], timeout: float | None) -> None:
        """Keeps messages that belong together, in the store if it keeps them that early."""
        if self._staging is None:
            self._inbox.extend(receipts)
        else:
            put = partial(self._staging.put_many, self._inbox, receipts)
            self._backpressure.stage(put, timeout)
        if len(self._inbox) >= self._publisher.wake_at:
            self._publisher.wake()

    async def _open(self, timeout: float) -> Self:
        """Waits for the first session. Raises: ZBrokerError, why there is none; it is closed."""
        try:
            await self._start(timeout)
        except BaseException:
            await self._close(flush=False)
            raise
        return self

    async def _start(self, timeout: float) -> None:
        publisher, track = self._publisher, self._track
        publisher.start()

        def is_over() -> bool:
            return publisher.session is not None or track.error is not None

        end = time.monotonic() + timeout
        if not await track.until(is_over, min(end, time.monotonic() + link.LOOK_S)):
            if publisher.looks_alone:
                error = await self._aside(link.impossible, publisher.url)
                if error is not None:
                    raise error
            if not await track.until(is_over, end):
                url, said, alone = publisher.url, track.last_refusal(), publisher.looks_alone
                raise await self._aside(link.timed_out, url, timeout, said, alone)
        if track.error is not None:
            raise track.error
        self._flushed = track.settled

    async def _flush(self, timeout: float | None = None) -> None:
        """Waits until everything published before is persisted, or, if not recorded, passed on.

        Raises: ZBrokerError "timeout", or the first final refusal since the last flush.
        """
        self._check_here()
        last = self._publisher.numbers()
        await self._track.until_settled(last, timeout)
        refusal = self._track.refusal_after(self._flushed)
        self._flushed = last
        if refusal is not None:
            raise refusal

    @method_takes(ranges_options)
    async def _ranges(self, options: Callable[[], RangesOptions]) -> RangeList:
        """The log between two points as ranges of about equal bytes: what Spark plans with.

        In an event loop another thread asks for them.
        """
        self._check_open()
        command, timeout = options()
        return await self._aside(ask_ranges, self._listeners, command, timeout)

    async def _close(self, *, flush: bool = True, timeout: float | None = TIMEOUT_S) -> None:
        """Waits until everything is persisted (for `timeout` seconds), then logs off.

        Its subscriptions and consumers end. Raises: ZBrokerError of `flush`; the client is closed
        all the same.
        """
        if self._closed:
            return
        self._check_here()
        self._closed = True
        try:
            for session in list(self._sessions):
                await session._close(timeout=timeout)
            await self._close_consumers(timeout, flush=flush)
            if flush and self.unpersisted:
                await self._flush(timeout)
        finally:
            self._finalizer.detach()
            for subscription in list(self._subscriptions):
                subscription._stop()
            await self._stop_publisher()
            if self._owned is not None:
                self._owned.close()

    async def _close_consumers(self, timeout: float | None, *, flush: bool) -> None:
        """Raises: ZBrokerError of the first `Consumer.close` that fails; all are closed."""
        failed = None
        for consumer in list(self._consumers):
            try:
                await consumer._close(flush=flush, timeout=timeout)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _check_open(self) -> None:
        """Raises: ZBrokerError, what ended this client; RuntimeError in another event loop."""
        self._check_here()
        if self._closed or self._track.error is not None:
            raise self._track.error or ZBrokerError("closed", "this client is closed")

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process."""
        self._closed = True
        self._finalizer.detach()
        self._publisher.forked(error)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, {self.name!r}, unpersisted={self.unpersisted})"


def _abandon(publisher: PublisherPort, name: str) -> None:
    """What happens when `close` was not called."""
    lost = len(publisher.inbox) + publisher.unsettled
    if lost:
        _log.warning(
            "client.abandoned: %d messages of %r are not known to be persisted; use close()",
            lost,
            name,
        )
    publisher.abandon()


HEARTBEAT_MAX_S: Final = 3_600
MANY: Final = 1_000  # messages that publish_many queues at a time
_MANDATORY: Final = Extra(mandatory=True)
