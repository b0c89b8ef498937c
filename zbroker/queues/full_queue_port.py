"""The socket on which ingest hears which queues are full."""

from __future__ import annotations

import zmq

from zbroker import sockets
from zbroker.paths import Paths
from zbroker.queues.effects import FullSubscribed, PublishFull
from zbroker.server.ports import Context, NewestPublisher
from zbroker.wire import codec


class FullQueuePort(NewestPublisher):
    """An XPUB."""

    def __init__(self, context: Context, paths: Paths, poller: zmq.Poller) -> None:
        super().__init__(context, paths.ipc("full-queues"), poller, FullSubscribed)

    def publish(self, effect: PublishFull) -> None:
        """A process that does not read misses older ones."""
        self.socket.send(sockets.EVERY_BEAT + codec.encode(effect.message), zmq.NOBLOCK)
