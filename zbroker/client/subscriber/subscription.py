"""Subscriptions as their reader sees them: iterators of messages, or of lists of them.

Everything happens in the reader's thread (see transport.py): without a reader no credit is given,
and nothing is sent. One subscription is read by one thread at a time; pause, resume, replace and
close may be called by any.
"""

from __future__ import annotations

import logging
import threading
import time as clock
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final

from zbroker.client.bookmark_stores.memory import Tracking
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.message import Message
from zbroker.client.subscriber.feed import Item
from zbroker.client.subscriber.reader_state import ReaderState, replacing
from zbroker.client.subscriber.requests import Asked
from zbroker.client.subscriber.transport import CallerPort
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Ack, Pause, Resume, Subscribe

if TYPE_CHECKING:
    from zbroker.client.subscriber.reader_state import ReaderState


from collections.abc import Iterable

from zbroker.client.subscriber.reader_state import Merging, by_port, check_doors, checked
from zbroker.limits import CREDIT_MAX_BYTES

ANSWER_S: Final = 10.0


class Subscription(ReaderState):
    """Made by `Client.subscribe`. Iterate over it, or over `.batches()`, or call `.next()`.

    It reconnects by itself and goes on where it was, as it was; `too_many` is an error only a
    minute later, as its lost connection may count until then. An iteration ends when the end of
    the range or the limit is reached or the subscription is closed; leaving one and starting
    another goes on with the next message. With a handler a thread of its own does all that.
    """

    _port: CallerPort
    _handling: HandlerThread | None

    def __init__(
        self,
        doors: ListenerEndpoints,
        command: Subscribe,
        tracking: Tracking | None,
        handler: Callable[[Message], object] | None,
        accept_s: float,
        on_caught_up: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(doors, command, tracking, handler, accept_s, on_caught_up)
        self._port = CallerPort(doors)
        self._port.add(self._feed)
        self._closed = False

    # -- reading ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Message]:
        """Each message. Raises: ZBrokerError with the code with which the broker ended it."""
        self._check_reader()
        while True:
            if self._tracking is not None:
                yield from self._tracked(self._tracking)
            for self._current in self._rest:  # noqa: B020  (a quick assignment, not a mistake)
                yield self._current
            batch = self._fetch(None)
            if batch is None:
                return
            self._begin(batch)

    def until_caught_up(self, timeout: float | None = None) -> Iterator[Message]:
        """Each message until the subscription has caught up; what comes later is read after that.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        self._check_reader()
        while not self._feed.caught_up:
            for self._current in self._rest:  # noqa: B020  (as above)
                yield self._current
                self._pass()
            batch = self._fetch(timeout, to_mark=True)
            if batch is None:
                return
            self._begin(batch)

    def batches(self, timeout: float | None = None) -> Iterator[list[Message]]:
        """Lists of messages as they were published together: the fast path.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        self._check_reader()
        batch: list[Message] | None = list(self._rest)
        while batch is not None:
            if batch:
                self._current = batch[-1]
                self._rest = iter(())
                yield batch
            batch = self._fetch(timeout)

    def next(self, timeout: float | None = None) -> Message | None:
        """The next message; None at the end of the range. Raises: ZBrokerError, also "timeout"."""
        self._check_reader()
        message = next(self._rest, None)
        if message is None:
            batch = self._fetch(timeout)
            if batch is None:
                return None
            self._begin(batch)
            message = next(self._rest)
        self._current = message
        return message

    # -- changing it --------------------------------------------------------------------------

    def pause(self, timeout: float = ANSWER_S) -> None:
        """Has the broker send nothing more; what is under way still comes. Keeps its place.

        Raises: ZBrokerError bad_field (with live delivery), "closed", "timeout".
        """
        self._ask(Pause([]), timeout)

    def resume(self, timeout: float = ANSWER_S) -> None:
        """Goes on where it was paused. Raises: as `pause`."""
        self._ask(Resume([]), timeout)

    def replace(
        self,
        topic: str | None = None,
        *,
        regex: bool = False,
        filter: str | None = None,  # noqa: A002  (as `subscribe` names it)
        timeout: float = ANSWER_S,
    ) -> int:
        """Goes on with another topic or filter ("": none); what is left out stays as it is.

        Returns: the position from which they hold; what is under way still comes by the old ones.
        Raises: ZBrokerError bad_filter, bad_topic, ...; then nothing changed. "closed", "timeout".
        """
        answer = self._ask(replacing(topic, regex=regex, filter=filter), timeout)
        return answer.position or 0

    # -- its life -----------------------------------------------------------------------------

    def wait_caught_up(self, timeout: float | None = None) -> None:
        """Waits until its handler has handled all that was persisted when it began.

        Without a handler until all of that has come in, as far as its credit goes: it waits to be
        read, here or meanwhile by another thread.
        Raises: ZBrokerError "timeout", "closed" or what ended it before.
        """
        end = None if timeout is None else clock.monotonic() + timeout
        while (port := self._port).wait(partial(self._is_complete, port), end):
            if self._port is port:
                break
        self._check_complete(timeout)

    def join(self, timeout: float | None = None) -> None:
        """Waits until its handler has handled everything: the end of the range, or `close`.

        Raises: what the handler raised, or the broker's ZBrokerError, which ended it; "timeout".
        """
        if self._handling is None:
            raise ZBrokerError("bad_field", "only a subscription with a handler can be joined")
        self._handling.join(timeout)

    def close(self) -> None:
        """Ends it; an iteration over it ends too. From any thread, also by its handler.

        Waits until the call of its handler that is under way returns. Raises: what the handler
        raised, if `join` did not.
        """
        self._stop()
        if self._handling is not None:
            self._handling.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._stop()

    def __del__(self) -> None:
        self._stop()

    def __repr__(self) -> str:
        return f"Subscription({self.topic!r}, {self._feed.state.value}, {self.vector})"

    # -- helpers ------------------------------------------------------------------------------

    def _accept(self, item: Item | None) -> list[Message] | None:
        batch = super()._accept(item)
        if self._call is not None:
            call, self._call = self._call, None
            call()
        return batch

    def _ask_at_once(self) -> None:
        """Waits until the broker has accepted it: what is published from then on is in it.

        Raises: ZBrokerError with the broker's code, or "timeout".
        """
        try:
            self._start()
        except BaseException:
            self._stop()
            raise

    def _start(self) -> None:
        feed, end = self._feed, clock.monotonic() + self._accept_s
        if not self._port.wait(lambda: feed.accepted or feed.error is not None, end):
            what = f"delivery did not accept the subscription in {self._accept_s} s"
            raise ZBrokerError("timeout", what)
        if feed.error is not None and not feed.accepted:
            raise feed.error
        if self._tracking is not None:
            self._tracking.begin(feed.durable)
        if self._handler is not None:
            self._handling = HandlerThread(self, self._handler)
            self._handling.start()

    def _stop(self) -> None:
        if not self._closed:
            self._closed = True
            self._batch.clear()  # what an iteration has not handed out yet
            self._port.leave(self._feed)
            if self._tracking is not None:
                self._tracking.ended = True

    def _move(self, port: CallerPort, credit_max: int) -> None:
        """To a connection that it shares with others."""

        def moved() -> None:
            self._port = port

        self._port.hand_over(self._feed, port, credit_max, moved)
        if self._closed:  # meanwhile, by another thread
            port.leave(self._feed)

    def _ask(self, command: Asked, timeout: float) -> Ack:
        self._check_open()
        self._check_answers(command)
        return self._port.ask(command, [self._feed], timeout)

    def _check_reader(self) -> None:
        if self._handling is not None and not self._handling.is_current:
            raise RuntimeError("a subscription with a handler is read by its own thread")
        self._pass()

    def _tracked(self, tracking: Tracking) -> Iterator[Message]:
        """The rest of the batch in hand; going on says that a message is processed."""
        for self._current in self._rest:  # noqa: B020  (as above)
            yield self._current
            tracking.passed(self._current)

    def _fetch(self, timeout: float | None, *, to_mark: bool = False) -> list[Message] | None:
        """The next batch of new messages; None at the end. to_mark: [] where it has caught up."""
        end = None if timeout is None else clock.monotonic() + timeout
        if self._tracking is not None:
            self._tracking.passed_all()
        while not self._closed:
            port = self._port
            item, there = port.next_item(self._feed, partial(self._is_off, port), end)
            if not there:
                raise ZBrokerError(
                    "timeout", f"no message in {timeout} s", "the subscription goes on"
                )
            if (batch := self._accept(item)) is not None:
                return batch
            if to_mark and self._feed.caught_up:
                return []
        return None

    def _is_off(self, port: CallerPort) -> bool:
        """Nothing more comes to it on `port`."""
        return self._closed or self._port is not port


CLOSE_S: Final = 10.0  # for the call that is under way

_log: Final = logging.getLogger("zbroker.client")


class HandlerThread:
    """The thread, and what it ended with."""

    def __init__(self, subscription: Subscription, handler: Callable[[Message], object]) -> None:
        self.error: BaseException | None = None
        self._subscription = subscription
        self._handler = handler
        self._told = False  # somebody got the error
        self._thread = threading.Thread(
            target=self._run, name=f"zbroker {subscription.topic}", daemon=True
        )

    @property
    def is_current(self) -> bool:
        """True in its own thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None) -> None:
        """Waits for its end. Raises: its error; ZBrokerError "timeout"."""
        if self.is_current:
            raise RuntimeError("a handler cannot wait for itself")
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise ZBrokerError("timeout", f"the handler is not done after {timeout} s")
        if self.error is not None:
            self._told = True
            raise self.error

    def close(self) -> None:
        """Waits for the call under way. Raises: its error, if nobody got it; "timeout"."""
        if not self.is_current and not self._told:
            self.join(CLOSE_S)

    def _run(self) -> None:
        subscription, handler = self._subscription, self._handler
        try:
            for message in subscription:
                handler(message)
        except BaseException as error:  # whatever it is: nobody else would hear of it
            self.error = error
            log_failure(subscription)
        finally:
            subscription._stop()


def log_failure(subscription: ReaderState) -> None:
    """What the exception in hand means for who wrote the handler."""
    _log.exception(
        "client.handler_failed: the subscription to %r ends at %s; nothing behind that is "
        "handled until somebody subscribes again",
        subscription.topic,
        subscription.bookmark,
    )


class Combined(Merging[Subscription]):
    """Made by `Client.resume`. Iterate over it for pairs (subscription, message).

    While the broker sends them from one replay they come in the order of the log. Each of them can
    also be read alone. Then what is for the others waits; as they get no credit before they are
    read, one that is not read in the end holds up the others that share its replay.
    """

    _port: CallerPort

    def __iter__(self) -> Iterator[tuple[Subscription, Message]]:
        """Each message with its subscription, until all of them ended. Raises: ZBrokerError."""
        while (one := self._next_one(None)) is not None:
            for one._current in one._rest:  # noqa: B020  (as in Subscription.__iter__)
                yield one, one._current
                one._pass()

    def next(self, timeout: float | None = None) -> tuple[Subscription, Message] | None:
        """The next message and its subscription; None when all of them ended.

        Raises: ZBrokerError, also "timeout".
        """
        one = self._next_one(timeout)
        if one is None:
            return None
        one._current = message = next(one._rest)
        return one, message

    def close(self) -> None:
        """Closes all of them."""
        for one in self.subscriptions:
            one.close()

    def _next_one(self, timeout: float | None) -> Subscription | None:
        """The subscription that has the next message in hand."""
        one = self._in_hand()
        end = None if timeout is None else clock.monotonic() + timeout
        while one is None and (members := self._members()):
            for member in members:
                self._port.asked(member._feed)
            if not self._port.wait(partial(self._is_due, members), end):
                raise ZBrokerError(
                    "timeout", f"no message in {timeout} s", "the subscriptions go on"
                )
            one = self._take(members)
        return one


def pause(subscriptions: Iterable[Subscription], timeout: float) -> None:
    """Pauses them, those of one connection at once. Raises: as `Subscription.pause`."""
    for many in by_port(checked(subscriptions)):
        many[0]._port.ask(Pause([]), [one._feed for one in many], timeout)


def resume(
    doors: ListenerEndpoints, subscriptions: Iterable[Subscription], timeout: float
) -> Combined:
    """Resumes them with one command, on one connection. Raises: as `Subscription.resume`."""
    many = checked(subscriptions)
    check_doors(many, doors)
    running = [one for one in many if not one.paused]
    if running and len(many) > 1:
        pause(running, timeout)
    if len(by_port(many)) > 1:
        port = CallerPort(doors)
        for one in many:
            one._move(port, CREDIT_MAX_BYTES // len(many))
    many[0]._port.ask(Resume([]), [one._feed for one in many], timeout)
    return Combined(many)
