"""Bodies of the control records: what the log says besides messages. Pure.

Maps with string keys, in msgpack: unknown keys are ignored, new ones have a default. State records
are in snapshot.py; a tie and a noop have no body, all of them is in the batch header.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, msgpack


class PublisherRecord(Struct):
    """Body of a KIND_PUBLISHER record: the name stands in the log once."""

    name: str
    principal: str = ""


class PointRecord(Struct, omit_defaults=True):
    """Body of a KIND_POINT record: a place in the log with a name.

    vector: what is before it, so that it means the same messages on every instance. removed: the
    place has no name any more; releases that do not know this key keep the name and its place. by,
    unit: as in a QueueRecord.
    """

    name: str
    vector: str
    by: int = 0
    unit: int = 0
    removed: bool = False


class PurgeRecord(Struct, omit_defaults=True):
    """Body of a KIND_PURGE record: `queue` needs nothing any more that `vector` covers.

    by, unit: as in a QueueRecord.
    """

    queue: str
    vector: str
    by: int = 0
    unit: int = 0


class AbortRecord(Struct):
    """Body of a KIND_ABORT record: these stages end here. stages: principal and token of each."""

    stages: list[tuple[str, str]]


PUBLISHER: Final = msgpack.Decoder(PublisherRecord)
POINT: Final = msgpack.Decoder(PointRecord)
PURGE: Final = msgpack.Decoder(PurgeRecord)
ABORT: Final = msgpack.Decoder(AbortRecord)

encode = msgpack.encode
