"""The sockets to the delivery workers: messages that are not recorded, and grants for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import zmq

from zbroker import sockets
from zbroker.engine.contract import Ready
from zbroker.engine.effects import Reconnect, Say
from zbroker.ingest.events import Granted
from zbroker.paths import Paths
from zbroker.server import ports
from zbroker.wire import codec


class LivePort:
    """A DEALER for each worker, by the name of its link, once it was connected.

    A new one takes the place of one in which frames for a dead process may be queued.
    """

    drained = True  # all of it is read in each turn: grants are few
    next_wake_ms = None

    def __init__(
        self, context: ports.Context, paths: Paths, poller: zmq.Poller, links: Sequence[str]
    ) -> None:
        self._context, self._paths, self._poller = context, paths, poller
        self._links = links
        self._dealers: dict[str, zmq.Socket[bytes]] = {}

    def events(self, ready: Ready, limit: object) -> Iterable[Granted]:
        """All grants that wait."""
        return self._granted(ready) if self._dealers else ()

    def _granted(self, ready: Ready) -> Iterator[Granted]:
        for worker, link in enumerate(self._links):
            dealer = self._dealers.get(link)
            if dealer is None or dealer not in ready:
                continue
            while (frames := sockets.receive(dealer)) is not None:
                yield Granted(worker, codec.FROM_LIVE.decode(frames[0].buffer))

    def say(self, effect: Say) -> None:
        """Sends a message with its bodies."""
        ports.say(self._dealers[effect.link], effect)

    def reconnect(self, effect: Reconnect) -> None:
        """What is queued in the old socket goes with it."""
        old = self._dealers.pop(effect.link, None)
        if old is not None:
            self._poller.unregister(old)
            old.close(linger=0)
        new = sockets.dealer(self._context, self._paths.ipc(effect.link))
        self._poller.register(new, zmq.POLLIN)
        self._dealers[effect.link] = new
