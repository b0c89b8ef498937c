"""Messages that are elsewhere in the log: staged parts, and the commit that shows them. Pure.

    staged part   kind 10: a batch of some publisher, with a token; not published yet
    commit        kind 1 with flag 4: `count` messages, with positions and sequences of its own; its
                  body says which staged parts they are, in their order, instead of holding them

For a walk over headers a commit is a batch like others, so positions, sequences, topics and times
need no second look. A reader of bodies gets each staged part in its place, as if it were there.
Source: the design of units that are larger than a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import replace

from zbroker.ids import Origin
from zbroker.log.format import COLUMN_ROUTES, FLAG_ZSTD, KIND_PUBLISH, Batch
from zbroker.wire.messages import Columns

COLUMN_STAGE: Final = 7  # tag of the column of a staged part that is its token
_NO_COLUMNS: Final = Columns()


class Reference(Struct, array_like=True, gc=False, frozen=True):
    """A staged part with `count` messages that count: its position, and the place of that.

    at_origin: its position at its origin; 0: the same as here.
    """

    position: int
    serial: int
    offset: int
    count: int
    at_origin: int = 0

    @property
    def identity(self) -> int:
        """Its position at its origin, which is the same on every instance."""
        return self.at_origin or self.position


class PartsOrigin(Struct, array_like=True, gc=False, frozen=True):
    """The next `stages` of a commit, of `parts` parts in all, were staged in this generation."""

    instance: int
    generation: int
    stages: int
    parts: int


class CommitRecord(Struct):
    """Body of a commit. app, batch: the commit's name; `stages`: the tokens, in order.

    principal: whose app and stages these are; "" also of releases that did not know.
    origins: of stages and parts, in order; none: an earlier release wrote it, all are its own.
    """

    app: str
    batch: int
    stages: list[str]
    parts: list[Reference]
    principal: str = ""
    origins: list[PartsOrigin] = []


class Shown(NamedTuple):
    """What a commit shows. firsts: which of its messages each part begins with."""

    parts: Sequence[Reference]
    firsts: Sequence[int]


_RECORD: Final = msgpack.Decoder(CommitRecord)
encode = msgpack.encode


def decode(body: bytes | memoryview) -> CommitRecord | None:
    """None if it is none."""
    try:
        return _RECORD.decode(body)
    except (DecodeError, UnicodeDecodeError):
        return None


def stage_origins(record: CommitRecord) -> list[Origin | None]:
    """The origin of each stage of a commit; None: not known, the commit's own instance."""
    if not record.origins:
        return [None] * len(record.stages)
    return [Origin(o.instance, o.generation) for o in record.origins for _ in range(o.stages)]


def encode_by_identity(record: CommitRecord, origin: Origin) -> bytes:
    """The body of a commit of that origin as it goes to other instances: with parts by identity.

    They have the parts at places of their own: each one resolves them when it stores the commit.
    """
    parts = [Reference(part.identity, 0, 0, part.count) for part in record.parts]
    origins = record.origins or [
        PartsOrigin(origin.instance, origin.generation, len(record.stages), len(parts))
    ]
    return encode(replace(record, parts=parts, origins=origins))


def shown(commit: Batch, body: bytes | memoryview) -> Shown | None:
    """None if its body does not tell of as many messages as its header."""
    record = decode(body)
    if record is None:
        return None
    ends = list(accumulate(part.count for part in record.parts))
    if not ends or ends[-1] != commit.taken or any(part.count <= 0 for part in record.parts):
        return None
    return Shown(record.parts, [0, *ends[:-1]])


def stand_in(commit: Batch, staged: Batch, first: int) -> Batch:
    """A staged batch as the messages of the commit that begin with number `first`.

    Their log time is that of the commit: they were not in the log before it. Where they go was
    decided when they were staged.
    """
    columns = staged.columns
    if columns is not None and columns.time is not None:
        columns = replace(columns, time=None)
    return replace(
        commit,
        kind=KIND_PUBLISH,
        position=commit.position + first,
        sequence=commit.sequence + first,
        prev=commit.sequence + first - 1 if first else commit.prev,
        count=staged.count,
        topics=staged.topics,
        body=staged.body,
        body_crc=staged.body_crc,
        body_length=staged.body_length,
        skip=staged.skip,
        cut=staged.cut,
        flags=staged.flags & FLAG_ZSTD,
        origin_position=commit.origin_position + first,
        columns=columns if columns != _NO_COLUMNS else None,
        extra=[column for column in staged.extra if column[0] == COLUMN_ROUTES],
    )
