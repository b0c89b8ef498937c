"""Subscriptions as their reader sees them: iterators of messages, or of lists of them.

Everything happens in the reader's thread (see transport.py): without a reader no credit is given,
and nothing is sent. One subscription is read by one thread at a time; pause, resume, replace and
close may be called by any.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

from zbroker.client.message import Message, MessageBatch
from zbroker.client.subscriber.feed import Item
from zbroker.client.subscriber.handler import Handling
from zbroker.client.subscriber.merge import Merging
from zbroker.client.subscriber.reader_state import ReaderState
from zbroker.client.subscriber.transport import CallerPort, SubscriberTransport
from zbroker.client.waits import blocking, run


class HandlerThread(Handling):
    """The handler of a subscription in a thread of its own."""

    runs_in = "thread"

    def start(self) -> None:
        name = f"zbroker {self._subscription.topic}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    async def _is_over(self, timeout: float | None) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for message in self._subscription:
                self._handler(message)
        except BaseException as error:  # whatever it is: this thread alone knows of it
            self.error = error
            self._log_failure()
        finally:
            self._subscription._stop()


class Subscription(ReaderState):
    """Made by `Client.subscribe`. Iterate over it, or over `.batches()`, or call `.next()`.

    It reconnects by itself and goes on where it was, as it was; `too_many` is an error only a
    minute later, as its lost connection may count until then. An iteration ends when the end of
    the range or the limit is reached or the subscription is closed; leaving one and starting
    another goes on with the next message. With a handler a thread of its own does all that.
    """

    _port: CallerPort
    _port_type = CallerPort
    _handling_type = HandlerThread

    # -- reading ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Message]:
        """Each message. Raises: ZBrokerError with the code with which the broker ended it."""
        run(self._ready(None))
        while True:
            if self._tracking is not None:
                for self._current in self._rest:  # noqa: B020  (a quick assignment, not a mistake)
                    yield self._current
                    self._tracking.passed(self._current)
            for self._current in self._rest:  # noqa: B020  (as above)
                yield self._current
            if not run(self._advance(None)):
                return

    def until_caught_up(self, timeout: float | None = None) -> Iterator[Message]:
        """Each message until the subscription has caught up; later ones are read after that.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        run(self._ready(None))
        while not self._feed.caught_up:
            for self._current in self._rest:  # noqa: B020  (as above)
                yield self._current
                self._pass()
            if not run(self._advance(timeout, to_mark=True)):
                return

    def batches(self, timeout: float | None = None) -> Iterator[MessageBatch]:
        """Messages as they were published together: the fast path.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        batch: MessageBatch | None = run(self._first_batch(timeout))
        while batch is not None:
            if batch:
                yield self._whole(batch)
            batch = run(self._fetch(timeout))

    def next(self, timeout: float | None = None) -> Message | None:
        """The next message; None at the end of the range. Raises: ZBrokerError, also "timeout"."""
        message = self._next_in_hand()
        return message if message is not None else run(self._next(timeout))

    # -- changing it, and its end -------------------------------------------------------------

    pause = blocking(ReaderState._pause)
    resume = blocking(ReaderState._resume)
    replace = blocking(ReaderState._replace)
    wait_caught_up = blocking(ReaderState._wait_caught_up)
    join = blocking(ReaderState._join)
    close = blocking(ReaderState._close)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        run(self._leave_block(kind))

    def __del__(self) -> None:
        self._stop()

    # -- helpers ------------------------------------------------------------------------------

    def _ask_at_once(self) -> None:
        """Waits until the broker has accepted it: it has all that is published from then on.

        Raises: ZBrokerError with the broker's code, or "timeout".
        """
        try:
            run(self._open(None))
        except BaseException:
            self._stop()
            raise

    async def _next_item(
        self, port: SubscriberTransport, end: float | None
    ) -> tuple[Item | None, bool]:
        assert isinstance(port, CallerPort)
        return port.next_item(self._feed, partial(self._is_off, port), end)


class Combined(Merging[Subscription]):
    """Made by `Client.resume`. Iterate over it for pairs (subscription, message).

    While the broker sends them from one replay they come in the order of the log. Each of them can
    also be read alone. Then what is for the others waits; as they get no credit before they are
    read, one that is not read in the end holds up the others that share its replay.
    """

    def __iter__(self) -> Iterator[tuple[Subscription, Message]]:
        """Each message with its subscription, until all of them ended. Raises: ZBrokerError."""
        while (one := run(self._next_one(None))) is not None:
            for one._current in one._rest:  # noqa: B020  (as in Subscription.__iter__)
                yield one, one._current
                one._pass()

    def next(self, timeout: float | None = None) -> tuple[Subscription, Message] | None:
        """The next message and its subscription; None when all of them ended.

        Raises: ZBrokerError, also "timeout".
        """
        return run(self._next(timeout))

    def close(self) -> None:
        """Closes all of them."""
        for one in self.subscriptions:
            one.close()
