"""What a client does with its event loop: its tasks wait, its connections have turns.

A task that is cancelled takes nothing with it: what it waited for is looked at, never taken, before
it goes on.

The loop gives a connection its turn soon, when its time comes, or when bytes come. ZeroMQ's
descriptor tells of a change, not of a state: it stays silent about what was there when the socket
was used last, for receiving or for sending. So a turn that it calls for reads until nothing is
left, and there is another one after each send.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Handle, TimerHandle, _get_running_loop
from collections.abc import Callable

import zmq

from zbroker.client.effects import SendCommand
from zbroker.client.link import CLOSE_LINGER_MS, ClientLink
from zbroker.client.ports import Calls, LinkPort
from zbroker.client.publisher.receipt import AckTracker
from zbroker.engine.contract import Ready

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


class LoopTurns:
    """Calls `turn`, once for all that asked since the last time."""

    def __init__(self, loop: AbstractEventLoop, turn: Callable[[], None]) -> None:
        self._loop = loop
        self._turn = turn
        self._handle: Handle | None = None
        self._timer: TimerHandle | None = None
        self._closed = False

    @property
    def is_soon(self) -> bool:
        """True if one is coming in the next round of the loop."""
        return self._handle is not None

    def soon(self) -> None:
        """Has one in the next round of the loop."""
        if self._handle is None and not self._closed:
            self._handle = self._loop.call_soon(self._now)

    def within(self, wait_ms: int) -> None:
        """Has one in `wait_ms` at the latest. A timer that is set for earlier is left as it is."""
        due = self._loop.time() + max(1, wait_ms) / 1_000
        if self._closed or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._late)

    def close(self) -> None:
        """There are no more turns."""
        self._closed = True
        for handle in (self._handle, self._timer):
            if handle is not None:
                handle.cancel()
        self._handle = self._timer = None

    def _now(self) -> None:
        self._handle = None
        self._turn()

    def _late(self) -> None:
        self._timer = None
        self._turn()


class LinkWatch:
    """Calls `on_socket` when answers may be there, `on_monitor` when events may be."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        link: ClientLink,
        on_socket: Callable[[], None],
        on_monitor: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._fds = [int(one.getsockopt(zmq.FD)) for one in (link.socket, link.monitor)]
        for fd, function in zip(self._fds, (on_socket, on_monitor), strict=True):
            loop.add_reader(fd, function)

    def close(self) -> None:
        """Before the link is closed: its descriptors may be others' then."""
        for fd in self._fds:
            self._loop.remove_reader(fd)


class LoopLink(LinkPort):
    """A link that an event loop watches. turn: called for what it sees."""

    def __init__(
        self,
        connect: Callable[[], ClientLink],
        calls: Calls,
        loop: AbstractEventLoop,
        turn: Callable[[], None],
    ) -> None:
        super().__init__(connect, calls)
        self.turns = LoopTurns(loop, turn)
        self._loop, self._turn = loop, turn
        self._watch: LinkWatch | None = None
        self._happened = False  # the monitor has something

    def ready(self) -> Ready:
        """The monitor, if it may have something."""
        happened, self._happened = self._happened, False
        return {self.link.monitor: zmq.POLLIN} if happened and self.link is not None else {}

    def rest(self, wait_ms: int | None) -> None:
        """After a turn: sets when the next one is."""
        if wait_ms == 0:
            self.turns.soon()
        elif wait_ms is not None:
            self.turns.within(wait_ms)

    def send(self, effect: SendCommand) -> None:
        """One command; then it is looked whether something came."""
        super().send(effect)
        self.turns.soon()

    def shut(self) -> None:
        """Closes the link once the last commands are sent; there are no more turns."""
        self.close(CLOSE_LINGER_MS)
        self.turns.close()

    def _opened(self, link: ClientLink) -> None:
        self._watch = LinkWatch(self._loop, link, self._turn, self._monitored)
        self._monitored()

    def _closing(self, link: ClientLink) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _monitored(self) -> None:
        self._happened = True
        self.turns.soon()
