"""Payloads that look like the journal itself: never parsed as records, and never slow to get past.

The search after a damaged place meets whatever is there, also what a publisher put there to
be found: whole segment files, headers that announce sixteen megabytes, magic numbers without end.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable

import pytest

from tests.journal import build
from tests.sim.disk import SimDisk
from zbroker.limits import MIB
from zbroker.log.format import BATCH, BATCH_MAGIC, GROUP, GROUP_MAGIC, VERSION, Batch
from zbroker.log.segments import NOTE_FILE, segment_name

SEGMENT_BYTES = 8 * MIB
HOSTILE_BYTES = 1 * MIB  # a batch of the largest size
SLOW_S = 5.0  # of processor; who reads on from each hit takes minutes, in large segments hours


def batch_headers(length: int, step: int) -> bytes:
    """Nothing but starts of batch headers that say they are `length` bytes long."""
    head = BATCH_MAGIC + struct.pack("<HHI", VERSION, 1, length)
    return head.ljust(step, b"\0") * (HOSTILE_BYTES // step)


def whole_headers() -> bytes:
    """Batch headers that are right but for their checksum, one after the other."""
    fields = [BATCH_MAGIC, VERSION, 1, BATCH.size, 0, 0, 1, *([0] * 15)]
    fields[10] = 5  # a position to come
    return BATCH.pack(*fields) * (HOSTILE_BYTES // BATCH.size)


def group_headers(at: int) -> bytes:
    """Group headers at every place where one may be, each naming that very place."""
    made = bytearray(HOSTILE_BYTES)
    for offset in range(-at % 512, HOSTILE_BYTES - 512, 512):
        header = GROUP.pack(
            GROUP_MAGIC, VERSION, at + offset, 4 * MIB, 60_000, 9, 9, 99, 60_000, 0, 0
        )
        made[offset : offset + len(header)] = header
    return bytes(made)


#: what is published, given the offset at which it will be
HOSTILE: dict[str, Callable[[int], bytes]] = {
    "headers that announce 15 KiB": lambda _: batch_headers(15 * 1024, 16),
    "headers that announce 500 KiB": lambda _: batch_headers(500 * 1024, 16),
    "headers that announce 16 MiB": lambda _: batch_headers(16 * MIB, 16),
    "headers that announce all of the segment": lambda _: batch_headers(SEGMENT_BYTES, 128),
    "headers that announce 4 GiB": lambda _: batch_headers((1 << 32) - 8, 16),
    "headers without end": lambda _: whole_headers(),
    "group headers at their own offsets": group_headers,
    "magic numbers": lambda _: BATCH_MAGIC * (HOSTILE_BYTES // 4),
}


def log_with(
    bodies: list[Callable[[int], bytes]], unsynced: int = 0
) -> tuple[SimDisk, list[Batch]]:
    """Each in a group of its own between small ones; the last `unsynced` are not promised."""
    disk = SimDisk(random.Random(1))
    to = build.writer(disk, build.start(disk, segment_bytes=SEGMENT_BYTES), 0, SEGMENT_BYTES)
    made: list[Batch] = []
    for number, body in enumerate(bodies):
        sync = number < len(bodies) - unsynced
        made += build.append(to, b"small", sync=sync)
        made += build.append(to, body(to.end + 512 + 64 + 128), sync=sync)
    made += build.append(to, b"last", sync=not unsynced)
    disk.crash()
    return disk, made


def read(disk: SimDisk, end: int, made: list[Batch], lost: set[int]) -> None:
    """Everything but what was damaged, byte for byte."""
    found = build.read_all(disk, end)
    expected = [batch for batch in made if batch.position < end and batch.position not in lost]
    got = [item for item in found if isinstance(item, Batch)]
    assert [(b.position, bytes(b.body)) for b in got] == [(b.position, b.body) for b in expected]
    gaps = {p for first, last in build.gaps(found) for p in range(first, last)}
    assert gaps == lost


def start(disk: SimDisk) -> int:
    return build.start(disk, segment_bytes=SEGMENT_BYTES).next_position


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_payloads_do_not_slow_a_start_after_damage(kind: str) -> None:
    """The batch header in front of each is damaged, so its body is searched for what follows."""
    disk, made = log_with([HOSTILE[kind]])
    for batch in made[1::2]:
        disk.flip(segment_name(1), batch.offset + 40)
    begun = time.process_time()
    end = start(disk)
    assert end == len(made) + 1
    read(disk, end, made, {batch.position for batch in made[1::2]})
    assert time.process_time() - begun < SLOW_S


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_payloads_do_not_slow_a_start_with_a_torn_tail(kind: str) -> None:
    disk, made = log_with([HOSTILE[kind]] * 2, unsynced=1)
    disk.flip(segment_name(1), made[2].offset)
    disk.flip(segment_name(1), made[3].offset)
    begun = time.process_time()
    end = start(disk)
    assert end == made[2].position
    read(disk, end, made, set())
    assert time.process_time() - begun < SLOW_S


def copies(align: int) -> tuple[SimDisk, list[Batch]]:
    """A log whose messages are copies of a whole journal file, at every kind of offset."""
    old, _, _ = build.history(12)
    foreign = old.content(segment_name(1))
    return log_with([lambda _: bytes(align) + foreign for _ in range(3)])


@pytest.mark.parametrize("align", [0, 8, 56, 320, 512 - 192, 1])
def test_a_journal_in_a_payload_is_a_payload(align: int) -> None:
    disk, made = copies(align)
    end = start(disk)
    assert end == len(made) + 1
    read(disk, end, made, set())


@pytest.mark.parametrize("align", [0, 8, 56, 320, 512 - 192, 1])
@pytest.mark.parametrize("at", [0, 40, -64, -24])
def test_a_journal_in_a_payload_after_damage_is_no_record(align: int, at: int) -> None:
    """The header of its batch is damaged, or that of its group: the search meets the copy."""
    disk, made = copies(align)
    for batch in made[1::2]:
        disk.flip(segment_name(1), batch.offset + at)
    end = start(disk)
    assert end == len(made) + 1
    lost = {batch.position for batch in made[1::2]} if at >= 0 else set()
    read(disk, end, made, lost)


def test_a_copy_of_the_segment_itself_is_no_record() -> None:
    """Same salt, same instance: only the offsets are others."""
    disk = SimDisk(random.Random(1))
    to = build.writer(disk, build.start(disk, segment_bytes=SEGMENT_BYTES), 0, SEGMENT_BYTES)
    made = [batch for n in range(10) for batch in build.append(to, b"message %d" % n * 30)]
    for _ in range(3):
        own = disk.content(segment_name(1))[: to.end]
        made += build.append(to, own, b"behind it")
    disk.crash()
    for batch in made[10::2]:
        disk.flip(segment_name(1), batch.offset + 40)
    end = start(disk)
    assert end == len(made) + 1
    read(disk, end, made, {batch.position for batch in made[10::2]})


def test_a_copy_of_the_segment_where_the_segment_is_torn_is_no_record() -> None:
    """A payload that a power cut left in part, with a copy of the log's own groups in it."""
    disk = SimDisk(random.Random(1))
    to = build.writer(disk, build.start(disk, segment_bytes=SEGMENT_BYTES), 0, SEGMENT_BYTES)
    made = [batch for n in range(10) for batch in build.append(to, b"message %d" % n * 30)]
    note = disk.content(NOTE_FILE)
    (torn,) = build.append(to, disk.content(segment_name(1))[: to.end] * 3, sync=False)
    disk.crash()
    disk.damage(segment_name(1), torn.offset - 64, bytes(512))
    assert disk.content(NOTE_FILE) == note
    end = start(disk)
    assert end == torn.position
    read(disk, end, made, set())
