"""The socket of the queues process to the replication process of its instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import zmq

from zbroker import sockets
from zbroker.engine.contract import Limit, Ready
from zbroker.paths import Paths
from zbroker.queues.effects import SayReplication
from zbroker.wire import codec
from zbroker.wire.owner_requests import FromReplication


class ReplicationPort:
    """A DEALER, which connects again by itself when that process was restarted."""

    drained = True  # there are few
    next_wake_ms = None

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], paths: Paths, poller: zmq.Poller
    ) -> None:
        self._dealer = sockets.dealer(context, paths.ipc("replication-desk"))
        poller.register(self._dealer, zmq.POLLIN)

    def events(self, ready: Ready, limit: Limit) -> Iterable[FromReplication]:
        """What it says."""
        return self._heard() if self._dealer in ready else ()

    def _heard(self) -> Iterator[FromReplication]:
        while (frames := sockets.receive(self._dealer)) is not None:
            yield codec.FROM_REPLICATION.decode(frames[0].buffer)

    def say(self, effect: SayReplication) -> None:
        """Sends a message; it waits in the socket while that process is not there."""
        sockets.send(self._dealer, codec.encode(effect.message), sockets.LAST)
