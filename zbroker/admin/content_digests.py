"""Digests of what a log holds of each origin, by ranges of positions at the origin. Pure.

    take(batches, serial)   what follows in a segment, in order; without bodies
    found                   a digest for each range of each origin that something was taken of

A message counts by its position at its origin, its publisher, its sequence and its content CRC, so
the same messages have the same digest on every instance, however their batches were cut. A tie says
that a message is here which has that origin, too: it counts there like the message.

The digest is the value of a polynomial at a point that the caller chooses: each message is a term
of its own, with its position as exponent, so digests of ranges can be added. Two different ranges
have the same digest with a probability of 2 ** -64, since neither of them knew the point.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from zbroker.ids import Origin
from zbroker.log.format import KIND_PUBLISH, KIND_TIE, Batch
from zbroker.log.reader import Cursor

PRIME: Final = (1 << 127) - 1
SEED_BYTES_MAX: Final = 32
_CONTENT: Final = struct.Struct("<Qqq")  # publisher, sequence - position, content CRC
_STEPS: Final = 1_024  # powers that are kept; most batches are shorter


class DigestScope(NamedTuple):
    """Only this origin, from position `first` up to `end`."""

    origin: Origin
    first: int
    end: int


class DigestedMessage(NamedTuple):
    """One message; crc -1: its content is not known, as of an old commit."""

    publisher: int
    sequence: int
    crc: int
    tie: bool
    position: int


@dataclass(slots=True)
class RangeDigest:
    """A range of an origin. first, last: positions there of its first and last message.

    at: where in this log the first of them is; until: the position here after the last of them.
    message: of a range with one position.
    """

    at: Cursor
    first: int
    last: int = 0
    until: int = 0
    messages: int = 0
    ties: int = 0
    value: int = 0
    message: DigestedMessage | None = None


class ContentDigests:
    """One walk over a log. size: positions of a range; ranges begin at its multiples."""

    def __init__(self, size: int, seed: bytes, only: DigestScope | None = None) -> None:
        self.found: dict[tuple[Origin, int], RangeDigest] = {}
        self._size = size
        self._seed = seed
        self._only = only
        digest = blake2b(b"point", digest_size=16, key=seed).digest()
        self._point = int.from_bytes(digest, "little") % (PRIME - 2) + 2
        self._inverse = pow(self._point - 1, -1, PRIME)
        self._steps = [1]
        for _ in range(_STEPS):
            self._steps.append(self._steps[-1] * self._point % PRIME)
        self._powers: dict[Origin, tuple[int, int]] = {}  # the newest position, and its power
        self._keys: dict[tuple[int, int, int], int] = {}

    def take(self, batches: Iterable[Batch], serial: int) -> None:
        """Counts the messages of these batches; everything else is passed over."""
        for batch in batches:
            if batch.kind == KIND_PUBLISH and batch.taken:
                self._take(batch, serial, batch.origin_position, batch.sequence, batch.taken)
            elif batch.kind == KIND_TIE:
                skip = batch.skip
                first, sequence = batch.origin_position - skip, batch.sequence - skip
                self._take(batch, serial, first, sequence, skip + 1)

    def _take(self, batch: Batch, serial: int, first: int, sequence: int, count: int) -> None:
        """Messages of a batch: at the origin they are from `first` on."""
        origin, end, only = batch.origin, first + count, self._only
        if not batch.origin_instance:
            return  # a log of before replication; no other instance can hold it
        begin = first
        if only is not None:
            if origin != only.origin:
                return
            begin, end = max(begin, only.first), min(end, only.end)
        while begin < end:
            upto = min(end, (begin // self._size + 1) * self._size)
            shift = sequence - first
            self._add(self._range(batch, serial, begin), batch, (begin, upto), shift)
            begin = upto

    def _range(self, batch: Batch, serial: int, begin: int) -> RangeDigest:
        key = (batch.origin, begin // self._size)
        found = self.found.get(key)
        if found is None:
            at = Cursor(serial, batch.offset, batch.position)
            found = self.found[key] = RangeDigest(at, begin)
        return found

    def _add(self, to: RangeDigest, batch: Batch, span: tuple[int, int], shift: int) -> None:
        (begin, end), origin, crc = span, batch.origin, batch.content_crc
        tie = batch.kind == KIND_TIE
        key = self._key(batch.publisher, shift, crc)
        power = self._power(origin, begin)
        after = power * self._step(end - begin) % PRIME
        self._powers[origin] = (end, after)
        to.value = (to.value + key * (after - power) * self._inverse) % PRIME
        to.messages += end - begin
        to.ties += (end - begin) * tie
        to.first, to.last = min(to.first, begin), max(to.last, end - 1)
        to.until = batch.end_position
        if self._size == 1:
            here = batch.position + (0 if tie else begin - batch.origin_position)
            to.message = DigestedMessage(batch.publisher, begin + shift, crc, tie, here)

    def _key(self, publisher: int, shift: int, crc: int) -> int:
        content = (publisher, shift, crc)
        found = self._keys.get(content)
        if found is None:
            if len(self._keys) >= _STEPS:
                self._keys.clear()
            packed = _CONTENT.pack(*content)
            digest = blake2b(packed, digest_size=16, key=self._seed).digest()
            found = self._keys[content] = int.from_bytes(digest, "little") % PRIME
        return found

    def _power(self, origin: Origin, position: int) -> int:
        """The point to this power, from the newest one of the origin if that is near."""
        before, power = self._powers.get(origin, (0, 1))
        if 0 <= position - before <= _STEPS:
            return power * self._steps[position - before] % PRIME
        return pow(self._point, position, PRIME)

    def _step(self, count: int) -> int:
        return self._steps[count] if count <= _STEPS else pow(self._point, count, PRIME)
