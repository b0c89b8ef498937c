"""What the queues core wants done, as values; loop.py does it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyroaring import BitMap64

from zbroker.engine.effects import Note, Send
from zbroker.filters import Filter
from zbroker.limits import U63_MAX
from zbroker.queues.clients import Consumer
from zbroker.wire.internal import Message
from zbroker.wire.queue_surveys import QueuesAnswer


class Ask(NamedTuple):
    """Send this to the journal."""

    message: Message


class Give(NamedTuple):
    """Read these messages and send them to a consumer; done with `Core.given`.

    deliveries: of each, how often it was delivered with this time; None: all for the first time.
    acked: of a replayable queue, those that were acknowledged; None: of another queue. bytes_max:
    as soon as so many were read and sent, it ends with a batch, and the rest is not sent.
    """

    to: Consumer
    positions: BitMap64
    deliveries: list[int] | None = None
    barrier: bool = False
    acked: BitMap64 | None = None
    bytes_max: int = U63_MAX

    def part(self, positions: BitMap64) -> Give:
        """Of these messages of it only."""
        deliveries = self.deliveries
        if deliveries is not None:
            deliveries = [deliveries[self.positions.rank(at) - 1] for at in positions]
        return self._replace(positions=positions, deliveries=deliveries)


class Examine(NamedTuple):
    """Read these messages, as many as one turn may, and say which ones the filter is true for:
    `Core.examined`."""

    job: int
    positions: BitMap64
    filter: Filter


class Search(NamedTuple):
    """Read these messages until the filter is true for one, or enough was read for one turn:
    `Core.searched`."""

    job: int
    positions: BitMap64
    filter: Filter


class Reenter(NamedTuple):
    """Read these messages as if they entered the queue now: `Core.reentered`."""

    job: int
    queue: str
    positions: BitMap64


class Look(NamedTuple):
    """Read these messages one by one, as many as `bytes_max` allows: `Core.looked`."""

    job: int
    positions: BitMap64
    bytes_max: int = U63_MAX


class Looked(NamedTuple):
    """A message as it was read. headers: as they were published, None if there are none."""

    position: int
    topic: str
    publisher: int
    sequence: int
    time_ns: int
    data: bytes
    key: bytes | None
    headers: dict[str, Any] | None


class Tell(NamedTuple):
    """Answer the admin, who asked as `rid`."""

    rid: bytes
    answer: QueuesAnswer


LogReading = Examine | Search | Reenter | Look
Effect = Send | Note | Ask | Give | LogReading | Tell
