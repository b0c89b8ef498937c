"""How far the records of each origin are here; and ties. Pure.

A record keeps its origin (instance, generation, position) wherever it is copied to, and the records
of one origin arrive everywhere in the order of their positions. So one number per origin says what
of it is here, and a vector of these numbers means the same set of messages on every instance.

A row is (digest, position, since): all that the filter with this digest wants of the origin, of the
kinds that travel, from `since` up to `position` is here. Digest 0 is everything. What the filter
leaves out is not logged: the position moves with the next record, or by what a peer says it has
covered, which is in memory and in snapshots only. A row also has the content CRC of the newest
record that travels: two histories with one name differ in it.

A publisher that fails over may have one message accepted by two instances. The first arrival is
stored; of the second only a tie is written: "this message has that origin, too". Without it, a
vector that counts the message under its other origin would have it delivered, or purged, twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import DecodeError, Struct

from zbroker.ids import Origin
from zbroker.journal.closed_generations import ClosedGenerations, ClosedRow
from zbroker.limits import U63_MAX
from zbroker.log.format import KIND_NOOP, KIND_PUBLISH, KIND_TIE, STAYS, Batch
from zbroker.log.former_names import former_ends, former_names
from zbroker.log.generations import Generations
from zbroker.log.records import CLOSED, ClosedRecord, OriginRecord

_MESSAGES: Final = (KIND_PUBLISH, KIND_TIE)
TIES_MAX: Final = 10_000  # the newest; each is a batch that two instances accepted


class OriginRow(Struct, array_like=True, gc=False):
    """An origin in a state snapshot: its records up to `position` are here; messages: the same.

    Control records are not all copied, so only the second means the same on every instance.
    begun: messages, when the snapshot's segment began; -1 if that is not known. crc: content CRC of
    the newest record that travels, which ends at `crc_at`; -1: not known, as in older snapshots.
    stored, stored_begun: as `messages` and `begun`, without ties, whose messages are here with
    another origin; -1 in snapshots of before. mixed: 1 if it was under other digests before; a
    number, as readers of snapshots decode all fields as one.
    """

    instance: int
    generation: int
    position: int
    messages: int = 0
    begun: int = -1
    digest: int = 0
    since: int = 0
    crc: int = -1
    crc_at: int = 0
    stored: int = -1
    stored_begun: int = -1
    mixed: int = 0

    @property
    def of_stored(self) -> int:
        """`stored`, or what is never below it."""
        return self.stored if self.stored >= 0 else self.messages

    @property
    def of_stored_begun(self) -> int:
        """The same when the segment began."""
        return self.stored_begun if self.stored_begun >= 0 else self.begun


class Tie(Struct, array_like=True, gc=False, frozen=True):
    """Messages [first, last] of a publisher have this origin, too, `first` at `position` there.

    at: where in this log that is written. State snapshots hold ties as they are.
    """

    publisher: int
    first: int
    last: int
    instance: int
    generation: int
    position: int
    at: int

    @property
    def origin(self) -> Origin:
        """The other origin of these messages."""
        return Origin(self.instance, self.generation)


class Seen(Struct):
    """How far one origin is here; fields as in its row."""

    position: int = 0
    messages: int = 0
    digest: int = 0
    since: int = 0
    crc: int = -1
    crc_at: int = 0
    stored: int = 0
    mixed: int = 0
    kept: int = 0  # the position as the log says it, without what was covered since


class Origins:
    """The origins of one log. `ties` are the newest ones; `forgotten` counts the others.

    A message whose tie was given up may be delivered again to a client that resumes by a vector
    from another instance that is as old as the tie: again, but never not at all.
    """

    def __init__(self, instance: int = 0) -> None:
        self.instance = instance
        self.history = Generations()  # of this instance, as its segments say
        self.closed = ClosedGenerations()
        self.ties: list[Tie] = []
        self.forgotten = 0
        self.begun: dict[Origin, int] | None = {}  # `messages` when the newest segment began
        self.stored_begun: dict[Origin, int] = {}  # `stored` then, if `begun` is known
        self.begun_serial = 0  # of that segment
        self._seen: dict[Origin, Seen] = {}
        self._run = Origin(0, 0)  # of the last batch: mostly the next one has it, too
        self._of_run = Seen()

    def fold(self, batch: Batch) -> None:
        """Learns from one batch of the log, in log order."""
        if (batch.origin_instance, batch.origin_generation) != self._run:
            self._run = batch.origin
            self._of_run = self.of(self._run) if batch.origin_instance else Seen()
        seen, last = self._of_run, batch.origin_position + batch.taken - 1
        seen.position = max(seen.position, last)
        if last > seen.crc_at and batch.kind not in STAYS:
            seen.crc, seen.crc_at = batch.content_crc, last
        if batch.extra:
            self.fold_former(batch)
        if batch.kind in _MESSAGES:
            seen.messages = max(seen.messages, last)
            if batch.kind == KIND_TIE:
                self.tie(tie_of(batch))
            else:
                seen.stored = max(seen.stored, last)

    def fold_former(self, batch: Batch) -> None:
        """Its records were beyond the end of a generation that is closed, and are here again."""
        for origin, last in former_ends(batch):
            row = self.closed.get(origin)
            if row is not None and last > row.reach:
                row.beyond, row.crc = last, batch.content_crc
                self.closed.changed(row)
        if batch.kind in (KIND_NOOP, KIND_TIE) and batch.sequence:
            first = batch.sequence - batch.skip
            for name in former_names(batch.extra):
                tie = batch.publisher, first, batch.sequence, *name.origin, name.of(first)
                self.tie(Tie(*tie, batch.position))

    def of(self, origin: Origin) -> Seen:
        """The row of an origin; an empty one if it is new. A closed generation has none: changes
        of the answer are lost."""
        if origin in self.closed:
            return self.get(origin)
        return self._seen.setdefault(origin, Seen())

    def get(self, origin: Origin) -> Seen:
        """The same without a change: it is to be read only."""
        if (row := self.closed.get(origin)) is not None:
            return Seen(row.reach, row.messages, crc=row.crc, crc_at=row.reach, stored=row.stored)
        return self._seen.get(origin) or Seen()

    @property
    def open_rows(self) -> dict[Origin, Seen]:
        """The rows that may rise; to be read only."""
        return self._seen

    def newest_generations(self) -> dict[int, int]:
        """The newest one of each instance that this log knows."""
        found: dict[int, int] = {}
        for instance, generation in (*self._seen, *(row.origin for row in self.closed)):
            found[instance] = max(generation, found.get(instance, 0))
        return found

    def open_generations(self) -> dict[int, Seen]:
        """The rows of the generations of this instance that are not closed."""
        seen = self._seen.items()
        return {origin.generation: row for origin, row in seen if origin.instance == self.instance}

    def fold_closed(self, batch: Batch) -> None:
        """Learns from a closing record. One whose body is damaged leaves the row as it is."""
        with suppress(DecodeError, UnicodeDecodeError):
            record = CLOSED.decode(batch.body)
            self.close(Origin(batch.origin_instance, record.generation), record, batch)

    def close(self, origin: Origin, record: ClosedRecord, by: Batch) -> None:
        """A generation has ended. Vectors that pass the record which says so need no entry for it,
        so they have one for that record, also if no message follows it. So with a later one, which
        says that what some host had beyond that end is here again."""
        closing = self.of(by.origin)
        closing.messages = max(closing.messages, by.origin_position)
        if (row := self.closed.get(origin)) is not None:
            if record.forked:
                row.beyond = max(row.beyond, record.forked)
                row.again_generation, row.again_position = by.origin_generation, by.origin_position
                if row.beyond >= row.takes:
                    row.takes = row.host = 0
                self.closed.changed(row)
            return
        end, seen = record.end, self._seen.pop(origin, Seen())
        beyond = seen.crc_at if seen.crc_at > end else 0
        begun, stored_begun = (
            (-1, -1) if self.begun is None
            else (self.begun.get(origin, 0), self.stored_begun.get(origin, 0))
        )  # fmt: skip
        self.closed.add(
            ClosedRow(
                *origin, end, by.origin_generation, by.origin_position,
                end if beyond else seen.position, seen.messages, begun, seen.stored, stored_begun,
                seen.mixed or seen.digest, seen.crc if seen.crc_at == max(end, beyond) else -1,
                beyond,
            )
        )  # fmt: skip
        self._run, self._of_run = Origin(0, 0), Seen()

    def fold_closed_row(self, row: ClosedRow) -> None:
        """Learns from a snapshot, as of its place."""
        self.closed.add(row)
        self._seen.pop(row.origin, None)
        self._run, self._of_run = Origin(0, 0), Seen()

    def declare(self, record: OriginRecord) -> None:
        """What a row means from here on. The CRC of another filter's newest record says nothing."""
        origin = Origin(record.instance, record.generation)
        if record.forked:
            self.closed.take(origin, record.position, record.forked)
            return
        seen = self.of(origin)
        if record.digest != seen.digest:
            seen.crc, seen.crc_at = -1, 0
            seen.mixed = seen.mixed or int(seen.position > 0)
        seen.digest, seen.since = record.digest, record.since
        seen.position = max(seen.position, record.position)
        seen.kept = max(seen.kept, record.position)
        if record.skipped and record.position > seen.crc_at:
            seen.crc, seen.crc_at = -1, record.position  # a record ended there that is not here
        if record.crc >= 0 and record.position > seen.crc_at:
            seen.crc, seen.crc_at = record.crc, record.position

    def meet(self, begins: Iterable[tuple[int, int]]) -> None:
        """Notes own generations and where they begin: snapshots name also those without a record.

        When their segments are removed, nothing else says that they were of this log.
        """
        for generation, first in begins:
            self.of(Origin(self.instance, generation))  # of a closed one that changes nothing
            self.history.begin(generation, first)

    def note_own(self, batches: Sequence[Batch], generation: int) -> bool:
        """Learns from a group that was placed here; those of other origins were folded already.

        Returns: whether there is a message of this instance in it.
        """
        for batch in reversed(batches):
            if batch.origin_instance == self.instance and batch.origin_generation == generation:
                self.fold(batch)
                if batch.kind == KIND_PUBLISH:
                    return True
        return False

    def begin_segment(self, serial: int) -> None:
        """Batches that are folded from now on are in segment `serial`, which begins here."""
        self.segment_began(serial, self.messages, self.stored)

    def segment_began(
        self, serial: int, messages: dict[Origin, int], stored: dict[Origin, int]
    ) -> None:
        """The newest segment is `serial`; before its first batch the open generations were here up
        to these positions."""
        self.begun_serial, self.begun, self.stored_begun = serial, messages, stored
        self.closed.segment_begins(messages, stored)

    def high(self, origin: Origin) -> int:
        """Records of this origin up to here were seen; 0 if none was."""
        return self.get(origin).position

    @property
    def vector(self) -> dict[Origin, int]:
        """How far the log goes, per origin, also of closed generations."""
        return self.with_closed(self.open_vector)

    def with_closed(self, vector: Mapping[Origin, int]) -> dict[Origin, int]:
        """A vector of open generations, and the closed ones."""
        return {row.origin: row.position for row in self.closed} | dict(vector)

    @property
    def open_vector(self) -> dict[Origin, int]:
        """The same without closed generations, of which there may be many: for each group."""
        return {origin: seen.position for origin, seen in self._seen.items()}

    @property
    def messages(self) -> dict[Origin, int]:
        """The vector of a subscriber that has read the whole log. Closed generations are left out,
        but for what `fill` does not put back: see ClosedGenerations."""
        found = {origin: seen.messages for origin, seen in self._seen.items() if seen.messages}
        return found | self.closed.still_named

    @property
    def stored(self) -> dict[Origin, int]:
        """The same without ties: it covers every message by the origin that it is stored with."""
        return {origin: seen.stored for origin, seen in self._seen.items() if seen.stored}

    @property
    def all_messages(self) -> dict[Origin, int]:
        """`messages`, with closed generations."""
        return {row.origin: row.messages for row in self.closed if row.messages} | self.messages

    @property
    def all_stored(self) -> dict[Origin, int]:
        """`stored`, with closed generations."""
        return {row.origin: row.stored for row in self.closed if row.stored} | self.stored

    @property
    def foreign(self) -> bool:
        """True if anything came from a peer, also if that is of an older own generation: what a
        disk that was set back had lost."""
        ends = self.history.end if self.history.begins else lambda _: U63_MAX
        return any(
            origin.instance != self.instance or position >= max(1, ends(origin.generation))
            for origin, position in self.vector.items()
        )

    @property
    def is_empty(self) -> bool:
        """No record that travels is here."""
        return not any(seen.crc_at or seen.messages for seen in self._seen.values())

    def is_own(self, batch: Batch) -> bool:
        """True if this log gave its position; False also for what comes back of an older
        generation."""
        if not batch.origin_instance or not self.history.begins:
            return batch.origin_instance in (0, self.instance)
        generation = self.history.of(batch.position)
        return batch.origin == (self.instance, generation)

    def tie(self, tie: Tie) -> None:
        """Notes a tie, once; the oldest go when there are too many."""
        if self.ties and tie.at <= self.ties[-1].at:
            if any((known.at, known.origin) == (tie.at, tie.origin) for known in self.ties):
                return
            self.ties = sorted([*self.ties, tie], key=lambda known: known.at)
        else:
            self.ties.append(tie)
        if len(self.ties) > TIES_MAX:
            self.forgotten += 1
            del self.ties[0]

    # -- snapshots ----------------------------------------------------------------------------

    def rows(self) -> Iterable[OriginRow]:
        """What a snapshot tells of origins."""
        begun, known = self.begun or {}, self.begun is not None
        for origin, seen in self._seen.items():
            then = begun.get(origin, 0) if known else -1
            stored_then = self.stored_begun.get(origin, 0) if known else -1
            yield OriginRow(
                *origin, seen.position, seen.messages, then, seen.digest, seen.since, seen.crc,
                seen.crc_at, seen.stored, stored_then, seen.mixed,
            )  # fmt: skip

    def fold_row(self, row: OriginRow) -> None:
        """Learns from a snapshot, as of its place. Positions only rise."""
        seen = self.of(Origin(row.instance, row.generation))  # of a closed one it changes nothing
        seen.position = max(seen.position, row.position)
        seen.kept = max(seen.kept, row.position)
        seen.messages = max(seen.messages, row.messages)
        seen.stored = max(seen.stored, row.of_stored)
        seen.digest, seen.since, seen.mixed = row.digest, row.since, row.mixed
        if row.crc_at > seen.crc_at:
            seen.crc, seen.crc_at = row.crc, row.crc_at


def tie_of(batch: Batch) -> Tie:
    """What a tie record says: of its messages only the last one takes a position."""
    first, position = batch.sequence - batch.skip, batch.origin_position - batch.skip
    return Tie(batch.publisher, first, batch.sequence, *batch.origin, position, batch.position)
