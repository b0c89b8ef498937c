"""What moves the bytes of a connection, for every core and every port.

LinkPort and LinkEvents are the connection, Calls what the program asked for meanwhile; the turn of
a core runs over these three (see zbroker.engine.turn). WakingPoller is how threads wait.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import zmq

from zbroker.client.effects import (
    Called,
    Connect,
    Effect,
    Event,
    Happened,
    MessagesArrived,
    SendCommand,
)
from zbroker.client.link import ClientLink
from zbroker.engine.contract import Core, Limit, Now, Performers, Ready, TurnPlan
from zbroker.engine.turn import Turn
from zbroker.errors import ZBrokerError
from zbroker.wire.bodies import Body
from zbroker.wire.messages import AnyAnswer, Msg
from zbroker.wire.queue_messages import AnyQueuesAnswer, Job

ONE: Final = Limit(1)
WAIT_MAX_MS: Final = 1_000  # of a thread that sleeps, if a wake-up is lost to an interrupt
#: Answers of one turn, and bytes after which it ends: few, so that the program has the first soon
READ_LIMIT: Final = Limit(16, 16_384)
PART_MS: Final = 20  # so late may be what only a whole turn does, where others do what is urgent
WITH_BODY: Final = (Msg, Job)

_log: Final = logging.getLogger("zbroker.client")


class Calls:
    """What calls of the program decided, until the turn performs it."""

    drained = True

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, effects: Iterable[Effect]) -> None:
        """To be performed in the next turn, in this order."""
        self._effects += effects

    def take(self) -> list[Called]:
        """All of it, as one event."""
        effects, self._effects = self._effects, []
        return [Called(effects)] if effects else []

    def events(self, ready: Ready, limit: Limit) -> list[Called]:
        """As `take`."""
        return self.take()

    def next_wake_ms(self) -> int | None:
        """Now, if there is something."""
        return 0 if self._effects else None


class LinkPort:
    """A connection: the source of its answers, and the performer of Connect and Send.

    took: whether the last turn read an answer. handled: called after each one.
    """

    def __init__(
        self, connect: Callable[[], ClientLink], calls: Calls, poller: WakingPoller | None = None
    ) -> None:
        self.link: ClientLink | None = None
        self.drained = True
        self.took = False
        self.handled: Callable[[], None] | None = None
        self._make, self._calls, self._poller = connect, calls, poller

    def events(self, ready: Ready, limit: Limit) -> Iterable[Event]:
        """Answers, whether a poller saw some or not: that is cheaper than to poll first."""
        self.drained, self.took = True, False
        return () if self.link is None else self._answers(self.link, limit)

    def _answers(self, link: ClientLink, limit: Limit) -> Iterator[Event]:
        size = 0
        for number in range(limit.count):
            if number == 1 and not link.has_more():
                return
            received = link.receive()
            if received is None:
                return
            self.took = True
            yield _event(*received)
            size += len(received[1])
            if self.handled is not None:
                self.handled()
            if self.link is not link:
                return  # what else came on it is of a connection that is over
            if size >= limit.bytes:
                break
        self.drained = False

    def next_answer(self, ready: Ready) -> Event | None:
        """The next one, if the poller saw answers and nothing else, and before there were none."""
        if self.link is None or not self.drained or not self.is_alone_in(ready):
            return None
        received = self.link.receive()
        return None if received is None else _event(*received)

    def is_alone_in(self, ready: Ready) -> bool:
        """Whether the poller saw answers of this link and nothing else."""
        return self.link is not None and len(ready) == 1 and self.link.socket in ready

    def next_wake_ms(self) -> int | None:
        """Now, if not all was read: no descriptor says so again."""
        return None if self.drained else 0

    def connect(self, _effect: Connect) -> None:
        """Another link instead of the one before; messages queued for that go with it."""
        self.close()
        self._calls.take()
        self.link = self._make()
        self._opened(self.link)

    def send(self, effect: SendCommand) -> None:
        """One command."""
        if self.link is not None:
            self.link.send(effect.command, effect.body)

    def close(self, linger_ms: int = 0) -> None:
        """Closes the link, if there is one."""
        if self.link is not None:
            self._closing(self.link)
            self.link.close(linger_ms)
            self.link = None

    def _opened(self, link: ClientLink) -> None:
        if self._poller is not None:
            self._poller.register(link)

    def _closing(self, link: ClientLink) -> None:
        if self._poller is not None:
            self._poller.unregister(link)


def _event(answer: AnyAnswer | AnyQueuesAnswer, body: Body) -> Event:
    return MessagesArrived(answer, body) if isinstance(answer, WITH_BODY) else answer


class PolledLink(LinkPort):
    """A link whose port polls before each turn: it is not read if the poller saw nothing."""

    def events(self, ready: Ready, limit: Limit) -> Iterable[Event]:
        """Answers, if some came."""
        link = self.link
        if link is not None and self.drained and link.socket not in ready:
            self.took = False
            return ()
        return super().events(ready, limit)


class LinkEvents:
    """What became of the connection of a LinkPort."""

    drained = True
    next_wake_ms = None

    def __init__(self, port: LinkPort) -> None:
        self._port = port

    def events(self, ready: Ready, limit: Limit) -> Iterable[Happened]:
        """What the monitor says, until the link is replaced."""
        link = self._port.link
        return () if link is None or link.monitor not in ready else self._events(link)

    def _events(self, link: ClientLink) -> Iterator[Happened]:
        for event in link.events():
            if self._port.link is not link:
                return
            yield event


def turn_of(
    core: Core[Event, Effect],
    link: LinkPort,
    calls: Calls,
    now: Callable[[], Now],
    performers: Performers,
    more: Iterable[tuple[Any, Limit]] = (),
) -> Turn[Event, Effect]:
    """The turn of a core that has one connection. more: sources that come after that."""
    sources = [(calls, ONE), (link, READ_LIMIT), (LinkEvents(link), ONE), *more]
    every: Performers = {Connect: link.connect, SendCommand: link.send, **performers}
    return Turn(core, TurnPlan(sources, tuple(every)), every, now)


class WakingPoller:
    """Waits for a link; other threads can end that wait."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller.register(self._wake_fd, zmq.POLLIN)
        self._asleep = self._woken = False

    def __del__(self) -> None:
        os.close(self._wake_fd)  # not before: another thread may still write to it

    def register(self, link: ClientLink) -> None:
        """Waits for this link, too."""
        self._poller.register(link.socket, zmq.POLLIN)
        self._poller.register(link.monitor, zmq.POLLIN)

    def unregister(self, link: ClientLink) -> None:
        """To be called before it is closed."""
        self._poller.unregister(link.socket)
        self._poller.unregister(link.monitor)

    def wake(self) -> None:
        """Ends the wait of another thread. Callers hold the lock that `poll` lets go of."""
        if self._asleep and not self._woken:
            self._woken = True
            self.interrupt()

    def interrupt(self) -> None:
        """Ends this wait, or the next one if there is none now. Needs no lock."""
        os.eventfd_write(self._wake_fd, 1)

    def look(self, wait_ms: int) -> Ready:
        """Waits as well; another thread hears of interrupts."""
        return dict(self._poller.poll(wait_ms))

    def rest(self, wait_ms: int) -> None:
        """Waits for an interrupt alone."""
        alone = select.poll()
        alone.register(self._wake_fd, select.POLLIN)
        alone.poll(wait_ms)

    def poll(self, wait_ms: int, lock: threading.Condition | None = None) -> Ready:
        """Waits, without the lock, until something comes or the time is over."""
        if lock is None:
            return self._found(self._poller.poll(wait_ms))
        self._asleep = True
        lock.release()
        try:
            events = self._poller.poll(wait_ms)
        finally:
            lock.acquire()
            self._asleep = self._woken = False
        return self._found(events)

    def _found(self, events: list[tuple[Any, int]]) -> Ready:
        ready = dict(events)
        if ready.pop(self._wake_fd, None):
            os.eventfd_read(self._wake_fd)
        return ready


def wait_limit_ms(wait_ms: int | None, left_s: float | None = None) -> int:
    """For how long a thread may sleep in which a turn is due, and its own wait over, by then."""
    due_ms = WAIT_MAX_MS if wait_ms is None else max(0, wait_ms)
    left_ms = WAIT_MAX_MS if left_s is None else int(left_s * 1_000) + 1
    return min(WAIT_MAX_MS, due_ms, left_ms)


def defect(error: Exception, note: str, what: str) -> ZBrokerError:
    """What a defect of ours ends a connection with: nothing may wait for what does not come."""
    _log.error(note, exc_info=error)
    return ZBrokerError("internal", f"{what} failed: {error!r}")
