"""Tasks that wait until something is true, and the loop that all of a client belongs to.

A task that is cancelled takes nothing with it: what it waited for is looked at, never taken, before
it goes on.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, _get_running_loop
from collections.abc import Callable

from zbroker.client.publisher.receipt import AckTracker

running = _get_running_loop  # a third of what get_running_loop() and its exception cost


def check_loop(loop: AbstractEventLoop, track: AckTracker) -> None:
    """Raises: RuntimeError if this is not `loop`; ZBrokerError, what ended the client."""
    if running() is not loop:
        if track.error is not None:  # in a forked process it is the reason
            raise track.error
        raise RuntimeError(
            "this client belongs to the event loop in which it was connected; "
            "from another thread use loop.call_soon_threadsafe or run_coroutine_threadsafe"
        )


async def within(future: Future[None], timeout: float | None) -> None:
    """Waits for `future`, at most `timeout` seconds; it is done then in any case."""
    loop = future.get_loop()
    timer = None if timeout is None else loop.call_later(max(0.0, timeout), wake, future)
    try:
        await future
    finally:
        if timer is not None:
            timer.cancel()


def wake(future: Future[None]) -> None:
    """Ends the wait for `future`, unless that was cancelled."""
    if not future.done():
        future.set_result(None)


class Waiters:
    """Who waits for what. `look` is called after every change that may matter."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Future[None], Callable[[], object]] = {}

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        """Waits until `done()`; False if the time `end` of the loop comes before."""
        while not done():
            left = None if end is None else end - self._loop.time()
            if left is not None and left <= 0:
                return False
            future = self._loop.create_future()
            self._waiting[future] = done
            try:
                await within(future, left)
            finally:
                del self._waiting[future]
        return True

    def look(self) -> None:
        """Wakes those whose wait is over."""
        for future, done in self._waiting.items():
            if done():
                wake(future)
