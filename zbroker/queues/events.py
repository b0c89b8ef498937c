"""What the queues core hears besides messages of the wire and the common events. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from pyroaring import BitMap64

from zbroker.engine.events import NotSent
from zbroker.log.reader import Extent

if TYPE_CHECKING:
    from zbroker.queues.effects import Give, InspectedMessage
    from zbroker.queues.registry import SavedQueue
    from zbroker.queues.work.values import Arrivals


class Given(Struct, gc=False):
    """A Give was done. size: bytes of credit; unread: what was not sent: before `end` it cannot be
    read, from there on it was too much for one turn."""

    give: Give
    size: int
    unread: BitMap64
    end: int


class Unsent(NotSent, gc=False):
    """The consumer of a Give is not connected any more: these of its messages were not sent."""

    give: Give
    positions: BitMap64


class Examined(Struct, gc=False):
    """An Examine was done. matching: what the filter is true for; what stands before `end` was
    examined."""

    job: int
    matching: BitMap64
    end: int


class Searched(Struct, gc=False):
    """A Search was done. hit: the first message that matches; what stands before `end` was
    examined."""

    job: int
    hit: int | None
    end: int


class Reentered(Struct, gc=False):
    """A Reenter was done: what could be read, in order, by batch."""

    job: int
    entered: list[Arrivals]


class Inspected(Struct, gc=False):
    """A Look was done: what could be read, in order; what stands before `end` was read."""

    job: int
    rows: list[InspectedMessage]
    end: int


class TablesLoaded(Struct, gc=False):
    """What the tables hold, by name and life; noted: see manager.Noted."""

    saved: Mapping[tuple[str, int], SavedQueue]
    noted: Callable[[str, int], int | None] | None = None


class TablesSaved(Struct, gc=False):
    """A SaveTables was done. error: why nothing was written, "" if it was."""

    error: str = ""


class Segments(Struct, gc=False):
    """The segments of the log, oldest first; some may have been removed."""

    extents: Sequence[Extent]
