"""What the journal's core hears besides the common events. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from zbroker.ids import Origin
from zbroker.journal.group_builder import Body
from zbroker.journal.start_question import PeerAnswer
from zbroker.wire import internal as m


class Incoming(NamedTuple):
    """One message of another process. bodies: those that belong to its entries, in order."""

    rid: bytes
    message: m.InternalMessage
    bodies: list[Body]


class Requested(Struct, gc=False):
    """A burst of messages of other processes, in their order of arrival."""

    messages: Sequence[Incoming]


class Subscribed(Struct, gc=False):
    """A reader subscribed to the watermarks, and wants them at once."""


class Reserved(Struct, gc=False):
    """A Reserve was done. accepting: a group of publishers of that size has space on the disk.

    state_fits: a part of a state snapshot has. bytes: what a group of the broker's own has at most.
    """

    accepting: bool
    state_fits: bool
    bytes: int


class SpaceFound(Struct, gc=False):
    """A LookForSpace was done: the same, of any group."""

    accepting: bool
    state_fits: bool


class Written(Struct, gc=False):
    """A WriteGroup was done. serial: of the segment that holds the group; it is not durable yet."""

    serial: int


class PeersAnswered(Struct, gc=False):
    """How far peers have this instance's own records: at a start, and with each later hello.

    rows: by peer, how far they have those of every instance; once this one is open, only of what
    they have more. filling: peers whose own logs fill (first_start.py).
    """

    answers: Sequence[PeerAnswer]
    rows: Mapping[str, Mapping[Origin, int]] = {}
    filling: Collection[str] = ()


class GenerationBegun(Struct, gc=False):
    """A BeginGeneration was done. serial: of its segment; 0: the disk has no space for one."""

    serial: int


class ConflictsKept(Struct, gc=False):
    """A KeepConflicts was done. failed: why some were not kept, "" if all were."""

    failed: str = ""


class SegmentSize(NamedTuple):
    """A segment that can be read: its first position, and the bytes of all its copies."""

    serial: int
    first: int
    bytes: int


class SegmentsMeasured(Struct, gc=False):
    """A MeasureSegments was done. segments: all that can be read, the oldest first."""

    rid: bytes
    ask: m.Remove
    segments: Sequence[SegmentSize]


class Unlinked(Struct, gc=False):
    """An Unlink was done: no file of the segments up to `through` is left."""

    through: int
    freed_bytes: int


class NotUnlinked(Struct, gc=False):
    """An Unlink was not done, or not all of it. reason: what the disk said."""

    reason: str


class CopyRetired(Struct, gc=False):
    """A RetireCopy was done, or with a code in `done` it was not."""

    rid: bytes
    done: m.Done


class IndexRebuilt(Struct, gc=False):
    """A RebuildIndex was done, or with a code in `done` it was not."""

    rid: bytes
    done: m.Done
