"""What the delivery core wants done, as values; loop.py does it in this order."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from zbroker.delivery.points import Point
from zbroker.journal.reader import Cursor
from zbroker.topics import Matcher
from zbroker.wire.internal import Locate


class Send(Struct, gc=False):
    """One message to one connection. If its peer is gone, tell the core."""

    rid: bytes
    header: bytes
    body: bytes | None = None


class Ask(NamedTuple):
    """Send this to the journal."""

    locate: Locate


class Plan(NamedTuple):
    """Split the log between two points by bytes; a long log takes several turns.

    persisted: what the journal said; marks that tell it may come later. Done with `Core.plans`.
    """

    rid: bytes
    cid: str | None
    start: Point
    end: int
    parts: int
    persisted: int


class Note(NamedTuple):
    """A line for the log: what happened, what it means for the data, what comes next."""

    name: str
    text: str


class Read(NamedTuple):
    """Read whole batches from `cursor` on, below `limit`, for replay `key`.

    seek: `cursor` is a hint; its position is what is wanted. live: it has caught up.
    wants: other topics may be passed over; wants_key says the same of two that want the same. Done
    with `Core.blocks` or `Core.read_failed`.
    """

    key: int
    cursor: Cursor
    seek: bool
    limit: int
    max_bytes: int
    live: bool = False
    wants: Matcher | None = None
    wants_key: Hashable = None


Effect = Send | Ask | Plan | Note


@dataclass(slots=True)
class Counts:
    """What was done, since the start."""

    messages_out: int = 0
    bytes_out: int = 0
    dropped: int = 0  # unrecorded messages for subscriptions without credit
    errors: int = 0
    rewound: int = 0
