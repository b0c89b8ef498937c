"""The sockets to the journal of a room that reads the log: marks, and what it is asked.

    down --Welcome--> up --marks of another incarnation--> down (new sockets, Hello, all again)

A socket to a journal that died is thrown away: ZeroMQ would hand what is queued in it to the
journal's successor. So is the marks socket, in which marks of the dead one may still wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import zmq
from msgspec.structs import replace

from zbroker import sockets
from zbroker.paths import Paths
from zbroker.wire import codec
from zbroker.wire.internal import Hello, InternalMessage, Welcome

WELCOME_WAIT_MS: Final = 1_000  # then a new socket: the Hello may have gone to a dead journal

Events = dict[object, int]  # what a poller found: sockets that can be read
Context = zmq.Context[zmq.Socket[bytes]]


class JournalLink:
    """Both sockets, registered in the loop's poller. `hello`: what this worker says first."""

    def __init__(self, context: Context, paths: Paths, hello: Hello, poller: zmq.Poller) -> None:
        self._context = context
        self._paths = paths
        self._hello, self._hellos = hello, 0
        self._poller = poller
        self._welcomed_by = 0
        self._hello_ms = 0
        self._marks = self._open_marks()
        self._dealer = self._open_dealer()

    def _open_marks(self) -> zmq.Socket[bytes]:
        socket = sockets.marks_subscriber(self._context, self._paths.ipc("marks"))
        self._poller.register(socket, zmq.POLLIN)
        return socket

    def _open_dealer(self) -> zmq.Socket[bytes]:
        socket = sockets.dealer(self._context, self._paths.ipc("journal"))
        self._poller.register(socket, zmq.POLLIN)
        self._hellos += 1
        socket.send(codec.encode(replace(self._hello, number=self._hellos)), zmq.NOBLOCK)
        return socket

    def _shut(self, socket: zmq.Socket[bytes]) -> None:
        self._poller.unregister(socket)
        socket.close(linger=0)

    def tick(self, now_ms: int) -> None:
        """Says Hello on a new socket when no journal has answered for a while."""
        if self._hello_ms == 0:
            self._hello_ms = now_ms
        if self._welcomed_by == 0 and now_ms - self._hello_ms >= WELCOME_WAIT_MS:
            self._again(now_ms)

    def _again(self, now_ms: int) -> None:
        self._welcomed_by, self._hello_ms = 0, now_ms
        self._shut(self._dealer)
        self._dealer = self._open_dealer()

    def heard(self, events: Events, now_ms: int) -> Iterator[InternalMessage]:
        """What the journal answered, then the newest marks, if new ones came.

        In this order, since a journal that died may have answered before its successor sent
        watermarks. Older marks cannot come after a Welcome: it ends the socket in which they wait.
        """
        if self._dealer in events:
            yield from self._answers()
        socket = self._marks
        frames = sockets.receive(socket) if socket in events else None
        if frames is None:
            return
        marks = codec.MARKS.decode(frames[0].buffer)
        if self._welcomed_by != marks.incarnation:  # an answer may have come since the poll
            yield from self._answers()
            if self._marks is not socket:
                return
            if self._welcomed_by not in (0, marks.incarnation):
                self._again(now_ms)
        yield marks

    def _answers(self) -> Iterator[InternalMessage]:
        """Welcomes count only if they are to this process."""
        while (frames := sockets.receive(self._dealer)) is not None:
            message = codec.FROM_JOURNAL.decode(frames[0].buffer)
            if isinstance(message, Welcome):
                if message.echo != self._hello.incarnation:
                    continue
                self._welcome(message)
            yield message

    def _welcome(self, welcome: Welcome) -> None:
        if welcome.incarnation != self._welcomed_by:
            self._shut(self._marks)
            self._marks = self._open_marks()
        self._welcomed_by = welcome.incarnation

    @property
    def welcomed_by(self) -> int:
        """The incarnation of the journal that listens; 0 while none does."""
        return self._welcomed_by

    def say(self, message: InternalMessage, bodies: Sequence[bytes | memoryview] = ()) -> None:
        """Sends a message. Messages lost with a journal that dies have to be sent again."""
        self._dealer.send_multipart([codec.encode(message), *bodies], zmq.NOBLOCK, copy=True)
