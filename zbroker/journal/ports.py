"""The journal's sockets: sources of its turn, and performers of what it answers and publishes."""

from __future__ import annotations

from collections.abc import Iterable

import zmq

from zbroker import sockets
from zbroker.engine.contract import Limit, Ready
from zbroker.engine.effects import Answer
from zbroker.engine.events import Gone
from zbroker.journal.effects import PublishWatermarks
from zbroker.journal.events import Incoming, Requested, Subscribed
from zbroker.journal.group_builder import Body
from zbroker.server.ports import NewestPublisher
from zbroker.wire import codec

Context = zmq.Context[zmq.Socket[bytes]]


class RequestsPort:
    """The ROUTER that the other processes talk to; a burst of what they say is one event."""

    next_wake_ms = None

    def __init__(self, context: Context, endpoint: str, poller: zmq.Poller) -> None:
        self._router = sockets.inner_router(context)
        self._router.bind(endpoint)
        self.drained = True
        poller.register(self._router, zmq.POLLIN)

    def events(self, ready: Ready, limit: Limit) -> Iterable[Requested]:
        """One event, if anything waits."""
        self.drained = True
        if self._router not in ready:
            return ()
        messages: list[Incoming] = []
        size = 0
        while len(messages) < limit.count and size < limit.bytes:
            received = sockets.receive_from(self._router, frames_max=0)
            if received is None:
                break
            rid, frames, _ = received
            bodies: list[Body] = [frame.buffer for frame in frames[1:]]
            size += sum(map(len, bodies))
            messages.append(Incoming(rid, codec.to_journal(frames[0].buffer), bodies))
            if len(messages) == 1 and not sockets.has_more(self._router):
                break
        else:
            self.drained = False
        return (Requested(messages),) if messages else ()

    def answer(self, effect: Answer) -> Gone | None:
        """One message to one process."""
        sent = sockets.send_to(self._router, effect.rid, codec.encode(effect.message))
        return None if sent else Gone(effect.rid)


class WatermarksPort(NewestPublisher):
    """The XPUB on which watermarks leave."""

    def __init__(self, context: Context, endpoint: str, poller: zmq.Poller) -> None:
        super().__init__(context, endpoint, poller, Subscribed)

    def publish(self, effect: PublishWatermarks) -> None:
        """A reader that does not read misses older ones; where none follows, nothing is sent."""
        if effect.of_write:
            topic = sockets.EVERY_WRITE
        else:
            topic = sockets.EVERY_COMMIT if effect.of_commit else sockets.EVERY_BEAT
        self.socket.send(topic + codec.encode(effect.message), zmq.NOBLOCK)
