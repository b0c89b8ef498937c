"""Generations of which there will be no more: what the journal still has to know of them. Pure.

An instance begins a generation where its peers may hold more of it than its own log does. Once they
have all answered, and what they held is back, it writes a record: of this generation there is
nothing beyond `end`. In each log that record is after everything up to there. From then on the
generation needs no row that rises, no entry in a vector, and no line in what peers say to each
other; a record of it is a duplicate, or of a history that no other instance has (`fork`).

What another host has beyond that end may be taken again under names of a newer generation (see
forked_records.py); the old names stay what they are: a range that is not in the log (`forked`).

A vector without an entry for such a generation has passed it if its entry for the generation that
closed it is at or beyond the closing record: `fill` puts the entry back. So an entry is left out
only once that record is on another host, too: if it was lost with the disk that wrote it, the next
one would be of a generation that the vector does not name, and nothing could put the entry back.
Records of others are on two hosts when they are here; of its own ones an instance hears what its
peers hold (`copied`). CLOSED_MAX of each
instance are kept, so that old bookmarks stay good; a log of a start a day has that many after
three years.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from zbroker.ids import Origin

CLOSED_MAX: Final = 1_000  # of one instance; the oldest go


class ClosedRow(Struct, array_like=True, gc=False):
    """A closed generation in a state snapshot. by_generation, by_position: the record that closed
    it, in a later generation of the same instance. Other fields as in the row that it had; digest:
    1 if it was of several.

    beyond: up to here records after its end are in this log all the same, under their old names or
    taken again; 0: none is. crc: of the newest of all these, -1: not known. takes, host: on its own
    instance, up to where records that come from that instance are taken again. again_generation,
    again_position: the record that says that all up to `beyond` were.
    """

    instance: int
    generation: int
    end: int
    by_generation: int
    by_position: int
    position: int
    messages: int
    begun: int
    stored: int
    stored_begun: int
    digest: int = 0
    crc: int = -1
    beyond: int = 0
    takes: int = 0
    host: int = 0
    again_generation: int = 0
    again_position: int = 0

    @property
    def origin(self) -> Origin:
        """Whose row it was."""
        return Origin(self.instance, self.generation)

    @property
    def by(self) -> Origin:
        """The origin of the record that closed it."""
        return Origin(self.instance, self.by_generation)

    @property
    def again(self) -> Origin:
        """The origin of the record that says that all up to `beyond` was taken again."""
        return Origin(self.instance, self.again_generation)

    @property
    def reach(self) -> int:
        """Up to where its records are here, under whatever name."""
        return max(self.end, self.beyond)

    @property
    def is_taking(self) -> bool:
        """Whether its host has more of it, which comes."""
        return self.takes > self.beyond

    def takes_from(self, peer: int, last: int) -> bool:
        """Whether a record up to `last` is taken again, from this instance."""
        return self.host == peer and last <= self.takes

    def passed_again(self, vector: Mapping[Origin, int]) -> bool:
        """Whether a vector has passed all that was taken again of it."""
        return 0 < self.again_position <= vector.get(self.again, 0)

    def passed_by(self, vector: Mapping[Origin, int], *, again: bool = True) -> int:
        """How much of it a vector has passed that need not name it; 0: not even its end. again:
        whether it may name the record that all beyond the end was taken again."""
        if again and self.passed_again(vector):
            return max(self.reach, self.position)
        if vector.get(self.by, 0) >= self.by_position:
            return max(self.end, self.position)
        return 0


class _EndRecord(NamedTuple):
    """What says how the generation `of` ended: the record at `at` of `by`; at 0: none does."""

    of: Origin
    by: Origin
    at: int


def _records(row: ClosedRow) -> tuple[_EndRecord, _EndRecord]:
    """The one that closed it, and the one that says that what was beyond its end is here again."""
    return (
        _EndRecord(row.origin, row.by, row.by_position),
        _EndRecord(row.origin, row.again, row.again_position),
    )


class ClosedGenerations:
    """Those of one log, in the order in which they were closed."""

    def __init__(self) -> None:
        self._rows: dict[Origin, ClosedRow] = {}
        self._count: dict[int, int] = {}  # of each instance
        self.still_named: dict[Origin, int] = {}  # messages that vectors have to name
        self.changes = 0  # since the start
        self._instance = 0  # this one, if it has peers
        self._copied: dict[int, int] = {}  # of its generations, up to where some peer has them
        self._alone: set[_EndRecord] = set()  # those that no peer has yet

    def __contains__(self, origin: Origin) -> bool:
        return origin in self._rows

    def __iter__(self) -> Iterator[ClosedRow]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, origin: Origin) -> ClosedRow | None:
        """The row of a closed generation; None of one that is open, or unknown."""
        return self._rows.get(origin)

    def add(self, row: ClosedRow) -> None:
        """It is closed. One that is known is replaced, as by a snapshot."""
        if row.origin not in self._rows:
            self._count[row.instance] = self._count.get(row.instance, 0) + 1
        self._rows[row.origin] = row
        self.changed(row)
        if self._count[row.instance] > CLOSED_MAX:
            oldest = next(one for one in self._rows if one.instance == row.instance)
            del self._rows[oldest]
            self.still_named.pop(oldest, None)
            self._alone = {one for one in self._alone if one.of != oldest}
            self._count[row.instance] -= 1

    def changed(self, row: ClosedRow) -> None:
        """More is known of a row."""
        self.changes += 1
        self._look(row)

    # -- what is on another host, too ---------------------------------------------------------

    def copied(self, instance: int, generations: Mapping[int, int] | None) -> None:
        """How far peers have the generations of this instance, which only rises; None: it has no
        peers, or all of them are gone for good, so nothing is waited for."""
        instance, generations = (0, {}) if generations is None else (instance, generations)
        other, self._instance = instance != self._instance, instance
        self._copied = dict(generations)
        # the newest first: a peer that has the record that closed a generation has all of that one
        for row in [*reversed(self._rows.values())] if other or self._alone else ():
            if other or not self._alone.isdisjoint(_records(row)):
                self._look(row)

    def _look(self, row: ClosedRow) -> None:
        """Which of the records that say how it ended are here alone."""
        for one in _records(row):
            if self._is_copied(one):
                self._alone.discard(one)
            else:
                self._alone.add(one)
        under_old_names = row.messages > max(row.end, row.position) and not self.is_again(row)
        if row.messages and (under_old_names or not self.may_be_left_out(row)):
            self.still_named[row.origin] = row.messages
        else:
            self.still_named.pop(row.origin, None)

    def _is_copied(self, one: _EndRecord) -> bool:
        if one.by.instance != self._instance or one.at <= self._copied.get(one.by.generation, 0):
            return True
        row = self._rows.get(one.by)  # peers name the newest ones only
        return row is not None and one.at <= row.end and _records(row)[0] not in self._alone

    def may_be_left_out(self, row: ClosedRow) -> bool:
        """Whether a vector that has passed the record that closed it may do without its name. One
        without messages needs none."""
        return _records(row)[0] not in self._alone or not row.stored

    def is_again(self, row: ClosedRow) -> bool:
        """Whether what was beyond its end is here again, and a vector may name the record of that
        instead."""
        return row.again_position > 0 and _records(row)[1] not in self._alone

    def take(self, origin: Origin, last: int, host: int) -> None:
        """Records beyond the end up to `last` are taken again, from the instance `host`."""
        if (row := self._rows.get(origin)) is not None:
            row.takes, row.host = last, host
            self.changed(row)

    @property
    def is_taking(self) -> bool:
        """Whether records beyond some end are being taken again."""
        return any(row.is_taking for row in self._rows.values())

    def forked(self) -> Iterator[ClosedRow]:
        """Those of which some host had records beyond the end."""
        return (row for row in self._rows.values() if max(row.beyond, row.takes) > row.end)

    def generations_of(self, instance: int) -> list[int]:
        """The closed generations of an instance."""
        return [origin.generation for origin in self._rows if origin.instance == instance]

    def newest_forgotten(self, instance: int) -> int:
        """Generations of the instance below this one may have been closed, and forgotten; 0: none
        was."""
        if self._count.get(instance, 0) < CLOSED_MAX:
            return 0
        return min(one.generation for one in self._rows if one.instance == instance)

    def segment_begins(self, messages: Mapping[Origin, int], stored: Mapping[Origin, int]) -> None:
        """A segment has begun, and the open generations were here up to these positions."""
        for origin, row in self._rows.items():
            row.begun = messages.get(origin, row.messages)
            row.stored_begun = stored.get(origin, row.stored)

    def fill(self, vector: Mapping[Origin, int]) -> dict[Origin, int]:
        """The vector with its entries for the closed generations that it has passed."""
        filled = dict(vector)
        for row in reversed(self._rows.values()):
            known = filled.get(row.origin, 0)
            if row.origin in filled and not row.passed_again(filled):
                continue
            if (passed := row.passed_by(filled)) > known:
                filled[row.origin] = passed
        return filled

    def compact(self, vector: Mapping[Origin, int]) -> dict[Origin, int]:
        """The vector without the entries that `fill` puts back, on each host that is left."""
        left = dict(vector)
        for row in self._rows.values():
            passed = row.passed_by(left, again=self.is_again(row))
            if self.may_be_left_out(row) and row.messages <= left.get(row.origin, 0) <= passed:
                left.pop(row.origin, None)
        return left
