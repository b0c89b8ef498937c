"""The bytes of the journal, format version 1. docs/reference/journal.md shows the same hex.

A segment file, little-endian, everything 8-byte aligned:

    0      segment header (96 bytes, the rest of its 4096 bytes is zero)
    4096   the same header again
    8192   append groups, each on a 512-byte boundary; between them and after the last one, zeros

    append group   64-byte header, then its record batches back to back
    record batch   112-byte header, topic table, columns, zeros to 8; the body; zeros to 8

A batch header carries a CRC seeded with the segment's salt and the batch's own file offset, so a
valid one can be found anywhere and cannot be mistaken for a copy of another place or file. The body
CRC covers the body as its packer sent it and travels with it to the subscriber.
"""

from __future__ import annotations

import struct
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from zbroker.checksums import crc32c
from zbroker.ids import Origin
from zbroker.wire.messages import Columns

VERSION: Final = 1
ALIGN: Final = 8
GROUP_ALIGN: Final = 512  # a later write never changes a sector that holds acknowledged bytes
HEADER_COPY_AT: Final = 4096
DATA_AT: Final = 8192

#: magic, version, length, instance, generation, -, serial, first position, last position and end
#: offset of the previous segment, salt, created ns, size, -, crc
SEGMENT: Final = struct.Struct("<8sIIQI4xQQQQQqQ4xI")
SEGMENT_MAGIC: Final = b"zbrksegm"
assert SEGMENT.size == 96, "docs/reference/journal.md says 96"

#: magic, version, -, own offset, length, batches, first position, log time, synced_through,
#: positions, previous group's crc, crc
GROUP: Final = struct.Struct("<4sH2xQIIQqQIII")
GROUP_MAGIC: Final = b"zbGR"
assert GROUP.size == 60, "docs/reference/journal.md says 60"
GROUP_LENGTH: Final = 64

#: magic, version, kind, header length, body length, flags, count, skip, topics, -, first position,
#: publisher, session, first sequence, prev, log time, origin instance, origin position,
#: origin generation, body crc, cut, header crc
BATCH: Final = struct.Struct("<4sHHIIIIIHHQQQQQqQQIIII")
BATCH_MAGIC: Final = b"zbRB"
assert BATCH.size == 112, "docs/reference/journal.md says 112"
_BATCH_CRC_AT: Final = 108
_CHECKED: Final = struct.Struct("<4sH2xI8xII76xII")  # magic, version, length, count, skip, cut, crc
_U32: Final = struct.Struct("<I")
_LENGTH: Final = struct.Struct("<H")
_COLUMN: Final = struct.Struct("<HHI")
_PADS: Final = tuple(bytes(size) for size in range(ALIGN))
offset_bytes: Final = struct.Struct("<Q").pack  # an offset as header CRCs cover it
KIND_PUBLISH: Final = 1
KIND_PUBLISHER: Final = 2
KIND_STATE: Final = 3
KIND_POINT: Final = 4
KIND_PURGE: Final = 5
KIND_NOOP: Final = 6
STEP_OVER: Final = 0x8000  # a reader that does not know this kind may step over it
KIND_TIE: Final = STEP_OVER | 7
KIND_QUEUE: Final = STEP_OVER | 8
KIND_WIRING: Final = 9
KIND_STAGED: Final = 10
KIND_ABORT: Final = STEP_OVER | 11
KIND_ORIGIN: Final = 12  # what an origin's row means from here on: records.OriginRecord
KIND_CLOSED: Final = 13  # an older generation of its instance has ended: records.ClosedRecord
KIND_FORGOTTEN: Final = STEP_OVER | 14  # a peer is not waited for: records.ForgottenRecord
KIND_DEFINITION: Final = 20  # of a replicated queue; its body, and those of the next two: see
KIND_OUTCOMES: Final = 21  # zbroker.log.queue_records
KIND_OWNERSHIP: Final = 22
KIND_EXCHANGE: Final = 23  # exchanges, bindings, bound queues: zbroker.exchanges.exchange_rows
KIND_TRANSACTION: Final = 24  # sessions begin, transactions are committed: records
KIND_BRANCH: Final = 25  # branches of distributed transactions are prepared, and decided: records
KIND_SHARED_POINT: Final = 26  # a point of all instances is set or removed: point_records
#: to other instances, which write records of their own for names; states are of one log, and so
#: are the records of local queues, purges, and points that are places in one log
TRAVELS: Final[dict[int, Literal["yes", "no", "as another form"]]] = {
    KIND_PUBLISH: "yes", KIND_PUBLISHER: "as another form", KIND_STATE: "no", KIND_POINT: "no",
    KIND_PURGE: "no", KIND_NOOP: "yes", KIND_TIE: "yes", KIND_QUEUE: "no", KIND_WIRING: "no",
    KIND_STAGED: "yes", KIND_ABORT: "yes", KIND_ORIGIN: "no", KIND_CLOSED: "yes",
    KIND_FORGOTTEN: "no", KIND_DEFINITION: "yes", KIND_OUTCOMES: "yes", KIND_OWNERSHIP: "yes",
    KIND_EXCHANGE: "yes", KIND_TRANSACTION: "yes", KIND_BRANCH: "yes", KIND_SHARED_POINT: "yes",
}  # fmt: skip
COMMIT_TRAVELS: Final = "as another form"  # with FLAG_SHOWS: see references.encode_by_identity
STAYS: Final = frozenset(kind for kind, travels in TRAVELS.items() if travels != "yes")
OF_QUEUES: Final = frozenset({KIND_DEFINITION, KIND_OUTCOMES, KIND_OWNERSHIP})  # replicated ones
#: about messages of any topic
OF_ALL_TOPICS: Final = OF_QUEUES | {
    KIND_EXCHANGE, KIND_TRANSACTION, KIND_BRANCH, KIND_SHARED_POINT
}  # fmt: skip
SEQUENCED: Final = frozenset({KIND_PUBLISH, KIND_STAGED})  # these take sequences

FLAG_ZSTD: Final = 1
FLAG_LATE: Final = 2
FLAG_SHOWS: Final = 4  # its body says where its messages are: see references.py
FLAG_UNIT: Final = 8  # the next batch belongs to this unit: both are kept, and sent, or neither

COLUMN_INDEX: Final = 1
COLUMN_TIME: Final = 2
COLUMN_ORIGIN_TIME: Final = 3  # log times at the origin, where those here differ: all, or the last
COLUMN_KEYS: Final = 4
COLUMN_HEADERS: Final = 5
COLUMN_EXPIRY: Final = 6
COLUMN_ROUTES: Final = 10  # where messages of exchanges go: see zbroker.exchanges.route_column
COLUMN_CONTENT_CRC: Final = 8  # CRC of the body as its origin wrote it, where this one is another
_COLUMNS: Final = {COLUMN_INDEX: "index", COLUMN_TIME: "time", COLUMN_KEYS: "keys",
                   COLUMN_HEADERS: "headers", COLUMN_EXPIRY: "expiry"}  # fmt: skip
#: in the order of Columns; no column has tag 0, and none of a record is an offset
_FIELDS: Final = (COLUMN_INDEX, COLUMN_TIME, 0, COLUMN_KEYS, COLUMN_HEADERS, COLUMN_EXPIRY)

TAIL_KEPT_BYTES: Final = 128  # a short topic list without columns
TAILS_KEPT: Final = 4096


def pad(size: int, align: int = ALIGN) -> int:
    """`size` rounded up to a multiple of `align`."""
    return -(-size // align) * align


class ParseStop(NamedTuple):
    """Where parsing stopped and why; recovery decides what that means."""

    offset: int
    why: Literal["end", "short", "zero", "magic", "version", "length", "crc", "chain"]


class SegmentHeader(NamedTuple):
    """The header that is twice at the start of a segment file; fields in the order of SEGMENT."""

    instance: int
    generation: int
    serial: int
    first_position: int
    previous_last_position: int  # 0 for the first segment
    previous_end: int  # offset after the previous segment's last group; 0 for the first segment
    salt: int
    created_ns: int
    size: int

    def encode(self) -> bytes:
        """The bytes of one copy."""
        head = SEGMENT.pack(SEGMENT_MAGIC, VERSION, SEGMENT.size, *self, 0)[:-4]
        return head + _U32.pack(crc32c(head))

    @property
    def seed(self) -> int:
        """What the CRCs of this segment's group and batch headers start from."""
        return crc32c(self.salt.to_bytes(8, "little"))


def decode_segment_header(data: bytes) -> SegmentHeader | ParseStop:
    """One copy of a segment header; `data` begins with it. A Stop tells why it is none."""
    if (stop := _stop(data, SEGMENT, SEGMENT_MAGIC)) is not None:
        return stop
    _, _, length, *fields, _ = SEGMENT.unpack_from(data)
    return SegmentHeader(*fields) if length == SEGMENT.size else ParseStop(0, "crc")


def _stop(data: bytes, form: struct.Struct, magic: bytes) -> ParseStop | None:
    """Why `data` does not begin with this header: magic, version, fields, CRC; None if it does."""
    if len(data) < form.size:
        return ParseStop(0, "short")
    version_at, crc_at = len(magic), form.size - _U32.size
    if data[:version_at] != magic:
        return ParseStop(0, "magic" if any(data[: form.size]) else "zero")
    if _U32.unpack_from(data, version_at)[0] != VERSION:
        return ParseStop(0, "version")
    if _U32.unpack_from(data, crc_at)[0] != crc32c(data[:crc_at]):
        return ParseStop(0, "crc")
    return None


class Batch(Struct, gc=False):
    """A record batch: everything but its place. `body` is the packed body as it was sent.

    count: messages in the body; skip, cut: how many leading and trailing ones do not count.
    sequence, position: of the first message that counts. Message i of the body has sequence
    `sequence + i - skip`.
    columns: per message of the body; `extra` are columns of unknown tags, carried along.
    A msgspec Struct, since reading makes millions. Decoded batches may share `topics`, `columns`
    and `extra`: replace them, never change their content.
    """

    kind: int
    position: int
    publisher: int
    session: int
    sequence: int
    prev: int
    count: int
    log_time: int
    topics: list[str]
    body: bytes | memoryview
    body_crc: int
    body_length: int
    skip: int = 0
    flags: int = 0
    origin_instance: int = 0
    origin_generation: int = 0
    origin_position: int = 0
    columns: Columns | None = None
    extra: list[tuple[int, bytes]] = []
    offset: int = 0  # where it was found, as the next one; set by decode
    header_length: int = 0
    cut: int = 0  # in the header; last, since hardly any batch has it

    @property
    def taken(self) -> int:
        """Messages that count; each takes one position."""
        return self.count - self.skip - self.cut

    @property
    def origin(self) -> Origin:
        """The instance and generation in which it was published first."""
        return Origin(self.origin_instance, self.origin_generation)

    @property
    def content_crc(self) -> int:
        """The CRC of its body as it travels, the same on every instance; -1: not known, as of a
        commit that an earlier release wrote."""
        return kept_crc(self.extra, -1 if self.flags & FLAG_SHOWS else self.body_crc)

    @property
    def end_position(self) -> int:
        """The position after its last message."""
        return self.position + self.count - self.skip - self.cut

    @property
    def end_offset(self) -> int:
        """Offset of the next batch or group in the file (before alignment to a group)."""
        return self.offset + self.header_length + pad(self.body_length)


def kept_crc(extra: list[tuple[int, bytes]], body_crc: int) -> int:
    """The content CRC of a batch with these further columns; of most it is that of their body."""
    for tag, data in extra:
        if tag == COLUMN_CONTENT_CRC and len(data) == _U32.size:
            return int(_U32.unpack(data)[0])
    return body_crc


def content_column(crc: int) -> tuple[int, bytes]:
    """The column that keeps a content CRC."""
    return COLUMN_CONTENT_CRC, _U32.pack(crc)


def encode_batch_header(batch: Batch, offset: int, seed: int) -> bytes:
    """Header, topic table and columns of `batch` standing at `offset`; the body follows it."""
    parts: list[bytes] = []
    for topic in map(str.encode, batch.topics):
        parts += (_LENGTH.pack(len(topic)), topic)
    if batch.columns is not None:
        for tag, name in _COLUMNS.items():
            if (data := getattr(batch.columns, name)) is not None:
                parts += (_COLUMN.pack(tag, 0, len(data)), data)
    for tag, data in batch.extra:
        parts += (_COLUMN.pack(tag, 0, len(data)), data)
    tail = b"".join(parts)
    length = pad(BATCH.size + len(tail))
    tail += bytes(length - BATCH.size - len(tail))
    head = BATCH.pack(
        BATCH_MAGIC, VERSION, batch.kind, length, batch.body_length, batch.flags, batch.count,
        batch.skip, len(batch.topics), 0, batch.position, batch.publisher, batch.session,
        batch.sequence, batch.prev, batch.log_time, batch.origin_instance, batch.origin_position,
        batch.origin_generation, batch.body_crc, batch.cut, 0,
    )[:_BATCH_CRC_AT]  # fmt: skip
    crc = _header_crc(head + tail, offset, seed)
    return head + _U32.pack(crc) + tail


def _header_crc(data: bytes, offset: int, seed: int) -> int:
    return crc32c(offset_bytes(offset) + data, seed)


def batch_crc(header: bytes) -> int:
    """The CRC in an encoded batch header; groups are chained over these."""
    return int(_U32.unpack_from(header, _BATCH_CRC_AT)[0])


def decode_batch_header(data: bytes, at: int, offset: int, seed: int) -> Batch | ParseStop:
    """The batch header at `data[at:]`, which is at `offset` in its file. The body is not read.

    Returns: Stop "short" if `data` ends before the header does; other Stops if there is no header.
    """
    if len(data) - at < BATCH.size:
        return ParseStop(offset, "short")
    magic, version, length, count, skip, cut, crc = _CHECKED.unpack_from(data, at)
    if magic != BATCH_MAGIC:
        return ParseStop(offset, "zero" if magic == b"\0\0\0\0" else "magic")
    if version != VERSION:
        return ParseStop(offset, "version")
    if length < BATCH.size or length % ALIGN or skip + cut >= max(count, 1):
        return ParseStop(offset, "length")
    if len(data) - at < length:
        return ParseStop(offset, "short")
    tail = data[at + BATCH.size : at + length]
    if _header_crc(data[at : at + _BATCH_CRC_AT] + tail, offset, seed) != crc:
        return ParseStop(offset, "crc")
    try:
        return read_batch_header(data, at, offset)
    except (struct.error, UnicodeDecodeError):
        return ParseStop(offset, "length")


def read_batch_header(data: bytes, at: int, offset: int) -> Batch:
    """The same of a header that is whole and whose CRC is known to be good.

    Raises: struct.error, UnicodeDecodeError.
    """
    (_, _, kind, length, body_length, flags, count, skip, topics, _, position, publisher, session,
     sequence, prev, log_time, origin_instance, origin_position, origin_generation, body_crc, cut,
     _) = BATCH.unpack_from(data, at)  # fmt: skip
    names, columns, extra = decode_tail(data[at + BATCH.size : at + length], topics)
    return Batch(
        kind, position, publisher, session, sequence, prev, count, log_time, names, b"", body_crc,
        body_length, skip, flags, origin_instance, origin_generation, origin_position, columns,
        extra, offset, length, cut,
    )  # fmt: skip


Tail = tuple[list[str], Columns | None, list[tuple[int, bytes]]]
tails: Final[dict[bytes, Tail]] = {}  # what decode_tail said of the short ones it met lately


def decode_tail(tail: bytes, topics: int) -> Tail:
    """The end of a batch header, after its fixed part: `topics` names, columns, zeros.

    Most tails are one of few: short ones are remembered, so their results are shared.
    """
    known = tails.get(tail)
    if known is not None and len(known[0]) == topics:
        return known
    at, names = 0, []
    for _ in range(topics):
        (size,) = _LENGTH.unpack_from(tail, at)
        names.append(tail[at + 2 : at + 2 + size].decode())
        at += 2 + size
    found = (names, *_decode_columns(tail, at))
    if len(tail) <= TAIL_KEPT_BYTES:
        if len(tails) >= TAILS_KEPT:
            tails.clear()
        tails[tail] = found
    return found


def _decode_columns(tail: bytes, at: int) -> tuple[Columns | None, list[tuple[int, bytes]]]:
    columns: dict[int, bytes] = {}
    while len(tail) - at >= _COLUMN.size:
        tag, _, size = _COLUMN.unpack_from(tail, at)
        if tag == 0:
            break
        columns[tag] = tail[at + _COLUMN.size : at + _COLUMN.size + size]
        at += _COLUMN.size + size
    if not columns:
        return None, []
    return Columns(*map(columns.get, _FIELDS)), [i for i in columns.items() if i[0] not in _COLUMNS]


class GroupHeader(NamedTuple):
    """What one write and one sync make durable; fields in the order of GROUP."""

    offset: int
    length: int  # header and batches, without the zeros up to the next group
    batches: int
    first_position: int
    log_time: int
    synced_through: int  # positions below this were durable when the group was written
    positions: int
    previous_crc: int  # 0 for the first group of a segment
    crc: int = 0

    @property
    def end_offset(self) -> int:
        """Offset of the next group of this segment."""
        return pad(self.offset + self.length, GROUP_ALIGN)


def encode_group(
    batches: list[Batch], end: int, seed: int, log_time: int, synced: int, previous_crc: int
) -> tuple[list[bytes | bytearray | memoryview], GroupHeader, int]:
    """The group of these batches in a file whose last group ends at `end`; each learns its offset.

    Returns: the bytes to write at the offset of the header, the header, and its CRC. The zeros
    after the last body are left out: the file has them already.
    """
    start = pad(end, GROUP_ALIGN)
    offset = start + GROUP_LENGTH
    crcs: list[int] = []
    buffers: list[bytes | bytearray | memoryview] = [b""]  # the group header's place
    padding = b""
    for batch in batches:
        header = encode_batch_header(batch, offset, seed)
        batch.offset, batch.header_length = offset, len(header)
        crcs.append(batch_crc(header))
        buffers += (padding + header, batch.body)
        padding = _PADS[-batch.body_length % ALIGN]
        offset += len(header) + batch.body_length + len(padding)
    first, last = batches[0], batches[-1]
    group = GroupHeader(
        start, offset - start, len(batches), first.position, log_time, synced,
        last.end_position - first.position, previous_crc,
    )  # fmt: skip
    buffers[0], crc = encode_group_header(group, crcs, seed)
    return buffers, group, crc


def encode_group_header(group: GroupHeader, batch_crcs: list[int], seed: int) -> tuple[bytes, int]:
    """The 64 bytes of a group header and its CRC, which covers the CRCs of its batch headers."""
    head = GROUP.pack(GROUP_MAGIC, VERSION, *group)[:-4]
    crc = _group_crc(head, batch_crcs, seed)
    return head + _U32.pack(crc) + bytes(GROUP_LENGTH - GROUP.size), crc


def _group_crc(head: bytes | memoryview, batch_crcs: list[int], seed: int) -> int:
    return crc32c(struct.pack(f"<{len(batch_crcs)}I", *batch_crcs), crc32c(head, seed))


def decode_group_header(data: bytes | memoryview, at: int, offset: int) -> GroupHeader | ParseStop:
    """The group header at `data[at:]`; its CRC is not judged before its batches are known."""
    if len(data) - at < GROUP_LENGTH:
        return ParseStop(offset, "short")
    magic, version, *fields = GROUP.unpack_from(data, at)
    group = GroupHeader(*fields)
    if magic != GROUP_MAGIC:
        return ParseStop(offset, "zero" if magic == b"\0\0\0\0" else "magic")
    if version != VERSION:
        return ParseStop(offset, "version")
    if group.offset != offset or group.length < GROUP_LENGTH or group.batches == 0:
        return ParseStop(offset, "length")
    return group


def check_group(
    data: bytes | memoryview, at: int, group: GroupHeader, batch_crcs: list[int], seed: int
) -> bool:
    """True if the group header at `data[at:]` and these batch headers belong together."""
    return _group_crc(data[at : at + GROUP.size - 4], batch_crcs, seed) == group.crc


#: magic, version, counter, instance, generation, -, position, serial, oldest serial, -, crc
NOTE: Final = struct.Struct("<4sIQQI4xQQQ4xI")
NOTE_MAGIC: Final = b"zbAT"
assert NOTE.size == 64, "docs/reference/journal.md says 64"
NOTE_SLOTS: Final = (0, 512)
NOTE_KEPT_AT: Final = 4096  # when segments are given up; a power cut may cost the other page


class AckedNote(NamedTuple):
    """Acked-through note: positions below `position` were durable; two slots, written in turn.
    Fields in the order of NOTE.

    oldest: serial of the oldest segment that is kept, 0 if nothing was ever removed.
    """

    counter: int
    instance: int
    generation: int
    position: int
    serial: int
    oldest: int = 0


def encode_note(note: AckedNote) -> bytes:
    """The 64 bytes of one slot."""
    head = NOTE.pack(NOTE_MAGIC, VERSION, *note, 0)[:-4]
    return head + _U32.pack(crc32c(head))


def decode_note(data: bytes) -> AckedNote | ParseStop:
    """One slot of the acked-through note."""
    if (stop := _stop(data, NOTE, NOTE_MAGIC)) is not None:
        return stop
    _, _, *fields, _ = NOTE.unpack_from(data)
    return AckedNote(*fields)
