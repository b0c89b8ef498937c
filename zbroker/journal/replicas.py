"""How records of other instances enter this log. Pure.

The first arrival wins, message by message: a message that is missing here is stored, flagged late
below its publisher's highest sequence; for one that is here with another origin a tie is written
(origins.py). A record at or below the position seen of its origin is a duplicate: it came by two
ways, or again. One whose `after` is not here yet is refused, so the rest of that origin waits after
a refusal; otherwise the later records would make the refused one look like a duplicate.

The fields of a record are checked before anything is decided by it. A number that fits 64 bits of a
header may still be one that this instance could not go on from: the next session of a publisher is
numbered above every session that was seen, so one of 2**64 - 1 leaves none.

Control records are stored as they are, except names: every instance writes its own record when it
first stores such a publisher. Snapshots are never sent.

Log time never goes back here. A message keeps its time at its origin as far as that allows: it is
raised to that of the message before it, and, unless publishers give the times, lowered to this
host's clock, so that one wrong clock does not set all others wrong. Where the times differ, the
original ones are kept in a column of their own, and go on to the next instance.
"""

from __future__ import annotations

from array import array
from typing import Final

from msgspec import DecodeError
from msgspec.structs import replace

from zbroker.errors import ClientError
from zbroker.ids import Origin, check_topic
from zbroker.journal.group_builder import DISK_FULL, Body, GroupBuilder
from zbroker.journal.holes import Run
from zbroker.journal.sessions import SESSION_MAX, PublisherState, Recent, collision
from zbroker.limits import BATCH_TOPICS_MAX, U63_MAX
from zbroker.log import records
from zbroker.log.format import (
    COLUMN_ORIGIN_TIME,
    FLAG_ZSTD,
    KIND_NOOP,
    KIND_POINT,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    KIND_PURGE,
    KIND_QUEUE,
    KIND_TIE,
    KIND_WIRING,
    STEP_OVER,
    Batch,
)
from zbroker.wire import internal as m
from zbroker.wire.bodies import indexes
from zbroker.wire.internal import Record
from zbroker.wire.messages import Columns

_COPIED: Final = frozenset(
    {KIND_PUBLISH, KIND_TIE, KIND_POINT, KIND_PURGE, KIND_NOOP, KIND_QUEUE, KIND_WIRING}
)


class Replicas:
    """Places records of peers into the group of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self._origins = to.sessions.origins

    def place(self, ordinal: int, record: Record, body: Body) -> m.ReceiptItem:
        """Judges one record of a peer; what the log lacks of it goes into the group."""
        wrong = outside(record)
        if wrong:
            return self._refused(ordinal, 0, "bad_field", wrong)
        if record.kind == KIND_PUBLISHER:
            return self._teach(ordinal, record, body)
        origin = Origin(record.instance, record.generation)
        seen = self._seen(origin)
        taken = record.count - record.skip - record.cut
        refusal = self._refusal(record, origin, seen)
        if refusal is None and record.position + taken - 1 <= seen:
            self._to.duplicates += taken
            return self._answer(ordinal, record, taken)
        if refusal is None and record.kind == KIND_PUBLISH:
            return self._store(
                ordinal, record, body, record.seq + max(0, seen - record.position + 1)
            )
        if refusal is not None:
            return self._refused(ordinal, seen, *refusal)
        batch = self._copy(record, body)
        self._to.put(batch)
        self._origins.fold(batch)
        return self._answer(ordinal, record, 0)

    def _seen(self, origin: Origin) -> int:
        """How far the records of an origin are here; of our own all that was ever given."""
        if origin == (self._to.settings.instance, self._to.generation):
            return self._to.next_position - 1
        return self._origins.high(origin)

    def _refusal(self, record: Record, origin: Origin, seen: int) -> tuple[str, str] | None:
        last = record.position + record.count - record.skip - record.cut - 1
        if record.kind not in _COPIED and not record.kind & STEP_OVER:
            return "unknown_version", f"records of kind {record.kind} are not known here"
        if not record.position <= last <= U63_MAX or record.seq + record.count > U63_MAX:
            return "bad_field", "a record counts no messages, or has positions above 2**63"
        if record.kind == KIND_PUBLISH and record.prev >= record.seq:
            return "bad_field", "`prev` of a record must be below its `seq`"
        ours = origin.instance == self._to.settings.instance
        if ours and origin.generation >= self._to.generation and last > seen:
            return "origin_ahead", (
                f"a peer holds position {last} of generation {origin.generation}, this log ends at "
                f"{seen}: its end is lost; fetch it back in a new generation"
            )
        if record.after > seen:
            return "origin_gap", f"this log holds that origin up to {seen}, not to {record.after}"
        if not self._to.accepting and last > seen:
            return "disk_full", DISK_FULL
        return None

    def _refused(self, ordinal: int, seen: int, code: str, reason: str) -> m.ReceiptItem:
        self._to.refused += 1
        return m.ReceiptItem(ordinal, 0, seen, 0, code, reason)

    def _answer(self, ordinal: int, record: Record, duplicate: int) -> m.ReceiptItem:
        """It is as durable as everything before the next position."""
        known = self._to.sessions.get(record.publisher)
        high = known.high if known is not None else 0
        return m.ReceiptItem(ordinal, self._to.next_position - 1, high, duplicate)

    def _teach(self, ordinal: int, record: Record, body: Body) -> m.ReceiptItem:
        try:
            name = records.PUBLISHER.decode(body)
        except (DecodeError, UnicodeDecodeError) as error:
            return self._refused(ordinal, 0, "bad_field", f"not a publisher record: {error}")
        if not self._to.sessions.teach(record.publisher, name.name, name.principal):
            refusal = collision(name.name)
            return self._refused(ordinal, 0, refusal.code, refusal.reason)
        return self._answer(ordinal, record, 0)

    def _store(self, ordinal: int, record: Record, body: Body, first: int) -> m.ReceiptItem:
        """Sequences `first` and on of a record: missing ones are stored, the others tied."""
        last = record.seq + record.count - record.skip - record.cut - 1
        runs = self._to.sessions.runs(record.publisher, first, last)
        if runs is None:
            reason = f"holes of this publisher around {first} were given up: it may be here or not"
            return self._refused(ordinal, record.position - 1, "hole_given_up", reason)
        missing, held = runs
        known = self._to.sessions.meet(record.publisher)
        if missing and not known.named:
            self._to.name(known)
        begins = record.seq - record.skip  # of the body
        self._compare(record, body, known, begins)
        whole = self._copy(record, body) if missing else None
        for run in sorted(missing + held):
            if run in missing and whole is not None:
                whole.prev = record.prev if run[0] == record.seq else run[0] - 1
                self._origins.fold(self._to.store_run(known, whole, begins, run))
            else:
                self._tie(record, run)
        duplicate = sum(end - begin + 1 for begin, end in held)
        self._to.duplicates += duplicate
        end = self._to.next_position - 1
        if missing:
            known.remember(Recent(begins, record.count, record.crc, end))
        return m.ReceiptItem(ordinal, end, known.high, duplicate)

    def _copy(self, record: Record, body: Body) -> Batch:
        columns, log_time, extra = self._times_of(record)
        return Batch(
            record.kind, self._to.next_position, record.publisher, record.session, record.seq,
            record.prev, record.count, log_time, record.topics, body, record.crc, len(body),
            record.skip, record.flags, record.instance, record.generation, record.position,
            columns, extra, cut=record.cut,
        )  # fmt: skip

    def _times_of(self, record: Record) -> tuple[Columns | None, int, list[tuple[int, bytes]]]:
        """Columns, log time and further columns of a record as they go to this log."""
        columns = record.columns
        latest = U63_MAX if self._to.settings.publisher_time else self._to.wall_ns
        if columns is None or columns.time is None:
            original = array("q", (record.log_time,))
            times = self._to.rising(array("q", (min(record.log_time, latest),)))
        else:
            original = array("q", columns.time)
            times = self._to.rising(array("q", (min(time, latest) for time in original)))
            columns = replace(columns, time=times.tobytes())
        extra = [item for item in record.extra if item[0] != COLUMN_ORIGIN_TIME]
        if times != original:
            extra.append((COLUMN_ORIGIN_TIME, original.tobytes()))
        return columns, times[-1], extra

    def _tie(self, record: Record, run: Run) -> None:
        """Writes that messages which are here already have this origin, too."""
        begin, end = run
        batch = Batch(
            KIND_TIE, self._to.next_position, record.publisher, record.session, end, begin - 1,
            end - begin + 1, self._to.now(), [], b"", 0, 0, end - begin, 0, record.instance,
            record.generation, record.position + end - record.seq,
        )  # fmt: skip
        self._to.put(batch)
        self._origins.fold(batch)

    def _compare(self, record: Record, body: Body, known: PublisherState, begins: int) -> None:
        """The same sequences with another content, from two instances that both accepted them."""
        for recent in known.recent or ():
            if (recent.first, recent.messages) == (begins, record.count):
                if recent.crc != record.crc:
                    codec = "zstd" if record.flags & FLAG_ZSTD else None
                    entry = m.Entry(
                        record.publisher, record.session, begins, record.count, record.prev,
                        record.crc, codec, record.topics, record.log_time, record.columns,
                    )  # fmt: skip
                    self._to.conflict(entry, body, recent.last_position)
                return


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
    """The first wrong field of a record; "" if each can be stored."""
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
