"""Which local position is which message of which origin, for the messages of one queue. Pure.

    local        first | count | origin | first at the origin         by local position
    origin       first | count | local                                of each origin, and of ties
    publisher    first | count | local                                by sequence, to find ties

A run is a stretch of messages whose local positions, origin positions and sequences rise together;
neighbours that go on are one run. Records of one origin are in the log in the order of their origin
positions, so all but the last table grow at their end. What left the queue is swept out when the
tables have become twice as long. BYTES_A_RUN is the budget; a run is a batch at most, and mostly
many of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import msgpack
from pyroaring import BitMap64

from zbroker.ids import Origin, Vector
from zbroker.log.records import runs_of
from zbroker.queues.work.sets import first_of, span

BYTES_A_RUN: Final = 64
SWEEP_MIN: Final = 1_024  # runs that are not looked at again


class Part(NamedTuple):
    """Neighbours in both orders: `size` of them from `first`, which is at `local`."""

    first: int
    local: int
    size: int


class RunTable:
    """Runs of one order, each with the local position of its first message."""

    __slots__ = ("counts", "firsts", "locals")

    def __init__(self) -> None:
        self.firsts, self.counts, self.locals = array("q"), array("q"), array("q")

    def add(self, first: int, count: int, local: int) -> None:
        """A run; none of it is in the table."""
        firsts, counts, locals_ = self.firsts, self.counts, self.locals
        at = len(firsts)
        if at and first < firsts[-1]:
            at = bisect_right(firsts, first)
        before = at - 1
        if at and firsts[before] + counts[before] == first and (
            locals_[before] + counts[before] == local
        ):  # fmt: skip
            counts[before] += count
            return
        firsts.insert(at, first)
        counts.insert(at, count)
        locals_.insert(at, local)

    def parts(self, first: int, end: int) -> Iterator[Part]:
        """What the table knows of [first, end), in order."""
        firsts, counts, locals_ = self.firsts, self.counts, self.locals
        at = max(0, bisect_right(firsts, first) - 1)
        while at < len(firsts) and firsts[at] < end:
            begin, stop = max(first, firsts[at]), min(end, firsts[at] + counts[at])
            if begin < stop:
                yield Part(begin, locals_[at] + begin - firsts[at], stop - begin)
            at += 1

    def sweep(self, here: BitMap64) -> None:
        """Forgets runs of which no message is here."""
        rows = zip(self.firsts, self.counts, self.locals, strict=True)
        kept = [row for row in rows if here.range_cardinality(row[2], row[2] + row[1])]
        self.firsts, self.counts, self.locals = (
            array("q", [row[column] for row in kept]) for column in range(3)
        )

    def __len__(self) -> int:
        return len(self.firsts)

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """For `load`."""
        return self.firsts.tobytes(), self.counts.tobytes(), self.locals.tobytes()

    def load(self, firsts: bytes, counts: bytes, locals_: bytes) -> None:
        """Raises: ValueError."""
        for column, data in ((self.firsts, firsts), (self.counts, counts), (self.locals, locals_)):
            column.frombytes(data)
        if not len(self.firsts) == len(self.counts) == len(self.locals):
            raise ValueError("runs of a queue are not complete")


class OriginRuns:
    """The names of messages that entered one queue."""

    def __init__(self) -> None:
        self._local = RunTable()  # `locals` are positions at the origin
        self._origins = array("q")  # of each run of _local, an index of _known
        self._known: list[Origin] = []
        self._numbers: dict[Origin, int] = {}
        self._of: dict[Origin, RunTable] = {}
        self._published: dict[int, RunTable] = {}
        self._swept = 0  # runs that were left by the last sweep

    def add(
        self, local: int, origin: Origin, first: int, count: int, sent: tuple[int, int]
    ) -> None:
        """Messages of one batch. first: at their origin. sent: publisher, first sequence."""
        number = self._numbers.get(origin)
        if number is None:
            number = self._numbers[origin] = len(self._known)
            self._known.append(origin)
        table, size = self._local, len(self._local)
        joins = size and self._origins[-1] == number
        if joins and table.firsts[-1] + table.counts[-1] == local and (
            table.locals[-1] + table.counts[-1] == first
        ):  # fmt: skip
            table.counts[-1] += count
        else:
            table.firsts.append(local)
            table.counts.append(count)
            table.locals.append(first)
            self._origins.append(number)
        self._table(self._of, origin).add(first, count, local)
        self._table(self._published, sent[0]).add(sent[1], count, local)

    @staticmethod
    def _table(tables: dict, key: object) -> RunTable:  # type: ignore[type-arg]
        found: RunTable | None = tables.get(key)
        if found is None:
            found = tables[key] = RunTable()
        return found

    def tie(self, origin: Origin, first: int, count: int, sent: tuple[int, int]) -> BitMap64:
        """Messages that are here have this origin, too. Returns: where they are."""
        found = BitMap64()
        published = self._published.get(sent[0])
        if published is None:
            return found
        for part in [*published.parts(sent[1], sent[1] + count)]:
            at_origin = first + part.first - sent[1]
            self._table(self._of, origin).add(at_origin, part.size, part.local)
            found.add_range(part.local, part.local + part.size)
        return found

    def local(self, origin: Origin, positions: BitMap64) -> BitMap64:
        """Where messages of an origin are; those that are not known are left out."""
        found = BitMap64()
        table = self._of.get(origin)
        if table is None:
            return found
        for first, end in runs_of(positions):
            for part in table.parts(first, end):
                found.add_range(part.local, part.local + part.size)
        return found

    def covered(self, vector: Mapping[Origin, int]) -> BitMap64:
        """Where the known messages are that a vector covers, by any of their names."""
        found = BitMap64()
        for origin, at in vector.items():
            table = self._of.get(origin)
            for part in table.parts(1, at + 1) if table is not None else ():
                found.add_range(part.local, part.local + part.size)
        return found

    def passed(self, position: int) -> Vector:
        """A vector that covers the known messages before this position, and none after it."""
        table, found = self._local, {}
        for at in range(bisect_left(table.firsts, position) - 1, -1, -1):
            origin = self._known[self._origins[at]]
            if origin not in found:
                count = min(table.counts[at], position - table.firsts[at])
                found[origin] = table.locals[at] + count - 1
                if len(found) == len(self._known):
                    break
        return found

    def first(self, origin: Origin, first: int, end: int, among: BitMap64) -> int | None:
        """The first of [first, end) at an origin that is one of these messages here."""
        table = self._of.get(origin)
        for part in table.parts(first, end) if table is not None else ():
            local = first_of(among, part.local)
            if local is not None and local < part.local + part.size:
                return part.first + local - part.local
        return None

    def names(self, positions: BitMap64) -> dict[Origin, BitMap64]:
        """The other way round: all of these positions are known."""
        found: dict[Origin, BitMap64] = {}
        for origin, begin, stop, shift in self._stretches(positions):
            found.setdefault(origin, BitMap64()).add_range(begin + shift, stop + shift)
        return found

    def all_names(self, positions: BitMap64) -> dict[Origin, BitMap64]:
        """The same with the names that other instances gave them, if several accepted them."""
        found: dict[Origin, BitMap64] = {}
        for origin, table in self._of.items():
            named = BitMap64()
            for first, count, local in zip(table.firsts, table.counts, table.locals, strict=True):
                if positions.range_cardinality(local, local + count):
                    for begin, stop in runs_of(positions & span(local, local + count)):
                        named.add_range(begin - local + first, stop - local + first)
            if named:
                found[origin] = named
        return found

    def by_instance(self, positions: BitMap64) -> dict[int, BitMap64]:
        """Local positions by the instance that accepted them, as they are stored here."""
        found: dict[int, BitMap64] = {}
        for origin, begin, stop, _ in self._stretches(positions):
            found.setdefault(origin.instance, BitMap64()).add_range(begin, stop)
        return found

    def instances(self) -> set[int]:
        """Those that accepted some of the messages."""
        return {origin.instance for origin, table in self._of.items() if len(table)}

    def _stretches(self, positions: BitMap64) -> Iterator[tuple[Origin, int, int, int]]:
        """Neighbours of one run: local positions [begin, stop), and how far the origin's are."""
        table, origins = self._local, self._origins
        for first, end in runs_of(positions):
            at = max(0, bisect_right(table.firsts, first) - 1)
            while at < len(table) and table.firsts[at] < end:
                begin = max(first, table.firsts[at])
                stop = min(end, table.firsts[at] + table.counts[at])
                if begin < stop:
                    shift = table.locals[at] - table.firsts[at]
                    yield self._known[origins[at]], begin, stop, shift
                at += 1

    def sweep(self, here: BitMap64) -> None:
        """Forgets what left the queue, if that may be half of all."""
        if len(self._local) < 2 * self._swept + SWEEP_MIN:
            return
        rows = zip(
            self._local.firsts, self._local.counts, self._local.locals, self._origins, strict=True
        )
        kept = [row for row in rows if here.range_cardinality(row[0], row[0] + row[1])]
        self._local = RunTable()
        self._local.firsts = array("q", [row[0] for row in kept])
        self._local.counts = array("q", [row[1] for row in kept])
        self._local.locals = array("q", [row[2] for row in kept])
        self._origins = array("q", [row[3] for row in kept])
        for tables in (self._of, self._published):
            for key in [*tables]:
                tables[key].sweep(here)
                if not len(tables[key]):
                    del tables[key]
        self._swept = len(self._local)

    def memory_bytes(self) -> int:
        """Roughly."""
        others = sum(map(len, self._of.values())) + sum(map(len, self._published.values()))
        return 32 * len(self._local) + 24 * others

    def dump(self) -> bytes:
        """For `load`."""
        return msgpack.encode([
            self._known, self._local.dump(), self._origins.tobytes(), self._swept,
            [(*origin, *table.dump()) for origin, table in self._of.items()],
            [(publisher, *table.dump()) for publisher, table in self._published.items()],
        ])  # fmt: skip

    def load(self, data: bytes) -> None:
        """What `dump` gave; nothing else was done before. Raises: ValueError."""
        known, local, origins, self._swept, tables, published = msgpack.decode(data, type=_Dump)
        self._known = [Origin(*origin) for origin in known]
        self._numbers = {origin: number for number, origin in enumerate(self._known)}
        self._local.load(*local)
        self._origins.frombytes(origins)
        if len(self._origins) != len(self._local):
            raise ValueError("runs of a queue are not complete")
        for instance, generation, *columns in tables:
            self._table(self._of, Origin(instance, generation)).load(*columns)
        for publisher, *columns in published:
            self._table(self._published, publisher).load(*columns)

    def check(self, here: BitMap64) -> None:
        """Asserts what is always true: each message here has a name, which leads back to it."""
        named = self.names(here)
        assert sum(map(len, named.values())) == len(here)
        for origin, positions in named.items():
            assert self.local(origin, positions).issubset(here)


_Columns = tuple[bytes, bytes, bytes]
_Dump = tuple[
    list[tuple[int, int]], _Columns, bytes, int,
    list[tuple[int, int, bytes, bytes, bytes]], list[tuple[int, bytes, bytes, bytes]],
]  # fmt: skip
