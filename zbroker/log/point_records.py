"""Points that are the same on every instance, as the log and state snapshots have them. Pure.

    KIND_SHARED_POINT   one point is set, or removed: SharedPointRecord

The record that sets a point is its identity, by origin: the same on all instances, and no other
record has it. A record names those that its writer knew of the same name; they have ended, for
good, in whatever order records are read. Two instances may set one name while they are apart: both
points are there then, and the one with the higher number is meant by the name.

The bytes come from other instances, so everything in them has a bound.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from msgspec import DecodeError, Meta, Struct, ValidationError, msgpack

from zbroker.errors import ClientError
from zbroker.ids import Origin, is_point_name, is_vector, parse_vector
from zbroker.limits import KIB, U63_MAX

COVERS_MAX_BYTES: Final = 256 * KIB  # a vector with some thousand generations
ENDED_AT_ONCE_MAX: Final = 1_000  # points that one record ends
_U32: Final = (1 << 32) - 1
_Number = Annotated[int, Meta(ge=0, le=U63_MAX)]


class PointId(NamedTuple):
    """The record that set a point, by its origin. instance: any u64."""

    instance: Annotated[int, Meta(ge=0)]
    generation: Annotated[int, Meta(ge=0, le=_U32)]
    position: _Number

    @property
    def origin(self) -> Origin:
        """Where it was written."""
        return Origin(self.instance, self.generation)


class SharedPointRecord(Struct, omit_defaults=True):
    """Body of a KIND_SHARED_POINT record.

    covers: a vector with all generations, of the messages before the point; "": none is set, this
    is a removal. number: of several points of one name the highest is meant. ends: points of that
    name which are over. by, unit: as in a QueueRecord.
    """

    name: str
    number: _Number = 0
    covers: str = ""
    ends: Annotated[list[PointId], Meta(max_length=ENDED_AT_ONCE_MAX)] = []
    by: int = 0
    unit: int = 0


class SharedPointRow(Struct, array_like=True, gc=False):
    """A point, or the end of one whose record may still come: then covers is "".

    instance, generation, origin_position: its identity. position: of its record in this log.
    """

    instance: Annotated[int, Meta(ge=0)]
    generation: Annotated[int, Meta(ge=0, le=_U32)]
    origin_position: _Number
    name: str
    number: _Number = 0
    covers: str = ""
    position: _Number = 0

    @property
    def id(self) -> PointId:
        """The record that set it."""
        return PointId(self.instance, self.generation, self.origin_position)

    @property
    def rank(self) -> tuple[int, PointId]:
        """The highest one of a name is meant."""
        return self.number, self.id


SHARED_POINT: Final = msgpack.Decoder(SharedPointRecord)
_ROW: Final = msgpack.Decoder(SharedPointRow)


def decoded_point(body: bytes | memoryview) -> SharedPointRecord | None:
    """None if the body is not of such a record, or a field of it cannot be."""
    try:
        record = SHARED_POINT.decode(body)
    except (DecodeError, ValidationError, UnicodeDecodeError):
        return None
    return None if wrong_point(record) else record


def decoded_row(body: bytes | memoryview) -> SharedPointRow:
    """A row as `encode` of msgpack made it. Raises: DecodeError."""
    return _ROW.decode(body)


def wrong_point(point: SharedPointRecord | SharedPointRow) -> str:
    """What cannot be in a point; "" if it is good."""
    if not is_point_name(point.name):
        return "the name of a point is 1 to 255 printable bytes"
    if not point.covers:
        return ""
    if len(point.covers) > COVERS_MAX_BYTES:
        return f"the vector of a point has at most {COVERS_MAX_BYTES} bytes"
    if not is_vector(point.covers):
        return "what a point covers is a vector"
    try:
        vector = parse_vector(point.covers)
    except ClientError as error:
        return error.reason
    if any(origin.generation > _U32 or at > U63_MAX for origin, at in vector.items()):
        return "what a point covers has a number that cannot be"
    return ""
