"""A log whose every byte has a known meaning, so that damage can be aimed and judged.

`Layout` says what is where: segment headers, group headers, batch headers, bodies, and the
padding between them, whose damage harms no one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.sim.disk import SimDisk
from tests.torture.engine import NAMES, Acked, Engine, Judged, judge, play
from zbroker.log.format import (
    DATA_AT,
    GROUP,
    HEADER_COPY_AT,
    SEGMENT,
    Batch,
    GroupHeader,
    SegmentHeader,
    decode_batch_header,
    decode_group_header,
)
from zbroker.log.segments import list_segments, read_header, segment_name

KINDS: Final = ("segment header", "group header", "batch header", "body", "padding")


class Place(NamedTuple):
    """Bytes [start, end) of one segment, what they are, and the positions that they carry."""

    serial: int
    start: int
    end: int
    kind: str
    first: int = 0
    last: int = 0  # exclusive; 0, 0 where damage costs no position


@dataclass(slots=True)
class Layout:
    """A whole log: its files, what is in them, and what it promised."""

    files: dict[str, bytes]
    places: list[Place]
    acked: Acked
    end: int  # position
    data_end: int  # offset in the open segment
    serial: int  # of the open segment

    def of(self, kind: str) -> list[Place]:
        """All places of one kind."""
        return [place for place in self.places if place.kind == kind]


def make(rounds: int, seed: int, unsynced: int = 0) -> Layout:
    """A log of `rounds`, then `unsynced` more groups that are written and never promised."""
    disk = SimDisk(random.Random(seed))
    salts = random.Random(seed)
    engine = Engine(disk, salt=lambda: salts.getrandbits(64))
    play(engine, rounds, lambda _: None)
    acked, end = dict(engine.acked), engine.writer.synced
    engine.logon()
    for number in range(unsynced):
        engine.publish(NAMES[number % len(NAMES)], 2)
        engine.write_unsynced()
    files = {name: disk.content(name) for name, _ in disk.list()}
    places = [place for number, _ in list_segments(disk) for place in _places(disk, number)]
    return Layout(files, places, acked, end, engine.writer.end, engine.writer.serial)


def _places(disk: SimDisk, serial: int) -> Iterator[Place]:
    header = read_header(disk, serial)
    assert isinstance(header, SegmentHeader)
    data = disk.content(segment_name(serial))
    for copy in (0, HEADER_COPY_AT):
        yield Place(serial, copy, copy + SEGMENT.size, "segment header")
        yield Place(serial, copy + SEGMENT.size, copy + HEADER_COPY_AT, "padding")
    offset = DATA_AT
    while isinstance(group := decode_group_header(data, offset, offset), GroupHeader):
        yield from _group(serial, data, header, group)
        offset = group.end_offset


def _group(serial: int, data: bytes, header: SegmentHeader, group: GroupHeader) -> Iterator[Place]:
    yield Place(serial, group.offset, group.offset + GROUP.size, "group header")
    at = group.offset + 64
    yield Place(serial, group.offset + GROUP.size, at, "padding")
    for _ in range(group.batches):
        batch = decode_batch_header(data, at, at, header.seed)
        assert isinstance(batch, Batch), batch
        where = batch.position, batch.end_position
        body = at + batch.header_length
        yield Place(serial, at, body, "batch header", *where)
        yield Place(serial, body, body + batch.body_length, "body", *where)
        yield Place(serial, body + batch.body_length, batch.end_offset, "padding")
        at = batch.end_offset
    yield Place(serial, at, group.end_offset, "padding")


def plant(layout: Layout, changed: dict[str, bytes]) -> SimDisk:
    """A disk with the log's files, some of them changed."""
    disk = SimDisk(random.Random(1))
    for name, content in {**layout.files, **changed}.items():
        disk.plant(name, content)
    return disk


def flipped(content: bytes, offset: int, bit: int) -> bytes:
    """One bit is another."""
    data = bytearray(content)
    data[offset] ^= 1 << bit
    return bytes(data)


def aim(layout: Layout, rng: random.Random, kind: str) -> tuple[Place, int, int]:
    """A place of this kind, an offset in it, a bit."""
    places = [place for place in layout.of(kind) if place.end > place.start]
    place = rng.choice(places)
    return place, rng.randrange(place.start, place.end), rng.randrange(8)


def served(disk: SimDisk, end: int) -> tuple[Judged, list[tuple[int, int]]]:
    """What a replay gives (every byte is compared), and the bounds of its gaps, merged."""
    found = judge(disk, end)
    merged: list[tuple[int, int]] = []
    for gap in found.gaps:
        if merged and merged[-1][1] == gap.first:
            merged[-1] = (merged[-1][0], gap.end)
        else:
            merged.append((gap.first, gap.end))
    return found, merged
