"""Sources and performers that the processes with a listener share: their sockets and files.

Each is a source of a turn (zbroker.engine.contract.Source), registers its own sockets in the poller
of its process, and performs the effects that are about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import zmq

from zbroker import sockets
from zbroker.clock import Clock
from zbroker.engine.contract import Limit, Ready
from zbroker.engine.effects import (
    JOURNAL,
    WATERMARKS,
    Answer,
    Follow,
    Gate,
    Note,
    NoteDisconnected,
    Pace,
    Progress,
    Reconnect,
    Say,
    Send,
    Tell,
)
from zbroker.engine.events import (
    Asked,
    Commands,
    Full,
    Gone,
    RulesChanged,
    StopAsked,
    Unauthenticated,
)
from zbroker.paths import Paths
from zbroker.server import admin_endpoint
from zbroker.server.peers import Received
from zbroker.server.process import Process, Stats
from zbroker.server.public_listener import LOOK_MS, PublicListener
from zbroker.wire import codec
from zbroker.wire.internal import Welcome

ONE: Final = Limit(1)  # of sources with a bound of their own

Context = zmq.Context[zmq.Socket[bytes]]


class JournalPort:
    """Both sockets of a process that reads the log: see engine.journal_session."""

    drained = True  # all of it is read in each turn: the journal's answers are few
    next_wake_ms = None

    def __init__(self, context: Context, paths: Paths, poller: zmq.Poller) -> None:
        self._context, self._paths, self._poller = context, paths, poller
        self._incarnation = 0  # of the journal whose watermarks came last
        self._open_segment = 0, 0
        self._following = False
        self._marks = self._subscribed()
        self._dealer = self._opened(sockets.dealer(context, paths.ipc("journal")))

    def _subscribed(self) -> zmq.Socket[bytes]:
        endpoint, every_commit = self._paths.ipc("marks"), self._following
        socket = sockets.marks_subscriber(self._context, endpoint, every_commit=every_commit)
        return self._opened(socket)

    def _opened(self, socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
        self._poller.register(socket, zmq.POLLIN)
        return socket

    def events(self, ready: Ready, limit: Limit) -> Iterable[Any]:
        """See _heard."""
        return self._heard(ready) if self._dealer in ready or self._marks in ready else ()

    def _heard(self, ready: Ready) -> Iterator[Any]:
        """The answers, then the newest watermarks, as they were decoded.

        A journal that died may have answered before its successor sent watermarks, so before the
        first ones of a journal the answers are read again: some may have come since the poll.
        """
        if self._dealer in ready:
            yield from self._answers()
        socket = self._marks
        frames = sockets.receive(socket) if socket in ready else None
        if frames is None:
            return
        marks = codec.MARKS.decode(frames[0].buffer[1:])
        if marks.incarnation != self._incarnation:
            self._incarnation = marks.incarnation
            yield from self._answers()
            if self._marks is not socket:
                return  # renewed meanwhile: these are watermarks of a journal that is dead
        self._open_segment = marks.serial, marks.written
        yield marks

    def _answers(self) -> Iterator[Any]:
        while (frames := sockets.receive(self._dealer)) is not None:
            said = codec.FROM_JOURNAL.decode(frames[0].buffer)
            if isinstance(said, Welcome) and said.incarnation != self._incarnation:
                self._open_segment = 0, 0  # it may have sealed that segment before `written`
            yield said

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
            self._close(self._dealer)
            self._dealer = self._opened(sockets.dealer(self._context, self._paths.ipc("journal")))
        else:
            assert effect.link == WATERMARKS
            self._renew()

    def _renew(self) -> None:
        self._close(self._marks)
        self._marks = self._subscribed()

    def _close(self, socket: zmq.Socket[bytes]) -> None:
        self._poller.unregister(socket)
        socket.close(linger=0)


def say(dealer: zmq.Socket[bytes], effect: Say) -> None:
    """Sends a message with its bodies; those that are large are not copied."""
    bodies = effect.bodies
    sockets.send(dealer, codec.encode(effect.message), sockets.MORE if bodies else sockets.LAST)
    last = len(bodies) - 1
    for n, body in enumerate(bodies):
        flags = sockets.MORE if n < last else sockets.LAST
        sockets.send(dealer, body, flags, copy=len(body) < sockets.COPY_MAX_BYTES)


class ListenerPort:
    """Connections that come and go. Commands are read by CommandsPort, answers sent by `send`."""

    drained = True

    def __init__(self, front: PublicListener, clock: Clock, poller: zmq.Poller) -> None:
        self._front, self._door, self._clock = front, front.door, clock
        self._door.register(poller)

    def events(self, ready: Ready, limit: Limit) -> Iterable[Unauthenticated]:
        """Connections that were refused because no principal has their key."""
        refused = self._front.refused(ready, self._clock.mono_ms())
        return [Unauthenticated(key, host) for key, host in refused]

    def next_wake_ms(self) -> int | None:
        """When a connection has to be looked at."""
        return self._door.wake_ms()

    def send(self, effect: Send) -> Gone | None:
        """One message to one peer."""
        return None if self.sent(effect) else Gone(effect.rid)

    def answer(self, effect: Answer) -> Gone | Full | None:
        """One message to one peer, unless its queue is full."""
        try:
            sockets.deliver(self._door.router, effect.rid, codec.encode(effect.message))
        except zmq.Again:
            return Full(effect.rid, effect)
        except zmq.ZMQError:
            return Gone(effect.rid)
        return None

    def sent(self, send: Send) -> bool:
        """Sends it. False if the peer is not connected any more."""
        return sockets.send_to(self._door.router, send.rid, send.header, send.body)


class CommandsPort:
    """What clients send, a burst of it each turn, unless the gate is closed."""

    next_wake_ms = None

    def __init__(self, front: PublicListener, poller: zmq.Poller) -> None:
        self._door, self._router = front.door, front.door.router
        self._poller, self._open = poller, True
        self.drained = True
        poller.register(self._router, zmq.POLLIN)

    def gate(self, effect: Gate) -> None:
        """While it is closed, clients wait in their own queues."""
        self._open = effect.open
        if effect.open:
            self._poller.register(self._router, zmq.POLLIN)
        else:
            self._poller.unregister(self._router)

    def events(self, ready: Ready, limit: Limit) -> Iterable[Commands]:
        """One event, if anything waits."""
        self.drained = self._open
        if not self._open or self._router not in ready:
            return ()
        commands: list[Received] = []
        size = 0
        while len(commands) < limit.count and (not limit.bytes or size < limit.bytes):
            found = self._door.receive()
            if found is None:
                return (Commands(commands),) if commands else ()
            rid, frames, over, key, count = found
            commands.append(Received(rid, [frame.bytes for frame in frames], over, key))
            size += count
        self.drained = False
        return (Commands(commands),)


class RulesPort:
    """The file with the access rules."""

    drained = True

    def __init__(self, front: PublicListener, clock: Clock) -> None:
        self._front, self._clock = front, clock
        self._looked_ms = 0

    def events(self, ready: Ready, limit: Limit) -> Iterable[RulesChanged]:
        """The rules, if they are other ones now."""
        self._looked_ms = self._clock.mono_ms()
        access = self._front.look(self._looked_ms)
        return () if access is None else (RulesChanged(access),)

    def next_wake_ms(self) -> int:
        """A change is noticed within LOOK_MS."""
        return self._looked_ms + LOOK_MS


class QuestionsPort:
    """The endpoint at which the admin process asks."""

    drained = True
    next_wake_ms = None

    def __init__(self, questions: admin_endpoint.AdminEndpoint[Any]) -> None:
        self._desk = questions

    def events(self, ready: Ready, limit: Limit) -> Iterable[Asked]:
        """Some of the questions that wait."""
        if self._desk.router not in ready:
            return ()
        return (Asked(rid, question) for rid, question in self._desk.asked())

    def tell(self, effect: Tell) -> None:
        """Answers one of them."""
        self._desk.tell(effect.rid, effect.answer)

    def note_disconnected(self, effect: NoteDisconnected) -> None:
        """One line of the log, if there were any connections."""
        self._desk.note_disconnected(effect.client, effect.count)


class PollPort:
    """Waits until a socket of the process can be read."""

    def __init__(self, poller: zmq.Poller) -> None:
        self._poller, self._spin_s = poller, 0.0

    def pace(self, effect: Pace) -> None:
        """How long it looks without sleeping."""
        self._spin_s = effect.spin_us / 1e6

    def wait(self, wait_ms: int | None) -> Ready:
        """What can be read, as soon as something can, and after `wait_ms` in any case."""
        if self._spin_s and wait_ms != 0 and (found := sockets.spin(self._poller, self._spin_s)):
            return dict(found)
        return dict(self._poller.poll(wait_ms))


class SupervisorPort:
    """The supervisor: heartbeats with statistics, and its word to stop."""

    drained = True

    def __init__(self, process: Process, poller: zmq.Poller, stats: Callable[[], Stats]) -> None:
        self._process, self._stats = process, stats
        self._told_to_stop = False
        poller.register(process.link, zmq.POLLIN)

    def events(self, ready: Ready, limit: Limit) -> Iterable[StopAsked]:
        """StopAsked, once."""
        process = self._process
        due = process.clock.mono_ms() >= process.next_beat_ms
        if due:
            process.stats = self._stats()
        if due or process.link in ready:
            process.turn()
        if not process.stopping or self._told_to_stop:
            return ()
        self._told_to_stop = True
        return (StopAsked(),)

    def next_wake_ms(self) -> int:
        """When the next heartbeat is due."""
        return self._process.next_beat_ms

    def progress(self, effect: Progress) -> None:
        """The start goes on."""
        self._process.progress(effect.text)

    def note(self, effect: Note) -> None:
        """One line of the log."""
        log = self._process.log
        levels = {"info": log.info, "warning": log.warning, "error": log.error}
        levels[effect.level]("%s: %s", effect.name, effect.text)
