"""What the journal's core wants done, as values; log_port.py and background.py perform it. Pure.

Reserve --Reserved--> WriteGroup --Written--> Sync --Synced--> receipts, watermarks, IndexGroup
"""

from __future__ import annotations

from msgspec import Struct, field

from zbroker.engine import effects as e
from zbroker.ids import Origin
from zbroker.journal.group_builder import Conflict
from zbroker.log.format import Batch
from zbroker.wire import internal as m


class Where(Struct):
    """What the journal knows at the moment of asking.

    fenced: peers may hold more of this instance than it does itself (group_builder.Placing).
    reached, messages: how far the durable log goes, per origin, in records and in messages; None:
    as far as the log was folded. replicates: peers may bring more of other origins. coming: up to
    where they hold those of which they have more (peers_ahead.py). believed: up to this number a
    later generation of this instance is believed of a reader (later_generations.py).
    """

    instance: int
    generation: int
    log_start: int
    persisted: int
    fenced: bool = False
    reached: dict[Origin, int] | None = None
    messages: dict[Origin, int] | None = None
    replicates: bool = False
    coming: dict[Origin, int] = field(default_factory=dict)
    believed: int = 0


# -- the log --------------------------------------------------------------------------------------


class Reserve(e.Write, gc=False):
    """See to it that a group of so many bytes has space on the disk. Answered by Reserved, at once:
    what arrives later would not be counted."""

    bytes: int


class LookForSpace(e.Write, gc=False):
    """Look how much space the disk has, and free some if there was none. Answered by SpaceFound."""


class WriteGroup(e.Write, gc=False):
    """Write these batches with one write. Answered by Written. end: the position after them."""

    batches: list[Batch]
    log_time: int
    end: int


class KeepFrom(e.Write, gc=False):
    """Note durably that segments before `oldest` are given up: only then may they go."""

    oldest: int


class BeginGeneration(e.Write, gc=False):
    """Seal the open segment and begin a new one, of this generation. Answered by
    GenerationBegun."""

    generation: int


class IndexGroup(Struct, gc=False):
    """Add these batches, which are durable, to the bookmark index."""

    batches: list[Batch]
    serial: int


# -- answers --------------------------------------------------------------------------------------


class PublishWatermarks(Struct, gc=False):
    """Report how far the log goes. of_commit: only to readers that follow each commit. of_write:
    only to those that follow what is not durable yet, too."""

    message: m.Watermarks
    of_commit: bool = False
    of_write: bool = False


class LocatePoint(e.ToPeer, gc=False):
    """Look where this point is, and answer with Located."""

    rid: bytes
    ask: m.Locate
    where: Where


# -- beside the log -------------------------------------------------------------------------------


class Maintain(Struct, gc=False):
    """Do what is due beside the log. Answered by IndexRebuilt if a rebuild has failed."""


class KeepConflicts(Struct, gc=False):
    """Keep these aside for people. Answered by ConflictsKept."""

    conflicts: list[Conflict]


class MeasureSegments(Struct, gc=False):
    """Say how large the segments are, for a removal. Answered by SegmentsMeasured."""

    rid: bytes
    ask: m.Remove


class Unlink(Struct, gc=False):
    """Remove the files of the segments up to `through`. Answered by Unlinked or NotUnlinked."""

    through: int


class ForgetRemoved(Struct, gc=False):
    """Segments are gone: forget what is known of positions before `log_start`."""

    log_start: int


class RetireCopy(Struct, gc=False):
    """Remove one copy of a segment, of which another one is whole. Answered by CopyRetired."""

    rid: bytes
    ask: m.Retire
    open_serial: int


class RebuildIndex(Struct, gc=False):
    """Rebuild the bookmark index while the old one serves. Answered by IndexRebuilt."""

    rid: bytes
    cid: int


Effect = (
    e.Answer | e.Sync | e.Note | e.RunOn | e.Ready | e.Exit
    | Reserve | LookForSpace | WriteGroup | KeepFrom | BeginGeneration | IndexGroup
    | PublishWatermarks | LocatePoint
    | Maintain | KeepConflicts | MeasureSegments | Unlink | ForgetRemoved | RetireCopy
    | RebuildIndex
)  # fmt: skip
