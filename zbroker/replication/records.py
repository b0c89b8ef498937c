"""Batches of the log as they go to another instance. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import DecodeError
from msgspec.structs import astuple, replace

from zbroker.checksums import crc32c
from zbroker.ids import Origin
from zbroker.limits import MIB
from zbroker.log import records, references
from zbroker.log.format import (
    COLUMN_CONTENT_CRC,
    COLUMN_ORIGIN_TIME,
    FLAG_LATE,
    FLAG_SHOWS,
    FLAG_UNIT,
    KIND_PUBLISHER,
    Batch,
    content_column,
)
from zbroker.wire.internal import Record
from zbroker.wire.replication import RECORDS_MAX

RECORD_BYTES: Final = 400  # of its fields in a header, roughly
SEND_BYTES: Final = 1 * MIB  # in one message, unless one unit is larger: beats have to pass
SEND_RECORDS: Final = RECORDS_MAX // 2  # likewise
Sent = tuple[Record, bytes | memoryview]


def record_of(batch: Batch, after: int, after_crc: int | None) -> tuple[Record, bytes | memoryview]:
    """A batch, with the times that it got at its origin, and its body.

    A commit names its parts by identity: where they are is another place in each log.
    """
    record, body = _record(batch, after, after_crc), batch.body
    commit = references.decode(body) if batch.flags & FLAG_SHOWS else None
    if commit is not None:
        body = references.encode_by_identity(commit, batch.origin)
        record.crc = crc32c(body)
        record.extra = [item for item in record.extra if item[0] != COLUMN_CONTENT_CRC]
    return record, body


def _record(batch: Batch, after: int, after_crc: int | None) -> Record:
    columns, log_time = batch.columns, batch.log_time
    extra = [item for item in batch.extra if item[0] != COLUMN_ORIGIN_TIME]
    original = next((data for tag, data in batch.extra if tag == COLUMN_ORIGIN_TIME), b"")
    if original:
        times = array("q", original)
        log_time = times[-1]
        if columns is not None and columns.time is not None:
            columns = replace(columns, time=original)
    return Record(
        batch.kind, batch.origin_instance, batch.origin_generation, batch.origin_position, after,
        log_time, batch.publisher, batch.session, batch.sequence, batch.prev, batch.count,
        batch.skip, batch.cut, batch.flags & ~FLAG_LATE, batch.body_crc, batch.topics, columns,
        extra, after_crc,
    )  # fmt: skip


def closing_now(batch: Batch, closed: Mapping[Origin, int]) -> Batch:
    """A closing record, with how much was taken again beyond the end that it says; closed: up to
    where each generation is here. The host that has all that may close it, too."""
    try:
        said = records.CLOSED.decode(batch.body)
    except (DecodeError, UnicodeDecodeError):
        return batch
    forked = closed.get(Origin(batch.origin_instance, said.generation), 0)
    if forked <= max(said.end, said.forked):
        return batch
    body = records.encode(replace(said, forked=forked))
    extra = [item for item in batch.extra if item[0] != COLUMN_CONTENT_CRC]
    extra.append(content_column(batch.content_crc))
    return replace(
        batch, body=body, body_crc=crc32c(body), body_length=len(body), extra=extra
    )  # fmt: skip


def name_record(publisher: int, name: str, principal: str) -> tuple[Record, bytes]:
    """What names a publisher before its first record in a session of a link."""
    body = records.encode(records.PublisherRecord(name, principal))
    return Record(KIND_PUBLISHER, 1, 0, 0, 0, 0, publisher), body


class Pending(NamedTuple):
    """A record at `position` of this log that a destination lacks, as far as is known."""

    position: int
    origin: Origin
    last: int


class OnTheWay(NamedTuple):
    """A record that was sent and not judged yet; size: see size_of."""

    ordinal: int
    origin: Origin
    last: int
    size: int
    kind: int


def size_of(record: Record, body: bytes | memoryview) -> int:
    """Bytes of a record on its way: its columns are in the header."""
    columns = () if record.columns is None else astuple(record.columns)
    extra = sum(len(data) for _, data in record.extra) + sum(len(data or b"") for data in columns)
    return len(body) + RECORD_BYTES + extra


def messages_of(records: Sequence[Sent]) -> list[list[Sent]]:
    """Records as they are sent together: units are never divided. The last one has room."""
    found: list[list[Sent]] = [[]]
    size = 0
    for sent in records:
        found[-1].append(sent)
        size += size_of(*sent)
        full = size >= SEND_BYTES or len(found[-1]) >= SEND_RECORDS
        if full and not sent[0].flags & FLAG_UNIT:
            found.append([])
            size = 0
    return found
