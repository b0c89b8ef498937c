"""The lines of `zbroker-admin journal dump`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from zbroker.clock import format_time
from zbroker.errors import ClientError
from zbroker.ids import format_bookmark
from zbroker.journal import format as f
from zbroker.journal.fold import PublisherRecord
from zbroker.journal.reader import Gap, Log
from zbroker.limits import MIB
from zbroker.wire import bodies

READ_BYTES: Final = 1 * MIB
BODY_MAX_BYTES: Final = 256 * MIB  # above any message limit in use; more is a wrong announcement

KINDS: Final = {
    f.KIND_PUBLISH: "publish",
    f.KIND_PUBLISHER: "publisher",
    f.KIND_STATE: "state",
    f.KIND_POINT: "point",
    f.KIND_PURGE: "purge",
    f.KIND_NOOP: "noop",
}
FLAGS: Final = {f.FLAG_ZSTD: "zstd", f.FLAG_LATE: "late"}

_encode: Final = msgspec.json.Encoder().encode


class Dump:
    """Positions [first, end) of a log as JSON lines; at most `limit` of them.

    bad: damaged ranges met so far.
    """

    def __init__(self, log: Log, first: int | None, end: int | None, limit: int | None) -> None:
        self.bad = 0
        self._log = log
        self._left = limit
        last = log.end()
        self._end = last if end is None else min(end, last)
        self._first = min(max(first or 0, log.first_position), last)

    def messages(self) -> Iterator[bytes]:
        """A line per message or control record, many lines at a time."""
        cursor = self._log.seek(self._first)
        while cursor.position < self._end and self._left != 0:
            items, cursor = self._log.read(cursor, self._end, READ_BYTES)
            if not items:
                return
            yield self._chunk(row for item in items for row in self._rows(item))

    def headers(self) -> Iterator[bytes]:
        """A line per record batch."""
        if self._first >= self._end:
            return
        for item in self._log.headers(self._log.seek(self._first), self._end):
            if self._left == 0:
                return
            if isinstance(item, Gap):
                yield self._chunk(self._rows(item))
            else:
                yield self._chunk(iter((header_row(item[0], item[1].serial),)))

    def _chunk(self, rows: Iterator[dict[str, Any]]) -> bytes:
        lines = []
        for row in rows:
            if self._left == 0:
                break
            if self._left is not None:
                self._left -= 1
            lines.append(_encode(row) + b"\n")
        return b"".join(lines)

    def _rows(self, item: f.Batch | Gap) -> Iterator[dict[str, Any]]:
        if isinstance(item, Gap):
            if item.end > self._first:
                self.bad += 1
                yield {"gap": {"first": item.first, "end": item.end, "why": item.why}}
        elif item.kind != f.KIND_PUBLISH:
            if item.position >= self._first:
                yield control_row(item)
        else:
            try:
                rows = message_rows(item)
            except ClientError as error:
                self.bad += 1
                rows = [_unreadable(item, error.reason)]
            yield from (row for row in rows if self._wants(row))

    def _wants(self, row: dict[str, Any]) -> bool:
        return "gap" in row or self._first <= row["position"] < self._end


def _unreadable(batch: f.Batch, why: str) -> dict[str, Any]:
    return {"gap": {"first": batch.position, "end": batch.end_position, "why": why}}


def message_rows(batch: f.Batch) -> list[dict[str, Any]]:
    """Every message of a batch that counts. Raises: ClientError if the body is not what it says."""
    codec = bodies.CODEC_ZSTD if batch.flags & f.FLAG_ZSTD else None
    messages = bodies.unpack(batch.body, codec, batch.count, BODY_MAX_BYTES)
    columns, topics = batch.columns, batch.topics
    index = bodies.indexes(columns.index) if columns and columns.index else None
    times = bodies.times(columns.time) if columns and columns.time else None
    return [
        {
            "position": batch.position + i - batch.skip,
            "topic": topics[index[i]] if index else topics[0],
            "bookmark": format_bookmark(batch.publisher, batch.sequence + i - batch.skip),
            "time": format_time(times[i] if times else batch.log_time),
            **text_or_base64(messages[i]),
        }
        for i in range(batch.skip, batch.count)
    ]


def control_row(batch: f.Batch) -> dict[str, Any]:
    """A control record; what a publisher's record says is decoded."""
    row: dict[str, Any] = {
        "position": batch.position,
        "kind": KINDS.get(batch.kind, str(batch.kind)),
        "time": format_time(batch.log_time),
    }
    if batch.kind == f.KIND_PUBLISHER:
        row["publisher"] = batch.publisher
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            record = msgspec.msgpack.decode(batch.body, type=PublisherRecord)
            return row | {"name": record.name, "principal": record.principal}
    return row | text_or_base64(bytes(batch.body))


def header_row(batch: f.Batch, serial: int) -> dict[str, Any]:
    """A record batch without its messages, and where it stands."""
    return {
        "position": batch.position,
        "end": batch.end_position,
        "kind": KINDS.get(batch.kind, str(batch.kind)),
        "time": format_time(batch.log_time),
        "publisher": batch.publisher,
        "session": batch.session,
        "sequence": batch.sequence,
        "prev": batch.prev,
        "count": batch.count,
        "skip": batch.skip,
        "topics": batch.topics,
        "flags": [name for flag, name in FLAGS.items() if batch.flags & flag],
        "origin": [batch.origin_instance, batch.origin_generation, batch.origin_position],
        "serial": serial,
        "offset": batch.offset,
        "header_bytes": batch.header_length,
        "body_bytes": batch.body_length,
    }


def text_or_base64(data: bytes) -> dict[str, str]:
    """Under `data` if it is UTF-8, else under `data_base64`."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": b64encode(data).decode()}
