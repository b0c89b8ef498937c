"""Several subscriptions paused or resumed at once, and read together in the order of the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from functools import partial

from zbroker.client.aio.subscriber_port import AsyncSubscriberPort
from zbroker.client.aio.subscription import AsyncSubscription
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.message import Message
from zbroker.client.subscriber.merge import Merging, by_port, check_doors, checked
from zbroker.errors import ZBrokerError
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.messages import Pause, Resume


class AsyncCombined(Merging[AsyncSubscription]):
    """Made by `Client.resume`. `async for subscription, message in combined`.

    Else the same as `zbroker.client.Combined`.
    """

    _port: AsyncSubscriberPort

    def __aiter__(self) -> AsyncIterator[tuple[AsyncSubscription, Message]]:
        """Each message with its subscription, until all of them ended. Raises: ZBrokerError."""
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[tuple[AsyncSubscription, Message]]:
        while (one := await self._next_one(None)) is not None:
            for one._current in one._rest:  # noqa: B020  (as in AsyncSubscription._iterate)
                yield one, one._current
                one._pass()

    async def next(self, timeout: float | None = None) -> tuple[AsyncSubscription, Message] | None:
        """The next message and its subscription; None when all of them ended.

        Raises: ZBrokerError, also "timeout".
        """
        one = await self._next_one(timeout)
        if one is None:
            return None
        one._current = message = next(one._rest)
        return one, message

    async def close(self) -> None:
        """Closes all of them."""
        for one in self.subscriptions:
            await one.close()

    async def _next_one(self, timeout: float | None) -> AsyncSubscription | None:
        """The subscription that has the next message in hand."""
        one = self._in_hand()
        end = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while one is None and (members := self._members()):
            for member in members:
                self._port.asked(member._feed)
            if not await self._port.until(partial(self._is_due, members), end):
                raise ZBrokerError(
                    "timeout", f"no message in {timeout} s", "the subscriptions go on"
                )
            one = self._take(members)
            for member in members:
                await member._tell_caught_up()
        return one


async def pause(subscriptions: Iterable[AsyncSubscription], timeout: float) -> None:
    """Pauses them, those of one connection at once. Raises: as `Subscription.pause`."""
    for many in by_port(await _opened(subscriptions)):
        await many[0]._port.ask(Pause([]), [one._feed for one in many], timeout)


async def resume(
    doors: ListenerEndpoints, subscriptions: Iterable[AsyncSubscription], timeout: float
) -> AsyncCombined:
    """Resumes them with one command, on one connection. Raises: as `Subscription.resume`."""
    many = await _opened(subscriptions)
    check_doors(many, doors)
    running = [one for one in many if not one.paused]
    if running and len(many) > 1:
        await pause(running, timeout)
        many = checked(many)
    if len(by_port(many)) > 1:
        port = AsyncSubscriberPort(doors, asyncio.get_running_loop())
        for one in many:
            one._move(port, CREDIT_MAX_BYTES // len(many))
    await many[0]._port.ask(Resume([]), [one._feed for one in many], timeout)
    return AsyncCombined(many)


async def _opened(subscriptions: Iterable[AsyncSubscription]) -> list[AsyncSubscription]:
    many = list(subscriptions)
    for one in many:
        await one
    return checked(many)
