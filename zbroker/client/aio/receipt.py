"""Receipts that can be awaited, and what keeps the tasks that wait for them."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import cast

from zbroker.client.aio.waiters import Waiters, check_loop, wake, within
from zbroker.client.publisher import receipt as threaded


class AsyncTrack(threaded.AckTracker):
    """What is known of one publisher's messages. Nobody sleeps here: tasks wait."""

    def __init__(self, publisher: int) -> None:
        super().__init__(publisher)
        self.loop = asyncio.get_running_loop()
        self.waiters = Waiters(self.loop)
        self._of: dict[int, set[Future[None]]] = {}  # who waits for that sequence
        self._heap: list[int] = []  # its keys, the lowest first
        self._unnumbered: dict[Future[None], Callable[[], int]] = {}

    def changed(self) -> None:
        super().changed()
        if self._unnumbered:
            self._number()
        while self._heap and (self._heap[0] <= self.settled or self.error is not None):
            for future in self._of.pop(heappop(self._heap)):
                wake(future)
        self.waiters.look()

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Looks once: a loop must not sleep."""
        del timeout
        return done()

    async def until_settled(self, sequence: int, timeout: float | None) -> None:
        """Waits for everything up to `sequence`. Raises: ZBrokerError timeout, or what ended it."""
        if self.settled < sequence and self.error is None:
            await self._until(lambda: sequence, timeout)
        self.wait_settled(sequence, timeout)

    async def until_done(self, receipt: AsyncReceipt, timeout: float | None) -> None:
        """Waits until it is known what became of `receipt`, at most `timeout` seconds."""
        check_loop(self.loop, self)
        if not receipt.done:
            await self._until(lambda: receipt._number, timeout)

    async def _until(self, number: Callable[[], int], timeout: float | None) -> None:
        """Waits for the sequence that `number` tells, as soon as it tells one."""
        future: Future[None] = self.loop.create_future()
        self._sort_in(future, number)
        try:
            await within(future, timeout)
        finally:
            self._unnumbered.pop(future, None)
            self._of.get(number(), set()).discard(future)

    def _sort_in(self, future: Future[None], number: Callable[[], int]) -> None:
        sequence = number()
        if not sequence:
            self._unnumbered[future] = number
            return
        if sequence not in self._of:
            self._of[sequence] = set()
            heappush(self._heap, sequence)
        self._of[sequence].add(future)

    def _number(self) -> None:
        """Messages that had no sequence may have one now."""
        waiting, self._unnumbered = self._unnumbered, {}
        for future, number in waiting.items():
            self._sort_in(future, number)
            if self.error is not None:
                wake(future)


class AsyncReceipt(threaded.Receipt):
    """One published message on its way. `bookmark = await receipt`."""

    def __await__(self) -> Generator[object, None, str]:
        return self.wait().__await__()

    async def wait(self, timeout: float | None = None) -> str:  # type: ignore[override]
        """Its bookmark, once persisted; "" if it is not recorded.

        Raises: ZBrokerError with the broker's code if it was finally refused, "timeout" if that
        took longer than `timeout` seconds, or what ended the client.
        """
        await cast(AsyncTrack, self._track).until_done(self, timeout)
        return threaded.Receipt.wait(self, timeout)

    def add_done_callback(self, callback: Callable[[AsyncReceipt], object]) -> None:
        """Has `callback(receipt)` called by the event loop once it is done."""
        self._track.when_done(self, callback)  # type: ignore[arg-type]
