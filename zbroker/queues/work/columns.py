"""A number for each of many positions, in typed arrays. Pure.

    chunk   first | offsets u32 | numbers 64 bits       at most CHUNK rows, sorted by position

12 bytes a message, and 2 or so for the set of those that have one; 0 is not stored. Rows of what
was dropped stay until most of a chunk is dropped, so dropping costs no look at single rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct
from pyroaring import BitMap64

from zbroker.queues.work.sets import bytes_of, insert, remove

CHUNK: Final = 1_024
_FAR: Final = (1 << 32) - 1  # the largest offset

Kind = Literal["Q", "q"]


class _Chunk(Struct):
    """alive: rows that were not dropped."""

    first: int
    offsets: array[int]
    numbers: array[int]
    alive: int


class NumberColumn:
    """`known`: positions with a number other than 0. kind: "Q" is unsigned, "q" is signed."""

    def __init__(self, kind: Kind = "Q") -> None:
        self.known = BitMap64()
        self._kind: Kind = kind
        self._firsts: list[int] = []
        self._chunks: list[_Chunk] = []

    def put(self, positions: BitMap64, numbers: Sequence[int]) -> None:
        """Gives positions these numbers, aligned with the sorted positions; 0 takes it away."""
        self.drop(positions)
        pairs = [pair for pair in zip(positions, numbers, strict=True) if pair[1]]
        if not pairs:
            return
        if self._chunks and pairs[0][0] <= self._last():
            for position, number in pairs:
                self._insert(position, number)
        else:
            self._append(pairs)
            insert(self.known, BitMap64([position for position, _ in pairs]))

    def of(self, positions: BitMap64) -> list[int]:
        """The numbers of positions, aligned with them; 0 where there is none."""
        found, known = [], self.known
        chunk, stop = None, -1
        for position in positions:
            if position not in known:
                found.append(0)
                continue
            if position >= stop:
                at = bisect_right(self._firsts, position) - 1
                chunk = self._chunks[at]
                stop = self._firsts[at + 1] if at + 1 < len(self._firsts) else 1 << 64
            assert chunk is not None
            row = bisect_left(chunk.offsets, position - chunk.first)
            found.append(chunk.numbers[row])
        return found

    def get(self, position: int) -> int:
        """The number of one position, or 0."""
        return self.of(BitMap64([position]))[0]

    def drop(self, positions: BitMap64) -> None:
        """They have none any more."""
        part = positions & self.known
        if not part:
            return
        remove(self.known, part)
        last = part.max()
        at = max(0, bisect_right(self._firsts, part.min()) - 1)
        while at < len(self._chunks) and self._firsts[at] <= last:
            stop = self._firsts[at + 1] if at + 1 < len(self._firsts) else 1 << 63
            chunk = self._chunks[at]
            chunk.alive -= part.range_cardinality(chunk.first, stop)
            if not chunk.alive:
                del self._chunks[at], self._firsts[at]
                continue
            if 4 * chunk.alive < len(chunk.offsets):
                self._compact(chunk)
            at += 1

    def rows(self, start: int) -> Iterator[tuple[int, int]]:
        """Position and number, from `start` on, in order. Must not be changed meanwhile."""
        at = max(0, bisect_right(self._firsts, start) - 1)
        for chunk in self._chunks[at:]:
            yield from self._alive(chunk, bisect_left(chunk.offsets, start - chunk.first))

    def memory_bytes(self) -> int:
        """Roughly."""
        return sum(300 + 12 * len(one.offsets) for one in self._chunks) + bytes_of(self.known)

    def dump(self) -> tuple[bytes, bytes]:
        """The positions and their numbers, for `load`."""
        numbers = array(self._kind, (number for _, number in self.rows(0)))
        return bytes(self.known.serialize()), numbers.tobytes()

    def load(self, positions: bytes, numbers: bytes) -> None:
        """Raises: ValueError."""
        values = array(self._kind)
        values.frombytes(numbers)
        known = BitMap64.deserialize(positions)
        if len(known) != len(values):
            raise ValueError(f"{len(known)} positions have {len(values)} numbers")
        self.put(known, values)

    def check(self) -> None:
        """Asserts what is always true."""
        assert self._firsts == [chunk.first for chunk in self._chunks]
        assert len(self.known) == sum(chunk.alive for chunk in self._chunks)
        everything = [chunk.first + offset for chunk in self._chunks for offset in chunk.offsets]
        assert everything == sorted(set(everything))
        assert self.known.issubset(BitMap64(everything))
        for chunk in self._chunks:
            assert 0 < chunk.alive <= len(chunk.offsets) == len(chunk.numbers) <= 2 * CHUNK

    def _last(self) -> int:
        chunk = self._chunks[-1]
        return chunk.first + chunk.offsets[-1]

    def _append(self, pairs: list[tuple[int, int]]) -> None:
        """Rows after all others."""
        at = 0
        while at < len(pairs):
            chunk = self._chunks[-1] if self._chunks else None
            if chunk is None or len(chunk.offsets) >= CHUNK or pairs[at][0] - chunk.first > _FAR:
                chunk = self._open(len(self._chunks), pairs[at][0])
            some = pairs[at : at + CHUNK - len(chunk.offsets)]
            some = [pair for pair in some if pair[0] - chunk.first <= _FAR]
            self._fill(chunk, some)
            at += len(some)

    def _insert(self, position: int, number: int) -> None:
        """A row in between, or in place of one that was dropped."""
        at = bisect_right(self._firsts, position) - 1
        if at < 0 or position - self._firsts[at] > _FAR:
            at += 1
            self._open(at, position)
        chunk = self._chunks[at]
        if len(chunk.offsets) >= 2 * CHUNK:
            self._halve(at)
            self._insert(position, number)
            return
        offset = position - chunk.first
        row = bisect_left(chunk.offsets, offset)
        if row < len(chunk.offsets) and chunk.offsets[row] == offset:
            chunk.numbers[row] = number
        else:
            chunk.offsets.insert(row, offset)
            chunk.numbers.insert(row, number)
        chunk.alive += 1
        self.known.add(position)

    def _open(self, at: int, first: int) -> _Chunk:
        chunk = _Chunk(first, array("I"), array(self._kind), 0)
        self._chunks.insert(at, chunk)
        self._firsts.insert(at, first)
        return chunk

    def _fill(self, chunk: _Chunk, pairs: list[tuple[int, int]]) -> None:
        """Adds rows after those of the chunk."""
        chunk.offsets.extend([position - chunk.first for position, _ in pairs])
        chunk.numbers.extend([number for _, number in pairs])
        chunk.alive += len(pairs)

    def _alive(self, chunk: _Chunk, skip: int = 0) -> Iterator[tuple[int, int]]:
        """Position and number of the rows that were not dropped. skip: so many are left out."""
        for offset, number in zip(chunk.offsets[skip:], chunk.numbers[skip:], strict=True):
            position = chunk.first + offset
            if position in self.known:
                yield position, number

    def _halve(self, at: int) -> None:
        """Makes two chunks of one, without what was dropped."""
        rows = list(self._alive(self._chunks.pop(at)))
        del self._firsts[at]
        middle = len(rows) // 2
        for part in (rows[middle:], rows[:middle]):
            if part:
                self._fill(self._open(at, part[0][0]), part)

    def _compact(self, chunk: _Chunk) -> None:
        """Leaves out what was dropped."""
        rows = list(self._alive(chunk))
        chunk.offsets, chunk.numbers, chunk.alive = array("I"), array(self._kind), 0
        self._fill(chunk, rows)
