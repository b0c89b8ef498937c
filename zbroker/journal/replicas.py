"""How records of other instances enter this log. Pure.

The first arrival wins, message by message: a message that is missing here is stored, flagged late
below its publisher's highest sequence; for one that is here with another origin a tie is written
(origins.py). A record at or below the position seen of its origin is a duplicate: it came by two
ways, or again. Refusals: record_judge.py.

Records come in units: all of one land in one group, in order, or none of them does. Names of all
their publishers are placed before the first one.

Control records are stored as they are, except names: every instance writes its own record when it
first stores such a publisher. Snapshots and meanings of rows are never sent.

Where holes of a publisher were given up, it is not known whether a message in them is here. Such
messages are refused, but the origin goes on: its row says from then on that what lies before is not
all here (a declared gap, as after the topics of a link were changed).

Log time never goes back here. A message keeps its time at its origin as far as that allows: it is
raised to that of the message before it, and, unless publishers give the times, lowered to this
host's clock, so that one wrong clock does not set all others wrong. Where the times differ, the
original ones are kept in a column of their own, and go on to the next instance.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple

from msgspec import DecodeError
from msgspec.structs import replace

from zbroker.errors import ClientError
from zbroker.exchanges import route_column
from zbroker.ids import Origin
from zbroker.journal.forked_records import ForkedRecords
from zbroker.journal.group_builder import (
    BATCH_BYTES,
    Body,
    GroupBuilder,
    columns_bytes,
)
from zbroker.journal.holes import Run
from zbroker.journal.link_sessions import (
    LINK_NAMES_MAX,
    LinkSession,
    LinkSessions,
)
from zbroker.journal.origins import Seen
from zbroker.journal.record_bounds import outside
from zbroker.journal.record_judge import OTHER_TOPICS, RecordJudge, RecordUnit
from zbroker.journal.replicated_stages import ReplicatedStages, is_commit
from zbroker.journal.sessions import SESSION_MAX, PublisherState, Recent
from zbroker.limits import BATCH_COUNT_MAX, U63_MAX
from zbroker.log import records
from zbroker.log.format import (
    COLUMN_ORIGIN_TIME,
    FLAG_UNIT,
    FLAG_ZSTD,
    KIND_CLOSED,
    KIND_ORIGIN,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    KIND_STAGED,
    KIND_TIE,
    SEQUENCED,
    Batch,
    content_column,
    kept_crc,
)
from zbroker.log.former_names import COLUMN_FORMER
from zbroker.wire import internal as m
from zbroker.wire.bodies import topic_indexes
from zbroker.wire.internal import Covered, Record
from zbroker.wire.messages import Columns
from zbroker.wire.replicas import SkipMissing

_U32: Final = (1 << 32) - 1
_SAFE: Final = U63_MAX - BATCH_COUNT_MAX  # numbers that a batch can be counted on from
_I64: Final = struct.Struct("<q")
_DROPPED: Final = "a newer session of this link has begun; send it there"
_GIVEN_UP: Final = (
    "holes of this publisher around it were given up: it may be here or not; the origin goes on "
    "after it, and its row says that messages before it are not all here"
)


class CoveredBy(NamedTuple):
    """What a peer has covered, in line after its records."""

    link: LinkSession
    covered: Covered


class Replicas:
    """Places records of peers into the group of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self._origins = to.sessions.origins
        self._judge = RecordJudge(to)
        self.links = LinkSessions()
        self._run: tuple[LinkSession | None, int, int, Seen] = (None, 0, 0, Seen())
        self._doubtful: records.OriginRecord | None = None  # of the unit that is being placed
        self._staging = ReplicatedStages(to, self._copy)
        self.forks = ForkedRecords(to, self._copy, self._compare)

    # -- what arrives -------------------------------------------------------------------------

    def units(self, sent: m.Replicate, bodies: list[Body]) -> Iterator[RecordUnit]:
        """The units of a Replicate, which came with these bodies."""
        link, first, size = self.links.get(sent.link), 0, 0
        for end, (record, body) in enumerate(zip(sent.records, bodies, strict=True), 1):
            size += len(body) + BATCH_BYTES
            if record.columns is not None or len(record.topics) > 1:
                size += columns_bytes(record)
            size += sum(len(data) for _, data in record.extra)
            if not record.flags & FLAG_UNIT or end == len(bodies):
                yield RecordUnit(link, sent.records[first:end], bodies[first:end], size)
                first, size = end, 0

    def covers(self, sent: m.Replicate) -> Iterator[CoveredBy]:
        """What a Replicate says besides records."""
        link = self.links.get(sent.link)
        if link is not None:
            yield from (CoveredBy(link, covered) for covered in sent.covered)

    # -- one unit -----------------------------------------------------------------------------

    def place(self, ordinal: int, unit: RecordUnit, *, fits: bool = True) -> list[m.ReceiptItem]:
        """Judges one unit of a peer; what the log lacks of it goes into the group.

        fits: on a nearly full disk there is space for it, if it has only control records.
        """
        link, given, bodies = unit.link, unit.records, unit.bodies
        if link is None or link.ended:
            return [self._refused(ordinal + n, 0, "dropped", _DROPPED) for n in range(len(given))]
        if len(given) == 1 and (item := self._next(ordinal, link, given[0], bodies[0])) is not None:
            return [item]
        if given[0].kind == KIND_PUBLISHER and len(given) == 1:
            return [self._teach(link, ordinal, given[0], bodies[0])]
        origin = Origin(given[0].instance, given[0].generation)
        seen = self._origins.get(origin)
        refusal = self._judge.unit(link, unit, origin, seen, fits=fits)
        if refusal is not None:
            # a closing that waits for `replication fork` comes later: nothing newer passes it
            waits = given[0].kind == KIND_CLOSED and refusal[0] == "fork"
            link.refused(origin, given[-1].last, "origin_gap" if waits else refusal[0])
            return [self._refused(ordinal + n, seen.position, *refusal) for n in range(len(given))]
        new = given[-1].last > seen.position
        self._prepare(link, origin, given if new else [], seen, changes=new)
        begun = len(self._to.batches)
        items = self._place_all(ordinal, given, bodies, origin)
        if len(given) > 1:
            self._bind(self._to.batches[begun:])
        if self._doubtful is not None:
            self._declare(self._doubtful)
        self.forks.finish(origin)
        if items[-1].code:  # a staged part or a commit, alone; or messages that the row covers
            link.refused(origin, given[-1].last, items[-1].code)
        here = self._to.settings.instance, self._to.generation
        if origin != here and origin not in self._origins.closed:
            self._run = (link, *origin, self._origins.of(origin))
        return items

    def _next(self, ordinal: int, link: LinkSession, r: Record, body: Body) -> m.ReceiptItem | None:
        """Places a record that is the next one of its origin, as was the last one of this link, and
        of its publisher; nearly all are. None: it is judged as others are.
        """
        to, (run, instance, generation, seen) = self._to, self._run
        known = to.sessions.get(r.publisher)
        if not (
            run is link and r.instance == instance and r.generation == generation
            and seen.digest == link.digest and to.accepting and to.decided
            and r.kind == KIND_PUBLISH and r.after == seen.position < r.position
            and (r.after_crc is None or r.after_crc == seen.crc)
            and r.skip == 0 == r.cut and 0 < r.count <= BATCH_COUNT_MAX
            and 0 <= r.flags <= FLAG_ZSTD
            and known is not None and known.named and known.name[0] != "$"
            and known.high < r.seq < _SAFE and 0 <= r.prev < r.seq and r.position < _SAFE
            and 0 <= r.session <= SESSION_MAX and 0 <= r.crc <= _U32
            and -U63_MAX <= r.log_time <= U63_MAX
            and r.columns is None and not r.extra
            and len(r.topics) == 1 and link.refuses_topics(r.topics) is None
        ):  # fmt: skip
            return None
        batch = self._copy(r, body)
        to.batches.append(batch)
        to.next_position = end = batch.position + r.count
        to.messages += r.count
        to.sessions.stored(known, batch)
        seen.position = seen.messages = seen.stored = seen.crc_at = r.position + r.count - 1
        seen.crc = r.crc
        known.remember(Recent(r.seq, r.count, r.crc, end - 1))
        return m.ReceiptItem(ordinal, end - 1, known.high)

    # -- placing ------------------------------------------------------------------------------

    def _prepare(
        self, link: LinkSession, origin: Origin, given: list[Record], seen: Seen, *, changes: bool
    ) -> None:
        """What must be in the log before a unit: names, and under which digest its origin is.
        changes: it has something that is not here."""
        self._doubtful = None
        if changes or not seen.position:
            self._take_under(origin, self._judge.digest_of(link, origin))
        for record in given if link.names else ():
            if record.kind in SEQUENCED and (name := link.names.pop(record.publisher, None)):
                known = self._to.sessions.adopt(record.publisher, name.name, name.principal)
                if not known.named:
                    self._to.name(known)

    def _declare(self, record: records.OriginRecord) -> None:
        self._to.control(KIND_ORIGIN, records.encode(record))
        self._to.sessions.declare(record, self._to.next_position - 1)

    def _bind(self, batches: list[Batch]) -> None:
        """They are one unit."""
        for batch in batches:
            batch.flags |= FLAG_UNIT
        if batches:
            batches[-1].flags &= ~FLAG_UNIT

    def _place_all(
        self, ordinal: int, given: list[Record], bodies: list[Body], origin: Origin
    ) -> list[m.ReceiptItem]:
        """A commit is the first of its unit: without it the rest is refused, too."""
        items = [self._place(ordinal, given[0], bodies[0], origin)]
        first = items[0]
        if first.code and is_commit(given[0]):
            rest = range(1, len(given))
            return items + [
                self._refused(ordinal + n, first.high, first.code, first.reason) for n in rest
            ]
        for number, (record, body) in enumerate(zip(given[1:], bodies[1:], strict=True), 1):
            items.append(self._place(ordinal + number, record, body, origin))
        return items

    def _place(self, ordinal: int, record: Record, body: Body, origin: Origin) -> m.ReceiptItem:
        seen = self._origins.get(origin)
        if record.last <= seen.position:
            taken = record.last - record.position + 1
            self._to.duplicates += taken
            return self._answer(ordinal, record, taken)
        if origin in self._origins.closed:
            return self._take(ordinal, record, body, origin)
        if record.kind == KIND_STAGED or is_commit(record):
            try:
                self._staging.place(record, body, seen.position)
            except ClientError as error:
                return self._refused(ordinal, seen.position, error.code, error.reason)
            return self._answer(ordinal, record, 0)
        if record.kind == KIND_PUBLISH:
            return self._store(ordinal, record, body, seen.position - record.position + 1)
        batch = self._copy(record, body)
        self._to.put(batch)
        self._origins.fold(batch)
        if record.kind == KIND_CLOSED:
            self.closed()
        return self._answer(ordinal, record, 0)

    def _take(self, ordinal: int, record: Record, body: Body, origin: Origin) -> m.ReceiptItem:
        """A record beyond the end of a generation: see forked_records.py."""
        try:
            here, doubtful = self.forks.place(record, body)
        except ClientError as error:
            seen = self._origins.high(origin)
            return self._refused(ordinal, seen, error.code, error.reason)
        if doubtful:
            return self._refused(ordinal, self._origins.high(origin), "hole_given_up", _GIVEN_UP)
        return self._answer(ordinal, record, here)

    def closed(self) -> None:
        """A generation was closed, which may be the one that comes now."""
        self._run = (None, 0, 0, Seen())

    def _take_under(self, origin: Origin, digest: int) -> None:
        """Records that are here stay; from here on those are taken that this digest wants."""
        if origin in self._origins.closed or self._origins.get(origin).digest == digest:
            return
        seen = self._origins.of(origin)
        since = seen.position + 1 if seen.position else 0
        self._declare(records.OriginRecord(*origin, digest, since, seen.position))

    def cover(self, by: CoveredBy) -> None:
        """The position moves without a record. What the link may not say changes nothing."""
        link, covered = by
        origin = Origin(covered.instance, covered.generation)
        if link.ended or not self._to.decided or not _is_origin(origin):
            return
        seen, position = self._origins.get(origin), covered.position
        judge = self._judge
        if judge.beyond_right(link, origin, position, seen) or judge.too_early(link, origin, seen):
            self._to.refused += 1
        elif seen.crc_at <= covered.after <= seen.position <= position <= U63_MAX:
            changes = seen.digest != judge.digest_of(link, origin)
            moves = position > seen.position or changes
            if not moves and not (covered.keep and position > seen.kept):
                return
            self._prepare(link, origin, [], seen, changes=moves)
            row = self._origins.of(origin)
            row.position = position
            if covered.keep:
                self._declare(records.OriginRecord(*origin, row.digest, row.since, position))

    def skip(self, ask: SkipMissing) -> None:
        """A person gave up a range at the source: it is missing from here on. Where the log has
        another end of that origin by now, nothing changes."""
        link = self.links.get(ask.link)
        origin = Origin(ask.instance, ask.generation)
        if link is None or link.ended or not self._to.decided or not _is_origin(origin):
            return
        seen = self._origins.get(origin)
        refusal = self._judge.beyond_right(link, origin, ask.last, seen)
        digest = self._judge.digest_of(link, origin)
        if refusal is not None and refusal[0] == OTHER_TOPICS and ask.last == seen.position:
            self._take_under(origin, digest)  # a person wants it by the topics of this link
            link.skipped(origin, ask.last)
        elif refusal is not None or not ask.last <= _SAFE:
            self._to.refused += 1
        elif ask.first <= seen.position + 1 <= ask.last and origin in self._origins.closed:
            self.forks.skip(origin, ask.last)
            self.forks.finish(origin)
        elif ask.first <= seen.position + 1 <= ask.last:
            gap = records.OriginRecord(
                *origin, digest, ask.last + 1, ask.last, skipped=seen.position + 1
            )
            link.skipped(origin, ask.last)
            self._declare(gap)

    def _refused(self, ordinal: int, seen: int, code: str, reason: str) -> m.ReceiptItem:
        self._to.refused += 1
        return m.ReceiptItem(ordinal, 0, seen, 0, code, reason)

    def _answer(self, ordinal: int, record: Record, duplicate: int) -> m.ReceiptItem:
        """It is as durable as everything before the next position."""
        known = self._to.sessions.get(record.publisher)
        high = known.high if known is not None else 0
        return m.ReceiptItem(ordinal, self._to.next_position - 1, high, duplicate)

    def _teach(self, link: LinkSession, ordinal: int, record: Record, body: Body) -> m.ReceiptItem:
        """Takes a name for this session; one with another owner is kept aside for people."""
        if wrong := outside(record):
            return self._refused(ordinal, 0, "bad_field", wrong)
        try:
            name = records.PUBLISHER.decode(body)
        except (DecodeError, UnicodeDecodeError) as error:
            return self._refused(ordinal, 0, "bad_field", f"not a publisher record: {error}")
        try:
            self._to.sessions.check_name(record.publisher, name.name, name.principal)
        except ClientError as error:
            if error.code == "principal_differs":
                entry = m.Entry(record.publisher, 0, 0, 0, None, record.crc, None, [])
                self._to.conflict(entry, body, 0)
            return self._refused(ordinal, 0, error.code, error.reason)
        known = self._to.sessions.get(record.publisher)
        if known is None or not known.named:
            if len(link.names) >= LINK_NAMES_MAX:
                reason = "too many names without a record; send records before more names"
                return self._refused(ordinal, 0, "too_many", reason)
            link.names[record.publisher] = name
        return self._answer(ordinal, record, 0)

    def _store(self, ordinal: int, record: Record, body: Body, seen: int) -> m.ReceiptItem:
        """Stores what is missing of a record and ties the rest; its first `seen` are here."""
        to, sessions = self._to, self._to.sessions
        known = sessions.meet(record.publisher)
        begins = record.seq - record.skip  # of the body
        first, last = record.seq + max(0, seen), record.seq + record.last - record.position
        missing, held, doubtful = sessions.runs(record.publisher, first, last)
        if held:
            self._compare(record, body, known, begins)
        whole = self._copy(record, body) if missing else None
        for run in sorted(missing + held):
            if run in missing and whole is not None:
                whole.prev = record.prev if run[0] == record.seq else run[0] - 1
                self._origins.fold(to.store_run(known, whole, begins, run))
            else:
                self._tie(record, run)
        duplicate = sum(end - begin + 1 for begin, end in held)
        to.duplicates += duplicate
        end = to.next_position - 1
        if missing:
            known.remember(Recent(begins, record.count, record.crc, end))
        if doubtful:
            return self._doubt(ordinal, record, doubtful[-1][1])
        return m.ReceiptItem(ordinal, end, known.high, duplicate)

    def _doubt(self, ordinal: int, record: Record, last: int) -> m.ReceiptItem:
        """It is not known whether messages up to sequence `last` are here: they are not stored."""
        at = record.position + last - record.seq
        row = self._origins.of(Origin(record.instance, record.generation))
        crc = kept_crc(record.extra, record.crc)
        self._doubtful = records.OriginRecord(
            record.instance, record.generation, row.digest, at + 1, at, crc
        )
        row.position = max(row.position, at)
        return self._refused(ordinal, row.position, "hole_given_up", _GIVEN_UP)

    def _copy(self, record: Record, body: Body) -> Batch:
        columns, log_time, extra = self._times_of(record)
        return Batch(
            record.kind, self._to.next_position, record.publisher, record.session, record.seq,
            record.prev, record.count, log_time, record.topics, body, record.crc, len(body),
            record.skip, record.flags & ~FLAG_UNIT, record.instance, record.generation,
            record.position, columns, extra, cut=record.cut,
        )  # fmt: skip

    def _times_of(self, record: Record) -> tuple[Columns | None, int, list[tuple[int, bytes]]]:
        """Columns, log time and further columns of a record as they go to this log."""
        columns, to, extra = record.columns, self._to, record.extra
        latest = U63_MAX if to.settings.publisher_time else to.wall_ns
        if extra:
            extra = [item for item in extra if item[0] != COLUMN_ORIGIN_TIME]
        if columns is None or columns.time is None:
            to.log_time = max(min(record.log_time, latest), to.log_time)
            if to.log_time != record.log_time:
                extra = [*extra, (COLUMN_ORIGIN_TIME, _I64.pack(record.log_time))]
            return columns, to.log_time, extra
        original = array("q", columns.time)
        times = to.rising(array("q", (min(time, latest) for time in original)))
        if times != original:
            extra = [*extra, (COLUMN_ORIGIN_TIME, original.tobytes())]
        return replace(columns, time=times.tobytes()), times[-1], extra

    def _tie(self, record: Record, run: Run) -> None:
        """Writes that messages which are here already have this origin, too: one record for each
        run of a topic, so that a link sends those of the messages that it carries."""
        former = [column for column in record.extra if column[0] == COLUMN_FORMER]
        body = record.seq - record.skip  # sequence of the first message
        for topic, begin, end in _topic_runs(record, run):
            routes = route_column.part(record.extra, record.count, begin - body, end + 1 - body)
            batch = Batch(
                KIND_TIE, self._to.next_position, record.publisher, record.session, end, begin - 1,
                end - begin + 1, self._to.now(), [topic], b"", 0, 0, end - begin, 0,
                record.instance, record.generation, record.position + end - record.seq, None,
                [content_column(kept_crc(record.extra, record.crc)), *former, *routes],
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


def _topic_runs(record: Record, run: Run) -> list[tuple[str, int, int]]:
    """A run of messages of a record by their topics: each with its first and last sequence."""
    begin, end = run
    if len(record.topics) == 1:
        return [(record.topics[0], begin, end)]
    index = topic_indexes(record.columns, record.count)
    body = record.seq - record.skip  # sequence of the first message
    found: list[tuple[str, int, int]] = []
    for number, places in groupby(range(begin, end + 1), lambda at: index[at - body]):
        of_topic = list(places)
        found.append((record.topics[number], of_topic[0], of_topic[-1]))
    return found


def _is_origin(origin: Origin) -> bool:
    return 0 <= origin.instance < 1 << 64 and 0 <= origin.generation < 1 << 32
