"""What the replication process has done, besides the effects that all processes share. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from zbroker.engine.effects import (
    Answer,
    Exit,
    Follow,
    LoggedOff,
    LoggedOn,
    Note,
    Ready,
    Reconnect,
    Say,
    Tell,
)
from zbroker.ids import Origin
from zbroker.log.format import STAYS, Batch
from zbroker.log.reader import Cursor, Gap
from zbroker.wire.replicas import Replicated


class ConnectLink(Struct, gc=False):
    """Close the socket of the link to this destination, and open a new one."""

    link: str


class CloseLink(Struct, gc=False):
    """Close the socket of the link to this destination, which hears of it at once."""

    link: str


class SayOn(Say, gc=False):
    """A message to a destination, by the name of its link; it is lost where the connection is."""


class FindStart(Struct, gc=False):
    """Where a link begins to read: at the newest state snapshot whose origins `held` covers, or at
    the log start. Answered by StartFound."""

    link: str
    session: int
    held: Mapping[Origin, int]


class ReadLink(NamedTuple):
    """Whole batches from `cursor` on, below `limit`: see LinkBlock. stored: as they are in the log;
    else with what commits show in place of these. unsent: see `is_unsent`; while there are only
    such batches their headers alone are read. newest: see Files.segment."""

    link: str
    session: int
    cursor: Cursor
    limit: int
    max_bytes: int
    stored: bool = True
    unsent: Mapping[Origin, int] = MappingProxyType({})
    newest: int = 0


class ReadState(NamedTuple):
    """A state of this log for a destination that has nothing, the next part: see StateBlock."""

    link: str
    session: int


class MoveMark(Struct, gc=False):
    """Everything below `position` that this destination wants is durable there."""

    link: str
    position: int


class PublishMark(Struct, gc=False):
    """Ingest has to know how far the log is replicated: acknowledgements wait for it.

    to_all: as on each beat, for a new reader, and where it went back, since a destination is waited
    for again, and a process with the higher one would answer too early. Else it goes to those that
    follow each mark.
    """

    message: Replicated
    to_all: bool


Effect = (
    Answer | Say | Reconnect | Follow | Note | LoggedOn | LoggedOff | Tell | Ready | Exit
    | ConnectLink | CloseLink | SayOn | FindStart | PublishMark
)  # fmt: skip
#: of one link to a destination
LinkEffect = Note | ConnectLink | CloseLink | SayOn | FindStart | MoveMark


class MarkSubscribed(Struct, gc=False):
    """A process wants to know how far the log is replicated, and knows nothing yet."""


class StartFound(Struct, gc=False):
    """crcs: of the newest record of each origin before the cursor, as its origin wrote it.

    below: up to where messages of each origin are not in this log any more, where reading begins
    with the log. removed: the same of all its records, and rather too much: control records are
    needed there, too, but no operator has to give them up.
    """

    link: str
    session: int
    cursor: Cursor
    crcs: Mapping[Origin, tuple[int, int]]  # position and content CRC
    below: Mapping[Origin, int] = {}
    removed: Mapping[Origin, int] = {}


class StateBlock(Struct, gc=False):
    """A ReadState was done. body: a part of the state; empty: there is more to read before one.

    problem: why there is none now.
    """

    read: ReadState
    body: bytes = b""
    last: bool = False
    problem: str = ""


class LinkBlock(Struct, gc=False):
    """A ReadLink was done; `after`: where to go on. only_headers: batches have no bodies."""

    read: ReadLink
    items: Sequence[Batch | Gap]
    after: Cursor
    only_headers: bool = False


def is_unsent(item: Batch | Gap, unsent: Mapping[Origin, int]) -> bool:
    """Whether this is a batch that does not go to the destination. unsent: by origin, up to where
    nothing does."""
    if isinstance(item, Gap) or item.kind in STAYS:
        return False
    return item.origin_position + item.taken - 1 <= unsent.get(item.origin, -1)
