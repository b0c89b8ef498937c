"""What calls a function of the user for each message of a subscription."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar, Final

from zbroker.client.message import Message
from zbroker.errors import ZBrokerError

CLOSE_S: Final = 10.0  # for the call of a handler that is under way

_log: Final = logging.getLogger("zbroker.client")


class Handling:
    """What calls a function of the user for each message, in a thread or task: `runs_in`."""

    runs_in: ClassVar[str]

    def __init__(self, subscription: object, handler: Callable[[Message], object]) -> None:
        self.error: BaseException | None = None
        self._subscription: Any = subscription
        self._handler = handler
        self._raised = False  # the error, to somebody

    def start(self) -> None:
        """Begins to read."""
        raise NotImplementedError

    def is_current(self) -> bool:
        """True in that thread or task."""
        raise NotImplementedError

    async def _is_over(self, timeout: float | None) -> bool:
        """Waits for its end; False if that took longer than `timeout` seconds."""
        raise NotImplementedError

    async def join(self, timeout: float | None) -> None:
        """Waits for its end. Raises: its error; ZBrokerError "timeout"."""
        if self.is_current():
            raise RuntimeError("a handler cannot wait for itself")
        if not await self._is_over(timeout):
            raise ZBrokerError("timeout", f"the handler is not done after {timeout} s")
        if self.error is not None:
            self._raised = True
            raise self.error

    async def close(self) -> None:
        """Waits for the call under way. Raises: its error, unless `join` did; "timeout"."""
        if not self.is_current() and not self._raised:
            await self.join(CLOSE_S)

    def _log_failure(self) -> None:
        """What the exception in hand means for the author of the handler."""
        _log.exception(
            "client.handler_failed: the subscription to %r ends at %s; nothing after that is "
            "handled until the program subscribes again",
            self._subscription.topic,
            self._subscription.bookmark,
        )
