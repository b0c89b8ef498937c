"""A handler: the task of a subscription that calls a function of the user for each message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import TYPE_CHECKING

from zbroker.client.message import Message
from zbroker.client.subscriber.handlers import CLOSE_S, log_failure
from zbroker.errors import ZBrokerError

if TYPE_CHECKING:
    from zbroker.client.aio.subscription import AsyncSubscription


class AsyncHandling:
    """The task, and what it ended with."""

    def __init__(
        self, subscription: AsyncSubscription, handler: Callable[[Message], object]
    ) -> None:
        self.error: BaseException | None = None
        self._subscription = subscription
        self._handler = handler
        self._told = False  # somebody got the error
        self._task = asyncio.create_task(self._run(), name=f"zbroker {subscription.topic}")

    @property
    def is_current(self) -> bool:
        """True in its own task."""
        return asyncio.current_task() is self._task

    async def join(self, timeout: float | None) -> None:
        """Waits for its end. Raises: its error; ZBrokerError "timeout"."""
        if self.is_current:
            raise RuntimeError("a handler cannot wait for itself")
        done, _ = await asyncio.wait([self._task], timeout=timeout)
        if not done:
            raise ZBrokerError("timeout", f"the handler is not done after {timeout} s")
        if self.error is not None:
            self._told = True
            raise self.error

    async def close(self) -> None:
        """Waits for the call under way. Raises: its error, if nobody got it; "timeout"."""
        if not self.is_current and not self._told:
            await self.join(CLOSE_S)

    async def _run(self) -> None:
        subscription, handler = self._subscription, self._handler
        try:
            async for message in subscription:
                result = handler(message)
                if result is not None and isawaitable(result):
                    await result
        except asyncio.CancelledError as error:
            self.error = error
            raise
        except Exception as error:
            self.error = error
            log_failure(subscription)
        finally:
            subscription._stop()
