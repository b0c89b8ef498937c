"""Sources and performers that the processes with a listener share: their sockets and files.

Each is a source of a turn (zbroker.engine.contract.Source), registers its own sockets in the poller
of its process, and performs the effects that are about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

import zmq
from msgspec.msgpack import Decoder

from zbroker import sockets
from zbroker.access.file import LOOK_MS, AccessFile
from zbroker.clock import Clock
from zbroker.engine.contract import Limit, Ready
from zbroker.engine.effects import (
    JOURNAL,
    WATERMARKS,
    Follow,
    FollowMark,
    Gate,
    Progress,
    Reconnect,
    Say,
)
from zbroker.engine.events import Commands, Gone, RulesChanged, StopAsked
from zbroker.limits import BEAT_MS, IDLE_BEAT_MS
from zbroker.paths import Paths
from zbroker.server.listener.listener import Listener
from zbroker.server.peers import Received
from zbroker.server.process import Process, Stats
from zbroker.wire import codec
from zbroker.wire.internal import Welcome
from zbroker.wire.replicas import Replicated

Context = zmq.Context[zmq.Socket[bytes]]
T = TypeVar("T")


class JournalPort:
    """Both sockets of a process that reads the log: see engine.journal_session."""

    drained = True  # all of it is read in each turn: the journal's answers are few
    next_wake_ms = None

    def __init__(
        self, context: Context, paths: Paths, poller: zmq.Poller, hot: zmq.Poller, *,
        every_write: bool = False,
    ) -> None:  # fmt: skip
        """hot: for the answers as well. every_write: watermarks that it follows are also those of
        groups that are not durable yet."""
        self._context, self._poller, self._hot = context, poller, hot
        self._every_write = every_write
        # once: the note of where sockets are may be gone when the next one is opened
        self._journal_at, self._watermarks_at = paths.ipc("journal"), paths.ipc("marks")
        self._incarnation = 0  # of the journal whose watermarks came last
        self._open_segment = 0, 0
        self._following = False
        self._watermarks = self._subscribed()
        self._dealer = self._connected()

    def _connected(self) -> zmq.Socket[bytes]:
        dealer = self._opened(sockets.dealer(self._context, self._journal_at))
        self._hot.register(dealer, zmq.POLLIN)
        return dealer

    def _subscribed(self) -> zmq.Socket[bytes]:
        follow = self._following
        socket = sockets.watermarks_subscriber(
            self._context, self._watermarks_at, every_commit=follow,
            every_write=follow and self._every_write,
        )  # fmt: skip
        return self._opened(socket)

    def _opened(self, socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
        self._poller.register(socket, zmq.POLLIN)
        return socket

    def events(self, ready: Ready, limit: Limit) -> Iterable[Any]:
        """See _heard."""
        return self._heard(ready) if self._dealer in ready or self._watermarks in ready else ()

    def _heard(self, ready: Ready) -> Iterator[Any]:
        """The answers, then the newest watermarks, as they were decoded.

        A journal that died may have answered before its successor sent watermarks, so before the
        first ones of a journal the answers are read again: some may have come since the poll.
        """
        if self._dealer in ready:
            yield from self._answers()
        socket = self._watermarks
        frames = sockets.receive(socket) if socket in ready else None
        if frames is None:
            return
        watermarks = codec.WATERMARKS.decode(frames[0].buffer[sockets.TOPIC_BYTES :])
        if watermarks.incarnation != self._incarnation:
            self._incarnation = watermarks.incarnation
            yield from self._answers()
            if self._watermarks is not socket:
                return  # renewed meanwhile: these are watermarks of a journal that is dead
        self._open_segment = watermarks.serial, watermarks.written
        yield watermarks

    def _answers(self) -> Iterator[Any]:
        while (frames := sockets.receive(self._dealer)) is not None:
            said = codec.FROM_JOURNAL.decode(frames[0].buffer)
            if isinstance(said, Welcome) and said.incarnation != self._incarnation:
                self._open_segment = 0, 0  # it may have sealed that segment before `written`
            yield said
            if not sockets.has_more(self._dealer):
                return

    def open_segment(self) -> tuple[int, int]:
        """From the newest watermarks: the open segment, and `written`; 0, 0 for a new journal."""
        return self._open_segment

    def say(self, effect: Say) -> None:
        """Sends a message with its bodies."""
        say(self._dealer, effect)

    def follow(self, effect: Follow) -> None:
        """The watermarks of each commit come as well, or no longer; new ones come at once."""
        self._following = effect.on
        self._renew()

    def reconnect(self, effect: Reconnect) -> None:
        """Messages queued in the old socket are lost with it."""
        self._open_segment = 0, 0
        if effect.link == JOURNAL:
            self._hot.unregister(self._dealer)
            self._close(self._dealer)
            self._dealer = self._connected()
        else:
            assert effect.link == WATERMARKS
            self._renew()

    def _renew(self) -> None:
        self._close(self._watermarks)
        self._watermarks = self._subscribed()

    def _close(self, socket: zmq.Socket[bytes]) -> None:
        self._poller.unregister(socket)
        socket.close(linger=0)


class NewestPublisher:
    """An XPUB whose readers keep only the newest message; a reader that begins is an event."""

    drained = True
    next_wake_ms = None

    def __init__(
        self, context: Context, endpoint: str, poller: zmq.Poller, subscribed: Callable[[], Any]
    ) -> None:
        """subscribed: makes the event."""
        self.socket, self._subscribed = sockets.watermarks_publisher(context), subscribed
        self.socket.bind(endpoint)
        poller.register(self.socket, zmq.POLLIN)

    def events(self, ready: Ready, limit: Limit) -> Iterator[Any]:
        """One for each reader that began."""
        if self.socket in ready:
            while (frames := sockets.receive(self.socket)) is not None:
                if frames[0].bytes[0]:  # or else a reader has left
                    yield self._subscribed()


class NewestSubscriber(Generic[T]):
    """The newest message of a NewestPublisher of another process of this instance."""

    drained = True
    next_wake_ms = None

    def __init__(
        self, context: Context, endpoint: str, decoder: Decoder[T], *pollers: zmq.Poller,
        every_change: bool = False,
    ) -> None:  # fmt: skip
        """every_change: also what is not said to all."""
        self._context, self._endpoint, self._decoder = context, endpoint, decoder
        self._pollers = pollers
        self._open(every_change=every_change)

    def _open(self, *, every_change: bool) -> None:
        self._socket = sockets.watermarks_subscriber(
            self._context, self._endpoint, every_commit=every_change
        )
        for poller in self._pollers:
            poller.register(self._socket, zmq.POLLIN)

    def renew(self, *, every_change: bool) -> None:
        """The newest message comes again at once."""
        for poller in self._pollers:
            poller.unregister(self._socket)
        self._socket.close(linger=0)
        self._open(every_change=every_change)

    def events(self, ready: Ready, limit: Limit) -> Iterable[T]:
        """One event, if it was said again."""
        if self._socket not in ready:
            return ()
        if (frames := sockets.receive(self._socket)) is None:
            return ()
        return (self._decoder.decode(frames[0].buffer[sockets.TOPIC_BYTES :]),)


class ReplicatedPort(NewestSubscriber[Replicated]):
    """How far enough destinations hold the log, as the replication process says it: the newest."""

    def __init__(
        self, context: Context, paths: Paths, *pollers: zmq.Poller, every_change: bool = False
    ) -> None:
        at = paths.ipc("replicated")
        super().__init__(context, at, codec.REPLICATED, *pollers, every_change=every_change)

    def follow(self, effect: FollowMark) -> None:
        """Each mark comes, or only those of the beat."""
        self.renew(every_change=effect.on)


def say(dealer: zmq.Socket[bytes], effect: Say) -> None:
    """Sends a message with its bodies; those that are large are not copied."""
    bodies = effect.bodies
    sockets.send(dealer, codec.encode(effect.message), sockets.MORE if bodies else sockets.LAST)
    last = len(bodies) - 1
    for n, body in enumerate(bodies):
        flags = sockets.MORE if n < last else sockets.LAST
        sockets.send(dealer, body, flags, copy=len(body) < sockets.COPY_MAX_BYTES)


class CommandsPort:
    """What clients send, a burst of it each turn, unless the gate is closed; then who has left."""

    def __init__(self, listener: Listener, *pollers: zmq.Poller) -> None:
        self._listener, self._router = listener, listener.router
        self._pollers = pollers
        self.drained = True
        self.gate(Gate("", open=True))

    def gate(self, effect: Gate) -> None:
        """While it is closed, clients wait in their own queues."""
        self._open = effect.open
        for poller in self._pollers:
            if effect.open:
                poller.register(self._router, zmq.POLLIN)
            else:
                poller.unregister(self._router)

    def next_wake_ms(self) -> int | None:
        """At once, if somebody has left."""
        return 0 if self._open and self._listener.left else None

    def events(self, ready: Ready, limit: Limit) -> Sequence[Commands | Gone]:
        """One event for all commands, if anything waits."""
        left = self._listener.left  # all that these have sent can be read now
        self.drained = self._open
        if not self._open or not (left or self._router in ready):
            return ()
        commands = self._commands(limit)
        if not left or not self.drained:
            return (Commands(commands),) if commands else ()
        gone = [Gone(rid) for rid in self._listener.take_left(min(left, limit.count))]
        return [Commands(commands), *gone] if commands else gone

    def _commands(self, limit: Limit) -> list[Received]:
        commands: list[Received] = []
        size = 0
        while len(commands) < limit.count and (not limit.bytes or size < limit.bytes):
            found = self._listener.receive()
            if found is None:
                return commands
            rid, frames, over, key, count = found
            commands.append(Received(rid, [frame.bytes for frame in frames], over, key))
            size += count
            if len(commands) == 1 and not sockets.has_more(self._router):
                return commands
        self.drained = False
        return commands


class RulesPort:
    """The file with the access rules."""

    drained = True

    def __init__(self, rules: AccessFile, clock: Clock) -> None:
        self._rules, self._clock = rules, clock
        self._looked_ms = 0

    def events(self, ready: Ready, limit: Limit) -> Iterable[RulesChanged]:
        """The rules, if they are other ones now."""
        self._looked_ms = self._clock.mono_ms()
        return (RulesChanged(self._rules.access),) if self._rules.look(self._looked_ms) else ()

    def next_wake_ms(self) -> int:
        """A change is noticed within LOOK_MS."""
        return self._looked_ms + LOOK_MS


AWAKE_MS: Final = 100  # heartbeats come so much earlier while the process is awake, and later if
#: it must be woken: nearly all find it awake, because of the watermarks


class SupervisorPort:
    """The supervisor: heartbeats with statistics, and its word to stop.

    A heartbeat that would say the same as the last one is left out, for IDLE_BEAT_MS.
    """

    drained = True

    def __init__(self, process: Process, poller: zmq.Poller, stats: Callable[[], Stats]) -> None:
        self._process, self._stats = process, stats
        self._stop_reported = False
        self._idle_until_ms = 0
        self._heard = False  # something, since the statistics were looked at without any news
        poller.register(process.link, zmq.POLLIN)

    def events(self, ready: Ready, limit: Limit) -> Iterable[StopAsked]:
        """StopAsked, once."""
        process, now_ms = self._process, self._process.clock.mono_ms()
        self._heard = self._heard or bool(ready)
        if now_ms >= process.next_beat_ms - (AWAKE_MS if ready else 0):
            self._beat(now_ms)
            self._heard = bool(ready)
        elif process.link in ready:
            process.turn()
        if not process.stopping or self._stop_reported:
            return ()
        self._stop_reported = True
        return (StopAsked(),)

    def _beat(self, now_ms: int) -> None:
        process, stats = self._process, self._stats()
        busy = stats != process.stats
        process.heap.beat(now_ms, busy=busy)
        news = busy or now_ms >= self._idle_until_ms
        process.stats, process.next_beat_ms = stats, 0 if news else now_ms + BEAT_MS
        if news:
            self._idle_until_ms = now_ms + IDLE_BEAT_MS
        process.turn()

    def next_wake_ms(self) -> int:
        """When the next heartbeat is due."""
        return self._process.next_beat_ms + AWAKE_MS if self._heard else self._idle_until_ms

    def progress(self, effect: Progress) -> None:
        """The start goes on."""
        self._process.progress(effect.text)
