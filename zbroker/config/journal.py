"""The settings of the log: `[journal]`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from zbroker import limits
from zbroker.config.units import BYTES, LAUNCH, MICROS

PREALLOCATE: Final = 2
PREALLOCATE_MAX: Final = 16
FLUSH_MIN_US: Final = 30
FLUSH_MAX_US: Final = 100_000


class JournalConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The log."""

    directory: Annotated[
        str, Meta(description='Segments; "" is the folder journal in data_dir.')
    ] = ""
    archive_directory: Annotated[
        str, Meta(description='Archived segments; "" is the folder archive in data_dir.')
    ] = ""
    segment_size: Annotated[
        int,
        Meta(
            ge=limits.SEGMENT_MIN_BYTES,
            le=1 << 40,
            extra=BYTES,
            description="Size of one file of the log, at least 1MiB; the first one may be smaller.",
        ),
    ] = limits.SEGMENT_BYTES
    preallocate: Annotated[
        bool | Annotated[int, Meta(ge=1, le=PREALLOCATE_MAX)],
        Meta(
            description="Files that are prepared, including the one in use: 2 has the next one\n"
            "filled with zeros in advance (faster writes), 1 begins it when the current one\n"
            "is half full, false fills none. Each takes segment_size of the disk."
        ),
    ] = PREALLOCATE
    flush_interval: Annotated[
        int,
        Meta(
            ge=FLUSH_MIN_US,
            le=FLUSH_MAX_US,
            extra=MICROS,
            description="A written message is on stable storage after this time at most: 30us to\n"
            "100ms. It delays nothing: each group is synced at once; a slower disk is an alarm.",
        ),
    ] = FLUSH_MAX_US
    record: Annotated[
        Literal["everything", "nothing"],
        Meta(
            description='The topics recorded without any [[record]] table: "everything" or\n'
            '"nothing". With tables, only topics that match one.'
        ),
    ] = "everything"
    durability: Annotated[
        Literal["disk"],
        Meta(description='"disk": nothing is acknowledged before it is on stable storage.'),
    ] = "disk"
    time: Annotated[
        Literal["append", "publisher"],
        Meta(description='Log time: "append" is the broker\'s clock, "publisher" the message\'s.'),
    ] = "append"

    @property
    def files_ahead(self) -> int:
        """`preallocate` as a number; true and false are those of earlier releases."""
        if isinstance(self.preallocate, bool):
            return PREALLOCATE * self.preallocate
        return self.preallocate

    #: `zbroker start --accept-tail-loss`: not in the file, or it would accept every future loss
    accept_tail_loss: Annotated[bool, Meta(extra=LAUNCH)] = False
    #: `zbroker start --accept-missing`: start without the oldest segments, which are missing
    accept_missing: Annotated[bool, Meta(extra=LAUNCH)] = False
