"""Which records of peers can stand in a log at all: every field fits its place on disk. Pure.

What a peer says is looked at before anything is decided by it. A number that fits 64 bits of a
header may still be none that this instance could go on from: the next session of a publisher is
numbered above every session that was seen, so one of 2**64 - 1 left none.
"""

from __future__ import annotations

from typing import Final

from zbroker.errors import ClientError
from zbroker.ids import check_topic
from zbroker.journal.sessions import SESSION_MAX
from zbroker.limits import BATCH_TOPICS_MAX, U63_MAX
from zbroker.wire.bodies import indexes
from zbroker.wire.record import Record

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
}


def outside(record: Record) -> str:
    """What is wrong with the fields of a record; "" if each can be stored."""
    for name, (lowest, highest) in BOUNDS.items():
        if not lowest <= getattr(record, name) <= highest:
            return f"`{name}` of a record must be {lowest} to {highest}"
    if len(record.topics) > BATCH_TOPICS_MAX or len(record.extra) > EXTRA_COLUMNS_MAX:
        return f"a record has at most {BATCH_TOPICS_MAX} topics, {EXTRA_COLUMNS_MAX} more columns"
    if any(not 0 <= tag <= _U16 for tag, _ in record.extra):
        return f"the tag of a column must be 0 to {_U16}"
    try:
        for topic in record.topics:
            check_topic(topic)
    except ClientError as error:
        return error.reason
    return _outside_columns(record) if record.columns is not None else ""


def _outside_columns(record: Record) -> str:
    columns = record.columns
    assert columns is not None
    if columns.time is not None and len(columns.time) != 8 * record.count:
        return "`columns.time` of a record must have 8 bytes for each message"
    if columns.index is not None:
        if len(columns.index) != 2 * record.count:
            return "`columns.index` of a record must have 2 bytes for each message"
        if max(indexes(columns.index), default=0) >= len(record.topics):
            return "`columns.index` of a record names a topic that is not there"
    return ""
