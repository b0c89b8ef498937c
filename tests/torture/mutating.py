"""Damages inputs the way disks, networks and enemies do; all of it from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

#: numbers at whose edges code is wrong: sizes, counts and offsets that are not what they say
EDGES: Final = tuple(
    number.to_bytes(width, order)  # type: ignore[arg-type]
    for width in (1, 2, 4, 8)
    for order in ("little", "big")
    for number in (0, 1, (1 << 8 * width - 1) - 1, 1 << 8 * width - 1, (1 << 8 * width) - 1)
)


def flip(data: bytearray, rng: random.Random) -> None:
    """One bit."""
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def garble(data: bytearray, rng: random.Random) -> None:
    """Some random bytes in place of others."""
    at = rng.randrange(len(data) + 1)
    size = min(rng.choice((1, 2, 4, 16)), len(data) - at)
    data[at : at + size] = rng.randbytes(size)


def edge(data: bytearray, rng: random.Random) -> None:
    """A number at an edge in place of another."""
    number = rng.choice(EDGES)
    if len(data) >= len(number):
        at = rng.randrange(len(data) - len(number) + 1)
        data[at : at + len(number)] = number


def cut(data: bytearray, rng: random.Random) -> None:
    """The rest is missing."""
    del data[rng.randrange(len(data) + 1) :]


def remove(data: bytearray, rng: random.Random) -> None:
    """A piece is missing, so everything after it is in another place."""
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 4, 8, 64))]


def insert(data: bytearray, rng: random.Random) -> None:
    """A piece too much: of itself, or of anything."""
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 4, 8, 64))
    start = rng.randrange(len(data) + 1)
    data[at:at] = data[start : start + size] if rng.random() < 0.5 else rng.randbytes(size)


MUTATIONS: Final[tuple[Callable[[bytearray, random.Random], None], ...]] = (
    flip, flip, flip, garble, edge, edge, edge, cut, remove, insert,
)  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to four mutations of `data`."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(MUTATIONS)(made, rng)
    return bytes(made)
