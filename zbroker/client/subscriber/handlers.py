"""A handler: the thread of a subscription that calls a function of the user for each message."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from zbroker.client.message import Message
from zbroker.errors import ZBrokerError

if TYPE_CHECKING:
    from zbroker.client.subscriber.reader_state import ReaderState
    from zbroker.client.subscriber.subscription import Subscription

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
