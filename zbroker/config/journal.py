"""The settings of the log: `[journal]`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from zbroker import limits
from zbroker.config.units import BYTES, LAUNCH, MICROS
from zbroker.formats.types import MessageType

PREALLOCATE: Final = 2
PREALLOCATE_MAX: Final = 16
FLUSH_MIN_US: Final = 30
FLUSH_MAX_US: Final = 100_000


class JournalConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The log.

    directory: Segments; "" is the folder journal in data_dir.
    archive_directory: Archived segments; "" is the folder archive in data_dir.
    segment_size: Size of one file of the log, at least 1MiB; the first one may be smaller.
    preallocate: Files that are prepared, including the one in use: 2 has the next one
        filled with zeros in advance (faster writes), 1 begins it when the current one
        is half full, false fills none. Each takes segment_size of the disk.
    flush_interval: A written message is on stable storage after this time at most: 30us to
        100ms. It delays nothing: each group is synced at once; a slower disk is an alarm.
    record: The topics recorded without any [[record]] table: "everything" or
        "nothing". With tables, only topics that match one.
    durability: "disk": nothing is acknowledged before it is on stable storage.
    time: Log time: "append" is the broker's clock, "publisher" the message's.
    """

    directory: str = ""
    archive_directory: str = ""
    segment_size: Annotated[int, Meta(extra=BYTES, ge=limits.SEGMENT_MIN_BYTES, le=1 << 40)] = (
        limits.SEGMENT_BYTES
    )
    preallocate: bool | Annotated[int, Meta(ge=1, le=PREALLOCATE_MAX)] = PREALLOCATE
    flush_interval: Annotated[int, Meta(ge=FLUSH_MIN_US, le=FLUSH_MAX_US, extra=MICROS)] = (
        FLUSH_MAX_US
    )
    record: Literal["everything", "nothing"] = "everything"
    durability: Literal["disk"] = "disk"
    time: Literal["append", "publisher"] = "append"

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


class RecordConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The topics that the log records; without any such table, `record` of [journal] decides.

    A topic is recorded if one of the tables matches; the first that matches sets its type. Other
    topics are live only: subscribers get messages as they come, and cannot read them again.

    topic: A topic, or a pattern of topics with regex = true.
    regex: The topic is an RE2 pattern.
    type: How filters, keys and tools read payloads; "auto": as JSON if they are,
        else binary. "bson" and "protobuf" need the extra of that name.
    message: For type "protobuf": the full name of the message, "shop.Order".
    descriptors: For type "protobuf": a file with it and all it imports, made by
        `protoc --include_imports --descriptor_set_out=FILE`. Read once, at the start.
    filter: Records only messages for which it is true, by `type`: "/price > 100";
        the others are live only. "" is all.
    """

    topic: Annotated[str, Meta(min_length=1)]
    regex: bool = False
    type: Literal[
        "auto", "json", "msgpack", "nvfix", "fix", "binary", "bson", "protobuf", "xml"
    ] = "auto"
    message: str = ""
    descriptors: str = ""
    filter: str = ""
    #: the part of `descriptors` for `message`, as it was when the instance started
    described: Annotated[bytes, Meta(extra=LAUNCH)] = b""

    @property
    def payload_type(self) -> str:
        """The type, with everything needed to read a payload."""
        return str(MessageType(self.type, self.message, self.described))
