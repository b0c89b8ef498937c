"""Sockets of the replication process: sources that connect, destinations, marks for the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import zmq

from zbroker import sockets
from zbroker.engine.contract import Limit, Ready
from zbroker.engine.events import Gone
from zbroker.errors import ClientError
from zbroker.limits import FRAME_SLACK_BYTES, MESSAGE_LARGEST_BYTES, MIB
from zbroker.replication.core import DestinationBroke, FromDestination
from zbroker.replication.effects import (
    CloseLink,
    ConnectLink,
    MarkSubscribed,
    PublishMark,
    SayOn,
)
from zbroker.replication.sources import BadFrame, FromSource
from zbroker.server.listener.listener import Listener
from zbroker.server.ports import NewestPublisher, say
from zbroker.wire import codec
from zbroker.wire.replication import RECORDS_MAX

FRAME_MAX_BYTES: Final = MESSAGE_LARGEST_BYTES + FRAME_SLACK_BYTES
FRAMES_MAX: Final = RECORDS_MAX + 1  # a header, and a body for each record
HEADER_BYTES: Final = 64 * MIB  # the columns of all records are in it

Context = zmq.Context[zmq.Socket[bytes]]


class SourcesPort:
    """What other instances send here, one message after the other; then who has left."""

    def __init__(self, listener: Listener, poller: zmq.Poller) -> None:
        self._listener = listener
        self.drained = True
        poller.register(listener.router, zmq.POLLIN)

    def next_wake_ms(self) -> int | None:
        """At once, if somebody has left."""
        return 0 if self._listener.left else None

    def events(self, ready: Ready, limit: Limit) -> Iterable[FromSource | BadFrame | Gone]:
        """A burst of them; more wait if `drained` is false."""
        self.drained = True
        left = self._listener.left  # all that these have sent can be read now
        return self._heard(limit, left) if left or self._listener.router in ready else ()

    def _heard(self, limit: Limit, left: int) -> Iterator[FromSource | BadFrame | Gone]:
        count = size = 0
        while count < limit.count and size < limit.bytes:
            found = self._listener.receive(FRAMES_MAX)
            if found is None:
                yield from map(Gone, self._listener.take_left(left))
                return
            rid, frames, over, key, length = found
            count, size = count + 1, size + length
            try:
                if over:
                    reason = f"a message has at most {RECORDS_MAX} records, each with one body"
                    raise ClientError("bad_frame", reason)
                message = codec.decode(codec.TO_DESTINATION, frames[0].buffer, HEADER_BYTES)
            except ClientError as error:
                yield BadFrame(rid, error)
            else:
                yield FromSource(rid, message, [frame.buffer for frame in frames[1:]], key)
        self.drained = False


class Address(NamedTuple):
    """Where a destination listens: one endpoint after the other is tried. curve: with security."""

    endpoints: Sequence[str]
    curve: sockets.Curve | None


class DestinationsPort:
    """A DEALER for each link; a new one takes the place of one that was given up."""

    next_wake_ms = None

    def __init__(
        self, context: Context, poller: zmq.Poller, addresses: Mapping[str, Address]
    ) -> None:
        self._context, self._poller, self._addresses = context, poller, addresses
        self._dealers: dict[str, zmq.Socket[bytes]] = {}
        self._tries = dict.fromkeys(addresses, 0)
        self.drained = True

    def events(self, ready: Ready, limit: Limit) -> Iterable[FromDestination | DestinationBroke]:
        """What the destinations say."""
        return self._heard(ready)

    def _heard(self, ready: Ready) -> Iterator[FromDestination | DestinationBroke]:
        for link, dealer in list(self._dealers.items()):
            if dealer not in ready:
                continue
            while self._dealers.get(link) is dealer:
                frames = sockets.receive(dealer)
                if frames is None:
                    break
                try:
                    message = codec.decode(codec.TO_SOURCE, frames[0].buffer, HEADER_BYTES)
                except ClientError as error:
                    yield DestinationBroke(link, error.reason)
                else:
                    yield FromDestination(link, message)

    def connect(self, effect: ConnectLink) -> None:
        """The next address of this destination."""
        link = effect.link
        self._close(link)
        address = self._addresses[link]
        endpoint = address.endpoints[self._tries[link] % len(address.endpoints)]
        self._tries[link] += 1
        new = sockets.dealer(self._context, endpoint, FRAME_MAX_BYTES, address.curve)
        self._poller.register(new, zmq.POLLIN)
        self._dealers[link] = new

    def close(self, effect: CloseLink) -> None:
        """Closes the socket of a link; there may be none."""
        self._close(effect.link)

    def _close(self, link: str) -> None:
        old = self._dealers.pop(link, None)
        if old is not None:
            self._poller.unregister(old)
            old.close(linger=0)

    def say(self, effect: SayOn) -> None:
        """A message with its bodies; it waits in the socket while that is not connected."""
        dealer = self._dealers.get(effect.link)
        if dealer is not None:
            say(dealer, effect)


class MarkPort(NewestPublisher):
    """The XPUB on which others hear how far the log is replicated."""

    def __init__(self, context: Context, endpoint: str, poller: zmq.Poller) -> None:
        super().__init__(context, endpoint, poller, MarkSubscribed)

    def publish(self, effect: PublishMark) -> None:
        """Only the newest counts: a process that does not read misses older ones."""
        topic = sockets.EVERY_BEAT if effect.to_all else sockets.EVERY_COMMIT
        self.socket.send(topic + codec.encode(effect.message), zmq.NOBLOCK)
