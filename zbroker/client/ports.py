"""What moves the bytes of a connection, for every core and every client.

ClientLink is a DEALER, and a monitor that tells when its connection is lost: ZeroMQ reconnects
silently, and a broker that was restarted does not know the connection any more. Without the monitor
a publisher that only waits for acks would wait for ever.

LinkPort and LinkEvents are the connection, Calls what the program asked for meanwhile; the turn of
a core runs over these three (see zbroker.engine.turn). Transport is the four of them together.
WakingPoller is how threads wait.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import zmq

from zbroker.client.effects import (
    Called,
    Connect,
    Effect,
    Event,
    GetToken,
    Happened,
    MessagesArrived,
    SendCommand,
)
from zbroker.engine.contract import Core, Limit, Ready, TurnPlan
from zbroker.engine.turn import Turn
from zbroker.wire.messages import Msg
from zbroker.wire.queue_messages import Job

if TYPE_CHECKING:
    from zbroker.client.endpoints import ListenerEndpoints


from contextlib import AbstractContextManager, suppress

import msgspec
from zmq.utils.monitor import recv_monitor_message

from zbroker import sockets
from zbroker.client.connection import Phase, TokenConnection
from zbroker.client.effects import Connected, Lost, Rejected, Unreached
from zbroker.errors import ClientError, ZBrokerError
from zbroker.limits import STORED_MAX_BYTES
from zbroker.sockets import Curve
from zbroker.wire import codec
from zbroker.wire.messages import AnyAnswer, ClientCommand
from zbroker.wire.queue_messages import AnyQueuesAnswer

WHAT: Final[dict[int, Connected | Unreached | Lost]] = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: Connected(),
    zmq.EVENT_CONNECT_RETRIED: Unreached(),
    zmq.EVENT_DISCONNECTED: Lost(),
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: Rejected(),
}
EVENTS: Final = sum(WHAT) | int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
MECHANISM_MISMATCH: Final = 0x11000002  # ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH of zmq.h
CLOSE_LINGER_MS: Final = 200  # for a logoff or unsubscribe that was just sent
RECONNECT_IVL_MS: Final = 50
RECONNECT_MAX_MS: Final = 1_000

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]
K = TypeVar("K", bound=TokenConnection)

WAIT_MAX_MS: Final = 1_000  # of a thread that sleeps
ONE: Final = Limit(1)
#: Answers of one turn, and bytes after which it ends: few, so that the program has the first soon
READ_LIMIT: Final = Limit(16, 16_384)
WITH_BODY: Final = (Msg, Job)


class ClientLink:
    """A socket to `endpoint`, being connected in the background.

    heartbeat_s: a frozen broker and a cut link are Lost within two of them; see sockets.py. curve:
    the keys of this client and of its broker. answers: all that the listener may send.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        heartbeat_s: float | None = None,
        curve: Curve | None = None,
        answers: msgspec.msgpack.Decoder[Any] = codec.ANSWERS,
    ) -> None:
        self._answers = answers
        self._mismatch = _mismatch(secured=curve is not None)
        self.socket: Socket = context.socket(zmq.DEALER)
        sockets.know_ipv6(self.socket, endpoint)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.RECONNECT_IVL, RECONNECT_IVL_MS),
            (zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS),
            (zmq.HANDSHAKE_IVL, sockets.HANDSHAKE_IVL_MS),
            (zmq.MAXMSGSIZE, STORED_MAX_BYTES),
        ):
            self.socket.setsockopt(option, value)
        sockets.ask_for_heartbeats(self.socket, heartbeat_s)
        if curve is not None:
            sockets.identify(self.socket, curve)
        self._poller: zmq.Poller | None = None
        self.monitor: Socket = self.socket.get_monitor_socket(EVENTS)
        self.socket.connect(endpoint)

    def send(self, command: ClientCommand, body: bytes | None = None) -> None:
        """Queues one command; never blocks: the window and credit are what bounds the queue.

        With a broker that ended the handshake there is no queue for it; events say so.
        """
        with suppress(zmq.Again):
            self._send(codec.encode(command), body)

    def _send(self, header: bytes, body: bytes | None) -> None:
        if body is None:
            sockets.send(self.socket, header, sockets.LAST)
        else:
            sockets.send(self.socket, header, sockets.MORE)
            sockets.send(self.socket, body, sockets.LAST)  # copied: a shared one costs a thread

    def receive(self) -> tuple[AnyAnswer | AnyQueuesAnswer, bytes] | None:
        """The next answer, with its body if it has one. One that is unknown here is skipped."""
        while (frames := sockets.receive(self.socket)) is not None:
            try:
                answer = codec.decode(self._answers, frames[0].buffer)
            except ClientError:
                continue  # a newer broker may say more than this library understands
            return answer, frames[1].bytes if len(frames) > 1 else b""
        return None

    def answers(self, until: float) -> Iterator[AnyAnswer | AnyQueuesAnswer]:
        """Answers until that time of the monotonic clock, or until the connection is lost."""
        while (left := until - time.monotonic()) > 0:
            self.wait(min(int(left * 1_000) + 1, WAIT_MAX_MS))
            while (received := self.receive()) is not None:
                yield received[0]
            if any(isinstance(event, Lost) for event in self.events()):
                return

    def events(self) -> list[Connected | Unreached | Lost]:
        """What became of the connection since the last call."""
        events: list[Connected | Unreached | Lost] = []
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)
            if event["event"] != zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                events.append(WHAT[event["event"]])
            elif event["value"] == MECHANISM_MISMATCH:
                events.append(self._mismatch)
        return events

    def wait(self, timeout_ms: int) -> None:
        """Sleeps until there is an answer or an event, at most `timeout_ms`."""
        if self._poller is None:
            self._poller = zmq.Poller()
            self._poller.register(self.socket, zmq.POLLIN)
            self._poller.register(self.monitor, zmq.POLLIN)
        self._poller.poll(timeout_ms)

    def close(self, linger_ms: int = 0) -> None:
        """Closes both sockets."""
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(linger_ms)


def _mismatch(*, secured: bool) -> Rejected:
    """One side encrypts, and the other one does not."""
    if secured:
        return Rejected("the broker does not encrypt", "connect without credentials")
    return Rejected(
        "the broker wants to know who you are",
        "give credentials, on the command line --key and --server-key, or --context",
    )


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

    took: whether the last turn read an answer.
    """

    def __init__(
        self, connect: Callable[[], ClientLink], calls: Calls, poller: WakingPoller | None = None
    ) -> None:
        self.link: ClientLink | None = None
        self.drained = True
        self.took = False
        self._make, self._calls, self._poller = connect, calls, poller

    def events(self, ready: Ready, limit: Limit) -> Iterable[Event]:
        """Answers, whether a poller saw some or not: that is cheaper than to poll first."""
        self.drained, self.took = True, False
        return () if self.link is None else self._answers(self.link, limit)

    def _answers(self, link: ClientLink, limit: Limit) -> Iterator[Event]:
        size = 0
        for _ in range(limit.count):
            received = link.receive()
            if received is None:
                return
            answer, body = received
            self.took = True
            yield MessagesArrived(answer, body) if isinstance(answer, WITH_BODY) else answer
            size += len(body)
            if self.link is not link:
                return  # what else came on it is of a connection that is over
            if size >= limit.bytes:
                break
        self.drained = False

    def next_wake_ms(self) -> int | None:
        """Now, if not all was read: no descriptor says so again."""
        return None if self.drained else 0

    def connect(self, _effect: Connect) -> None:
        """Another link instead of the one before, which takes its queue along."""
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
    core: Core[Event, Effect], link: LinkPort, calls: Calls, doors: ListenerEndpoints
) -> Turn[Event, Effect]:
    """The turn of a core that logs on with a token."""
    sources: list[tuple[Any, Limit]] = [(calls, ONE), (link, READ_LIMIT), (LinkEvents(link), ONE)]
    performers: dict[type, Callable[[Any], Any]] = {
        Connect: link.connect,
        SendCommand: link.send,
        GetToken: doors.token,
    }
    return Turn(core, TurnPlan(sources, tuple(performers)), performers, doors.now)


class Transport(Generic[K]):
    """A connection whose core logs on with a token: what threads and event loops do alike."""

    _lock: AbstractContextManager[Any]  # its owner may take it again
    _link: LinkPort

    def __init__(self, doors: ListenerEndpoints, core: K) -> None:
        self._doors = doors
        self.core = core
        self._calls = Calls()

    def _begin(self, link: LinkPort) -> None:
        self._link = link
        self._renew_turn()
        self._doors.publisher.follow(self)

    def _renew_turn(self) -> None:
        self._turn = turn_of(self.core, self._link, self._calls, self._doors)

    # -- what a port adds ---------------------------------------------------------------------

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        """Waits until `done()`; False if that is not so at the time `end`.

        Raises: ZBrokerError, what ended the client.
        """
        raise NotImplementedError

    def look(self) -> None:
        """Has all that wait look again: something was handed out, or has ended."""
        raise NotImplementedError

    def _flush(self) -> None:
        """Performs what calls decided, now or soon."""
        raise NotImplementedError

    def _soon(self) -> None:
        """Has a turn soon, if something here has turns now."""
        raise NotImplementedError

    def _close_if_over(self) -> None:
        """Closes the link if the connection has ended, unless another thread does so."""
        raise NotImplementedError

    # -- calls of the program -----------------------------------------------------------------

    def client_ended(self, error: ZBrokerError) -> None:
        """The connection ends with what ended the client, and so does every wait here."""
        with self._lock:
            self._do(self.core.client_ended(error, self._doors.now_ms()))
            self._close_if_over()
            self.look()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        with self._lock:
            self._do(self.core.beat_each(interval_s))
            self._soon()

    def _do(self, effects: Iterable[Effect]) -> None:
        if effects:
            self._calls.add(effects)
            self._flush()

    def _send_calls(self) -> None:
        for called in self._calls.take():
            self._turn.hear(called)

    @property
    def _ended(self) -> bool:
        return self.core.state is Phase.ENDED


def wait_limit_ms(wait_ms: int | None, left_s: float | None = None) -> int:
    """For how long a thread may sleep in which a turn is due, and its own wait over, by then."""
    due_ms = WAIT_MAX_MS if wait_ms is None else max(0, wait_ms)
    left_ms = WAIT_MAX_MS if left_s is None else int(left_s * 1_000) + 1
    return min(WAIT_MAX_MS, due_ms, left_ms)


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
