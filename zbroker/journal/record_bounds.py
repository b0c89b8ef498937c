"""What the fields of a record may be, before anything is decided by it. Pure.

A number that fits 64 bits of a header may still be one that this instance could not go on from: the
next session of a publisher is numbered above every session that was seen, so one of 2**64 - 1
leaves none.
"""

from __future__ import annotations

from typing import Final

from zbroker.errors import ClientError
from zbroker.exchanges import route_column
from zbroker.ids import Origin
from zbroker.journal.sessions import SESSION_MAX
from zbroker.limits import BATCH_TOPICS_MAX, U63_MAX
from zbroker.log import former_names
from zbroker.log.format import FLAG_SHOWS, KIND_NOOP, KIND_TIE, SEQUENCED
from zbroker.wire.bodies import check_columns
from zbroker.wire.internal import MALFORMED, Record
from zbroker.wire.messages import Columns

_U16, _U32, _U64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1
EXTRA_COLUMNS_MAX: Final = 64
BOUNDS: Final = {
    "kind": (0, _U16),
    "instance": (0, _U64),
    "generation": (0, _U32),
    "position": (0, U63_MAX),
    "after": (0, U63_MAX),
    "log_time": (-U63_MAX, U63_MAX),
    "publisher": (0, _U64),
    "session": (0, SESSION_MAX),
    "seq": (0, U63_MAX),
    "prev": (0, U63_MAX),
    "count": (0, _U32),
    "skip": (0, _U32),
    "cut": (0, _U32),
    "flags": (0, _U32),
    "crc": (0, _U32),
    "after_crc": (0, _U32),
}


def outside(record: Record) -> str:
    """The first wrong field of a record; "" if each can be stored. Topics are judged by name later.

    In one expression, since each record comes by here.
    """
    r = record
    if (
        0 <= r.kind <= _U16 and 0 <= r.instance <= _U64 and 0 <= r.generation <= _U32
        and 0 <= r.position <= U63_MAX and 0 <= r.after <= U63_MAX
        and -U63_MAX <= r.log_time <= U63_MAX and 0 <= r.publisher <= _U64
        and 0 <= r.session <= SESSION_MAX and 0 <= r.seq <= U63_MAX and 0 <= r.prev <= U63_MAX
        and 0 <= r.count <= _U32 and 0 <= r.skip <= _U32 and 0 <= r.cut <= _U32
        and 0 <= r.flags <= _U32 and 0 <= r.crc <= _U32
        and (r.after_crc is None or 0 <= r.after_crc <= _U32)
    ):  # fmt: skip
        return "" if not r.extra and r.columns is None and len(r.topics) == 1 else _outside_tail(r)
    if r.kind == MALFORMED:
        return "this does not have the fields of a record"
    for name, (lowest, highest) in BOUNDS.items():
        if (value := getattr(r, name)) is not None and not lowest <= value <= highest:
            return f"`{name}` of a record must be {lowest} to {highest}"
    raise AssertionError("each number above is in BOUNDS")


def _outside_tail(record: Record) -> str:
    if len(record.topics) > BATCH_TOPICS_MAX or len(record.extra) > EXTRA_COLUMNS_MAX:
        return f"a record has at most {BATCH_TOPICS_MAX} topics, {EXTRA_COLUMNS_MAX} more columns"
    if any(not 0 < tag <= _U16 for tag, _ in record.extra):
        return f"the tag of a column must be 1 to {_U16}"
    if record.extra and (reason := former_names.wrong(record.extra, *_of(record))):
        return reason
    if record.extra and (reason := route_column.wrong(record.extra, record.count, record.flags)):
        return reason
    if record.kind in SEQUENCED and not record.topics:
        return "messages have a topic"
    if record.flags & FLAG_SHOWS:
        return "" if record.columns in (None, Columns()) else "a commit has no columns of messages"
    if record.columns is None:
        return "" if len(record.topics) <= 1 else "several topics need `columns.index`"
    try:
        check_columns(record.columns, record.count, len(record.topics))
    except ClientError as error:
        return error.reason
    return ""


def _of(record: Record) -> tuple[Origin, int, int]:
    """Its origin, and the first and the last sequence that it says something of."""
    runs = record.skip if record.kind in (KIND_TIE, KIND_NOOP) else 0
    last = record.seq + record.count - record.skip - record.cut - 1
    return Origin(record.instance, record.generation), record.seq - runs, last
